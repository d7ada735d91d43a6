package plan

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// byTurn lists the active jobs in the order in which they are served: priority, then age, then name.
func (p *pass) byTurn() []*work {
	var turn []*work
	for _, w := range p.jobs {
		if w.active() {
			turn = append(turn, w)
		}
	}
	slices.SortStableFunc(turn, func(a, b *work) int { return ahead(a, b) })
	return turn
}

func ahead(a, b *work) int {
	return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), a.rec.Created.Compare(b.rec.Created), cmp.Compare(a.name, b.name))
}

// unload shrinks elastic roles on nodes that hold more than they have, the most fulfilled first, never
// below min.
func (p *pass) unload() {
	for _, sp := range p.spaces {
		for _, pl := range sp.places {
			for over(pl) {
				w, role := p.mostFulfilled(func(w *work, r *job.Role) bool {
					return p.space(w.spec.Provider) == sp && w.onNode(r.Name, pl.node.Name) != nil
				})
				if w == nil {
					break
				}
				goal := role.Floor(len(w.of(role.Name)) - 1)
				p.shrinkTo(w, role, goal, w.onNode(role.Name, pl.node.Name), "node "+pl.node.Name+" has less than it holds")
			}
		}
	}
}

func over(pl *place) bool {
	return slices.ContainsFunc(pl.soon, func(n int64) bool { return n < 0 })
}

// onNode is the role's slot on the node that would go first; nil if it has none there.
func (w *work) onNode(role, node string) *job.Slot {
	var last *job.Slot
	for _, s := range w.of(role) {
		if s.Node == node && s.Phase != job.Canceling && (last == nil || victimOrder(s, last) < 0) {
			last = s
		}
	}
	return last
}

// victimOrder puts those first that go first: without a place, without a rank, then the highest rank, so
// that rank 0 goes last; then the highest index.
func victimOrder(a, b *job.Slot) int {
	rank := func(s *job.Slot) int {
		if s.Rank < 0 {
			return math.MaxInt
		}
		return s.Rank
	}
	homeless := func(s *job.Slot) int {
		if unplaced(s) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(homeless(a), homeless(b)), cmp.Compare(rank(b), rank(a)), cmp.Compare(b.Address.Index, a.Address.Index))
}

// fulfilment is how far a role is between its min and its max: 0 to 1.
func fulfilment(count int, r *job.Role) float64 {
	least, most := r.Bounds()
	if most <= least {
		return 0
	}
	return float64(count-least) / float64(most-least)
}

// mostFulfilled is the elastic role above its min that has the most of what it may have; of equals the one
// whose turn is last.
func (p *pass) mostFulfilled(eligible func(*work, *job.Role) bool) (*work, *job.Role) {
	var best *work
	var bestRole *job.Role
	var most float64
	for _, w := range slices.Backward(p.turn) {
		for i := range w.spec.Roles {
			r := &w.spec.Roles[i]
			if r.Scaling == nil || w.succeeded(r.Name) {
				continue
			}
			count := len(w.of(r.Name))
			if r.Floor(count-1) == 0 || !eligible(w, r) {
				continue
			}
			if f := fulfilment(count, r); best == nil || f > most {
				best, bestRole, most = w, r, f
			}
		}
	}
	return best, bestRole
}

