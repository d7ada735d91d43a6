package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// headStart is how long the other members of a new world wait for rank 0's to say that its processes run.
// A TCPStore client that comes before rank 0 listens waits a whole second before it tries again, so a
// start some milliseconds later is a start a second earlier; and to wait longer than that second gains nothing.
const headStart = time.Second

// A world that the ledger did not take is proposed again after formRetry, twice as long each time up to formRetryMax.
const (
	formRetry    = 100 * time.Millisecond
	formRetryMax = 5 * time.Second
)

// Rendezvous gathers one job's members into worlds. It is stepped with events; what must be done about them
// comes back as Ready: a world to write to the ledger, and members whose order changed.
//
// A member is one incarnation of a slot. At any time the newest incarnation that Wanted names is the only
// one: news of older ones is refused, whichever order it comes in.
type Rendezvous struct {
	now     time.Time // of the step under way
	want    job.Want
	started bool // Wanted came at least once
	slots   map[job.Address]*slot
	roles   []*role // the ranked ones, in declaration order

	world      job.World // the newest formed; Broken unless it trains
	generation int       // the largest number ever seen, here or in a report

	// proposed waits for the ledger's answer. Nobody has been told of it.
	proposed *job.World
	failures int       // of the ledger in a row
	retryAt  time.Time // after a failure

	claim      *claim
	claimUntil time.Time // until when a world that the record does not know may be claimed by its members

	settleFrom time.Time // the last join, or the last change of who is wanted
	settled    bool      // whoever was missing when the world was broken on purpose has been waited for already
	asked      bool      // members that still run have been asked for a checkpoint
	headUntil  time.Time // until when only rank 0 is told to run; zero once all are
	settleAt   time.Time // when a world forms, or grows, without those who are missing; zero if it does not

	form    bool // proposed is new
	orders  []job.Address
	version uint64 // of the newest order of any member
	changes uint64
}

// slot is a desired slot with its member, if it has one.
type slot struct {
	DesiredSlot        // Rank is the last one it had, -1 if none
	role        *role  // nil unless its role is ranked
	named       bool   // among the slots wanted of its role
	wanted      bool   // named, and not to leave: to be in the next world
	unranked    *Place // for one that has no rank but may start now: the ranks among its like
	here        bool   // its member is registered and has not been lost
	awaited     bool   // its member is to register again with this master
	ended       bool   // its incarnation is known to have ended
	host        string
	report      Report    // the last; it outlives the member, as evidence
	left        time.Time // when the report first said that it is leaving; zero if it does not
	member      bool      // this incarnation is in r.world
	rank        int       // the slot's in r.world, -1 if it is not in it
	checkpoint  bool      // its last stop was planned; it stays so while it waits, or its order would change for nothing
	place       *Place    // to run in; nil for none
	class       class
	order       Order
	version     uint64
}

// role is a ranked role with the number of its wanted slots in each class.
type role struct {
	job.WantRole
	desired int // slots wanted, also those that have no incarnation yet
	count   [classes]int
}

// class is what a wanted slot contributes to a world.
type class int

const (
	none     class = iota // not wanted
	absent                // nobody there who could train
	coming                // alive but busy: it stops an older world's processes, or is awaited
	joined                // waits for the next world
	starting              // in the world, not seen to run
	training              // runs in the world
	done                  // succeeded
	classes
)

// claim is a running world that the record does not know: its members register one by one, and once all
// ranks are there the world is adopted.
type claim struct {
	generation int
	size       int
	ranks      map[int]*slot
}

// Event is one of the types below.
type Event interface{ event() }

// Wanted is what the plan wants now.
type Wanted struct{ Desired }

// Registered is a member making itself known.
type Registered struct {
	Slot        job.Address
	Incarnation int
	Host        string
	Report      Report
}

// Reported is a registered member's word.
type Reported struct {
	Slot        job.Address
	Incarnation int
	Report      Report
}

// Gone is the provider being certain that nothing of an incarnation runs any more.
type Gone struct {
	Slot        job.Address
	Incarnation int
}

// Expired is a lease that ran out.
type Expired struct {
	Slot        job.Address
	Incarnation int
}

