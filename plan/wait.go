package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// wait adds what is not as asked for.
func (p *pass) wait(w *work, role, reason string) {
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Reasons: []string{reason}})
}

// nodesNamed bounds how many nodes a shortage names, or tells of together.
const nodesNamed = 8

// stillStopping says why n slots of a job are not started yet. A slot has one change in a plan, and theirs is the stop of
// what ran in them; whether they fit is seen when that has ended. So no plan counts them before.
func stillStopping(n int) string {
	return fmt.Sprintf("Slots of it are still being stopped. Once they have ended, %s start anew, if they fit; a plan counts them from then on.", slotCount(n))
}

// shortage says what is wanted and what is available, for a person.
func (p *pass) shortage(w *work, slots []*job.Slot) string {
	sp := p.space(w.spec.Provider)
	if !w.within(slots) {
		return fmt.Sprintf("Wanted: %s. Its limits leave no room for that.", sp.wanted(slots))
	}
	return fmt.Sprintf("Wanted: %s. Available: %s.", sp.wanted(slots), sp.available(slots))
}

// available is what the nodes have for these slots, then why others have nothing for them. A few nodes are named each;
// of many, those of which the same is to be said are counted, as a scheduler does it: the one taint that is on most of
// them must not be lost behind names.
func (sp *space) available(slots []*job.Slot) string {
	if len(sp.places) == 0 {
		return "no node"
	}
	roles := oneOfEach(slots)
	var have, not []*supply
	known := map[supply]*supply{} // by what is said
	for _, pl := range sp.places {
		o := sp.supply(pl, roles)
		said := o
		said.name, said.nodes = "", 0
		if same := known[said]; same != nil && len(sp.places) > nodesNamed {
			same.nodes++
			continue
		}
		known[said] = &o
		if o.useless {
			not = append(not, &o)
		} else {
			have = append(have, &o)
		}
	}
	slices.SortStableFunc(not, func(a, b *supply) int { return cmp.Compare(b.nodes, a.nodes) })
	return strings.Join(append(firstSupplies(have, "nodes"), firstSupplies(not, "nodes that are no use")...), "; ")
}

// firstSupplies tells of the first of them, and how many nodes the others are.
func firstSupplies(supplies []*supply, nodes string) []string {
	var texts []string
	more := 0
	for i, o := range supplies {
		if i < nodesNamed {
			texts = append(texts, o.String())
		} else {
			more += o.nodes
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more %s", more, nodes))
	}
	return texts
}

// supply is what a node has for slots of some roles, or several nodes alike.
type supply struct {
	name    string // of the first
	nodes   int
	useless bool   // none of the slots can come
	barred  bool   // by what they are, not by what the node is at the moment
	text    string // what it has, or why that is no use
	but     string // for which roles it is no use
}

func (o *supply) String() string {
	switch {
	case o.nodes == 1 && o.barred:
		return o.name + ": " + o.text
	case o.nodes == 1:
		return o.name + " " + o.text + o.but
	case o.useless:
		return fmt.Sprintf("%d nodes: %s", o.nodes, o.text)
	}
	return fmt.Sprintf("%d nodes with %s each%s", o.nodes, o.text, o.but)
}

// oneOfEach is one slot of each role.
func oneOfEach(slots []*job.Slot) []*job.Slot {
	var some []*job.Slot
	for _, s := range slots {
		if !slices.ContainsFunc(some, func(o *job.Slot) bool { return o.Address.Role == s.Address.Role }) {
			some = append(some, s)
		}
	}
	return some
}

// barredTo counts those of the slots that can never be on the node.
func (sp *space) barredTo(pl *place, slots []*job.Slot) (n int) {
	for _, s := range slots {
		if sp.bars.of(s).at(pl.node.Name) != "" {
			n++
		}
	}
	return n
}

// supply is what a node has for slots of these roles.
func (sp *space) supply(pl *place, roles []*job.Slot) supply {
	name := pl.node.Name
	switch sp.barredTo(pl, roles) {
	case 0:
		return supply{name: name, nodes: 1, useless: sp.full(pl), text: sp.left(pl, roles)}
	case len(roles):
		return supply{name: name, nodes: 1, useless: true, barred: true, text: sp.bars.of(roles[0]).at(name)}
	}
	var not []string
	for _, s := range roles {
		if why := sp.bars.of(s).at(name); why != "" {
			not = append(not, "not for "+s.Address.Role+": "+why)
		}
	}
	return supply{name: name, nodes: 1, useless: sp.full(pl), text: sp.left(pl, roles), but: " (" + strings.Join(not, "; ") + ")"}
}

// full tells whether no slot can come to the node, whatever it asks for.
func (sp *space) full(pl *place) bool { return !pl.open() || pl.free[2] <= 0 }

func (sp *space) wanted(slots []*job.Slot) string {
	type kind struct{ role, size, extra string }
	counts := map[kind]int{}
	var order []kind
	for _, s := range slots {
		k := kind{role: s.Address.Role, size: s.Reserved.String()}
		if extra := sp.extras.of(s.Address); !extra.Equal(job.Resources{}) {
			k.extra = ", and " + extra.String() + " for what else is in its pod"
		}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	parts := make([]string, len(order))
	for i, k := range order {
		parts[i] = fmt.Sprintf("%d %s with %s each%s", counts[k], k.role, k.size, k.extra)
	}
	return strings.Join(parts, ", ")
}

// left is what a node has free, of what it has. What slots of these roles want and none is left of is named too.
func (sp *space) left(pl *place, roles []*job.Slot) string {
	switch {
	case pl.node.Closed != "":
		return pl.node.Closed
	case pl.node.Drained != "":
		return pl.node.Drained
	case pl.free[2] <= 0:
		return "full with " + slotCount(pl.node.Slots)
	}
	free := job.Resources{CPU: job.CPU(max(pl.free[0], 0)), Memory: job.Bytes(max(pl.free[1], 0)), Devices: map[string]int{}}
	for name, i := range sp.dims {
		if n := int(pl.free[i]); n > 0 {
			free.Devices[name] = n
		}
	}
	if free.Equal(job.Resources{}) {
		return "nothing free"
	}
	return strings.Join(append(lacking(free, roles), free.String()), ", ") + " free"
}

// lacking are the kinds of resource that slots of these roles want and of which nothing is free.
func lacking(free job.Resources, roles []*job.Slot) []string {
	var want job.Resources
	for _, s := range roles {
		want = want.Add(s.Reserved)
	}
	var out []string
	if want.CPU > 0 && free.CPU == 0 {
		out = append(out, "0 cpu")
	}
	if want.Memory > 0 && free.Memory == 0 {
		out = append(out, "0 memory")
	}
	for _, name := range slices.Sorted(maps.Keys(want.Devices)) {
		if want.Devices[name] > 0 && free.Devices[name] == 0 {
			out = append(out, "0 "+name)
		}
	}
	return out
}

// never tells whether the job's min cannot run even on empty nodes, or within the job's own limits.
func (p *pass) never(w *work, gang []*job.Slot) bool {
	if !w.within(gang) {
		p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{p.shortage(w, gang)}})
		return true
	}
	t := &txn{sp: p.space(w.spec.Provider).emptied()}
	if t.putAll(gang) {
		t.undo()
		return false
	}
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{
		fmt.Sprintf("It cannot run on these nodes even when they are empty. %s", p.shortage(w, gang))}})
	return true
}

