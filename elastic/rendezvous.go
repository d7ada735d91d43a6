package elastic

import (
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck"
)

// Rendezvous forms worlds of one job's members. It is stepped with events; what they require comes back as Ready: a world to
// write to the ledger, and members whose order changed.
//
// A member is one incarnation of a slot. Only the newest incarnation that Wanted names is valid: events of older ones are
// refused, in whatever order they arrive.
type Rendezvous struct {
	now     time.Time // of the current step
	want    job.Want
	nodes   map[string]map[string]string // see Desired.Nodes
	started bool                         // at least one Wanted was received
	slots   map[job.Address]*slot
	roles   []*role // the ranked ones, in declaration order

	world      job.World // the newest formed world; Broken unless it trains
	generation int       // the highest number issued, or adopted from a report

	writing    writing
	claim      *claim
	claimUntil time.Time // until when members may claim a world that the record does not have

	settleFrom time.Time // the last join, or the last change of the wanted slots
	settled    bool      // missing members were already waited for when the world was broken on purpose
	stopping   stopping  // how members that still run were told to stop
	headUntil  time.Time // until then only rank 0 is ordered to run; zero once all are
	settleAt   time.Time // when a world forms, or grows, without missing slots; zero if it does not

	checks nodecheck.Checks

	peers     peerList
	adopting  time.Time // until when members of the previous master may register; see Desired.News
	returning time.Time // adopting, once one outside of the world did that still runs

	evidence evidence

	orders  []job.Address
	version uint64 // of the newest order of any member
	changes uint64
}

// stopping is how members of a broken world are told to stop.
type stopping int

const (
	byGrace         stopping = iota
	afterCheckpoint          // which they are asked for
	atOnce                   // their processes are killed
)

// writing is a world that awaits the ledger's answer. No member knows it yet.
type writing struct {
	world    *job.World // nil if there is none
	fresh    bool       // Ready has not returned it yet
	failures int        // consecutive failures of the ledger
	retryAt  time.Time  // after a failure
}

// peerList is the list of members, and who was told of it.
type peerList struct {
	list   *Peers    // the newest
	told   *Peers    // the one that was last sent to members outside of the world
	toldAt uint64    // changes then
	moved  bool      // one of those has another place since
	tellAt time.Time // when it may be sent again
}

// evidence is what members of the world are asked for while it stands still.
type evidence struct {
	wanted  bool
	request int // the number of the newest request
}

// slot is a desired slot and its member, if it has one.
type slot struct {
	DesiredSlot           // Rank is its last rank, -1 if none
	role        *role     // nil if its role is unranked
	named       bool      // listed in its role's Want
	wanted      bool      // named, and not to leave: part of the next world
	unranked    *Place    // for an unranked slot that may start now: its ranks among its role
	present     bool      // its member is registered and not lost
	awaited     bool      // its member is expected to register with this master
	ended       bool      // its incarnation is known to have exited
	host, node  string    // as reported by its member
	levels      []string  // its node's values of want.RankBy, widest first, when ranks were last assigned
	report      Report    // the last report; kept after the member is lost, as evidence
	left        time.Time // when it first reported leaving; zero if it does not
	member      bool      // this incarnation is in r.world
	rank        int       // the slot's rank in r.world, -1 if none
	checkpoint  bool      // its last stop was planned; kept while it waits, so that its order does not change
	place       *Place    // the place to run in; nil for none
	acts        []job.Act // that its member is to do
	check       int       // the number of the check that its member has to pass; 0 for none
	can         []job.ActKind
	class       class
	order       Order
	version     uint64
}

// role is a ranked role, and how many of its slots are in each class.
type role struct {
	job.WantRole
	desired int // wanted slots, including those without an incarnation
	count   [classes]int
}

// Event is one of the types below.
type Event interface{ event() }

// Wanted is the plan's desired state.
type Wanted struct{ Desired }

// Registered is a member's registration.
type Registered struct {
	Slot        job.Address
	Incarnation int
	Host, Node  string
	Can         []job.ActKind
	Report      Report
}

// Reported is a registered member's report.
type Reported struct {
	Slot        job.Address
	Incarnation int
	Report      Report
}

// Gone reports that a provider is certain that nothing of an incarnation is running.
type Gone struct {
	Slot        job.Address
	Incarnation int
	Succeeded   bool // according to what its agent left, which may not have been able to report it
}

// Expired is an expired lease.
type Expired struct {
	Slot        job.Address
	Incarnation int
}

