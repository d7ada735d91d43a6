package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// wait adds what is not as asked for.
func (p *pass) wait(w *work, role, reason string) {
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Reasons: []string{reason}})
}

// nodesNamed bounds how many nodes a shortage lists.
const nodesNamed = 8

const stillStopping = "Slots of it are still being stopped."

// shortage says what is wanted and what is available, for a person.
func (p *pass) shortage(w *work, slots []*job.Slot) string {
	if len(slots) == 0 {
		return stillStopping
	}
	if !w.within(slots) {
		return fmt.Sprintf("Wanted: %s. Its limits leave no room for that.", wanted(slots))
	}
	return fmt.Sprintf("Wanted: %s. Available: %s.", wanted(slots), p.space(w.spec.Provider).available(slots))
}

// available is what the nodes have for these slots. Those on which some of them may be come first.
func (sp *space) available(slots []*job.Slot) string {
	if len(sp.places) == 0 {
		return "no node"
	}
	roles := oneOfEach(slots)
	useless := func(pl *place) bool { return sp.barredTo(pl, roles) == len(roles) }
	places := sp.places
	if len(sp.bars) > 0 {
		places = append(slices.DeleteFunc(slices.Clone(places), useless), slices.DeleteFunc(slices.Clone(places), func(pl *place) bool { return !useless(pl) })...)
	}
	var have []string
	for _, pl := range places[:min(len(places), nodesNamed)] {
		have = append(have, sp.offer(pl, roles))
	}
	available := strings.Join(have, "; ")
	if more := len(places) - nodesNamed; more > 0 {
		available += fmt.Sprintf("; and %d more nodes", more)
	}
	return available
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

// offer is what a node has for slots of these roles.
func (sp *space) offer(pl *place, roles []*job.Slot) string {
	name := pl.node.Name
	switch sp.barredTo(pl, roles) {
	case 0:
		return name + " " + sp.left(pl)
	case len(roles):
		return name + ": " + sp.bars.of(roles[0]).at(name)
	}
	var not []string
	for _, s := range roles {
		if why := sp.bars.of(s).at(name); why != "" {
			not = append(not, "not for "+s.Address.Role+": "+why)
		}
	}
	return fmt.Sprintf("%s %s (%s)", name, sp.left(pl), strings.Join(not, "; "))
}

func wanted(slots []*job.Slot) string {
	type kind struct{ role, size string }
	counts := map[kind]int{}
	var order []kind
	for _, s := range slots {
		k := kind{s.Address.Role, s.Reserved.String()}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	parts := make([]string, len(order))
	for i, k := range order {
		parts[i] = fmt.Sprintf("%d %s with %s each", counts[k], k.role, k.size)
	}
	return strings.Join(parts, ", ")
}

// left is what a node has free, of what it has.
func (sp *space) left(pl *place) string {
	switch {
	case pl.node.Closed != "":
		return pl.node.Closed
	case pl.node.Drained != "":
		return pl.node.Drained
	case pl.free[2] <= 0:
		return fmt.Sprintf("takes %d slots and no more", pl.node.Slots)
	}
	free := job.Resources{CPU: job.CPU(max(pl.free[0], 0)), Memory: job.Bytes(max(pl.free[1], 0)), Devices: map[string]int{}}
	for name, i := range sp.dims {
		free.Devices[name] = int(max(pl.free[i], 0))
	}
	return free.String() + " free"
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
	for i := range w.spec.Roles {
		p.queueOf(w, &w.spec.Roles[i])
	}
}

func (p *pass) queueOf(w *work, r *job.Role) {
	var texts []string
	indices := map[string][]int{}
	timeout := w.spec.Rendezvous.Timeout.Std()
	passing := false
	for _, s := range w.slots {
		if s.Phase != job.Scheduling || s.Address.Role != r.Name {
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
		passing = timeout == 0 || p.pending(s.Since, timeout) || passing
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