// queue tells what keeps incarnations from starting, or from being launched at all, in their infrastructure's own
// words. They wait for ever: nothing is lost by it. For as long as a rendezvous may take it may pass by itself.
func (p *pass) queue(w *work) {
	if !w.active() {
		return
	}
	timeout := w.spec.Rendezvous.Timeout.Std()
	var newest time.Time
	for _, s := range w.slots {
		if p.queued(w, s) != "" && p.queuedSince(w, s).After(newest) {
			newest = p.queuedSince(w, s)
		}
	}
	passing := timeout == 0 || p.pending(newest, timeout)
	for i := range w.spec.Roles {
		p.queueOf(w, &w.spec.Roles[i], passing)
	}
}

// queuedSince is since when the slot's incarnation is queued: one that could not be made for long has just begun to wait, and
// the others of its gang with it.
func (p *pass) queuedSince(w *work, s *job.Slot) time.Time {
	since := s.Since
	if inc := w.current(s); inc != nil && inc.Started.After(since) {
		since = inc.Started
	}
	if since.After(p.in.Now) { // by its infrastructure's clock
		return p.in.Now
	}
	return since
}

func (p *pass) queueOf(w *work, r *job.Role, passing bool) {
	var texts []string
	indices := map[string][]int{}
	for _, s := range w.slots {
		if s.Address.Role != r.Name {
			continue
		}
		why := p.queued(w, s)
		if why == "" {
			continue
		}
		if indices[why] == nil {
			texts = append(texts, why)
		}
		indices[why] = append(indices[why], s.Address.Index)
	}
	if len(texts) == 0 {
		return
	}
	wait := Wait{Job: w.name, Role: r.Name, Passing: passing}
	for _, text := range texts[:min(len(texts), textsNamed)] {
		slots := job.Fold(r.Name, indices[text])
		if n := len(indices[text]); n > 1 {
			slots += fmt.Sprintf(" (%d slots)", n)
		}
		wait.Reasons = append(wait.Reasons, slots+": "+text)
	}
	if more := len(texts) - textsNamed; more > 0 {
		wait.Reasons = append(wait.Reasons, fmt.Sprintf("and %d more reasons", more))
	}
	p.out.Waits = append(p.out.Waits, wait)
}

// queued is why the slot's incarnation does not start; "" if it does, or if nothing asks for it yet.
func (p *pass) queued(w *work, s *job.Slot) string {
	if s.Phase != job.Scheduling {
		return ""
	}
	switch inc := w.current(s); {
	case inc == nil && s.Node != "":
		return p.held(w)
	case inc != nil && inc.State == job.Starting:
		return inc.Waiting
	}
	return ""
}

// textsNamed bounds how many different reasons of a role are told.
const textsNamed = 4
