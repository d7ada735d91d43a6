package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// NodeUse is what is known of a node: what is used of it, and why slots are not placed there.
type NodeUse struct {
	job.Node
	// Unlisted: slots are recorded there, or operators asked something of it, and its provider does not list it.
	Unlisted bool `json:"unlisted,omitempty"`
	// Override is what keeps new slots off the node; nil if no operator does.
	Override *job.Override `json:"override,omitempty"`
	// Mark lets the node be used last; nil if nothing does.
	Mark *job.NodeMark `json:"mark,omitempty"`
	// Held is what slots hold there, by address.
	Held []Held `json:"held"`
	// Free is what is left for new slots.
	Free job.Resources `json:"free"`
	// Usable reports whether new slots may be placed there. Reasons say why not, and what else limits its use.
	Usable  bool         `json:"usable"`
	Reasons []job.Reason `json:"reasons"`
}

// Held is what a slot holds of a node.
type Held struct {
	Slot        job.Address   `json:"slot"`
	Incarnation int           `json:"incarnation"` // 0: it has none yet
	Resources   job.Resources `json:"resources"`
	Leaving     bool          `json:"leaving,omitempty"` // it is about to be free
}

// Nodes says how the nodes are used, by provider and name, as plans with this input count.
func Nodes(in Input) []NodeUse {
	in.Refresh = true // the recorded jobs, as last applied
	p := newPass(in, nil)
	for _, n := range p.in.Snapshot.Nodes {
		p.space(n.Provider)
	}
	p.measure()
	held := p.held()
	var all []NodeUse
	known := map[onNode]bool{}
	for _, provider := range slices.Sorted(maps.Keys(p.spaces)) {
		sp := p.spaces[provider]
		for _, pl := range sp.places {
			at := onNode{provider, pl.node.Name}
			known[at] = true
			u := NodeUse{Node: *pl.node, Held: held[at], Free: sp.free(pl), Usable: pl.open(), Reasons: sp.limits(pl)}
			if pl.rec != nil {
				u.Override = pl.rec.Override
			}
			if pl.last {
				u.Mark = pl.rec.Mark
			}
			all = append(all, u)
		}
	}
	unlisted := func(at onNode, o *job.Override, more ...job.Reason) {
		if known[at] || at.node == "" {
			return
		}
		known[at] = true
		why := append([]job.Reason{job.Because(NodeUnlisted, "node", at.node)}, more...)
		all = append(all, NodeUse{Node: job.Node{Provider: at.provider, Name: at.node}, Unlisted: true, Override: o, Held: held[at], Reasons: why})
	}
	for i := range p.out.Nodes {
		if n := &p.out.Nodes[i]; n.Override != nil {
			unlisted(onNode{n.Provider, n.Name}, n.Override, keptFromUse(n))
		}
	}
	for at := range held {
		unlisted(at, nil)
	}
	p.addRoles(all)
	slices.SortFunc(all, func(a, b NodeUse) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name))
	})
	return all
}

type onNode struct{ provider, node string }

// held lists what slots and incarnations hold, by node.
func (p *pass) held() map[onNode][]Held {
	held := map[onNode][]Held{}
	for _, w := range p.jobs {
		sp := p.space(w.spec.Provider)
		for _, s := range w.slots {
			if s.Phase.Live() {
				at := onNode{w.spec.Provider, s.Node}
				held[at] = append(held[at], Held{s.Address, s.Incarnation, sp.held(s), s.Phase == job.Canceling && !s.Return})
			}
			for _, inc := range w.seen[s.Address] { // as measureRunning counts
				if inc.State != job.Gone && (inc.Node != s.Node || !s.Phase.Live()) {
					at := onNode{inc.Provider, inc.Node}
					held[at] = append(held[at], Held{s.Address, inc.Number, taken(inc), true})
				}
			}
		}
	}
	for i := range p.unseen {
		if inc := &p.unseen[i]; inc.State != job.Gone {
			at := onNode{inc.Provider, inc.Node}
			held[at] = append(held[at], Held{inc.Slot, inc.Number, taken(inc), !p.isReleased(inc.UID)})
		}
	}
	for _, all := range held {
		slices.SortFunc(all, func(a, b Held) int { return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(a.Incarnation, b.Incarnation)) })
	}
	return held
}

// limits is why a node cannot be used for new slots, or not for more.
func (sp *space) limits(pl *place) (why []job.Reason) {
	add := func(code job.Code, args ...string) {
		why = append(why, job.Because(code, append([]string{"node", pl.node.Name}, args...)...))
	}
	if pl.cordoned() {
		why = append(why, keptFromUse(pl.rec))
	}
	if pl.node.Closed != "" && pl.node.Closed != pl.node.Drained {
		add(NodeClosed, "message", pl.node.Closed)
	}
	if pl.node.Drained != "" {
		add(NodeDrained, "message", pl.node.Drained)
	}
	switch {
	case slices.ContainsFunc(pl.free, func(n int64) bool { return n < 0 }):
		add(NodeOverloaded)
	case pl.free[2] <= 0:
		add(NodeFull, "most", strconv.Itoa(pl.node.Slots))
	case sp.free(pl).Equal(job.Resources{}):
		add(NodeNothingFree)
	}
	if pl.last {
		why = append(why, marked(pl.rec))
	}
	return append(why, problems(pl.node)...)
}

// addRoles adds which roles cannot use a node, and which slots avoid it since they failed there.
func (p *pass) addRoles(all []NodeUse) {
	barred, avoided := map[onNode][]job.Reason{}, map[onNode][]string{}
	for _, w := range p.jobs {
		for i := range w.spec.Roles {
			role := w.spec.Roles[i].Name
			if bars := p.bars[roleOf{w.name, role}]; bars != nil {
				for node, why := range bars.reasons {
					at := onNode{w.spec.Provider, node}
					barred[at] = append(barred[at], job.Because(NotForRole, "role", "job."+w.name+"."+role, "message", why))
				}
			}
		}
		for _, s := range w.slots {
			for _, node := range s.Avoid {
				at := onNode{w.spec.Provider, node}
				avoided[at] = append(avoided[at], s.Address.String())
			}
		}
	}
	for i := range all {
		u := &all[i]
		at := onNode{u.Provider, u.Name}
		u.Reasons = append(u.Reasons, barred[at]...)
		if slots := avoided[at]; len(slots) > 0 {
			count := len(slots)
			u.Reasons = append(u.Reasons, job.Because(NodeAvoided, "node", u.Name, "slots", strings.Join(slots[:min(count, nodesNamed)], ", "), "count", strconv.Itoa(count)))
		}
	}
}
