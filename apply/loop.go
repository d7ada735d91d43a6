package apply

import (
	"cmp"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Setup configures a Loop.
type Setup struct {
	Intent
	Files     Files
	Providers []string    // names of the configured providers
	State     state.State // as stored
	Epoch     uint64      // of the lock under which the run writes
	NewUID    func(name string) string
	// Jitter returns a value from 0 to 1 that spreads out retries; nil means none.
	Jitter func() float64
	// Words renders journal entries and replies; nil renders codes.
	Words Words
	// Shown are the waits of a plan that the user has seen: they are not reported when they are found for the first time.
	Shown []plan.Wait
	// Approve requires approval of the first plan before anything is stored or done.
	Approve bool
	// Requests says that operators' requests come as Requested.
	Requests bool
	// Request is the ID of the one that the run is for; "" if it is for none. Of those from before the run, only a watch takes up others:
	// nobody who starts something else expects them.
	Request string
	// Check evaluates the files' conditions whenever records have changed.
	Check bool
	// Pulse is how often the view gets training progress; 0 is every two seconds.
	Pulse time.Duration
}

// Loop is the control loop over one state, as a value: Step takes an event, Ready returns the effects. It
// has no clock, goroutine, channel, lock or file: time is an argument, and results come back as Outcomes.
//
// A turn observes, plans, stores, journals and acts, in this order. Nothing is done before it is stored.
type Loop struct {
	now     time.Time
	since   time.Time // when the run began
	setup   Setup
	files   files
	sight   sight
	book    book
	turn    turn
	exec    executor
	groups  groups
	service service
	rest    rest
	end     ending
	check   checks
	holds   holds

	publisher publisher
	requests  requests
	alerts    alerts

	inFlight map[ID]Effect
	numbers  int // the last number given to an effect without one of its own
	out      Ready
}

// Ready is what to do as a result of the steps since the last Ready.
type Ready struct {
	Effects []Effect  // to start, in order
	Tell    []Message // for the view, in order
	Next    time.Time // when a Tick is due at the latest; zero after the end
	Over    *Over     // set once the run has ended
}

// Over is how a run ended.
type Over struct {
	Plan plan.Plan // the newest
	Err  error
}

// Message is one call of a View.
type Message func(View)

// New returns a loop that starts now. It waits for Served, which has the service's address.
func New(now time.Time, s Setup) *Loop {
	if s.Jitter == nil {
		s.Jitter = func() float64 { return 0 }
	}
	if s.Words == nil {
		s.Words = codes{}
	}
	s.Pulse = cmp.Or(s.Pulse, pulseEvery)
	l := &Loop{now: now, since: now, setup: s, inFlight: map[ID]Effect{}}
	l.book = newBook(s)
	l.files = newFiles(s, l.book.state.Jobs)
	l.files.since = now
	l.sight = newSight(s.Providers)
	l.publisher = newPublisher(l.sight.order)
	l.exec, l.groups, l.service, l.requests, l.alerts = newExecutor(), newGroups(), newService(), requests{}, newAlerts()
	l.holds.Set = conditions.TakeOver(l.book.state.Conditions, plan.Supplies)
	l.holds.show(s.Shown)
	l.turn.pulse, l.turn.dirty, l.check.due = now.Add(s.Pulse), true, true
	return l
}

// Step processes one event.
func (l *Loop) Step(now time.Time, e Event) {
	if now.After(l.now) {
		l.now = now // never backwards: recorded times would be in the future
	}
	if l.end.stage == over {
		return
	}
	switch e := e.(type) {
	case Woken:
		l.turn.woken = true
	case Tick:
	case FilesChanged:
		l.files.changed = true
	case Triggered:
		l.files.asked = append(l.files.asked, e)
	case Requested:
		l.requests.take(l, e.Requests)
	case Served:
		l.publisher.serve(e.Service)
	case Forming:
		l.book.forming = append(l.book.forming, e)
	case Worked:
		l.rest.worked(l.now, e.For, e.Queued)
	case Reported:
		l.holds.raiseIf(l, e.Err, e.About, e.Code)
	case Interrupted:
		l.end.interrupt(l)
	case LockLost:
		l.finish(l.turn.newest, e.Err)
	case Outcome:
		l.outcome(e)
	}
	if l.end.stage != over {
		l.advance()
	}
}

// Ready returns what to do since the last call.
func (l *Loop) Ready() Ready {
	if l.holds.tell(l) && l.turn.phase == resting {
		l.turn.dirty = true // to journal it
	}
	out := l.out
	out.Next = l.next()
	l.out = Ready{}
	return out
}

// outcome handles an effect's outcome. That of an effect that is not in flight is a duplicate, and ignored.
func (l *Loop) outcome(o Outcome) {
	e, known := l.inFlight[o.Of]
	if !known {
		return
	}
	delete(l.inFlight, o.Of)
	if takenOver(o.Err) {
		l.finish(l.turn.newest, errTakenOver)
		return
	}
	switch e := e.(type) {
	case Hear:
		l.heard(o)
	case Observe:
		l.observed(e.Provider, o)
	case Gauge:
		l.gauged(o)
	case ReadFiles:
		l.turn.dirty = l.files.take(l, o) || l.turn.dirty
	case Approve:
		l.approved(o.Err)
	case Check:
		l.check.ended(l, o)
	case Store:
		l.book.stored(l, e, o.Err)
	case Reread:
		l.book.reread(l, o)
	case Journal:
		l.book.journalled(l, e, o.Err)
	case Chronicle:
		l.book.chronicled(l, e, o.Err)
	case Publish:
		l.publisher.published(l, e, o.Err)
	case Prepare:
		l.turn.dirty = l.groups.ended(l, e, o) || l.turn.dirty
	case Respond:
		l.requests.responded(l, e, o.Err)
	case Notify:
		l.alerts.ended(l, e, o.Err)
	case Sample:
		l.sight.surveys.sampled(l, e, o)
	case Launch, Stop, Forget:
		l.exec.ended(l, e, o)
	}
}

// advance does everything that can be done now.
func (l *Loop) advance() {
	l.publisher.publish(l)
	l.book.record(l)
	l.files.follow(l)
	if l.turn.phase == resting {
		l.begin()
	}
	if l.turn.phase == deciding {
		l.book.store(l)
	}
	l.alerts.deliver(l)
	l.sight.surveys.take(l)
	l.beat()
	if !l.exec.busy() {
		l.book.chronicle(l)
	}
	if l.turn.phase == resting {
		l.end.endIfDone(l)
	}
}

// do starts an effect.
func (l *Loop) do(e Effect) {
	if _, drop := e.(Drop); !drop {
		l.inFlight[e.ID()] = e
	}
	l.out.Effects = append(l.out.Effects, e)
}

// again retries a failed effect.
func (l *Loop) again(e Effect, at time.Time) {
	l.inFlight[e.ID()] = e
	l.out.Effects = append(l.out.Effects, Again{e, at})
}

// number returns a number for an effect without one of its own.
func (l *Loop) number() int {
	l.numbers++
	return l.numbers
}

func (l *Loop) tell(m Message) { l.out.Tell = append(l.out.Tell, m) }

// inform sends a message to the service.
func (l *Loop) inform(n News) { l.do(Tell{l.number(), n}) }

// next returns when a Tick is due at the latest.
func (l *Loop) next() time.Time {
	if l.end.stage == over {
		return time.Time{}
	}
	at := l.turn.pulse
	if !l.end.stopped() {
		at = earliest(earliest(earliest(at, l.files.again), l.publisher.due()), earliest(l.alerts.retry(l), l.sight.surveys.due))
	}
	if l.turn.phase == resting && l.end.turns() {
		at = earliest(at, l.turn.at(l.rest.until))
	}
	return at
}

// earliest returns the earlier of two times, where zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