// Formed is the ledger's answer to Ready.Form.
type Formed struct {
	Generation int
	Err        error
}

// Stalled is this process itself not having run for a while: nobody could be heard.
type Stalled struct{ For time.Duration }

// Tick is the time passing.
type Tick struct{}

func (Wanted) event()     {}
func (Registered) event() {}
func (Reported) event()   {}
func (Gone) event()       {}
func (Expired) event()    {}
func (Formed) event()     {}
func (Stalled) event()    {}
func (Tick) event()       {}

// Ready is what is to be done about the steps since the last Ready.
type Ready struct {
	// Form is to be written to the ledger; the answer comes back as Formed. Nil if there is nothing to write.
	Form *job.World
	// Orders are the slots whose order changed, or whose member was fenced or dropped: an open request of
	// theirs is to be answered.
	Orders []job.Address
}

// NewRendezvous returns one that wants nothing and knows nobody.
func NewRendezvous() *Rendezvous {
	return &Rendezvous{slots: map[job.Address]*slot{}}
}

// Step takes one event in. A refused event is an *Error and changes nothing.
func (r *Rendezvous) Step(now time.Time, e Event) error {
	r.now = now
	var err error
	switch e := e.(type) {
	case Wanted:
		r.wanted(e.Desired)
	case Registered:
		err = r.registered(e)
	case Reported:
		err = r.reported(e)
	case Gone:
		r.gone(e)
	case Expired:
		r.expired(e)
	case Formed:
		r.formed(e)
	case Stalled:
		if r.claim != nil {
			r.claimUntil = r.claimUntil.Add(e.For)
		}
	case Tick:
		r.tick()
	}
	r.advance()
	return err
}

// Ready hands out what is to be done, once.
func (r *Rendezvous) Ready() Ready {
	var out Ready
	if r.form {
		out.Form, r.form = r.proposed, false
	}
	out.Orders, r.orders = r.orders, nil
	return out
}

// Next is when a Tick is due; zero for never.
func (r *Rendezvous) Next() time.Time {
	next := earlier(r.settleAt, r.headUntil)
	if r.claim != nil && len(r.claim.ranks) < r.claim.size {
		next = earlier(next, r.claimUntil)
	}
	if r.proposed == nil && r.retryAt.After(r.now) {
		next = earlier(next, r.retryAt)
	}
	return next
}

// Order is what the slot's member is to do, and the version of that; 0 if the slot is not known.
func (r *Rendezvous) Order(addr job.Address) (Order, uint64) {
	s := r.slots[addr]
	if s == nil {
		return Order{}, 0
	}
	return s.order, s.version
}

// World is the newest world that was formed; zero before the first. Its members are not changed any more.
func (r *Rendezvous) World() job.World { return r.world }

// Changes counts the changes of what a plan depends on: states, exits, registrations, worlds. Steps, loads
// and mere beats are not among it.
func (r *Rendezvous) Changes() uint64 { return r.changes }

// admit checks that an incarnation is the one that holds its slot.
func (r *Rendezvous) admit(addr job.Address, incarnation int) (*slot, error) {
	s := r.slots[addr]
	switch {
	case !r.started:
		return nil, &Error{NotReady, "it is not known yet what is wanted of this job"}
	case s == nil:
		return nil, &Error{NoSuchSlot, fmt.Sprintf("%s is not wanted", addr)}
	case incarnation < s.Incarnation:
		return nil, &Error{Fenced, fmt.Sprintf("incarnation %d of %s was replaced by %d", incarnation, addr, s.Incarnation)}
	case incarnation > s.Incarnation:
		// The provider was faster than the plan's result reached us.
		return nil, &Error{NotReady, fmt.Sprintf("incarnation %d of %s is not known yet", incarnation, addr)}
	case s.ended:
		return nil, &Error{Fenced, fmt.Sprintf("incarnation %d of %s is held to have ended", incarnation, addr)}
	}
	return s, nil
}

func (r *Rendezvous) registered(e Registered) error {
	s, err := r.admit(e.Slot, e.Incarnation)
	if err != nil {
		return err
	}
	if !s.here {
		r.changes++
	}
	s.here, s.awaited, s.host = true, false, e.Host
	r.take(s, e.Report)
	return nil
}

