package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// stops is a view that keeps how each stop ended, by slot.
type stops struct {
	listener
	begun chan struct{}
	ends  []string
}

func (s *stops) Started(c *plan.Change) {
	if isStop(c) {
		s.begun <- struct{}{}
	}
}

func (s *stops) Finished(c *plan.Change, _ time.Duration, err error) {
	switch {
	case isStop(c) && err != nil:
		s.ends = append(s.ends, c.Slot.Short()+" failed")
	case isStop(c):
		s.ends = append(s.ends, c.Slot.Short())
	}
}

// interrupted destroys a job of two slots on a cluster, interrupts that once both were told to leave, does something then,
// and gives how long it took to end and how.
func interrupted(t *testing.T, b *bench, view *stops, then func()) (took time.Duration, err error) {
	t.Helper()
	for range 2 { // it is prepared, and launched
		b.turn(t)
		b.flights.wait()
	}
	if n := b.cluster.running(); n != 2 {
		t.Fatalf("%d agents to be stopped", n)
	}
	b.Declare(nil)
	b.o.Destroy = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(ctx, nil)
		ended <- err
	}()
	<-view.begun
	<-view.begun
	begun := time.Now()
	cancel()
	then()
	err = <-ended
	slices.Sort(view.ends)
	return time.Since(begun), err
}

func leaving(t *testing.T, change func(*Options)) (*bench, *stops) {
	view := &stops{begun: make(chan struct{}, 2)}
	b := newBench(t, func(o *Options) {
		o.Spawn, o.Clock, o.View = nil, nil, view
		change(o)
	})
	b.cluster.Schedules, b.cluster.can.Places = false, true // it runs where the plan says, at once
	return b, view
}

// leave is how long the slots of the job have to leave by themselves.
var leave = leaveTime(&plan.Change{Stop: []int{1}, Grace: jobtest.Role("worker", 1).StopGrace})

func TestAnInterruptedRunStopsWhatDoesNotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, view := leaving(t, func(*Options) {})
		took, err := interrupted(t, b, view, func() {})
		must(t, err)
		if took < leave || took > leave+time.Second {
			t.Errorf("it ended after %v, and they have %v to leave", took, leave)
		}
		if want := []string{"worker[0]", "worker[1]"}; !slices.Equal(view.ends, want) || b.cluster.running() > 0 {
			t.Errorf("stopped %v, %d agents run", view.ends, b.cluster.running())
		}
		for _, s := range b.Records()["a"].Slots {
			if s.Phase != job.Canceled {
				t.Errorf("%s is recorded as %s", s.Address.Short(), s.Phase)
			}
		}
	})
}

func TestAnInterruptedRunTriesAStopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, view := leaving(t, func(*Options) {})
		b.cluster.stop = func() error { return errors.New("no route to host") }
		took, err := interrupted(t, b, view, func() {})
		must(t, err)
		if want := []string{"worker[0] failed", "worker[1] failed"}; !slices.Equal(view.ends, want) || took > leave+time.Second {
			t.Errorf("it ended after %v with %v", took, view.ends)
		}
		if len(view.warned) != 1 || !strings.Contains(view.warned[0], "first of 2: stop job.a.worker[") || !strings.Contains(view.warned[0], "no route to host") {
			t.Errorf("warned of %q", view.warned)
		}
	})
}

// during is a store that has something happen while it writes.
type during struct {
	state.Store
	do func()
}

func (d *during) Write(ctx context.Context, next state.State, l state.Lock) error {
	d.do()
	return d.Store.Write(ctx, next, l)
}

// The order to leave follows from what is stored, and that may take its time.
func TestARunThatIsInterruptedWhileItStoresSeesOffWhatItTellsToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &during{do: func() {}}
		b, view := leaving(t, func(o *Options) { store.Store, o.Store = o.Store, store })
		for range 2 {
			b.turn(t)
			b.flights.wait()
		}
		b.Declare(nil)
		b.o.Destroy = true
		ctx, cancel := context.WithCancel(t.Context())
		store.do = cancel
		_, err := b.Run(ctx, nil)
		must(t, err)
		slices.Sort(view.ends)
		if want := []string{"worker[0]", "worker[1]"}; !slices.Equal(view.ends, want) || b.cluster.running() > 0 {
			t.Errorf("stopped %v, %d agents run", view.ends, b.cluster.running())
		}
	})
}

// What somebody has been asked for in vain is not begun.
func TestARunThatIsInterruptedWhileItAsksStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b, view := leaving(t, func(o *Options) {
			o.Approve = func(*plan.Input, *plan.Plan) error { cancel(); return nil }
		})
		_, err := b.Run(ctx, nil)
		must(t, err)
		if len(b.Records()) > 0 || b.cluster.running() > 0 || len(view.ends) > 0 {
			t.Errorf("%v is recorded, %d agents run", b.Records(), b.cluster.running())
		}
	})
}

// What cannot be seen may still be leaving: it is stopped no earlier for that.
func TestAnInterruptedRunWaitsForWhatItCannotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, view := leaving(t, func(*Options) {})
		var blind atomic.Bool
		b.cluster.observe = func() {
			b.cluster.unseen = nil
			if blind.Load() {
				b.cluster.unseen = errors.New("no route to host")
			}
		}
		took, err := interrupted(t, b, view, func() { blind.Store(true) })
		must(t, err)
		if want := []string{"worker[0]", "worker[1]"}; !slices.Equal(view.ends, want) || took < leave || took > leave+time.Second {
			t.Errorf("it ended after %v with %v", took, view.ends)
		}
	})
}

func TestAnInterruptedRunThatLosesTheLockStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		b, view := leaving(t, func(o *Options) { o.Lock = &losable{o.Lock, lost, nil} })
		took, err := interrupted(t, b, view, func() { time.Sleep(time.Second); close(lost) })
		if !errors.Is(err, ErrLockLost) || took > 2*time.Second || b.cluster.running() != 2 {
			t.Errorf("it ended after %v with %v, %d agents run", took, err, b.cluster.running())
		}
	})
}