// Formed is the ledger's answer to Ready.Form.
type Formed struct {
	Generation int
	Err        error
}

// Stalled reports that this process did not run for a while and could not receive heartbeats.
type Stalled struct{ For time.Duration }

// Examine asks the members of the world for evidence about their processes, or does so no longer.
type Examine struct{ Wanted bool }

// Tick advances the time.
type Tick struct{}

func (Wanted) event()     {}
func (Registered) event() {}
func (Reported) event()   {}
func (Gone) event()       {}
func (Expired) event()    {}
func (Formed) event()     {}
func (Stalled) event()    {}
func (Examine) event()    {}
func (Tick) event()       {}

// Ready is what to do after the steps since the last Ready.
type Ready struct {
	// Form is a world to write to the ledger; the result comes back as Formed. Nil if there is none.
	Form *job.World
	// Orders are the slots whose order changed, or whose member was fenced or dropped: answer their open requests.
	Orders []job.Address
}

// NewRendezvous returns a Rendezvous without desired slots.
func NewRendezvous() *Rendezvous {
	return &Rendezvous{slots: map[job.Address]*slot{}}
}

// Step applies one event. A refused event returns an *Error and changes nothing.
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
		r.checks.Extend(e.For)
	case Examine:
		r.examine(e.Wanted)
	case Tick:
		r.tick()
	}
	r.followChecks()
	r.advance()
	r.tellPeers()
	return err
}

// Ready returns what to do, once.
func (r *Rendezvous) Ready() Ready {
	var out Ready
	if r.writing.fresh {
		out.Form, r.writing.fresh = r.writing.world, false
	}
	out.Orders, r.orders = r.orders, nil
	return out
}

// Next is when a Tick is due; zero for never.
func (r *Rendezvous) Next() time.Time {
	next := earlier(earlier(r.settleAt, r.headUntil), earlier(r.tellDue(), r.checks.Next()))
	if r.claim != nil && len(r.claim.ranks) < r.claim.size {
		next = earlier(next, r.claimUntil)
	}
	if r.writing.world == nil && r.writing.retryAt.After(r.now) {
		next = earlier(next, r.writing.retryAt)
	}
	return next
}

// Order is the order of the slot's member and its version; 0 if the slot is unknown.
func (r *Rendezvous) Order(addr job.Address) (Order, uint64) {
	s := r.slots[addr]
	if s == nil {
		return Order{}, 0
	}
	return s.order, s.version
}

// World is the newest world formed; zero before the first. Its members are immutable.
func (r *Rendezvous) World() job.World { return r.world }

// Changes counts changes that a plan depends on: states, exits, registrations, worlds. Steps, loads and beats do not count.
func (r *Rendezvous) Changes() uint64 { return r.changes }

// admit checks that an incarnation holds its slot.
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
		// The provider launched it before the plan's outcome reached us.
		return nil, &Error{NotReady, fmt.Sprintf("incarnation %d of %s is not known yet", incarnation, addr)}
	case s.ended:
		return nil, &Error{Fenced, fmt.Sprintf("incarnation %d of %s has ended", incarnation, addr)}
	}
	return s, nil
}

// adoptable is how far what a member says may be above the record while it is adopted, because the record was lost or is older. No
// job comes so far between two records, and however often somebody uses it up, the numbers do not end.
const adoptable = 1 << 20

// checkIssued refuses a report of numbers above those issued to the slot's member. They would be passed on to all others and to
// the record, which only grow: a single report could spend the numbers that are left.
func (r *Rendezvous) checkIssued(s *slot, report Report) error {
	generation, inPlace := s.report.Generation, max(s.report.InPlace, s.InPlace)
	if s.place != nil {
		generation = max(generation, s.place.Generation)
	}
	if s.role != nil {
		generation = max(generation, r.generation)
	}
	if s.report.State == "" { // its first to this master: another may have issued them
		inPlace += adoptable
		switch {
		case s.role == nil:
			generation = inPlace // its generations are its own, and not recorded
		case r.now.Before(r.claimUntil):
			generation = max(generation, r.world.Generation+adoptable)
		}
	}
	if said := max(report.Generation, report.Saved.Generation); said > generation {
		return &Error{Fenced, fmt.Sprintf("%s reports generation %d, but at most %d was issued", s.Address, said, generation)}
	}
	if report.InPlace > inPlace {
		return &Error{Fenced, fmt.Sprintf("%s reports in-place restart %d, but at most %d was issued", s.Address, report.InPlace, inPlace)}
	}
	return nil
}