func (r *Rendezvous) reported(e Reported) error {
	s, err := r.admit(e.Slot, e.Incarnation)
	if err != nil {
		return err
	}
	if !s.here {
		return &Error{RegisterFirst, fmt.Sprintf("%s is not registered", e.Slot)}
	}
	r.take(s, e.Report)
	return nil
}

// take enters a member's word and draws the consequences for the world.
func (r *Rendezvous) take(s *slot, report Report) {
	if s.report.State != report.State || s.report.Generation != report.Generation ||
		s.report.InPlace != report.InPlace || !sameExit(s.report.Exit, report.Exit) {
		r.changes++
	}
	switch {
	case report.State != job.MemberLeaving:
		s.left = time.Time{}
	case s.left.IsZero():
		s.left = r.now
	}
	s.report = report
	if s.role == nil {
		r.refresh(s)
		return
	}
	r.generation = max(r.generation, report.Generation)
	switch {
	case s.member && r.trains() && r.leftWorld(report):
		r.breakWorld(false)
	case r.trains() && r.outgrows(s):
		r.breakWorld(true)
	case s.member && r.asked && (report.State == job.MemberFailed || report.State == job.MemberLeaving):
		r.abandonCheckpoint()
	case s.member && s.rank == 0 && r.runsIn(report):
		r.releaseAll()
	}
	r.takeClaim(s)
	r.refresh(s)
}

// leftWorld tells whether a member of the world that trains says that it does not train in it any more. A
// report of an older generation comes from before the member heard of its world.
func (r *Rendezvous) leftWorld(report Report) bool {
	switch report.State {
	case job.MemberRunning:
		return report.Generation > r.world.Generation
	case job.MemberWaiting:
		return report.Generation >= r.world.Generation
	case job.MemberSucceeded:
		return report.Generation != r.world.Generation
	}
	return true
}

func (r *Rendezvous) trains() bool { return r.world.Generation > 0 && !r.world.Broken }

func (r *Rendezvous) runsIn(report Report) bool {
	return report.State == job.MemberRunning && report.Generation == r.world.Generation
}

func (r *Rendezvous) gone(e Gone) {
	s := r.slots[e.Slot]
	if s == nil || e.Incarnation != s.Incarnation || s.ended {
		return
	}
	s.ended = true
	r.lose(s)
}

func (r *Rendezvous) expired(e Expired) {
	s := r.slots[e.Slot]
	if s == nil || e.Incarnation != s.Incarnation || !s.here && !s.awaited {
		return
	}
	r.lose(s)
}

// lose takes a slot's member out. A member that succeeded is not missed in its world, nor is one that was to
// leave and never registered with this master.
func (r *Rendezvous) lose(s *slot) {
	r.changes++
	r.orders = append(r.orders, s.Address)
	missed := s.report.State != job.MemberSucceeded && (s.wanted || !s.awaited)
	s.here, s.awaited = false, false
	r.settled = false
	switch {
	case !missed:
	case s.member && r.trains():
		r.breakWorld(false)
	case s.member && r.asked && s.class == coming:
		r.abandonCheckpoint()
	}
	r.takeClaim(s)
	r.refresh(s)
}

// wanted takes in what the plan wants.
func (r *Rendezvous) wanted(d Desired) {
	first := !r.started
	r.started = true
	waited := !r.now.Before(r.settleFrom.Add(r.want.Settle.Std()))
	released := r.want.Hold && !d.Want.Hold
	r.want = d.Want
	r.generation = max(r.generation, d.World.Generation)

	torn := r.list(d.Slots)
	added, removed := r.assign()
	if first {
		r.claimUntil = r.now.Add(leaseOf(d.Want))
		r.remember(d.World)
	}
	if first || added || removed || released {
		r.settleFrom = r.now
	}
	switch {
	case torn && r.trains():
		r.breakWorld(false)
	case r.trains() && r.outgrown():
		r.breakWorld(true)
		r.settled = waited && !added
	case added:
		r.settled = false
	}
	for _, s := range r.slots {
		r.refresh(s)
	}
}

