package plan

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// unload shrinks elastic roles on overloaded nodes, the most fulfilled first; never below min. Where a scheduler places, what
// is bound is assumed to fit: a node shows less capacity for a moment while a device plugin restarts.
func (p *pass) unload() {
	for _, provider := range slices.Sorted(maps.Keys(p.spaces)) {
		sp := p.spaces[provider]
		if !p.in.Capabilities[provider].Places {
			continue
		}
		for _, pl := range sp.places {
			if overloaded(pl) {
				p.wakeAll()
			}
			for overloaded(pl) {
				w, role := p.mostFulfilled(func(w *work, r *job.Role) bool {
					return p.space(w.spec.Provider) == sp && w.onNode(r.Name, sp, pl) != nil
				})
				if w == nil {
					break
				}
				goal := w.sizes(role).Floor(len(w.heldSlots(role.Name)) - 1)
				last := w.onNode(role.Name, sp, pl)
				p.shrinkTo(w, role, goal, func(s *job.Slot) bool { return s == last }, job.Because(NodeOverloaded, "node", pl.node.Name))
			}
		}
	}
}

func overloaded(pl *place) bool {
	return slices.ContainsFunc(pl.soon, func(n int64) bool { return n < 0 })
}

// relieves reports whether freeing these resources reduces the node's overload.
func (sp *space) relieves(pl *place, r job.Resources) bool {
	a, _ := sp.slot(r)
	for i, n := range pl.soon {
		if n < 0 && a[i] > 0 {
			return true
		}
	}
	return false
}

// onNode is the role's slot on the overloaded node to give up first, of those that relieve it; nil if there is none.
func (w *work) onNode(role string, sp *space, pl *place) *job.Slot {
	var last *job.Slot
	for _, s := range w.heldSlots(role) {
		if s.Node == pl.node.Name && sp.relieves(pl, sp.held(s)) && s.Phase != job.Canceling && (last == nil || victimOrder(s, last) < 0) {
			last = s
		}
	}
	return last
}

// mostFulfilled is the most fulfilled elastic role above its min; among equals the last in serving order.
func (p *pass) mostFulfilled(eligible func(*work, *job.Role) bool) (*work, *job.Role) {
	var best *work
	var bestRole *job.Role
	var most float64
	for _, w := range slices.Backward(p.servingOrder) {
		for i := range w.spec.Roles {
			r := &w.spec.Roles[i]
			if r.Scaling == nil || w.succeeded(r.Name) || !w.resizable(r.Name) {
				continue
			}
			count, sizes := len(w.heldSlots(r.Name)), w.sizes(r)
			if sizes.Floor(count-1) == 0 || !eligible(w, r) {
				continue
			}
			if f := fulfilment(count, sizes); best == nil || f > most {
				best, bestRole, most = w, r, f
			}
		}
	}
	return best, bestRole
}

// nobody prefers no slot.
func nobody(*job.Slot) bool { return false }

// shrinkTo shrinks a role to goal slots. Slots that first selects are given up first, whatever their rank.
func (p *pass) shrinkTo(w *work, r *job.Role, goal int, first func(*job.Slot) bool, why job.Reason) {
	held := w.heldSlots(r.Name)
	slices.SortStableFunc(held, func(a, b *job.Slot) int {
		switch before, after := first(a), first(b); {
		case before && !after:
			return -1
		case after && !before:
			return 1
		}
		return victimOrder(a, b)
	})
	sp := p.space(w.spec.Provider)
	shrunk := job.Because(Shrunk, "from", strconv.Itoa(len(held)), "to", strconv.Itoa(goal)).With(why)
	for _, s := range held[:len(held)-goal] {
		w.because(s, shrunk)
		node := s.Node
		p.cancel(w, s)
		if node == "" {
			continue
		}
		if s.Phase == job.Canceling {
			sp.leave(s)
		} else {
			pl := *s
			pl.Node = node
			sp.release(&pl)
		}
	}
	p.followDown(w, r)
}

