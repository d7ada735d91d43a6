package plan

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// sortForServing lists the active jobs in serving order: priority, then age, then name.
func (p *pass) sortForServing() []*work {
	var turn []*work
	for _, w := range p.jobs {
		if w.active() && !w.frozen {
			turn = append(turn, w)
		}
	}
	slices.SortStableFunc(turn, func(a, b *work) int { return ahead(a, b) })
	return turn
}

func ahead(a, b *work) int {
	return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), a.rec.Created.Compare(b.rec.Created), cmp.Compare(a.name, b.name))
}

// victimOrder sorts the slots to give up first to the front: without a place, without a rank, then the highest rank, so that
// rank 0 goes last; then the highest index.
func victimOrder(a, b *job.Slot) int {
	rank := func(s *job.Slot) int {
		if s.Rank < 0 {
			return math.MaxInt
		}
		return s.Rank
	}
	unplaced := func(s *job.Slot) int {
		if unplaced(s) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(unplaced(a), unplaced(b)), cmp.Compare(rank(b), rank(a)), cmp.Compare(b.Address.Index, a.Address.Index))
}

// fulfilment is how far a role is between its min and its max: 0 to 1.
func fulfilment(count int, s job.Sizes) float64 {
	if s.Max <= s.Min {
		return 0
	}
	return float64(count-s.Min) / float64(s.Max-s.Min)
}

// admit starts pending jobs: all of min, or nothing. Others are shrunk only if the job then fits. A job that is promised a
// place still in use waits for it, and no other job gets it.
func (p *pass) admit() {
	for _, w := range p.servingOrder {
		if !p.about(w) {
			continue
		}
		if why := p.refused(w); !why.IsZero() {
			p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Reasons: []job.Reason{why}, Never: !w.admitted() && !p.siteRefuses(w)})
			continue
		}
		if w.admitted() {
			p.complete(w)
			continue
		}
		if p.level == spent {
			p.addWait(w, "", p.whyBudget())
			continue
		}
		t := &txn{sp: p.space(w.spec.Provider)}
		gang, missing := p.gang(w)
		switch {
		case missing > 0:
			p.addWait(w, "", stillStopping(len(gang)+missing))
		case p.fit(t, w, gang):
			p.grant(w, t)
		case p.neverFits(w, gang):
		case p.fitByShrinking(t, w, gang), p.fitByPreempting(t, w, gang):
			p.grant(w, t)
		case w.retried:
			p.postpone(w, gang)
		default:
			p.addWait(w, "", p.noRoomYet(w, gang))
		}
	}
}

// siteRefuses reports whether the job's provider can start no job at the moment: its queue is closed, or its namespace is
// missing. That can pass without a change of the declaration.
func (p *pass) siteRefuses(w *work) bool { return p.in.Capabilities[w.spec.Provider].Refused != "" }

// refused says why the job cannot be started: its provider starts no jobs, or lacks something that this one needs. It is zero
// if the job can be started.
func (p *pass) refused(w *work) job.Reason {
	c, known := p.in.Capabilities[w.spec.Provider]
	if !known {
		return job.Because(ProviderNotConfigured, "provider", w.spec.Provider)
	}
	if c.Refused != "" {
		return job.Because(ProviderRefuses, "provider", w.spec.Provider, "message", c.Refused)
	}
	if owner := p.owners[runsAt{w.spec.Provider, w.name}]; owner != "" && !w.begun() {
		return job.Because(NameInUse, "state", owner)
	}
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if r.Image == "" && c.NeedsImage {
			return job.Because(ImageMissing, "role", r.Name, "provider", w.spec.Provider)
		}
		if r.Image != "" && !c.Images {
			return job.Because(ImageUnsupported, "role", r.Name, "provider", w.spec.Provider)
		}
		if r.Pod != nil && !c.Pods {
			return job.Because(PodUnsupported, "role", r.Name, "provider", w.spec.Provider)
		}
	}
	return job.Reason{}
}

// gang is the job's min: the slots that start together or not at all. The largest come first, so that small ones do not take
// the room that only a large one needs. missing counts those that are still being stopped.
func (p *pass) gang(w *work) (gang []*job.Slot, missing int) {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		least := w.sizes(r).Least()
		slots := p.fresh(w, r, least)
		missing += least - len(slots)
		gang = append(gang, slots...)
	}
	slices.SortStableFunc(gang, func(a, b *job.Slot) int { return larger(a.Reserved, b.Reserved) })
	return gang, missing
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

