package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// This file is about providers whose scheduler places slots (Capabilities.Places is false). A slot's node is then a hint until
// its incarnation is bound: it reserves room in the accounting, so that admitted slots fit somewhere, and costs nothing to give
// up. Once bound, the incarnation's node is the slot's.

// schedules reports whether a scheduler chooses the nodes of the job's slots.
func (p *pass) schedules(w *work) bool {
	c, known := p.in.Capabilities[w.spec.Provider]
	return known && !c.Places
}

// nodesUnknown reports whether the job may be on nodes that are not listed.
func (p *pass) nodesUnknown(w *work) bool { return p.in.Capabilities[w.spec.Provider].NodesUnknown }

// inContact reports whether the incarnation's agent is in contact: it exists, whatever else is not observed.
func inContact(inc *job.Incarnation) bool {
	return inc != nil && inc.State != job.Gone && inc.Member != nil && !inc.Member.Silent && !inc.Member.Expired
}

// heldReason is why nothing of the job may be launched yet; "" if it may. Its slots keep their hints meanwhile.
func (p *pass) heldReason(w *work) string { return p.in.Snapshot.Held[w.rec.UID] }

// launched reports whether the slot's newest incarnation exists and has not ended, bound or not.
func (w *work) launched(s *job.Slot) bool {
	inc := w.current(s)
	return inc != nil && inc.State != job.Gone && startedPhase(s)
}

// bound reports whether the slot's newest incarnation is on a node.
func (w *work) bound(s *job.Slot) bool { return w.launched(s) && w.current(s).Node != "" }

// hinted reports whether the slot's node, if any, is only a hint.
func (p *pass) hinted(w *work, s *job.Slot) bool {
	if !p.schedules(w) {
		return false
	}
	inc := w.current(s)
	return inc == nil || inc.State == job.Gone || inc.Node != s.Node
}

// shownNode is the node of an incarnation, or "" if that node is not listed yet: nodes and incarnations come from separate
// watches, and a node that has just joined must not be mistaken for one that was removed.
func (p *pass) shownNode(w *work, inc *job.Incarnation) string {
	if p.schedules(w) && !p.nodesUnknown(w) && p.space(w.spec.Provider).listed[inc.Node] == nil {
		return ""
	}
	return inc.Node
}

// follow sets the slot's node to the one that the scheduler chose. With Return the slot's node is that of the next incarnation.
func (p *pass) follow(w *work, s *job.Slot) {
	inc := w.current(s)
	if !p.schedules(w) || inc == nil || inc.State == job.Gone || s.Return || s.Phase == job.Pending {
		return
	}
	if inc.Node == s.Node || inc.Node == "" && startedPhase(s) {
		return // already known, even if that node is gone by now; or still a hint
	}
	if node := p.shownNode(w, inc); node != s.Node {
		s.Node = node // none, if its node is not listed yet or it is stopped before it was bound
		p.out.Dirty = true
	}
}

// measureHints lets unbound slots hold the places that they are hinted to, in serving order. A hint that no longer fits is
// given up; recover finds another.
func (p *pass) measureHints() {
	for _, w := range p.servingOrder {
		if !p.about(w) {
			continue
		}
		sp := p.space(w.spec.Provider)
		for _, s := range w.slots {
			if !p.hinted(w, s) || !s.Phase.Live() || w.outside(s.Address) {
				continue
			}
			if (s.Phase != job.Canceling || s.Return) && s.Node != "" && !sp.has(s) {
				p.measureAlone(w, sp, s)
				s.Node, s.Recover = "", s.Recover || s.Return
				p.out.Dirty = true
			}
			p.measureSlot(sp, s)
		}
	}
}

// has reports whether the slot could be placed now on its node.
func (sp *space) has(s *job.Slot) bool {
	need, known := sp.slot(sp.needs(s.Address, s.Reserved))
	pl := sp.byName[s.Node]
	return known && pl != nil && pl.takes(sp.bars.of(s)) && need.fits(pl.free)
}

// giveUpNode is displace for providers with a scheduler. A node that is not listed may be a machine that is gone, or the list
// may be incomplete: its slots are lost once their agents are silent as well. Their replacements do not wait for what ran
// there: the incarnation number fences it.
//
// After a slot of a role has succeeded nothing starts in the role: what still runs there runs to its end.
func (p *pass) giveUpNode(w *work, s *job.Slot) {
	if w.finished[s.Address.Role] && len(w.running(s)) > 0 {
		return
	}
	if startedPhase(s) {
		p.fault(w, s, job.NodeGone, nil)
	}
	s.Node, s.Recover = "", true
	p.out.Dirty = true
}

// nodeTrouble is what is known about the slot's node that may explain its silence.
func (p *pass) nodeTrouble(w *work, s *job.Slot) []job.Reason {
	pl := p.space(w.spec.Provider).byName[s.Node]
	if pl == nil || pl.node.Closed == "" {
		return nil
	}
	return []job.Reason{job.Because(NodeTrouble, "slot", s.Address.Short(), "node", s.Node, "message", pl.node.Closed)}
}

// unreachable reports whether an incarnation is where its exit may never be observed: silent for its lease, or silent on a node
// that is gone. It is stopped without a grace, so that nothing waits for it.
func (p *pass) unreachable(w *work, inc *job.Incarnation) bool {
	if inc.Node == "" || inc.State == job.Gone || inContact(inc) {
		return false
	}
	gone := !p.nodesUnknown(w) && p.space(w.spec.Provider).byName[inc.Node] == nil
	return gone || inc.Member != nil && inc.Member.Expired
}

func (p *pass) anyUnreachable(w *work, s *job.Slot) bool {
	return p.schedules(w) && slices.ContainsFunc(w.seen[s.Address], func(inc *job.Incarnation) bool { return p.unreachable(w, inc) })
}

// leaving reports whether one of the slot's incarnations was asked to stop and is shutting down.
func (w *work) leaving(s *job.Slot) bool {
	return slices.ContainsFunc(w.seen[s.Address], func(inc *job.Incarnation) bool {
		return inc.State != job.Gone && inc.Member != nil && inc.Member.State == job.MemberLeaving
	})
}