// list makes r.slots what is desired. A newer incarnation starts with nothing known of it and fences the older.
// It tells whether the world lost a member by that.
func (r *Rendezvous) list(desired []DesiredSlot) (torn bool) {
	listed := make(map[job.Address]bool, len(desired))
	for _, d := range desired {
		listed[d.Address] = true
		s := r.slots[d.Address]
		if s == nil {
			r.slots[d.Address] = &slot{DesiredSlot: d, rank: -1}
			continue
		}
		if s.Rank >= 0 {
			d.Rank = s.Rank // of a world that the record may not know yet
		}
		switch {
		case d.Incarnation < s.Incarnation:
			d.Incarnation, d.InPlace = s.Incarnation, s.InPlace
		case d.Incarnation > s.Incarnation:
			torn = r.dismiss(s) || torn
		}
		s.DesiredSlot = d
	}
	for addr, s := range r.slots {
		if !listed[addr] {
			torn = r.dismiss(s) || torn
			delete(r.slots, addr)
		}
	}
	return torn
}

// dismiss drops a slot's incarnation, and tells whether the world misses it. What the slot itself owns stays:
// its rank, and the order that the next incarnation's has to differ from.
func (r *Rendezvous) dismiss(s *slot) (missed bool) {
	missed = s.member && s.report.State != job.MemberSucceeded
	r.changes++
	r.orders = append(r.orders, s.Address)
	if r.claim != nil && r.claim.ranks[s.report.Rank] == s {
		r.voidClaim()
	}
	*s = slot{DesiredSlot: s.DesiredSlot, rank: s.rank, wanted: s.wanted, order: s.order, version: s.version}
	return missed
}

// assign gives every slot its role, and tells whether slots came to those wanted in the next world, or went.
func (r *Rendezvous) assign() (added, removed bool) {
	r.roles = nil
	byName := make(map[string]*role, len(r.want.Roles))
	for _, w := range r.want.Roles {
		ro := &role{WantRole: w, desired: len(w.Slots)}
		r.roles, byName[w.Role] = append(r.roles, ro), ro
	}
	for addr, s := range r.slots {
		was := s.wanted
		s.role, s.named, s.unranked = byName[addr.Role], false, nil
		if s.role == nil {
			s.class = none
		} else {
			s.role.count[s.class]++
			_, s.named = slices.BinarySearch(s.role.Slots, addr.Index)
		}
		if s.named && s.Leave && !s.Return {
			s.role.desired--
		}
		s.wanted = s.named && !s.Leave
		added = added || s.wanted && !was
		removed = removed || !s.wanted && was
	}
	r.assignUnranked()
	return added, removed
}

// assignUnranked numbers the slots that may start without a rank, role by role.
func (r *Rendezvous) assignUnranked() {
	byRole := map[string][]*slot{}
	for _, addr := range r.want.Unranked {
		if s := r.slots[addr]; s != nil && s.role == nil {
			byRole[addr.Role] = append(byRole[addr.Role], s)
		}
	}
	for _, like := range byRole {
		slices.SortFunc(like, bySlot)
		processes := 0
		for i, s := range like {
			s.unranked = &Place{GroupRank: i, GroupSize: len(like), RankBase: processes, RoleRankBase: processes}
			processes += max(s.Processes, 1)
		}
		for _, s := range like {
			s.unranked.WorldSize, s.unranked.RoleWorldSize = processes, processes
		}
	}
}

// remember takes up the world that the record knows. It trains unless the record says otherwise or a member
// of it was replaced; its members are awaited for as long as their lease would have held.
func (r *Rendezvous) remember(w job.World) {
	if w.Generation == 0 {
		return
	}
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s == nil || s.Incarnation != m.Incarnation {
			w.Broken = true
		}
	}
	r.enter(w)
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s != nil {
			s.awaited = s.member
		}
	}
}

// outgrown tells whether a member of the world that trains is not to be in the next one.
func (r *Rendezvous) outgrown() bool {
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil && r.outgrows(s) {
			return true
		}
	}
	return false
}