// shrinkTo takes a role down to goal slots. first goes in any case, if given.
func (p *pass) shrinkTo(w *work, r *job.Role, goal int, first *job.Slot, why string) {
	held := w.of(r.Name)
	slices.SortStableFunc(held, func(a, b *job.Slot) int {
		switch {
		case a == first:
			return -1
		case b == first:
			return 1
		}
		return victimOrder(a, b)
	})
	sp := p.space(w.spec.Provider)
	for _, s := range held[:len(held)-goal] {
		w.because(s, "%s: %d -> %d slots", why, len(held), goal)
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
}

func unplaced(s *job.Slot) bool { return s.Node == "" }

// recover places what lost its place, ahead of all new work: first where it was, else elsewhere.
func (p *pass) recover() {
	for _, w := range p.turn {
		sp := p.space(w.spec.Provider)
		for _, s := range w.slots {
			if s.Node != "" || !holds(s) || s.Phase != job.Pending && s.Phase != job.Scheduling {
				continue
			}
			if role := w.spec.Role(s.Address.Role); role == nil || w.succeeded(role.Name) {
				continue
			}
			t := &txn{sp: sp}
			if !t.put(s, s.Reserved, w.prefer[s], w.avoid[s], false) {
				if s.Phase == job.Scheduling {
					p.step(s, job.Evicted)
				}
				if t.put(s, s.Reserved, w.prefer[s], w.avoid[s], true) {
					w.promised[s] = t.taken[0].at.node.Name
				}
				continue
			}
			if s.Phase == job.Pending {
				p.begin(s)
			}
			s.Node = t.taken[0].at.node.Name
			p.out.Dirty = true
			p.decided(w, job.Replace)
		}
	}
}

// begin grants a slot its next incarnation.
func (p *pass) begin(s *job.Slot) {
	if !p.step(s, job.Granted) {
		return
	}
	s.Incarnation++ // a number is used once, also if what it named may never have run
	s.InPlace = 0
}

// shrink gives up what cannot be placed, where the role may do with less, and brings counts to legal sizes.
func (p *pass) shrink() {
	for _, w := range p.turn {
		if !w.admitted() {
			continue
		}
		for i := range w.spec.Roles {
			p.shrinkRole(w, &w.spec.Roles[i])
		}
		for !w.within(nil) {
			v := mostOf(w.elastic())
			if v == nil {
				break
			}
			p.shrinkTo(w, v.role, v.role.Floor(v.left-1), nil, "the job's limits")
		}
	}
}

func (p *pass) shrinkRole(w *work, r *job.Role) {
	if w.succeeded(r.Name) {
		return
	}
	held := w.of(r.Name)
	least, most := r.Bounds()
	homeless := slices.DeleteFunc(slices.Clone(held), w.placed)
	goal := r.Floor(len(held) - len(homeless))
	if len(held) > most && goal > 0 {
		p.shrinkTo(w, r, goal, nil, fmt.Sprintf("at most %d slots", most))
		return
	}
	if len(homeless) > 0 && (r.Scaling == nil || goal < least || goal == 0) {
		p.makeRoom(w, r, homeless, max(r.Ceil(least), least)-(len(held)-len(homeless)))
		return
	}
	if r.Scaling == nil || goal == 0 || goal == len(held) {
		return
	}
	p.shrinkTo(w, r, goal, nil, "no node has room for more")
	p.decided(w, job.Shrink)
}

// placed tells whether a slot that holds has a place, or needs none yet: it is still being stopped, or its
// next start is held back.
func (w *work) placed(s *job.Slot) bool {
	return w.promised[s] != "" || !unplaced(s) || s.Phase == job.Canceling || s.Phase == job.Failing
}

// makeRoom shrinks others, as for a new job, for the slots that a role lacks to its min; or it waits.
func (p *pass) makeRoom(w *work, r *job.Role, homeless []*job.Slot, lacking int) {
	t := &txn{sp: p.space(w.spec.Provider)}
	if lacking > 0 && p.fitByShrinking(t, w, homeless[:min(lacking, len(homeless))]) {
		for _, x := range t.taken {
			w.promised[x.slot] = x.at.node.Name
		}
		return
	}
	if lacking > 0 {
		homeless = homeless[:min(lacking, len(homeless))]
	}
	p.wait(w, r.Name, p.shortage(w, homeless))
	p.decided(w, job.WaitCapacity)
}

// admit starts pending jobs: all of min, or nothing. Others are shrunk only if the job then fits. What is
// promised a place that is still in use waits for it, and nobody else gets it.
func (p *pass) admit() {
	for _, w := range p.turn {
		if why := p.refused(w); why != "" {
			p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Reasons: []string{why}, Never: true})
			continue
		}
		if w.admitted() {
			p.complete(w)
			continue
		}
		t := &txn{sp: p.space(w.spec.Provider)}
		gang, whole := p.gang(w)
		switch {
		case !whole:
			p.wait(w, "", stillStopping)
		case p.fit(t, w, gang):
			p.grant(w, t)
		case p.never(w, gang):
		case p.fitByShrinking(t, w, gang):
			p.grant(w, t)
		default:
			p.wait(w, "", p.shortage(w, gang))
		}
	}
}

// refused says what the job asks of its provider that this one does not do.
func (p *pass) refused(w *work) string {
	c, known := p.in.Capabilities[w.spec.Provider]
	if !known {
		return fmt.Sprintf("Its provider %q is not configured.", w.spec.Provider)
	}
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if r.Image != "" && !c.Images {
			return fmt.Sprintf("Role %s has an image, and provider %q runs none. Leave image out or choose another provider.", r.Name, w.spec.Provider)
		}
		if r.Pod != nil && !c.Pods {
			return fmt.Sprintf("Role %s has a pod overlay, and provider %q has no pods. Leave pod out or choose another provider.", r.Name, w.spec.Provider)
		}
	}
	return ""
}

// gang is the job's min: the slots that start together or not at all, the largest first, so that small ones
// do not take the room that only a large one needs. It is not whole while some are still being stopped.
func (p *pass) gang(w *work) (gang []*job.Slot, whole bool) {
	whole = true
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		least, _ := r.Bounds()
		least = max(r.Ceil(least), least)
		slots := p.fresh(w, r, least)
		whole = whole && len(slots) == least
		gang = append(gang, slots...)
	}
	slices.SortStableFunc(gang, func(a, b *job.Slot) int { return larger(a.Reserved, b.Reserved) })
	return gang, whole
}