// shrink gives up slots that cannot be placed, where the role allows fewer, and brings counts to legal sizes.
func (p *pass) shrink() {
	for _, w := range p.servingOrder {
		if !p.about(w) || !w.admitted() {
			continue
		}
		for i := range w.spec.Roles {
			p.shrinkRole(w, &w.spec.Roles[i])
		}
		for !w.within(nil) {
			v := mostFulfilledVictim(w.elastic())
			if v == nil {
				break
			}
			p.shrinkTo(w, v.role, v.sizes.Floor(v.left-1), nobody, job.Because(JobLimits))
		}
	}
}

func (p *pass) shrinkRole(w *work, r *job.Role) {
	if w.succeeded(r.Name) || !w.resizable(r.Name) {
		return
	}
	held, sizes := w.heldSlots(r.Name), w.sizes(r)
	unplaced := slices.DeleteFunc(slices.Clone(held), w.placed)
	goal := sizes.Floor(len(held) - len(unplaced))
	if len(held) > sizes.Max && goal > 0 {
		p.shrinkTo(w, r, goal, nobody, w.whyMost(r))
		return
	}
	if len(unplaced) > 0 && (r.Scaling == nil || goal < sizes.Min || goal == 0) {
		p.makeRoom(w, r, unplaced, sizes.Least()-(len(held)-len(unplaced)))
		return
	}
	if r.Scaling == nil || goal == 0 || goal == len(held) {
		return
	}
	p.shrinkTo(w, r, goal, nobody, job.Because(NoRoomForMore))
	p.decided(w, job.Shrink)
}

// unit is one elastic role that may grow.
type unit struct {
	w     *work
	role  *job.Role
	sizes job.Sizes
	count int
	most  int
	// saveDue is until when it waits for the job's next checkpoint, if there is room; zero if it does not.
	saveDue time.Time
	grown   []*job.Slot // what it got
}

type units []*unit

func (u units) Len() int { return len(u) }

func (u units) Swap(i, j int) { u[i], u[j] = u[j], u[i] }

func (u units) Less(i, j int) bool {
	a, b := u[i], u[j]
	fa, fb := fulfilment(a.count, a.sizes), fulfilment(b.count, b.sizes)
	if fa != fb {
		return fa < fb
	}
	return cmp.Or(ahead(a.w, b.w), cmp.Compare(a.role.Name, b.role.Name)) < 0
}

func (u *units) Push(x any) { *u = append(*u, x.(*unit)) }

func (u *units) Pop() any {
	last := (*u)[len(*u)-1]
	*u = (*u)[:len(*u)-1]
	return last
}

// grow gives one legal step at a time to the least fulfilled role, by planned counts, until nothing fits. A role that did not
// fit once is not tried again: what is free only shrinks here. A watch grows a job from its admission on: room that is there
// is used by its first world.
func (p *pass) grow() {
	var queue units
	for _, w := range p.servingOrder {
		if w.rest != nil && !p.roomToGrow(w) {
			continue
		}
		p.wake(w)
		if !w.admitted() || w.short() {
			continue
		}
		for i := range w.spec.Roles {
			r := &w.spec.Roles[i]
			if r.Scaling == nil || w.succeeded(r.Name) {
				continue
			}
			u := &unit{w: w, role: r, sizes: w.sizes(r), count: len(w.heldSlots(r.Name))}
			u.most = u.sizes.Max
			if p.in.Once {
				u.most = w.initialSize(r)
			}
			if r.Ranked && w.askedSize(r) == 0 {
				u.saveDue = p.saveDue(w)
			}
			if u.count < u.most {
				queue = append(queue, u)
			}
		}
	}
	all := slices.Clone(queue)
	heap.Init(&queue)
	for len(queue) > 0 {
		u := queue[0]
		next := u.sizes.Ceil(u.count + 1)
		if next == 0 || next > u.most || !p.growStep(u, next-u.count) {
			heap.Pop(&queue)
			continue
		}
		u.count = next
		heap.Fix(&queue, 0)
	}
	for _, u := range all {
		p.current = u.w
		u.explain()
		p.lacksAsked(u)
	}
}

