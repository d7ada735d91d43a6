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
		if c := p.in.Capabilities[w.spec.Provider]; w.active() {
			for _, caveat := range c.Caveats {
				if !slices.Contains(p.out.Caveats, caveat) {
					p.out.Caveats = append(p.out.Caveats, caveat)
				}
			}
		}
	}
	phase := w.phase()
	if phase == job.JobRunning && (!p.in.Withheld[w.name].IsZero() || p.refusedJobs[w.name]) {
		phase = job.JobDegraded
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

// waitAnew has the slots of a job that is resumed wait for their world from now on.
func (w *work) waitAnew(now time.Time) {
	for _, s := range w.slots {
		if s.Phase == job.Registered {
			s.Since = now
		}
	}
}

func entered(phase job.JobPhase) job.Reason { return job.Because(PhaseEntered, "phase", string(phase)) }

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
	young := w.rec.Phase == job.JobPending || w.rec.Phase == job.JobSuspended || w.rec.Phase == job.JobStarting
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

// account updates the goodput ledger: the time since the last entry counts for the mode of that entry.
func (p *pass) account(w *work) {
	mode := w.mode()
	g := &w.rec.Goodput
	if mode != "productive" || g.Mode != mode {
		p.keepSaved(w)
	}
	if mode == g.Mode {
		return
	}
	was, before := g.Mode, g.Productive
	if end := w.worldEnd(); was == "productive" && end.After(g.At) && end.Before(p.in.Now) {
		*g = g.Until(end) // there was no master; the time after end was not training
		g.Mode = mode
	}
	*g = g.Until(p.in.Now)
	if was == "productive" {
		w.redo(g, g.Productive-before)
	}
	g.Mode = mode
	p.out.Dirty = true
}

// worldEnd is when the job stopped training, by its hosts' clocks, from exit reports or error files: for a job that succeeded,
// when the last slot did; else the first exit among this pass's faults. It is zero if unknown.
func (w *work) worldEnd() (end time.Time) {
	if w.rec.Phase != job.JobSucceeded {
		for _, f := range w.faults {
			if !f.At.IsZero() && (end.IsZero() || f.At.Before(end)) {
				end = f.At
			}
		}
		return end
	}
	for _, s := range w.slots {
		exit := w.exitOf(s)
		switch {
		case s.Phase != job.Succeeded:
			continue
		case exit == nil || exit.At.IsZero():
			return time.Time{}
		case exit.At.After(end):
			end = exit.At
		}
	}
	return end
}

// exitOf is how the slot's incarnation exited, according to its agent or else its provider; nil if unknown.
func (w *work) exitOf(s *job.Slot) *job.Exit {
	inc := w.current(s)
	switch {
	case inc == nil:
		return nil
	case inc.Member != nil && inc.Member.Exit != nil:
		return inc.Member.Exit
	}
	return inc.Exit
}

// keepSaved records the newest checkpoint that members report. While a world trains its members remember it, so that a steady
// state writes nothing.
func (p *pass) keepSaved(w *work) {
	newest := w.rec.Goodput.Saved
	for _, seen := range w.seen {
		for _, inc := range seen {
			if inc.Member != nil {
				newest = newest.Newest(inc.Member.Saved)
			}
		}
	}
	if newest != w.rec.Goodput.Saved {
		w.rec.Goodput.Saved = newest
		p.out.Dirty = true
	}
}

// redo moves time spent on steps that had been done before from productive to lost. spent is the productive time that just
// ended, in seconds. A world resumed at the first step that it printed.
func (w *work) redo(g *job.Goodput, spent float64) {
	var first, last int64
	var rate float64
	for _, s := range w.slots {
		for _, inc := range w.seen[s.Address] {
			m := inc.Member
			if m == nil || m.Generation != w.world.Generation || m.Step <= last {
				continue
			}
			first, last, rate = m.FirstStep, m.Step, m.StepRate
		}
	}
	if again := min(g.Reached, last) - first; again > 0 && rate > 0 {
		seconds := min(float64(again)/rate, spent)
		g.Productive -= seconds
		g.Lost.RedoneSteps += seconds
	}
	g.Reached = max(g.Reached, last)
}

func (w *work) mode() string {
	switch w.rec.Phase {
	case job.JobRunning:
		if w.ranked() && w.world.Broken {
			return "restart" // a planned restart
		}
		return "productive"
	case job.JobPending:
		return "scheduling"
	case job.JobStarting:
		if slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Scheduling }) {
			return "scheduling"
		}
		return "rendezvous"
	case job.JobDegraded:
		if w.world.Generation > 0 && !w.world.Broken {
			return "productive" // it trains, with fewer slots than it should have
		}
		if slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return holds(s) && s.Phase == job.Pending }) {
			return "scheduling"
		}
		return "restart"
	}
	return ""
}
