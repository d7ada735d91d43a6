package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// What follows concerns providers under which a scheduler places (Capabilities.Places is false). A slot's node
// is then a hint until its incarnation is bound: it holds room in the accounting, so that what is admitted fits
// somewhere, and it costs nothing to give up. Once bound, the incarnation's node is the slot's.

// schedules reports whether a scheduler chooses the nodes of the job's slots.
func (p *pass) schedules(w *work) bool {
	c, known := p.in.Capabilities[w.spec.Provider]
	return known && !c.Places
}

// nodesUnknown reports whether the job may be on nodes that are not listed.
func (p *pass) nodesUnknown(w *work) bool { return p.in.Capabilities[w.spec.Provider].NodesUnknown }

// heard reports whether the incarnation is heard of now: it is there, whatever else is not seen.
func heard(inc *job.Incarnation) bool {
	return inc != nil && inc.State != job.Gone && inc.Member != nil && !inc.Member.Silent && !inc.Member.Expired
}

// held is why nothing of the job may be launched yet; "" if it may. Its slots keep their hints meanwhile.
func (p *pass) held(w *work) string { return p.in.Snapshot.Held[w.rec.UID] }

// launched reports whether the slot's newest incarnation is there and has not ended, bound or not.
func (w *work) launched(s *job.Slot) bool {
	inc := w.current(s)
	return inc != nil && inc.State != job.Gone && startedPhase(s)
}

// bound reports whether the slot's newest incarnation is on a node.
func (w *work) bound(s *job.Slot) bool { return w.launched(s) && w.current(s).Node != "" }

// hinted reports whether the slot's node, if it has one, is where it may come to, and not where it is.
func (p *pass) hinted(w *work, s *job.Slot) bool {
	if !p.schedules(w) {
		return false
	}
	inc := w.current(s)
	return inc == nil || inc.State == job.Gone || inc.Node != s.Node
}

// shownNode is the node of an incarnation. One that is not listed yet is none: nodes and incarnations are seen
// by watches of their own, and a node that has just joined must not be mistaken for one that went.
func (p *pass) shownNode(w *work, inc *job.Incarnation) string {
	if p.schedules(w) && !p.nodesUnknown(w) && p.space(w.spec.Provider).listed[inc.Node] == nil {
		return ""
	}
	return inc.Node
}

// follow takes the node that the scheduler chose for the slot's. With Return the slot's node is that of the
// incarnation to come.
func (p *pass) follow(w *work, s *job.Slot) {
	inc := w.current(s)
	if !p.schedules(w) || inc == nil || inc.State == job.Gone || s.Return || s.Phase == job.Pending {
		return
	}
	if inc.Node == s.Node || inc.Node == "" && startedPhase(s) {
		return // known already, also if that node is gone by now; or still a hint
	}
	if node := p.shownNode(w, inc); node != s.Node {
		s.Node = node // nowhere, if its node is not listed yet, or it is stopped before it was bound
		p.out.Dirty = true
	}
}

// measureHints lets those that are not bound hold the places where they may come to, in the order in which jobs
// are served. A hint that no longer fits is given up: recover takes another.
func (p *pass) measureHints() {
	for _, w := range p.turn {
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

// has reports whether the slot could be placed now on the node that it has.
func (sp *space) has(s *job.Slot) bool {
	need, known := sp.slot(sp.wants(s.Address, s.Reserved))
	pl := sp.byName[s.Node]
	return known && pl != nil && pl.takes(sp.bars.of(s)) && need.fits(pl.free)
}

// giveUpNode is displace where a scheduler places. A node that is not listed may be a machine that is gone, or a list
// that fell short: its slots go once they are not heard of either. Nobody waits for what ran there then, and its number
// fences it.
//
// In a role of which a slot has succeeded nothing starts anymore: what still runs there runs to its end.
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

// nodeTrouble is what is known of the slot's node that may explain its silence.
func (p *pass) nodeTrouble(w *work, s *job.Slot) []job.Reason {
	pl := p.space(w.spec.Provider).byName[s.Node]
	if pl == nil || pl.node.Closed == "" {
		return nil
	}
	return []job.Reason{job.Because(NodeTrouble, "slot", s.Address.Short(), "node", s.Node, "message", pl.node.Closed)}
}

// forsaken reports whether an incarnation is where its end may never be known: silent for its lease, or not heard of on a
// node that is gone. It is stopped without a grace, which is not to wait for it.
func (p *pass) forsaken(w *work, inc *job.Incarnation) bool {
	if inc.Node == "" || inc.State == job.Gone || heard(inc) {
		return false
	}
	gone := !p.nodesUnknown(w) && p.space(w.spec.Provider).byName[inc.Node] == nil
	return gone || inc.Member != nil && inc.Member.Expired
}

func (p *pass) anyForsaken(w *work, s *job.Slot) bool {
	return p.schedules(w) && slices.ContainsFunc(w.seen[s.Address], func(inc *job.Incarnation) bool { return p.forsaken(w, inc) })
}

// leaving reports whether one of the slot's incarnations was told to stop and is on its way.
func (w *work) leaving(s *job.Slot) bool {
	return slices.ContainsFunc(w.seen[s.Address], func(inc *job.Incarnation) bool {
		return inc.State != job.Gone && inc.Member != nil && inc.Member.State == job.MemberLeaving
	})
}