func larger(a, b job.Resources) int {
	devices := func(r job.Resources) (n int) {
		for _, k := range r.Devices {
			n += k
		}
		return n
	}
	return cmp.Or(cmp.Compare(devices(b), devices(a)), cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory))
}

// fresh gives the n lowest slots of a role that hold nothing, made if they are new; fewer if others are
// still being stopped. They are entered in the job only when they are granted.
func (p *pass) fresh(w *work, r *job.Role, n int) []*job.Slot {
	_, most := r.Bounds()
	var slots []*job.Slot
	for i := w.freshFrom[r.Name]; i < most && len(slots) < n; i++ {
		s := w.index[r.Name][i]
		switch {
		case s == nil:
			s = &job.Slot{Address: job.Address{Job: w.name, Role: r.Name, Index: i}, Phase: job.Pending, Rank: -1}
		case holds(s) || s.Phase == job.Canceling || s.Phase == job.Failed:
			continue
		}
		if print := w.print(r, i); s.Fingerprint != print || !s.Reserved.Equal(r.Resources) {
			s.Reserved, s.Fingerprint = r.Resources, print
			p.out.Dirty = p.out.Dirty || w.index[r.Name][i] == s
		}
		slots = append(slots, s)
	}
	return slots
}

// fit places the slots, whole or not at all, on what is or soon will be free, and within the job's limits.
func (p *pass) fit(t *txn, w *work, slots []*job.Slot) bool {
	return w.within(slots) && t.putAll(slots)
}

// within tells whether the job stays inside its limits with the slots added.
func (w *work) within(added []*job.Slot) bool {
	if w.spec.Limits == nil {
		return true
	}
	if w.total == nil {
		w.total = &job.Resources{}
		for _, s := range w.slots {
			if holds(s) && s.Phase.Live() { // one that succeeded holds nothing any more
				*w.total = w.total.Add(s.Reserved)
			}
		}
	}
	sum := *w.total
	for _, s := range added {
		sum = sum.Add(s.Reserved)
	}
	return sum.Within(w.spec.Limits)
}

// fitByShrinking places the slots with elastic roles of jobs that do not go before this one shrunk, one legal
// step at a time in a scratch copy. It commits only if they then fit.
func (p *pass) fitByShrinking(t *txn, w *work, gang []*job.Slot) bool {
	var given []offer
	victims := p.victims(w)
	need := t.sp.total(gang)
	for v := mostOf(victims); v != nil; v = mostOf(victims) {
		step := v.offer()
		for _, s := range step.slots {
			t.sp.leave(s)
		}
		given = append(given, step)
		if need.fits(t.sp.room()) && t.putAll(gang) {
			for _, o := range given {
				p.carryOut(o, w)
			}
			return true
		}
	}
	for _, o := range given {
		for _, s := range o.slots {
			t.sp.retake(s)
		}
	}
	return false
}

// victim is an elastic role that may shrink for another job.
type victim struct {
	w    *work
	role *job.Role
	held []*job.Slot // those that go first are first
	left int         // of held, from its end
}

// offer is one shrinking step of another job.
type offer struct {
	w        *work
	role     *job.Role
	slots    []*job.Slot
	from, to int
}

// victims lists the roles that may shrink for w, those whose turn is last first.
func (p *pass) victims(w *work) []*victim {
	var all []*victim
	for _, v := range slices.Backward(p.turn) {
		if v == w || v.spec.Provider != w.spec.Provider || v.spec.Priority > w.spec.Priority {
			continue
		}
		all = append(all, v.elastic()...)
	}
	return all
}

// elastic lists the job's roles that may shrink.
func (w *work) elastic() []*victim {
	var all []*victim
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if r.Scaling == nil || w.succeeded(r.Name) {
			continue
		}
		held := w.of(r.Name)
		slices.SortStableFunc(held, victimOrder)
		all = append(all, &victim{w, r, held, len(held)})
	}
	return all
}

// mostOf is the most fulfilled victim that can still shrink; of equals the first. Nil if there is none.
func mostOf(victims []*victim) *victim {
	var best *victim
	for _, v := range victims {
		if v.role.Floor(v.left-1) > 0 && (best == nil || fulfilment(v.left, v.role) > fulfilment(best.left, best.role)) {
			best = v
		}
	}
	return best
}

// offer takes the victim down to its next smaller legal size.
func (v *victim) offer() offer {
	from, to := v.left, v.role.Floor(v.left-1)
	begin := len(v.held) - from
	v.left = to
	return offer{v.w, v.role, v.held[begin : begin+from-to], from, to}
}

