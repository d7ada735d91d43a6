package apply

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// losable is a lock that the test takes away.
type losable struct {
	state.Lock
	lost chan struct{}
}

func (l *losable) Lost() <-chan struct{} { return l.lost }

func TestALostLockGroundsAllAtOnce(t *testing.T) {
	lost := make(chan struct{})
	b := newBench(t, func(o *Options) {
		o.Spawn, o.Clock, o.Parallelism = nil, nil, 1
		o.Lock = &losable{o.Lock, lost}
	})
	var launches atomic.Int32
	flying, landed := make(chan struct{}), make(chan struct{})
	b.cluster.launch = func(ctx context.Context, _ job.Launch) error {
		if launches.Add(1) == 1 {
			close(flying)
			<-ctx.Done()
			close(landed)
		}
		return nil
	}
	looking, look := make(chan struct{}), make(chan struct{})
	b.cluster.observe = func() {
		select {
		case <-flying: // the loop is busy for long when the lock goes
			looking <- struct{}{}
			<-look
		default:
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(t.Context(), nil)
		ended <- err
	}()
	within(t, "the first launch", flying)
	b.flights.wake()
	within(t, "the next turn", looking)
	close(lost)
	within(t, "the end of the launch", landed)
	close(look)
	select {
	case err := <-ended:
		if !errors.Is(err, ErrLockLost) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on without the lock")
	}
	if n := launches.Load(); n != 1 {
		t.Errorf("%d launches were begun", n)
	}
}

// stopped is a view that takes nothing until it is let go. It keeps what was finished.
type stopped struct {
	listener
	begun, free chan struct{}
	once        sync.Once
	finished    []string
}

func newStopped() *stopped { return &stopped{begun: make(chan struct{}), free: make(chan struct{})} }

func (s *stopped) Planned(*plan.Plan) {
	s.once.Do(func() { close(s.begun) })
	<-s.free
}

func (s *stopped) Finished(c *plan.Change, _ time.Duration, _ error) {
	s.finished = append(s.finished, c.Slot.Short())
}

func TestATerminalThatTakesNothingHoldsUpNoHealing(t *testing.T) {
	view := newStopped()
	b := newBench(t, func(o *Options) { o.Spawn, o.Clock, o.View = nil, nil, view })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(ctx, &Watch{})
		ended <- err
	}()
	within(t, "the first plan", view.begun)
	eventually(t, "the launch of both", func() bool { return b.cluster.running() == 2 })
	b.cluster.mu.Lock()
	b.cluster.Agents()[1].Kill()
	b.cluster.mu.Unlock()
	eventually(t, "the launch of another", func() bool { b.flights.wake(); return b.cluster.running() == 2 })
	if len(b.Live().Records) != 1 {
		t.Error("status is not answered")
	}
	close(view.free)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	slices.Sort(view.finished)
	if want := []string{"worker[0]", "worker[1]", "worker[1]"}; !slices.Equal(view.finished, want) {
		t.Errorf("told of %v once it took it, not %v", view.finished, want)
	}
}

func TestWhatATerminalDoesNotTakeIsLeftOutInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newStopped()
		tell := &teller{view: view}
		done := func(v View) { v.Finished(&plan.Change{}, 0, nil) }
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(done)
		time.Sleep(untoldMost + time.Second)
		tell.tell(done)
		tell.tell(done)
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 1 || len(view.warned) != 1 {
			t.Errorf("told %d, warned %q", len(view.finished), view.warned)
		}
		tell.tell(done)
		tell.end()
		tell.tell(done) // at once again
		if len(view.finished) != 3 {
			t.Errorf("told %d in the end", len(view.finished))
		}
	})
}

func TestARunEndsThoughATerminalTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newStopped()
		tell := &teller{view: view}
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(func(v View) { v.Finished(&plan.Change{}, 0, nil) })
		begun := time.Now()
		tell.end()
		if took := time.Since(begun); took != flushMost {
			t.Errorf("it ended after %v", took)
		}
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 0 {
			t.Error("it was told after the end")
		}
	})
}

// slow is a store whose writes take until they are let go.
type slow struct {
	state.Store
	writing, free chan struct{}
}

func (s *slow) Write(ctx context.Context, next state.State, l state.Lock) error {
	s.writing <- struct{}{}
	<-s.free
	return s.Store.Write(ctx, next, l)
}

func TestAStoreThatTakesLongHoldsUpNobodyWhoReads(t *testing.T) {
	store := &slow{writing: make(chan struct{}), free: make(chan struct{})}
	b := newBench(t, func(o *Options) { store.Store, o.Store = o.Store, store })
	turned := make(chan error, 1)
	go func() {
		_, _, err := b.Turn(t.Context())
		turned <- err
	}()
	within(t, "the write", store.writing)
	read := make(chan struct{})
	go func() {
		b.Records()
		b.Snapshot()
		b.Live()
		close(read)
	}()
	within(t, "an answer", read)
	close(store.free)
	if err := <-turned; err != nil {
		t.Fatal(err)
	}
}