// fresh returns the n lowest slots of a role that hold nothing, created if they are new; fewer if others are still being
// stopped. They are added to the job only when they are granted.
func (p *pass) fresh(w *work, r *job.Role, n int) []*job.Slot {
	_, most := r.Bounds()
	var slots []*job.Slot
	for i := w.freshFrom[r.Name]; i < most && len(slots) < n; i++ {
		s := w.index[r.Name][i]
		switch {
		case w.outside(job.Address{Job: w.name, Role: r.Name, Index: i}):
			continue
		case s == nil:
			s = &job.Slot{Address: job.Address{Job: w.name, Role: r.Name, Index: i}, Phase: job.Pending, Rank: -1}
		case holds(s) || s.Phase == job.Canceling || s.Phase == job.Failed:
			continue
		}
		if fingerprint := w.fingerprint(r, i); s.Fingerprint != fingerprint || !s.Reserved.Equal(r.Resources) {
			s.Reserved, s.Fingerprint = r.Resources, fingerprint
			p.out.Dirty = p.out.Dirty || w.index[r.Name][i] == s
		}
		slots = append(slots, s)
	}
	return slots
}

// fit places the slots, all or none, on what is or soon will be free, within the job's limits.
func (p *pass) fit(t *txn, w *work, slots []*job.Slot) bool {
	return p.within(w, slots) && t.putAll(slots)
}