func (r *Rendezvous) registered(e Registered) error {
	s, err := r.admit(e.Slot, e.Incarnation)
	if err == nil {
		err = r.checkIssued(s, e.Report)
	}
	if err != nil {
		return err
	}
	if !s.present || s.host != e.Host {
		r.changes++
	}
	if s.report.State == "" && e.Report.State == job.MemberRunning && s.outside() {
		r.returning = r.adopting
	}
	s.present, s.awaited, s.host, s.node, s.can = true, false, e.Host, e.Node, e.Can
	r.storeReport(s, e.Report)
	return nil
}

func (r *Rendezvous) reported(e Reported) error {
	s, err := r.admit(e.Slot, e.Incarnation)
	if err != nil {
		return err
	}
	if !s.present {
		return &Error{RegisterFirst, fmt.Sprintf("%s is not registered", e.Slot)}
	}
	if err := r.checkIssued(s, e.Report); err != nil {
		return err
	}
	r.storeReport(s, e.Report)
	return nil
}

// storeReport stores a member's report and updates the world accordingly.
func (r *Rendezvous) storeReport(s *slot, report Report) {
	if s.report.State != report.State || s.report.Generation != report.Generation ||
		s.report.InPlace != report.InPlace || !sameExit(s.report.Exit, report.Exit) || !slices.Equal(s.report.Acts, report.Acts) ||
		notFinite(s.report.Loss) != notFinite(report.Loss) {
		r.changes++
	}
	switch {
	case report.State != job.MemberLeaving:
		s.left = time.Time{}
	case s.left.IsZero():
		s.left = r.now
	}
	s.report = report
	r.updateCheck(s)
	if s.role == nil {
		r.refresh(s)
		return
	}
	r.seeFirstStep(s)
	r.generation = max(r.generation, report.Generation)
	switch {
	case s.member && r.trains() && r.leftWorld(report):
		r.breakWorld(false)
	case r.trains() && r.isUnwantedMember(s):
		r.breakWorld(true)
	case s.member && r.stopping == afterCheckpoint && (report.State == job.MemberFailed || report.State == job.MemberLeaving):
		r.abandonCheckpoint()
	case s.member && s.rank == 0 && r.runsIn(report):
		r.releaseAll()
	}
	r.updateClaim(s)
	r.refresh(s)
}

// seeFirstStep dates the first step of the newest world, by the first report of one.
func (r *Rendezvous) seeFirstStep(s *slot) {
	if !s.member || s.report.Generation != r.world.Generation || !r.world.FirstStep.IsZero() {
		return
	}
	if age, shown := s.report.sinceFirstStep(); shown {
		r.world.FirstStep = r.now.Add(-min(age, max(0, r.now.Sub(r.world.Formed))))
		r.changes++
	}
}

// notFinite names a loss that is not finite; "" for any other.
func notFinite(l *job.Loss) string {
	_, name := l.Finite()
	return name
}

// leftWorld reports whether a report says that a member of the training world no longer trains in it. A report of an older
// generation was sent before the member learned of its world.
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
	if e.Succeeded {
		s.report.State = job.MemberSucceeded
	}
	r.removeMember(s)
}

func (r *Rendezvous) expired(e Expired) {
	s := r.slots[e.Slot]
	if s == nil || e.Incarnation != s.Incarnation || !s.present && !s.awaited {
		return
	}
	r.removeMember(s)
}

func (r *Rendezvous) examine(wanted bool) {
	if wanted == r.evidence.wanted {
		return
	}
	if r.evidence.wanted = wanted; wanted {
		r.evidence.request++
	}
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil {
			r.refresh(s)
		}
	}
}

// removeMember removes a slot's member. Losing a member that succeeded does not break the world, nor does losing one that was to leave
// and never registered with this master.
func (r *Rendezvous) removeMember(s *slot) {
	r.changes++
	r.orders = append(r.orders, s.Address)
	missed := s.report.State != job.MemberSucceeded && (s.wanted || !s.awaited)
	s.present, s.awaited = false, false
	r.checks.Drop(r.now, s.Address)
	r.settled = false
	switch {
	case !missed:
	case s.member && r.trains():
		r.breakWorld(false)
	case s.member && r.stopping == afterCheckpoint && s.class == coming:
		r.abandonCheckpoint()
	}
	r.updateClaim(s)
	r.refresh(s)
}

// earlier returns the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func bySlot(a, b *slot) int { return a.Address.Compare(b.Address) }
