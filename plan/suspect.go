package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

const (
	// mostSuspects bounds how many slots an incident names of a world in which none stands out.
	mostSuspects = 64
	// killGrace is how long processes may take to end that are killed. One that takes longer is stuck in the kernel, and its slot
	// continues without it.
	killGrace = 10 * time.Second
)

// suspect makes faults of what detection is certain of, and of a loss that is not finite. A suspicion is about the world that
// trains: once its world has ended it is over.
func (p *pass) suspect(w *work) {
	if !w.active() || w.idle() || w.world.Generation == 0 {
		return
	}
	if w.world.Broken || w.world.Generation <= w.rec.Kill.Through {
		return
	}
	for _, s := range append(p.in.Snapshot.Suspicions[w.name], w.notFinite()...) {
		switch at := s.Notable(); {
		case s.Generation != w.world.Generation:
		case s.Certain:
			p.noteSuspicion(w, s)
		case s.Cause == job.Hang && p.in.Now.Before(at): // then it is a condition
			p.wakeAt(at)
		}
	}
}

// notFinite is the suspicion of the members whose loss is not finite; none if there are none, or if nothing is to be done about it:
// that it is not finite is a condition.
func (w *work) notFinite() (found []job.Suspicion) {
	if w.policy(job.NaNLoss).Action == job.RemedyReport {
		return nil
	}
	s := job.Suspicion{Cause: job.NaNLoss, Generation: w.world.Generation, Certain: true}
	for _, m := range w.world.Members {
		slot := w.index[m.Slot.Role][m.Slot.Index]
		if slot == nil {
			continue
		}
		inc := w.current(slot)
		if inc == nil || inc.Member == nil || inc.Member.Generation != s.Generation {
			continue
		}
		if _, value := inc.Member.Loss.Finite(); value != "" {
			s.Slots = append(s.Slots, m.Slot)
			s.Evidence = append(s.Evidence, job.Because(NaNLoss, "slot", m.Slot.Short(), "value", value))
		}
	}
	if len(s.Slots) == 0 {
		return nil
	}
	return []job.Suspicion{s}
}

// noteSuspicion notes a fault of each slot that a suspicion names and that trains in its world. The first has the evidence.
func (p *pass) noteSuspicion(w *work, s job.Suspicion) {
	reported := w.policy(s.Cause).Action == job.RemedyReport
	if why := w.costsMore(s); !reported && !why.IsZero() {
		reported, s.Evidence = true, append(slices.Clip(s.Evidence), why)
	}
	named := 0
	for _, a := range s.Slots {
		slot := w.index[a.Role][a.Index]
		if slot == nil || w.outside(a) || w.finished[a.Role] || p.generationOf(w, slot) == 0 || named == mostSuspects {
			continue
		}
		alike := len(s.Ranks) == 0 && s.Cause != job.NaNLoss
		f := incident.Fault{Generation: s.Generation, Reported: reported,
			SlotFault: job.SlotFault{Slot: a, Cause: s.Cause, At: s.Since, Step: w.newestStep(), Alike: alike}}
		if named == 0 {
			f.Evidence = s.Evidence
		}
		named++
		if f.Reported && w.isReported(f) {
			continue
		}
		p.noteFault(w, f)
		if !f.Reported {
			w.suspected = append(w.suspected, suspect{slot, s.Cause, !alike})
		}
	}
}

// costsMore says that a restart because of a straggler costs more than it gains until the end of the training; zero if it pays, or if the
// time left is not known.
func (w *work) costsMore(s job.Suspicion) job.Reason {
	if s.Cause != job.Straggler {
		return job.Reason{}
	}
	now := w.progress()
	total := w.totalSteps()
	if now.rate <= 0 || total <= now.newest {
		return job.Reason{}
	}
	saved := w.newestSaved().Step
	if saved > now.newest {
		saved = now.newest
	}
	seconds := func(s float64) string {
		return job.Duration(time.Duration(s * float64(time.Second)).Round(time.Second)).String()
	}
	gain := s.Cost * float64(total-now.newest) / now.rate
	cost := float64(now.newest-saved) / now.rate
	if !w.world.FirstStep.IsZero() {
		cost += w.world.FirstStep.Sub(w.world.Formed).Seconds()
	}
	if gain > cost {
		return job.Reason{}
	}
	return job.Because(RestartCostsMore, "gain", seconds(gain), "cost", seconds(cost))
}

// totalSteps is how many steps the training has in all, as a member says; 0 if unknown.
func (w *work) totalSteps() (total int64) {
	for _, m := range w.world.Members {
		for _, inc := range w.seen[m.Slot] {
			if inc.Member == nil || inc.Number != m.Incarnation {
				continue
			}
			for _, r := range inc.Member.Ranks {
				if r.Progress != nil && r.Progress.Total != nil {
					total = max(total, *r.Progress.Total)
				}
			}
		}
	}
	return total
}

// isReported reports whether an incident has a fault that is only reported.
func (w *work) isReported(f incident.Fault) bool {
	return slices.ContainsFunc(w.rec.Incidents, func(i job.Incident) bool {
		return i.Action == job.Report && i.Generation == f.Generation && i.Cause == f.Cause && slices.Contains(i.Culprits, f.Slot)
	})
}

// suspect is a slot about which something is to be done though its processes run.
type suspect struct {
	slot   *job.Slot
	cause  job.Cause
	stands bool // it stands out among the others
}

// endWorld ends a world at once that has suspects: its processes are killed, and the next world forms of the same agents. The
// slots of suspects that are to go elsewhere fail.
func (p *pass) endWorld(w *work) {
	if len(w.suspected) == 0 || p.suspectsFail(w) || p.overBudget(w) {
		return
	}
	w.rec.Kill = job.Kill{Through: w.world.Generation, At: p.in.Now}
	p.out.Dirty = true
	for _, x := range w.suspected {
		x.slot.Cause, x.slot.Exit = x.cause, nil
		elsewhere := x.stands && w.policy(x.cause).For(w.rec.Incidents, x.cause, x.slot.Address, p.in.Now) == job.RemedyReplace
		if elsewhere && p.otherNode(w, x.slot) && p.step(x.slot, job.Fault) {
			continue // heal replaces it
		}
		x.slot.Restarts++
		w.noteRepair(x.slot)
		w.because(x.slot, p.why(lost(x.slot)))
		w.on(x.slot).restarts = true
	}
	p.decided(w, job.RestartInPlace)
}

// suspectsFail fails the job if that is what is to be done about a suspect.
func (p *pass) suspectsFail(w *work) bool {
	for _, x := range w.suspected {
		if why := p.whyFailing(w, x.slot, x.cause); !why.IsZero() {
			p.failJob(w, why)
			return true
		}
	}
	return false
}

// outlives reports whether a member's processes still run in the world although they were killed.
func (p *pass) outlives(w *work, s *job.Slot, m *job.Member) bool {
	in := p.generationOf(w, s)
	return in > 0 && m.Generation == in && in <= w.rec.Kill.Through && !p.pending(w.rec.Kill.At, killGrace)
}