// carryOut shrinks for real. The space knows already that the slots leave.
func (p *pass) carryOut(o offer, ahead *work) {
	for _, s := range o.slots {
		o.w.because(s, "job.%s waits and fits with %s at %d instead of %d slots", ahead.name, o.role.Name, o.to, o.from)
		p.cancel(o.w, s)
	}
}

// retake is the opposite of leave.
func (sp *space) retake(s *job.Slot) {
	if pl := sp.byName[s.Node]; pl != nil {
		a, _ := sp.amount(s.Reserved)
		pl.soon.take(a)
		clear(sp.cursors)
	}
}

// grant gives slots the places that were found. If some of these are still in use, none is given yet: the
// places stay promised, and a later pass gives them when they are free.
func (p *pass) grant(w *work, t *txn) {
	ready := t.now()
	for _, x := range t.taken {
		s := x.slot
		if w.index[s.Address.Role][s.Address.Index] == nil {
			w.insert(s)
			p.out.Dirty = true
		}
		if !ready {
			w.promised[s] = x.at.node.Name
			continue
		}
		s.Reserved = x.size
		if w.total != nil {
			*w.total = w.total.Add(x.size)
		}
		p.begin(s)
		s.Node = x.at.node.Name
	}
}

// complete brings a running job to what it must have: a fixed role to its replicas, an elastic one to a min
// that was raised.
func (p *pass) complete(w *work) {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		least, most := r.Bounds()
		held := w.of(r.Name)
		if w.succeeded(r.Name) {
			continue
		}
		if len(held) > most {
			continue // shrink saw to it
		}
		missing := max(r.Ceil(least), least) - len(held)
		if missing <= 0 {
			continue
		}
		slots := p.fresh(w, r, missing)
		t := &txn{sp: p.space(w.spec.Provider)}
		if len(slots) < missing || !p.fit(t, w, slots) && !p.fitByShrinking(t, w, slots) {
			p.wait(w, r.Name, p.shortage(w, slots))
			continue
		}
		p.grant(w, t)
	}
}

// unit is one elastic role that may grow.
type unit struct {
	w     *work
	role  *job.Role
	count int
	most  int
}

type units []*unit

func (u units) Len() int      { return len(u) }
func (u units) Swap(i, j int) { u[i], u[j] = u[j], u[i] }
func (u units) Less(i, j int) bool {
	a, b := u[i], u[j]
	fa, fb := fulfilment(a.count, a.role), fulfilment(b.count, b.role)
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

// grow gives one legal step at a time to the least fulfilled, by planned counts, until nothing fits. What
// did not fit once is not asked again: what is free only shrinks here.
func (p *pass) grow() {
	var queue units
	for _, w := range p.turn {
		if !w.admitted() || w.short() {
			continue
		}
		for i := range w.spec.Roles {
			r := &w.spec.Roles[i]
			if r.Scaling == nil || w.succeeded(r.Name) {
				continue
			}
			u := &unit{w, r, len(w.of(r.Name)), r.Scaling.Max}
			if !w.started() {
				u.most = max(r.Floor(r.Replicas), r.Scaling.Min) // where it starts; the policy owns it afterwards
			}
			if u.count < u.most {
				queue = append(queue, u)
			}
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		u := queue[0]
		next := u.role.Ceil(u.count + 1)
		if next == 0 || next > u.most || !p.growStep(u, next-u.count) {
			heap.Pop(&queue)
			continue
		}
		u.count = next
		heap.Fix(&queue, 0)
	}
}

// started tells whether the job trains or has trained: from then on its scaling owns the number of slots.
func (w *work) started() bool {
	if w.ranked() {
		return w.world.Generation > 0
	}
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Running })
}

// short tells whether slots of the job wait for a place: it recovers before it grows.
func (w *work) short() bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return holds(s) && s.Phase == job.Pending })
}

func (p *pass) growStep(u *unit, n int) bool {
	slots := p.fresh(u.w, u.role, n)
	if len(slots) < n || !u.w.within(slots) {
		return false
	}
	t := &txn{sp: p.space(u.w.spec.Provider)}
	for _, s := range slots {
		if !t.put(s, s.Reserved, "", "", false) {
			t.undo()
			return false
		}
	}
	u.w.freshFrom[u.role.Name] = slots[n-1].Address.Index + 1
	if u.w.world.Generation > 0 { // before that it is where the job starts, and needs no reason
		for _, s := range slots {
			u.w.because(s, "scaled within %d..%d: %d -> %d slots", u.role.Scaling.Min, u.role.Scaling.Max, u.count, u.count+n)
		}
	}
	p.grant(u.w, t)
	return true
}
