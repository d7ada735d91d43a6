package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// addWait adds a Wait with one reason.
func (p *pass) addWait(w *work, role string, why job.Reason) {
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Reasons: []job.Reason{why}})
}

// nodesNamed is how many nodes a shortage names; beyond that, it groups and counts them.
const nodesNamed = 8

// stillStopping says why n slots of a job are not started yet. A slot has one change per plan, and theirs is to stop what ran
// in them; whether they fit is decided once that has exited.
func stillStopping(n int) job.Reason { return job.Because(StillStopping, "count", strconv.Itoa(n)) }

// shortage says what is wanted and what is available.
func (p *pass) shortage(w *work, slots []*job.Slot) job.Reason {
	sp := p.space(w.spec.Provider)
	if !w.within(slots) {
		return job.Because(AboveLimits).With(sp.wanted(slots)...)
	}
	if !p.allows(slots, nil) {
		return job.Because(AboveDirectoryLimits).With(sp.wanted(slots)...)
	}
	return job.Because(NoRoom).With(append(sp.wanted(slots), sp.available(slots)...)...)
}

// noRoomYet is the shortage of a job that waits for room. It names jobs of a lower priority that this one does not preempt.
func (p *pass) noRoomYet(w *work, slots []*job.Slot) job.Reason {
	why := p.shortage(w, slots)
	if why.Code != NoRoom {
		return why
	}
	var kept []string
	for _, v := range p.lower(w) {
		if !w.spec.Preempt || !v.spec.Preemptible {
			kept = append(kept, "job."+v.name)
		}
	}
	if len(kept) == 0 {
		return why
	}
	if len(kept) > lowerNamed {
		kept = append(kept[:lowerNamed], "…")
	}
	return job.Because(NoRoom, "lower", strings.Join(kept, ", ")).With(why.Of...)
}

// lowerNamed is how many jobs of a lower priority a shortage names.
const lowerNamed = 4

// available is what the nodes have for these slots, then why other nodes have nothing for them. A few nodes are named
// individually; of many, those with the same reason are counted, as schedulers do: the one taint that most of them have must
// not be hidden behind names.
func (sp *space) available(slots []*job.Slot) []job.Reason {
	roles := oneOfEach(slots)
	var have, not []*supply
	known := map[offer]*supply{}
	for _, pl := range sp.places {
		o := sp.offer(pl, roles)
		if same := known[o]; same != nil && len(sp.places) > nodesNamed {
			same.nodes++
			continue
		}
		s := &supply{offer: o, first: pl, nodes: 1}
		known[o] = s
		if o.useless {
			not = append(not, s)
		} else {
			have = append(have, s)
		}
	}
	slices.SortStableFunc(not, func(a, b *supply) int { return cmp.Compare(b.nodes, a.nodes) })
	return append(sp.firstSupplies(have, roles, MoreNodes), sp.firstSupplies(not, roles, MoreUselessNodes)...)
}

// firstSupplies reports the first supplies, and how many nodes the rest are.
func (sp *space) firstSupplies(supplies []*supply, roles []*job.Slot, others job.Code) []job.Reason {
	var reasons []job.Reason
	more := 0
	for i, s := range supplies {
		if i < nodesNamed {
			reasons = append(reasons, sp.reason(s, roles))
		} else {
			more += s.nodes
		}
	}
	if more > 0 {
		reasons = append(reasons, job.Because(others, "count", strconv.Itoa(more)))
	}
	return reasons
}

// supply is what a node, or several nodes alike, have for slots of some roles.
type supply struct {
	offer
	first *place
	nodes int
}

// offer is what is reported about a node.
type offer struct {
	code    job.Code
	value   string // what it has free, or why it cannot be used
	not     string // the roles that can never use it, where others can
	useless bool   // none of the slots can be placed
}

