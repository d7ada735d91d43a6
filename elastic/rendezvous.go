package elastic

import (
	"fmt"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Rendezvous gathers one job's members into worlds. It is stepped with events; what must be done about them
// comes back as Ready: a world to write to the ledger, and members whose order changed.
//
// A member is one incarnation of a slot. At any time the newest incarnation that Wanted names is the only
// one: news of older ones is refused, whichever order it comes in.
type Rendezvous struct {
	now     time.Time // of the step under way
	want    job.Want
	nodes   map[string]map[string]string // see Desired.Nodes
	started bool                         // Wanted came at least once
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
	DesiredSlot           // Rank is the last one it had, -1 if none
	role        *role     // nil unless its role is ranked
	named       bool      // among the slots wanted of its role
	wanted      bool      // named, and not to leave: to be in the next world
	unranked    *Place    // for one that has no rank but may start now: the ranks among its kind
	here        bool      // its member is registered and has not been lost
	awaited     bool      // its member is to register again with this master
	ended       bool      // its incarnation is known to have ended
	host, node  string    // as its member says
	levels      []string  // its node's values of want.RankBy, widest first, when ranks were given last
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

// Event is one of the types below.
type Event interface{ event() }

// Wanted is what the plan wants now.
type Wanted struct{ Desired }

// Registered is a member making itself known.
type Registered struct {
	Slot        job.Address
	Incarnation int
	Host, Node  string
	Report      Report
}

// Reported is a registered member's report.
type Reported struct {
	Slot        job.Address
	Incarnation int
	Report      Report
}

// Gone is the provider being certain that nothing of an incarnation is running.
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

// Ready is what to do about the steps since the last Ready.
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

// Ready returns what to do, once.
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

// World is the newest world that was formed; zero before the first. Its members are no longer changed.
func (r *Rendezvous) World() job.World { return r.world }

// Changes counts the changes of what a plan depends on: states, exits, registrations, worlds. Steps, loads
// and mere beats are not among it.
func (r *Rendezvous) Changes() uint64 { return r.changes }

// admit checks that an incarnation is the one that holds its slot.
func (r *Rendezvous) admit(addr job.Address, incarnation int) (*slot, error) {
	s := r.slots[addr]
	switch {
	case !r.started:
		return nil, &Error{NotReady, "the desired state of this job is not known yet"}
	case s == nil:
		return nil, &Error{NoSuchSlot, fmt.Sprintf("%s is not in the job's desired state", addr)}
	case incarnation < s.Incarnation:
		return nil, &Error{Fenced, fmt.Sprintf("incarnation %d of %s was replaced by %d", incarnation, addr, s.Incarnation)}
	case incarnation > s.Incarnation:
		// The provider was faster than the plan's result reached us.
		return nil, &Error{NotReady, fmt.Sprintf("incarnation %d of %s is not known yet", incarnation, addr)}
	case s.ended:
		return nil, &Error{Fenced, fmt.Sprintf("incarnation %d of %s is considered to have ended", incarnation, addr)}
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
	s.here, s.awaited, s.host, s.node = true, false, e.Host, e.Node
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

// take enters a member's report and draws the consequences for the world.
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

// leftWorld reports whether a member of the world that trains says that it no longer trains in it. A
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

// earlier is the earlier of two times of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func bySlot(a, b *slot) int { return a.Address.Compare(b.Address) }
