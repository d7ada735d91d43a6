package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// judge sets the job's phase and counts.
func (p *pass) judge(w *work) {
	p.reportIncidents(w)
	if w.declared && w.rec.Counts != nil {
		for i := range w.spec.Roles {
			name := w.spec.Roles[i].Name
			n := len(w.heldSlots(name))
			if w.rec.Counts[name] != n {
				w.rec.Counts[name] = n
				p.out.Dirty = true
			}
			p.size(w, &w.spec.Roles[i], n)
		}
		p.addCaveats(w)
	}
	phase, awaits := w.phase(), job.Reason{}
	if phase == job.JobRunning {
		if awaits = w.firstStepDue(); !awaits.IsZero() {
			if phase = job.JobStarting; w.rec.Phase == job.JobDegraded || w.followsFault() {
				phase = job.JobDegraded // it has not recovered before it trains
			}
		}
	}
	if phase == job.JobRunning && (!p.in.Withheld[w.name].IsZero() || p.refusedJobs[w.name]) {
		phase = job.JobDegraded
	}
	if !awaits.Equal(w.rec.Awaits) {
		w.rec.Awaits = awaits
		p.out.Dirty = true
	}
	if phase != w.rec.Phase {
		if w.rec.Phase == job.JobSuspended {
			w.waitAnew(p.in.Now)
		}
		if !phase.Ended() {
			p.note("job."+w.name, "job_phase", entered(phase))
		}
		w.rec.Phase = phase
		p.out.Dirty = true
	}
	p.account(w)
}

// addCaveats adds what the provider of a job that is to run cannot enforce.
func (p *pass) addCaveats(w *work) {
	if !w.active() {
		return
	}
	for _, caveat := range p.in.Capabilities[w.spec.Provider].Caveats {
		if !slices.Contains(p.out.Caveats, caveat) {
			p.out.Caveats = append(p.out.Caveats, caveat)
		}
	}
}

// waitAnew has the slots of a job that is resumed wait for their world from now on.
func (w *work) waitAnew(now time.Time) {
	for _, s := range w.slots {
		if s.Phase == job.Registered {
			s.Since = now
		}
	}
}

func entered(phase job.JobPhase) job.Reason { return job.Because(PhaseEntered, "phase", string(phase)) }

// phase is the job's phase by its slots and its world, whether or not that has shown a step.
func (w *work) phase() job.JobPhase {
	if w.rec.Phase.Ended() || !w.declared {
		return w.rec.Phase
	}
	switch {
	case w.suspended() && w.live(),
		w.idle() && slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Running || s.Phase == job.Suspect }):
		return w.rec.Phase // until all have stopped
	case w.resting():
		return job.JobSuspended
	case !w.admitted():
		return job.JobPending
	}
	running, unhealthy, all := 0, w.brokenByFault(), true
	for _, s := range w.slots {
		switch {
		case s.Phase == job.Running || s.Phase == job.Succeeded:
			running++
		case s.Phase == job.Failing || s.Phase == job.Suspect || s.Phase == job.Lost || s.Recover && holds(s):
			unhealthy, all = true, false
		case holds(s):
			all = all && w.dispensable(s) // starting: for the first time, or because the job grows
			_, left := w.member(s.Address)
			unhealthy = unhealthy || left && w.world.Broken && s.Phase != job.Registered
		}
	}
	young := w.rec.Phase == job.JobPending || w.rec.Phase == job.JobSuspended || w.rec.Phase == job.JobStarting && !w.brokenByFault()
	switch {
	case w.ranked() && w.world.Generation == 0, young && (!all || running == 0):
		return job.JobStarting
	case unhealthy || w.missing(), w.rec.Phase == job.JobDegraded && w.ranked() && w.world.Broken: // until its next world has formed
		return job.JobDegraded
	}
	return job.JobRunning
}

// dispensable reports whether the job trains without a slot that its infrastructure keeps waiting, maybe forever.
func (w *work) dispensable(s *job.Slot) bool {
	role, inc := w.spec.Role(s.Address.Role), w.current(s)
	trains := w.world.Generation > 0 && !w.world.Broken
	return trains && s.Phase == job.Scheduling && role != nil && role.Scaling != nil && inc != nil && inc.Waiting != ""
}

// brokenByFault reports whether an incident broke the world, rather than scaling or an edit.
func (w *work) brokenByFault() bool {
	i := w.newestIncident()
	return w.world.Broken && i != nil && i.Generation == w.world.Generation
}

// followsFault reports whether an incident broke the world before this one, which the job was Running with in the last pass.
func (w *work) followsFault() bool {
	n, before := len(w.rec.Incidents), w.rec.Goodput.Open.Generation
	return n > 0 && before > 0 && before < w.world.Generation && w.rec.Incidents[n-1].Generation == before
}

// missing reports whether a fixed role has too few slots.
func (w *work) missing() bool {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if len(w.heldSlots(r.Name)) < w.sizes(r).Min {
			return true
		}
	}
	return false
}

// newestSaved is the newest checkpoint that is recorded or that members report.
func (w *work) newestSaved() job.Saved {
	newest := w.rec.Goodput.Saved
	for _, seen := range w.seen {
		for _, inc := range seen {
			if inc.Member != nil {
				newest = newest.Newest(inc.Member.Saved)
			}
		}
	}
	return newest
}

// keepSaved records the newest checkpoint that members report. While a world trains its members remember it, so that a steady
// state writes nothing.
func (p *pass) keepSaved(w *work) {
	newest := w.newestSaved()
	if newest != w.rec.Goodput.Saved {
		w.rec.Goodput.Saved = newest
		p.out.Dirty = true
	}
}