// outgrows tells whether a slot is a reason for the world to end on purpose. One that succeeded may go without
// the others noticing; one that is not here may have done so under the last master, and says so if it comes.
func (r *Rendezvous) outgrows(s *slot) bool {
	return s.member && s.role != nil && !s.wanted && s.here && s.report.State != job.MemberSucceeded
}

func (r *Rendezvous) tick() {
	if !r.headUntil.IsZero() && !r.now.Before(r.headUntil) {
		r.releaseAll()
	}
	if r.claim != nil && len(r.claim.ranks) < r.claim.size && !r.now.Before(r.claimUntil) {
		r.endClaims()
	}
}

// advance forms a world, or breaks one that can grow, when its time has come.
func (r *Rendezvous) advance() {
	r.settleAt = time.Time{}
	if r.proposed != nil || r.retryAt.After(r.now) {
		return
	}
	if r.claim != nil {
		if len(r.claim.ranks) == r.claim.size {
			r.propose(r.claimedWorld())
		}
		return
	}
	if r.want.Hold {
		return
	}
	size, all, ok := r.outlook()
	if !ok || r.trains() && size <= r.trainees() {
		return
	}
	if !all && !(r.settled && !r.trains()) {
		if at := r.settleFrom.Add(r.want.Settle.Std()); r.now.Before(at) {
			r.settleAt = at
			return
		}
	}
	if r.trains() {
		r.breakWorld(true)
		r.settled = true
		return
	}
	r.propose(r.nextWorld())
}

// outlook tells how many slots a world of those who are there would have, and whether that is everyone wanted.
// It is not ok while somebody is bound to join or to start soon, when a role has too few, or once any slot
// succeeded: a world without it would train its share again.
func (r *Rendezvous) outlook() (size int, all, ok bool) {
	all = true
	for _, ro := range r.roles {
		if ro.count[coming]+ro.count[starting]+ro.count[done] > 0 {
			return 0, false, false
		}
		there := ro.count[joined] + ro.count[training]
		n := ro.Sizes.Floor(there)
		if n < ro.Sizes.Min {
			return 0, false, false
		}
		size += n
		all = all && there == ro.desired
	}
	return size, all, size > 0
}

// trainees counts the wanted members of the world that run. One that was to leave and did not come back to this
// master is not among them: the world may have another in its stead.
func (r *Rendezvous) trainees() (n int) {
	for _, ro := range r.roles {
		n += ro.count[training]
	}
	return n
}

func (r *Rendezvous) propose(w job.World) {
	r.proposed, r.form = &w, true
}

// nextWorld is made of those who joined: of each role the largest legal number, members of the previous world
// before others, then the lowest index.
func (r *Rendezvous) nextWorld() job.World {
	joiners := map[*role][]*slot{}
	for _, s := range r.slots {
		if s.class == joined {
			joiners[s.role] = append(joiners[s.role], s)
		}
	}
	var chosen []*slot
	for _, ro := range r.roles {
		like := joiners[ro]
		slices.SortFunc(like, func(a, b *slot) int {
			if (a.rank >= 0) != (b.rank >= 0) {
				return cmp.Compare(b.rank, a.rank)
			}
			return bySlot(a, b)
		})
		like = like[:ro.Sizes.Floor(len(like))]
		slices.SortFunc(like, bySlot)
		chosen = append(chosen, like...)
	}
	var byRank []*slot
	if len(r.want.RankBy) > 0 {
		byRank = rankByTopology(chosen)
	} else {
		byRank = keepRanks(chosen)
	}
	return r.worldOf(r.generation+1, byRank)
}

// claimedWorld is the one that its members say they run in.
func (r *Rendezvous) claimedWorld() job.World {
	byRank := make([]*slot, r.claim.size)
	for rank, s := range r.claim.ranks {
		byRank[rank] = s
	}
	w := r.worldOf(r.claim.generation, byRank)
	w.Adopted = true
	return w
}

func (r *Rendezvous) worldOf(generation int, byRank []*slot) job.World {
	w := job.World{
		Generation: generation,
		Formed:     r.now,
		MasterAddr: byRank[0].host,
		MasterPort: byRank[0].report.Port,
		Members:    make([]job.WorldMember, len(byRank)),
	}
	for i, s := range byRank {
		w.Members[i] = job.WorldMember{Slot: s.Address, Incarnation: s.Incarnation, Rank: i, Processes: max(1, s.role.Processes)}
	}
	return w
}

