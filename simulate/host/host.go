// Package host runs what an eltrain process runs, its Loop and its Coordinator, on a virtual clock: what a Driver and a Server do in
// real time. Whoever uses it carries out the Loop's effects and plays the agents.
package host

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// Clock is the time of a process.
type Clock interface {
	Now() time.Time
	// After runs do at d from now, unless the process has ended by then.
	After(d time.Duration, do func())
}

// Loop steps an apply.Loop.
type Loop struct {
	*apply.Loop
	Clock Clock
	// Begin starts an effect. The outcome, if it has one, comes by Step: at once, or later.
	Begin func(apply.Effect)
	// Tell gets what the Loop tells its view; nil for nobody.
	Tell func(apply.Message)
	// Before, if set, is called before each event. Halted, if set, reports that the process stands still: pending events wait for the next Step.
	Before func(apply.Event)
	Halted func() bool

	// Over is set once the run has ended.
	Over *apply.Over

	pending []apply.Event
	steps   bool      // Step is running
	due     time.Time // when the next Tick is due
}

// most is how many events may follow from each other without time passing.
const most = 1_000_000

// Step passes events to the loop and has its effects carried out, until no more follow at once. It reports false if the events do not
// end.
func (l *Loop) Step(events ...apply.Event) bool {
	l.pending = append(l.pending, events...)
	if l.steps {
		return true
	}
	l.steps = true
	defer func() { l.steps = false }()
	for n := 0; len(l.pending) > 0 && l.Over == nil && !l.halted(); n++ {
		if n == most {
			return false
		}
		e := l.pending[0]
		l.pending = l.pending[1:]
		if l.Before != nil {
			l.Before(e)
		}
		l.Loop.Step(l.Clock.Now(), e)
		l.carryOut(l.Ready())
	}
	if len(l.pending) == 0 {
		l.pending = nil
	}
	return true
}

func (l *Loop) halted() bool { return l.Halted != nil && l.Halted() }

// Waiting reports whether events wait that were passed while the process stood still.
func (l *Loop) Waiting() bool { return len(l.pending) > 0 }

func (l *Loop) carryOut(ready apply.Ready) {
	if l.Tell != nil {
		for _, m := range ready.Tell {
			l.Tell(m)
		}
	}
	for _, e := range ready.Effects {
		l.Begin(e)
	}
	if l.Over = ready.Over; l.Over != nil {
		return
	}
	if !l.due.Equal(ready.Next) {
		l.due = ready.Next
		l.Clock.After(l.due.Sub(l.Clock.Now()), func() {})
	}
}

// Due reports whether a Tick is due.
func (l *Loop) Due() bool { return !l.due.IsZero() && !l.Clock.Now().Before(l.due) }

// Service is an elastic.Coordinator with what its Loop tells it and asks of it.
type Service struct {
	*elastic.Coordinator
	Clock Clock
	// Told gets the members whose order has changed, by job and slot.
	Told func([]elastic.Told)
	// Propose passes a world on to be recorded; Recorded answers it.
	Propose func(apply.Forming)

	Open  bool                // the desired state is known
	Wants map[string]job.Want // by job
	forms []elastic.Forming
	next  time.Time // when the next Tick is scheduled for
}

// Inform tells the service what its Loop has decided.
func (s *Service) Inform(n apply.News) {
	now := s.Clock.Now()
	switch n := n.(type) {
	case apply.Wanted:
		s.Wants[n.Job] = n.Desired.Want
		s.Set(now, n.Job, n.Desired)
	case apply.Unwanted:
		delete(s.Wants, n.Job)
		s.Remove(n.Job)
	case apply.Ended:
		s.Gone(now, n.Slot, n.Incarnation, n.Succeeded)
	case apply.Open:
		s.Open = true
	case apply.Recorded:
		f := s.forms[n.Forming-1]
		s.forms[n.Forming-1] = elastic.Forming{}
		s.Formed(now, f, n.Err)
	}
	s.Follow()
}

// Follow carries out what the coordinator asks for, after each call of it.
func (s *Service) Follow() {
	work := s.Ready()
	slices.SortFunc(work.Told, func(a, b elastic.Told) int { return cmp.Or(strings.Compare(a.Job, b.Job), a.Slot.Compare(b.Slot)) })
	if len(work.Told) > 0 {
		s.Told(work.Told)
	}
	slices.SortFunc(work.Form, func(a, b elastic.Forming) int { return strings.Compare(a.Job, b.Job) })
	for _, f := range work.Form {
		s.forms = append(s.forms, f)
		s.Propose(apply.Forming{Number: len(s.forms), Job: f.Job, UID: f.UID, World: f.World})
	}
	if work.Sooner {
		s.schedule(s.Clock.Now())
	}
}

// Tick passes the time to the coordinator.
func (s *Service) Tick() {
	next := s.Coordinator.Tick(s.Clock.Now())
	s.Follow()
	s.schedule(next)
}

func (s *Service) schedule(next time.Time) {
	if s.next = next; next.IsZero() {
		return
	}
	s.Clock.After(next.Sub(s.Clock.Now()), func() {
		if s.next.Equal(next) {
			s.next = time.Time{}
			s.Tick()
		}
	})
}
