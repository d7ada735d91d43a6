package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

// yield handles jobs whose agents wait for a world that does not form. A job without enough places gives up those that it holds
// if another job can use them, and queues again by its age: two jobs that each hold half of what there is must not wait for
// each other forever.
func (p *pass) yield() {
	var stalled []*work
	for _, w := range p.servingOrder {
		if p.about(w) && w.part == nil && p.timedOut(w) && w.unplaced() != nil {
			stalled = append(stalled, w)
		}
	}
	for _, w := range slices.Backward(stalled) {
		if p.giveWay(w) {
			return // this may be all that the next job needs
		}
	}
}

// timedOut reports whether the job's agents have waited for a world longer than the rendezvous timeout. The first pass that
// finds so records an incident.
func (p *pass) timedOut(w *work) bool {
	since := w.waitingSince()
	timeout := w.spec.Rendezvous.Timeout.Std()
	if since.IsZero() || timeout == 0 {
		return false
	}
	if p.pending(since, timeout) || p.in.Now.Before(since) {
		return false
	}
	known := slices.ContainsFunc(w.rec.Incidents, func(i job.Incident) bool {
		return (i.Cause == job.RendezvousTimeout || i.Cause == job.LaunchFailed) && !i.Time.Before(since)
	})
	if !known {
		p.addIncident(w, w.timeoutIncident(p.in.Now))
		p.decided(w, job.WaitCapacity)
	}
	return true
}

// addIncident adds an incident that no slot's fault is.
func (p *pass) addIncident(w *work, i job.Incident) {
	log := incident.Log{Incidents: slices.Clone(w.rec.Incidents)}
	log.Add(i)
	w.rec.Incidents, p.out.Dirty = log.Incidents, true
}

// waitingSince is when the last of the ranked slots registered, or when the job was resumed; zero if none is registered, if one runs
// or is about to be restarted, or if the job is suspended.
func (w *work) waitingSince() time.Time {
	var last time.Time
	if w.rec.Phase == job.JobSuspended {
		return last
	}
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if role == nil || !role.Ranked {
			continue
		}
		switch s.Phase {
		case job.Running, job.Succeeded, job.Suspect, job.Failing:
			return time.Time{}
		case job.Registered:
			if s.Since.After(last) {
				last = s.Since
			}
		}
	}
	return last
}

// timeoutIncident names the slots that the world waits for.
func (w *work) timeoutIncident(now time.Time) job.Incident {
	i := job.Incident{Time: now, Cause: job.RendezvousTimeout, Confidence: 1,
		Evidence: []job.Reason{job.Because(NoWorldFormed, "timeout", w.spec.Rendezvous.Timeout.String())}}
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if role == nil || !role.Ranked || !holds(s) || s.Phase == job.Registered {
			continue
		}
		i.Culprits = append(i.Culprits, s.Address)
		if len(i.Evidence) > tailShown {
			continue
		}
		why := job.Because(AgentNotThere, "slot", s.Address.Short())
		if inc := w.current(s); inc != nil && inc.Waiting != "" {
			why = job.Because(NotStarting, "slot", s.Address.Short(), "message", inc.Waiting)
		} else if s.Node == "" {
			why = job.Because(NoPlace, "slot", s.Address.Short())
		}
		i.Evidence = append(i.Evidence, why)
	}
	return i
}

// unplaced lists the slots that are to run and have neither a place nor the promise of one.
func (w *work) unplaced() []*job.Slot {
	var slots []*job.Slot
	for _, s := range w.slots {
		if holds(s) && !w.placed(s) {
			slots = append(slots, s)
		}
	}
	return slots
}

// giveWay stops all slots of w if this makes another job fit that does not fit now.
//
// After a slot of a role has succeeded nothing starts in the role: what still runs there runs to its end.
func (p *pass) giveWay(w *work) bool {
	sp := p.space(w.spec.Provider)
	yielding := slices.DeleteFunc(slices.Clone(w.slots), func(s *job.Slot) bool { return !holds(s) || w.succeeded(s.Address.Role) })
	for _, other := range p.servingOrder {
		if other == w || other.rest != nil || other.spec.Provider != w.spec.Provider || !p.refused(other).IsZero() {
			continue
		}
		lacks := p.lacks(other)
		if len(lacks) == 0 || sp.takes(lacks) {
			continue
		}
		for _, s := range yielding {
			sp.leave(s)
		}
		if sp.takes(lacks) {
			why := job.Because(GivesWay, "job", other.name)
			for _, s := range yielding {
				w.because(s, why)
				p.cancel(w, s)
			}
			return true
		}
		for _, s := range yielding {
			sp.retake(s)
		}
	}
	return false
}

// lacks lists the slots that a job waits to place: its whole min, or those that lost their place.
func (p *pass) lacks(w *work) []*job.Slot {
	if w.admitted() {
		return w.unplaced()
	}
	gang, missing := p.gang(w)
	if missing > 0 || !w.within(gang) {
		return nil
	}
	return gang
}

// takes reports whether the slots fit on what is or soon will be free.
func (sp *space) takes(slots []*job.Slot) bool {
	t := &txn{sp: sp}
	fit := t.putAll(slots)
	t.undo()
	return fit
}
