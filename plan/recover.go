package plan

import (
	"github.com/eltrain/eltrain/job"
)

func unplaced(s *job.Slot) bool { return s.Node == "" }

// recover places slots that lost their place, ahead of all new work: first where they were, else elsewhere.
func (p *pass) recover() {
	for _, w := range p.servingOrder {
		if !p.about(w) {
			continue
		}
		sp := p.space(w.spec.Provider)
		for _, s := range w.slots {
			if w.outside(s.Address) {
				continue
			}
			if s.Node == "" && (s.Phase == job.Canceling && s.Return || s.Phase == job.Failing) {
				p.keepPlace(w, sp, s)
				continue
			}
			if s.Node != "" || w.bound(s) || !holds(s) || s.Phase != job.Pending && !startedPhase(s) {
				continue
			}
			if role := w.spec.Role(s.Address.Role); role == nil || w.succeeded(role.Name) {
				continue
			}
			t := &txn{sp: sp}
			if !t.put(s, s.Reserved, w.on(s).prefer, s.Avoid, false) {
				if s.Phase == job.Scheduling && !w.launched(s) && p.step(s, job.Evicted) {
					s.Recover = true
				}
				if t.put(s, s.Reserved, w.on(s).prefer, s.Avoid, true) {
					w.on(s).promised = t.taken[0].at.node.Name
				}
				continue
			}
			s.Node = t.taken[0].at.node.Name
			p.out.Dirty = true
			if w.launched(s) {
				continue // only its hint has changed
			}
			if s.Phase == job.Pending {
				p.begin(s)
			}
			p.decided(w, job.Replace)
		}
	}
}

// keepPlace holds a place for a slot that returns once it has stopped or its next start is due: no other slot gets it
// meanwhile.
func (p *pass) keepPlace(w *work, sp *space, s *job.Slot) {
	if w.succeeded(s.Address.Role) {
		return
	}
	if t := (&txn{sp: sp}); t.put(s, s.Reserved, "", s.Avoid, true) {
		w.on(s).promised = t.taken[0].at.node.Name
	}
}

// begin grants a slot its next incarnation.
func (p *pass) begin(s *job.Slot) {
	if !p.step(s, job.Granted) {
		return
	}
	s.Incarnation++ // a number is used once, even if its incarnation may never have run
	s.InPlace = 0
}

// placed reports whether a slot that holds has a place, or needs none yet because its next start is delayed. A slot that is
// still being stopped already needs one, so that a plan says what happens to it. A slot whose agent is in contact has one: the
// scheduler's binding is observed in a moment.
func (w *work) placed(s *job.Slot) bool {
	return w.promisedTo(s) != "" || !unplaced(s) || s.Phase == job.Failing || w.bound(s) || w.launched(s) && inContact(w.current(s))
}

// makeRoom shrinks or preempts other jobs, as for a new job, for the slots that a role needs to reach its min; otherwise it waits.
func (p *pass) makeRoom(w *work, r *job.Role, unplaced []*job.Slot, lacking int) {
	t := &txn{sp: p.space(w.spec.Provider)}
	needs := unplaced[:min(max(lacking, 0), len(unplaced))]
	if lacking > 0 && (p.fitByShrinking(t, w, needs) || p.fitByPreempting(t, w, needs)) {
		for _, x := range t.taken {
			w.on(x.slot).promised = x.at.node.Name
		}
		return
	}
	if lacking > 0 {
		unplaced = needs
	}
	p.addWait(w, r.Name, p.noRoomYet(w, unplaced))
	p.decided(w, job.WaitCapacity)
}