// within reports whether the job stays within its limits with the slots added.
func (w *work) within(added []*job.Slot) bool {
	if w.spec.Limits == nil {
		return true
	}
	if w.total == nil {
		w.total = &job.Resources{}
		for _, s := range w.slots {
			if holds(s) && s.Phase.Live() { // one that succeeded no longer holds anything
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

// fitByShrinking places the slots after shrinking elastic roles of jobs that are not served before this one, one legal step at
// a time, tentatively. It commits only if the slots then fit.
func (p *pass) fitByShrinking(t *txn, w *work, gang []*job.Slot) bool {
	victims := p.victims(w)
	need := t.sp.total(gang)
	for v := mostFulfilledVictim(victims); v != nil; v = mostFulfilledVictim(victims) {
		for _, s := range v.step() {
			t.sp.leave(s)
		}
		if p.allows(gang, freedBy(victims)) && need.fits(t.sp.room()) && t.putAll(gang) {
			for _, v := range victims {
				p.carryOut(v, w)
			}
			return true
		}
	}
	for _, v := range victims {
		for _, s := range v.freed() {
			t.sp.retake(s)
		}
	}
	return false
}

// fitByPreempting places the slots after stopping preemptible jobs of a lower priority as a whole: as few as are needed, the last
// in serving order first.
func (p *pass) fitByPreempting(t *txn, w *work, slots []*job.Slot) bool {
	if !w.spec.Preempt {
		return false
	}
	sp := t.sp
	var stopped []*work
	takes := func() bool {
		var freed []*job.Slot
		if p.in.Directory.Limits != nil {
			for _, v := range stopped {
				freed = append(freed, v.slots...)
			}
		}
		return p.allows(slots, freed) && sp.takes(slots)
	}
	for _, v := range slices.Backward(p.lower(w)) {
		if !v.spec.Preemptible || v.part != nil || len(v.finished) > 0 {
			continue
		}
		p.wake(v)
		sp.leaveAll(v)
		stopped = append(stopped, v)
		if takes() {
			break
		}
	}
	fits := takes()
	for _, v := range slices.Clone(stopped) { // the smaller ones before may not be needed
		all := stopped
		stopped = slices.DeleteFunc(slices.Clone(all), func(other *work) bool { return other == v })
		sp.retakeAll(v)
		if fits && !takes() {
			stopped = all
			sp.leaveAll(v)
		}
	}
	if !fits || !t.putAll(slots) {
		return false
	}
	for _, v := range stopped {
		why := job.Because(PreemptedBy, "job", w.name)
		p.note("job."+v.name, "preempted", why)
		for _, s := range v.slots {
			if holds(s) {
				v.because(s, why)
				p.cancel(v, s)
			}
		}
	}
	return true
}

// lower lists the jobs of a lower priority that hold places at the job's provider, in serving order.
func (p *pass) lower(w *work) []*work {
	var all []*work
	for _, v := range p.servingOrder {
		if v.spec.Priority < w.spec.Priority && v.spec.Provider == w.spec.Provider && v.admitted() {
			all = append(all, v)
		}
	}
	return all
}

// leaveAll counts what a job holds as free soon; retakeAll is the opposite.
func (sp *space) leaveAll(w *work) {
	for _, s := range w.slots {
		if holds(s) {
			sp.leave(s)
		}
	}
}

func (sp *space) retakeAll(w *work) {
	for _, s := range w.slots {
		if holds(s) {
			sp.retake(s)
		}
	}
}

// victim is an elastic role that may shrink for another job.
type victim struct {
	w     *work
	role  *job.Role
	sizes job.Sizes
	held  []*job.Slot // in the order in which they are given up
	left  int         // how many of held remain, counted from its end
	// followers are those whose count follows it; they have none of their own.
	followers []*victim
}

// victims lists the roles that may shrink for w, the last in serving order first.
func (p *pass) victims(w *work) []*victim {
	var all []*victim
	for _, v := range slices.Backward(p.servingOrder) {
		if v == w || v.spec.Provider != w.spec.Provider || v.spec.Priority > w.spec.Priority || w.retried && v.spec.Priority == w.spec.Priority {
			continue
		}
		if slices.ContainsFunc(v.spec.Roles, func(r job.Role) bool { return r.Scaling != nil }) {
			p.wake(v)
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
		if r.Scaling == nil || w.succeeded(r.Name) || !w.resizable(r.Name) {
			continue
		}
		v := w.victim(r)
		for _, f := range w.spec.Followers(r.Name) {
			if !w.succeeded(f.Name) && w.resizable(f.Name) {
				v.followers = append(v.followers, w.victim(f))
			}
		}
		all = append(all, v)
	}
	return all
}

func (w *work) victim(r *job.Role) *victim {
	held := w.heldSlots(r.Name)
	slices.SortStableFunc(held, victimOrder)
	return &victim{w: w, role: r, sizes: w.sizes(r), held: held, left: len(held)}
}

// mostFulfilledVictim is the most fulfilled victim that can still shrink; the first among equals. Nil if there is none.
func mostFulfilledVictim(victims []*victim) *victim {
	var best *victim
	for _, v := range victims {
		if v.sizes.Floor(v.left-1) > 0 && (best == nil || fulfilment(v.left, v.sizes) > fulfilment(best.left, best.sizes)) {
			best = v
		}
	}
	return best
}

// step shrinks the victim to its next smaller legal size, and what follows it. It returns the slots given up.
func (v *victim) step() []*job.Slot {
	freed := v.shrink(v.sizes.Floor(v.left - 1))
	for _, f := range v.followers {
		freed = append(freed, f.shrink(v.w.sizesAt(f.role, v.left).Max)...)
	}
	return freed
}

// shrink gives up all but left slots, and returns those given up now.
func (v *victim) shrink(left int) []*job.Slot {
	before := len(v.given())
	v.left = min(left, v.left)
	return slices.Clone(v.given()[before:])
}

// freedBy are the slots given up by all victims.
func freedBy(victims []*victim) (all []*job.Slot) {
	for _, v := range victims {
		all = append(all, v.freed()...)
	}
	return all
}

// freed are the slots given up by all steps so far, with those of what follows the victim.
func (v *victim) freed() []*job.Slot {
	all := slices.Clone(v.given())
	for _, f := range v.followers {
		all = append(all, f.given()...)
	}
	return all
}

// given are the slots given up by all steps so far.
func (v *victim) given() []*job.Slot { return v.held[:len(v.held)-v.left] }

// carryOut cancels the slots. The space already counts them as leaving. All steps together are one decision, so each slot has
// the same reason.
func (p *pass) carryOut(v *victim, ahead *work) {
	why := job.Because(MakesRoom, "job", ahead.name, "role", v.role.Name, "from", strconv.Itoa(len(v.held)), "to", strconv.Itoa(v.left))
	for _, s := range v.given() {
		v.w.because(s, why)
		p.cancel(v.w, s)
	}
	for _, f := range v.followers {
		for _, s := range f.given() {
			v.w.because(s, whyFollows(f.role))
			p.cancel(v.w, s)
		}
	}
}

// retake is the opposite of leave.
func (sp *space) retake(s *job.Slot) {
	if pl := sp.byName[s.Node]; pl != nil {
		a, _ := sp.slot(sp.held(s))
		pl.soon.take(a)
		clear(sp.cursors)
	}
}

// grant gives slots the places that were found. If some places are still in use, none is given yet: they stay promised, and a
// later pass gives them when they are free.
func (p *pass) grant(w *work, t *txn) {
	ready := t.now()
	for _, x := range t.taken {
		s := x.slot
		if w.index[s.Address.Role][s.Address.Index] == nil {
			w.insert(s)
			p.out.Dirty = true
		}
		if !counts(s) {
			p.holdings.add(x.size, 1)
		}
		if !ready {
			w.on(s).promised = x.at.node.Name
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

// complete brings a running job to its required size: a fixed role to its replicas, an elastic one to a min that was raised.
func (p *pass) complete(w *work) {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		sizes, held := w.sizes(r), w.heldSlots(r.Name)
		if w.succeeded(r.Name) || !w.resizable(r.Name) {
			continue
		}
		if len(held) > sizes.Max {
			continue // handled by shrink
		}
		missing := sizes.Least() - len(held)
		if missing <= 0 {
			continue
		}
		slots, enough := p.freshWith(w, r, len(held), missing)
		if len(slots) == 0 {
			p.addWait(w, r.Name, stillStopping(missing))
			continue
		}
		t := &txn{sp: p.space(w.spec.Provider)}
		if !enough || !w.within(slots) || !(p.allows(slots, nil) && t.putAll(slots)) && !p.fitByShrinking(t, w, slots) && !p.fitByPreempting(t, w, slots) {
			p.addWait(w, r.Name, p.noRoomYet(w, slots))
			continue
		}
		p.grant(w, t)
	}
}
