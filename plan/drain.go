package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// drain moves slots off drained nodes: each is stopped with a checkpoint and started again where there is room, all of a job's
// together, so that its world forms once. Without room, an elastic role gives up what it has above its min; the rest stays, and
// a Wait says so.
func (p *pass) drain() {
	for _, w := range p.servingOrder {
		if !p.about(w) {
			continue
		}
		leaving := p.onDrained(w)
		if len(leaving) == 0 || p.heldReason(w) != "" {
			continue
		}
		t := &txn{sp: p.space(w.spec.Provider)}
		unplaced := t.putSome(leaving)
		if p.giveUp(w, unplaced) {
			t.undo()
			unplaced = t.putSome(p.onDrained(w))
		}
		if t.now() {
			p.move(w, t)
		} // else the places are reserved, and the slots move once these are free
		if len(unplaced) > 0 {
			p.addWait(w, "", p.stuckOn(unplaced))
		}
	}
}

// onDrained lists the job's slots that are on drained nodes and may start again, in the order in which they are given up. A
// slot whose agent is silent cannot save a checkpoint: its lease decides.
func (p *pass) onDrained(w *work) []*job.Slot {
	sp := p.space(w.spec.Provider)
	if !sp.drained {
		return nil
	}
	var slots []*job.Slot
	for _, s := range w.slots {
		pl := sp.byName[s.Node]
		if pl == nil || !pl.draining() || !startedPhase(s) || s.Phase == job.Suspect || p.hinted(w, s) || w.outside(s.Address) {
			continue
		}
		if role := w.spec.Role(s.Address.Role); role != nil && !w.succeeded(role.Name) {
			slots = append(slots, s)
		}
	}
	slices.SortStableFunc(slots, victimOrder)
	return slots
}

// putSome places the slots that fit on what is or soon will be free, in order, and returns the others.
func (t *txn) putSome(slots []*job.Slot) (unplaced []*job.Slot) {
	for _, s := range slots {
		if !t.put(s, s.Reserved, "", nil, true) {
			unplaced = append(unplaced, s)
		}
	}
	return unplaced
}

// giveUp shrinks elastic roles by the slots that fit nowhere, as far as their min allows. False if none can shrink.
func (p *pass) giveUp(w *work, unplaced []*job.Slot) bool {
	shrunk := false
	for _, v := range w.elastic() {
		n := 0
		var last *job.Slot
		for _, s := range unplaced {
			if s.Address.Role == v.role.Name {
				n, last = n+1, s
			}
		}
		sizes := w.sizes(v.role)
		goal := max(sizes.Floor(v.left-n), sizes.Ceil(sizes.Min))
		if n == 0 || goal >= v.left {
			continue
		}
		drained := func(s *job.Slot) bool { return p.isDrained(w, s.Node) && s.Phase != job.Canceling }
		p.shrinkTo(w, v.role, goal, drained, p.drained(w, last.Node))
		shrunk = true
	}
	return shrunk
}

// isDrained reports whether a node of the job's provider is drained.
func (p *pass) isDrained(w *work, node string) bool {
	pl := p.space(w.spec.Provider).byName[node]
	return pl != nil && pl.draining()
}

// drained is the reason that a node of the job's provider is drained; zero if it is not.
func (p *pass) drained(w *work, node string) job.Reason {
	if !p.isDrained(w, node) {
		return job.Reason{}
	}
	pl := p.space(w.spec.Provider).byName[node]
	if pl.node.Drained == "" {
		o := pl.rec.Override
		return p.why(DrainAsked, "node", node, "by", o.By, "why", o.Why)
	}
	return p.why(NodeDrained, "node", node, "message", pl.node.Drained)
}

// move begins the planned stop of the slots for which places were found. They are placed once they have stopped; until then
// recover holds places for them.
func (p *pass) move(w *work, t *txn) {
	for _, x := range t.taken {
		s := x.slot
		w.because(s, p.drained(w, s.Node))
		s.Cause, s.Exit = job.Eviction, nil
		p.leaveNode(w, x)
	}
}

// leaveNode begins the planned stop of a slot for which a place on another node was found.
func (p *pass) leaveNode(w *work, x placement) {
	s := x.slot
	s.Avoid, s.Node = s.Avoid.And(s.Node), ""
	w.on(s).promised = x.at.node.Name
	p.out.Dirty = true
	if len(w.running(s)) == 0 { // not launched yet
		s.Recover = true
		p.step(s, job.Evicted)
		return
	}
	s.Return = true
	p.step(s, job.Cancel)
}

// stuckOn says which slots stay on drained nodes.
func (p *pass) stuckOn(slots []*job.Slot) job.Reason {
	var nodes []string
	for _, s := range slots {
		if !slices.Contains(nodes, s.Node) {
			nodes = append(nodes, s.Node)
		}
	}
	slices.Sort(nodes)
	more, slot := "", ""
	if left := len(nodes) - nodesNamed; left > 0 {
		nodes, more = nodes[:nodesNamed], strconv.Itoa(left)
	}
	if len(slots) == 1 {
		slot = slots[0].Address.Short()
	}
	return job.Because(StuckOnDrained, "nodes", strings.Join(nodes, ", "), "more", more, "count", strconv.Itoa(len(slots)), "slot", slot)
}