// formed takes the ledger's answer. A world that lost a member meanwhile has used up its number, and nobody
// is told of it.
func (r *Rendezvous) formed(e Formed) {
	if r.proposed == nil || r.proposed.Generation != e.Generation {
		return
	}
	w := *r.proposed
	r.proposed = nil
	if e.Err != nil {
		r.retryAt = r.now.Add(min(formRetry<<min(r.failures, 10), formRetryMax))
		r.failures++
		return
	}
	r.failures, r.retryAt = 0, time.Time{}
	adopted := r.claim != nil // a claim keeps other worlds from being proposed
	w.Broken = r.want.Hold && !adopted
	for _, m := range w.Members {
		s := r.slots[m.Slot]
		ready := s != nil && s.Incarnation == m.Incarnation && s.wanted && (s.class == joined || adopted)
		w.Broken = w.Broken || !ready
	}
	r.claim = nil
	r.enter(w)
	if !w.Broken && !adopted && len(w.Members) > 1 {
		r.headUntil = r.now.Add(headStart)
	}
	for _, s := range r.slots {
		r.refresh(s)
	}
}

// enter makes w the newest world: ranks, and unless it is broken the places of its members.
func (r *Rendezvous) enter(w job.World) {
	r.world = w
	r.generation = max(r.generation, w.Generation)
	r.changes++
	r.settled, r.asked = false, false
	for _, s := range r.slots {
		if s.role != nil {
			s.rank, s.member, s.place = -1, false, nil
		}
	}
	places := placesOf(w)
	for i, m := range w.Members {
		s := r.slots[m.Slot]
		if s == nil {
			continue
		}
		s.rank, s.Rank = m.Rank, m.Rank
		s.member = s.Incarnation == m.Incarnation
		if s.member && !w.Broken {
			s.place = &places[i]
		}
	}
}

// breakWorld ends the world that trains: every member of it is told to wait. A planned end asks for a
// checkpoint first; any other does not, since peers may be gone that a checkpoint needs.
func (r *Rendezvous) breakWorld(planned bool) {
	r.world.Broken = true
	if planned {
		r.world.Ordered = r.now
	}
	r.asked = planned
	r.settled = false
	r.headUntil = time.Time{}
	r.changes++
	for _, m := range r.world.Members {
		s := r.slots[m.Slot]
		if s == nil || !s.member {
			continue
		}
		s.place, s.checkpoint = nil, planned && (s.awaited || s.report.State == job.MemberRunning)
		r.refresh(s)
	}
}

// abandonCheckpoint is for a member that failed while the others were to write one: they stop at once.
func (r *Rendezvous) abandonCheckpoint() {
	r.asked, r.settled = false, false
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil && s.member && s.class != joined {
			s.checkpoint = false
			r.refresh(s)
		}
	}
}

// releaseAll lets the members other than rank 0 start.
func (r *Rendezvous) releaseAll() {
	if r.headUntil.IsZero() {
		return
	}
	r.headUntil = time.Time{}
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil {
			r.refresh(s)
		}
	}
}

// takeClaim looks whether a member says that it runs in a world that is not known here: the record was lost,
// or is older than the world. Until all its ranks are there, or the lease has passed, it is left running.
func (r *Rendezvous) takeClaim(s *slot) {
	claims := s.here && s.wanted && s.report.State == job.MemberRunning && s.report.WorldSlots > 0 &&
		s.report.Generation > r.world.Generation && !r.trains() && r.now.Before(r.claimUntil) &&
		(r.proposed == nil || r.claim != nil && s.report.Generation == r.claim.generation)
	c := r.claim
	if c != nil && s.place != nil && s.place.Generation == c.generation {
		if claims && s.report.Generation == c.generation && s.report.Rank == s.place.GroupRank {
			return
		}
		r.endClaims() // it stopped, or went: the claimed world is broken
		return
	}
	if !claims || c != nil && s.report.Generation < c.generation {
		return
	}
	if c != nil && s.report.Generation > c.generation {
		r.voidClaim()
		c = nil
	}
	if c == nil {
		c = &claim{generation: s.report.Generation, size: s.report.WorldSlots, ranks: map[int]*slot{}}
		r.claim = c
	}
	if s.report.WorldSlots != c.size || c.ranks[s.report.Rank] != nil {
		return
	}
	c.ranks[s.report.Rank] = s
	s.place = &Place{Generation: c.generation, GroupRank: s.report.Rank, GroupSize: c.size}
}