// reason is the supply as a reason: with the node's name, or the number of nodes.
func (sp *space) reason(s *supply, roles []*job.Slot) job.Reason {
	argument := map[job.Code]string{NodeFree: "free", NodeFull: "most", NodeCordoned: "by"}[s.code]
	why := job.Because(s.code, cmp.Or(argument, "message"), s.value)
	if why.Args == nil {
		why.Args = map[string]string{}
	}
	if s.nodes == 1 {
		why.Args["node"] = s.first.node.Name
	} else {
		why.Args["count"] = strconv.Itoa(s.nodes)
	}
	if s.not == "" {
		return why
	}
	for _, slot := range roles {
		if bar := sp.bars.of(slot).at(s.first.node.Name); bar != "" {
			why.Of = append(why.Of, job.Because(NotForRole, "role", slot.Address.Role, "message", bar))
		}
	}
	return why
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

// barredTo counts the slots that can never use the node.
func (sp *space) barredTo(pl *place, slots []*job.Slot) (n int) {
	for _, s := range slots {
		if sp.bars.of(s).at(pl.node.Name) != "" {
			n++
		}
	}
	return n
}

// offer is what a node has for slots of these roles.
func (sp *space) offer(pl *place, roles []*job.Slot) offer {
	name := pl.node.Name
	barred := sp.barredTo(pl, roles)
	if barred == len(roles) && barred > 0 {
		return offer{code: NodeBarred, value: sp.bars.of(roles[0]).at(name), useless: true}
	}
	o := offer{useless: sp.full(pl)}
	o.code, o.value = sp.left(pl, roles)
	if barred == 0 {
		return o
	}
	for _, s := range roles {
		if why := sp.bars.of(s).at(name); why != "" {
			o.not += s.Address.Role + "\x00" + why + "\x00"
		}
	}
	return o
}

// full reports whether the node accepts no slot, whatever its size.
func (sp *space) full(pl *place) bool { return !pl.open() || pl.free[2] <= 0 }

// wanted is how many slots of each kind there are, and what each takes.
func (sp *space) wanted(slots []*job.Slot) []job.Reason {
	type kind struct{ role, size, extra string }
	counts := map[kind]int{}
	var order []kind
	for _, s := range slots {
		k := kind{role: s.Address.Role, size: s.Reserved.String()}
		if extra := sp.extras.of(s.Address); !extra.Equal(job.Resources{}) {
			k.extra = extra.String()
		}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	parts := make([]job.Reason, len(order))
	for i, k := range order {
		parts[i] = job.Because(Wanted, "count", strconv.Itoa(counts[k]), "role", k.role, "each", k.size, "extra", k.extra)
	}
	return parts
}

// left is what a node has free. Resources that these roles need and that are used up are named too.
func (sp *space) left(pl *place, roles []*job.Slot) (code job.Code, value string) {
	switch {
	case pl.node.Closed != "":
		return NodeClosed, pl.node.Closed
	case pl.node.Drained != "":
		return NodeClosed, pl.node.Drained
	case pl.cordoned():
		return NodeCordoned, pl.rec.Override.By
	case pl.free[2] <= 0:
		return NodeFull, strconv.Itoa(pl.node.Slots)
	}
	free := sp.free(pl)
	if free.Equal(job.Resources{}) {
		return NodeNothingFree, ""
	}
	return NodeFree, strings.Join(append(lacking(free, roles), free.String()), ", ")
}

// free is what a node has free.
func (sp *space) free(pl *place) job.Resources {
	free := job.Resources{CPU: job.CPU(max(pl.free[0], 0)), Memory: job.Bytes(max(pl.free[1], 0)), Devices: map[string]int{}}
	for name, i := range sp.dims {
		if n := int(pl.free[i]); n > 0 {
			free.Devices[name] = n
		}
	}
	return free
}

// lacking lists the resources that slots of these roles need and that are used up.
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

// neverFits reports whether the job's min cannot run even on empty nodes, or exceeds the job's own limits.
func (p *pass) neverFits(w *work, gang []*job.Slot) bool {
	if !w.within(gang) || p.exceeds(gang) {
		p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []job.Reason{p.shortage(w, gang)}})
		return true
	}
	t := &txn{sp: p.space(w.spec.Provider).emptied()}
	if t.putAll(gang) {
		t.undo()
		return false
	}
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []job.Reason{job.Because(NeverFits).With(p.shortage(w, gang))}})
	return true
}

// queue reports what keeps incarnations from being started or launched, in their infrastructure's own words. They wait forever:
// that costs nothing. Within the rendezvous timeout the Wait is Passing.
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

// queuedSince is when the slot's incarnation was queued. One that could not be created until now has just begun to wait, and
// its gang with it.
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
	wait, code := Wait{Job: w.name, Role: r.Name, Passing: passing}, QueuedLong
	if passing {
		code = Queued
	}
	for _, text := range texts[:min(len(texts), textsNamed)] {
		wait.Reasons = append(wait.Reasons, job.Because(code, "slots", job.Fold(r.Name, indices[text]), "count", strconv.Itoa(len(indices[text])), "message", text))
	}
	if more := len(texts) - textsNamed; more > 0 {
		wait.Reasons = append(wait.Reasons, job.Because(MoreReasons, "count", strconv.Itoa(more)))
	}
	p.out.Waits = append(p.out.Waits, wait)
}

// queued is why the slot's incarnation does not start; "" if it does, or if none is wanted yet.
func (p *pass) queued(w *work, s *job.Slot) string {
	if s.Phase != job.Scheduling {
		return ""
	}
	switch inc := w.current(s); {
	case inc == nil && s.Node != "":
		return p.heldReason(w)
	case inc != nil && inc.State == job.Starting:
		return inc.Waiting
	}
	return ""
}

// textsNamed is how many different reasons of a role are reported.
const textsNamed = 4