// roomToGrow reports whether a job at rest has a role that may be larger, and there is room for a slot of it.
func (p *pass) roomToGrow(w *work) bool {
	sp := p.space(w.spec.Provider)
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if r.Scaling == nil || w.rec.Counts[r.Name] >= w.sizes(r).Max {
			continue
		}
		one := job.Slot{Address: job.Address{Job: w.name, Role: r.Name}}
		one.Reserved = r.Resources
		if !p.allows([]*job.Slot{&one}, nil) {
			continue
		}
		need, known := sp.slot(sp.needs(one.Address, r.Resources))
		if known && sp.next(need, sp.bars.of(&one), false, nil) != nil {
			return true
		}
	}
	return false
}

// lacksAsked says what a role waits for that has fewer slots than an operator asked for.
func (p *pass) lacksAsked(u *unit) {
	missing := u.w.askedSize(u.role) - u.count
	if missing <= 0 {
		return
	}
	slots := p.fresh(u.w, u.role, missing)
	switch {
	case slices.ContainsFunc(slots, func(s *job.Slot) bool { return p.coolingDown(u.w, s) }):
	case len(slots) < missing:
		p.addWait(u.w, u.role.Name, stillStopping(missing-len(slots)))
	default:
		p.addWait(u.w, u.role.Name, p.shortage(u.w, slots))
	}
}

// explain gives the slots that the role got their reason. A new job's initial size needs none.
func (u *unit) explain() {
	from, slots := u.count-len(u.grown), u.grown
	if initial := u.w.initialSize(u.role); u.w.world.Generation == 0 && from < initial {
		slots = slots[min(initial-from, len(slots)):]
		from = initial
	}
	why := job.Because(Scaled, "min", strconv.Itoa(u.sizes.Min), "max", strconv.Itoa(u.sizes.Max),
		"from", strconv.Itoa(from), "to", strconv.Itoa(u.count))
	switch {
	case u.w.askedSize(u.role) > 0:
		why = u.w.whyAsked(u.role)
	case u.w.policySize(u.role) > 0:
		why = u.w.whyScaled(u.role)
	}
	for _, s := range slots {
		u.w.because(s, why)
	}
}

// started reports whether the job trains or has trained: from then on its scaling owns the number of slots.
func (w *work) started() bool {
	if w.ranked() {
		return w.world.Generation > 0
	}
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Running })
}

// short reports whether slots of the job wait for a place: it recovers before it grows.
func (w *work) short() bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool {
		return holds(s) && (s.Phase == job.Pending || s.Phase == job.Scheduling && !w.placed(s))
	})
}

// regrowAfter is the minimum time before a role grows again into a slot whose pod was withdrawn unbound. It limits how fast
// pods are created and deleted while the planner and the scheduler disagree about what fits.
const regrowAfter = 30 * time.Second

// coolingDown reports whether it is too early to grow into the slot again.
func (p *pass) coolingDown(w *work, s *job.Slot) bool {
	return s.Unbound && s.Phase == job.Canceled && p.pending(s.Since, regrowAfter)
}

func (p *pass) growStep(u *unit, n int) bool {
	p.current = u.w
	slots, complete := p.freshWith(u.w, u.role, u.count, n)
	if !complete || !p.within(u.w, slots) || slices.ContainsFunc(slots, func(s *job.Slot) bool { return p.coolingDown(u.w, s) }) {
		return false
	}
	t := &txn{sp: p.space(u.w.spec.Provider)}
	for _, s := range slots {
		if !t.put(s, s.Reserved, "", nil, false) {
			t.undo()
			return false
		}
	}
	if !u.saveDue.IsZero() {
		t.undo()
		p.awaitSave(u.w, u.saveDue)
		why := job.Because(GrowthAwaitsSave, "until", u.saveDue.UTC().Format(time.RFC3339))
		p.out.Waits = append(p.out.Waits, Wait{Job: u.w.name, Role: u.role.Name, Held: true, Reasons: []job.Reason{why}})
		return false
	}
	for _, s := range slots { // by index in each role
		u.w.freshFrom[s.Address.Role] = s.Address.Index + 1
	}
	u.grown = append(u.grown, slots[:n]...)
	for _, s := range slots[n:] {
		u.w.because(s, whyFollows(u.w.spec.Role(s.Address.Role)))
	}
	p.grant(u.w, t)
	p.followDown(u.w, u.role)
	return true
}