func (r *Rendezvous) endClaims() {
	r.voidClaim()
	r.claimUntil = time.Time{}
}

// voidClaim tells everyone who claims to wait.
func (r *Rendezvous) voidClaim() {
	if r.claim == nil {
		return
	}
	ranks := r.claim.ranks
	r.claim = nil
	for _, s := range ranks {
		s.place = nil
		r.refresh(s)
	}
}

// refresh brings a slot's class and order up to date.
func (r *Rendezvous) refresh(s *slot) {
	if s.role == nil {
		r.placeUnranked(s)
	} else if c := r.classOf(s); c != s.class {
		s.role.count[s.class]--
		s.role.count[c]++
		s.class = c
		if c == joined {
			r.settleFrom = r.now
		}
	}
	o := r.orderOf(s)
	if s.version > 0 && o.equal(s.order) {
		return
	}
	r.version++
	s.order, s.version = o, r.version
	r.orders = append(r.orders, s.Address)
}

func (r *Rendezvous) classOf(s *slot) class {
	state := s.report.State
	switch {
	case s.named && state == job.MemberSucceeded:
		return done
	case !s.wanted:
		return none
	case s.awaited:
		return coming
	case !s.here || state == job.MemberFailed || state == job.MemberLeaving:
		return absent
	case s.member && r.trains() && r.runsIn(s.report):
		return training
	case s.member && r.trains():
		return starting
	case state == job.MemberWaiting:
		return joined
	}
	return coming
}

func (r *Rendezvous) orderOf(s *slot) Order {
	held := !r.headUntil.IsZero() && s.rank > 0
	switch {
	case s.Leave:
		return Order{Do: Leave, Checkpoint: s.checkpoint}
	case s.place != nil && !held:
		return Order{Do: Run, World: s.place}
	}
	return Order{Do: Wait, Checkpoint: s.checkpoint, InPlace: s.InPlace}
}

// placeUnranked starts a member without a rank, or lets it be. Its place stays as it was when it started:
// another number of peers is no reason to start it again.
func (r *Rendezvous) placeUnranked(s *slot) {
	if s.member {
		return // its role was ranked a moment ago: nothing to go on with
	}
	generation := s.report.Generation
	switch s.report.State {
	case job.MemberRunning, job.MemberSucceeded:
		if s.place != nil && s.place.Generation == generation {
			return
		}
	case job.MemberWaiting:
		generation = s.report.InPlace + 1
		if s.place != nil && s.place.Generation == generation {
			return
		}
		if s.unranked == nil || r.want.Hold {
			s.place = nil
			return
		}
	default:
		s.place = nil
		return
	}
	if !s.here {
		return
	}
	p := Place{GroupSize: 1, WorldSize: 1, RoleWorldSize: 1}
	if s.unranked != nil {
		p = *s.unranked
	}
	p.Generation, p.RestartCount = generation, generation-1
	p.MasterAddr, p.MasterPort = s.host, s.report.Port
	s.place = &p
}

// equal compares orders with the places that they point to.
func (o Order) equal(p Order) bool {
	if (o.World == nil) != (p.World == nil) || o.World != nil && *o.World != *p.World {
		return false
	}
	o.World, p.World = nil, nil
	return o == p
}

// sameExit compares what a plan depends on.
func sameExit(a, b *job.Exit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Code == b.Code && a.Signal == b.Signal && a.At.Equal(b.At) && a.LocalRank == b.LocalRank &&
		a.OOM == b.OOM && a.NotStarted == b.NotStarted && a.Message == b.Message
}

// earlier is the earlier of two times of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func bySlot(a, b *slot) int { return a.Address.Compare(b.Address) }
