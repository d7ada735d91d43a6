// Package statetest is the suite of tests that every state.Store has to pass.
package statetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// Opener is one place that keeps a state, empty at first, with a short lease.
type Opener interface {
	// Open returns a further handle of the place, as another process would have.
	Open() state.Store
	// Silence stops the renewal of a held lock, as if its process hung; Resume lets it continue.
	Silence(l state.Lock)
	Resume(l state.Lock)
	// Lease is how long a lock outlives its last renewal.
	Lease() time.Duration
}

// Run runs the suite in real time, for stores across a network. The tests wait for leases, side by side.
func Run(t *testing.T, open func(*testing.T) Opener) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

// RunInBubble runs the suite, measures waits, and takes a random walk, on synctest's clock, for stores that wait only for time
// and this process.
func RunInBubble(t *testing.T, open func(*testing.T) Opener) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, open(t)) })
		})
	}
	t.Run("waits end in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { waitsEndInTime(t, open(t)) })
	})
	t.Run("random walk of two holders", func(t *testing.T) { walk(t, open) })
}

var cases = []struct {
	name string
	run  func(*testing.T, Opener)
}{
	{"nothing stored reads as the zero state", readNothing},
	{"what is written is read", roundTrip},
	{"what was read or written is not shared", notShared},
	{"only the successor may be written", onlySuccessor},
	{"another lineage is refused", otherLineage},
	{"a newer version is refused", newerVersion},
	{"a lock excludes other handles", excludes},
	{"the holder is told", tellsHolder},
	{"waiting ends at the timeout", timeoutRespected},
	{"waiting ends with the context", contextRespected},
	{"a release ends the wait", releaseEndsWait},
	{"unlock twice is unlock once", unlockTwice},
	{"a late unlock leaves the successor's lock alone", lateUnlock},
	{"every holder has a greater epoch", epochsGrow},
	{"a live holder keeps its lock", liveHolderKeeps},
	{"a silent holder does not block", silentHolder},
	{"who lost the lock is told and fenced", lostIsFenced},
	{"who gave the lock back did not lose it", unlockedIsNotLost},
	{"a write after unlock is fenced", unlockedIsFenced},
	{"a broken lock is nobody's, and its holder is fenced", breakTakes},
	{"a lock is broken by its ID alone", breakOnlyThatLock},
	{"a place has one key", oneKey},
	{"one of concurrent writes wins", oneWriteWins},
	{"holders in turn lose no update", noUpdateLost},
}

var self = state.LockInfo{Operation: "apply -watch", Who: "ada@host"}

func lock(t *testing.T, o Opener, s state.Store) state.Lock {
	t.Helper()
	l, err := s.Lock(t.Context(), self, hang.Bound)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	// Not t.Context: that is canceled before cleanups run.
	t.Cleanup(func() {
		if err := l.Unlock(context.Background()); err != nil {
			t.Errorf("unlock at the end: %v", err)
		}
	})
	return l
}

func unlock(t *testing.T, l state.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("unlock: %v", err)
	}
}

func read(t *testing.T, s state.Store) state.State {
	t.Helper()
	st, err := s.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return st
}

func write(t *testing.T, s state.Store, st state.State, l state.Lock) state.State {
	t.Helper()
	if err := s.Write(t.Context(), st, l); err != nil {
		t.Fatalf("write serial %d: %v", st.Serial, err)
	}
	return read(t, s)
}

// unchanged checks that every handle reads want.
func unchanged(t *testing.T, o Opener, want state.State) {
	t.Helper()
	if diff := diff(want, read(t, o.Open())); diff != "" {
		t.Fatalf("a refused write changed the state (-before +after):\n%s", diff)
	}
}

func diff(want, got state.State) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

func isLost(l state.Lock) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func readNothing(t *testing.T, o Opener) {
	if diff := diff(state.State{}, read(t, o.Open())); diff != "" {
		t.Fatal(diff)
	}
	holder, err := o.Open().Holder(t.Context())
	if holder != nil || err != nil {
		t.Fatalf("holder %v, %v; want nobody", holder, err)
	}
}

func roundTrip(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	want := state.State{}.Next(Records(3))
	want.Released = map[string]job.Released{"u9": {Name: "old", Provider: "local"}}
	want.Conditions = []conditions.Condition{{About: "job.gpt.worker", Since: time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC),
		Reason: job.Because("of_a_newer_version", "message", "<a & b>").With(job.Because("part"))}}
	if err := s.Write(t.Context(), want, l); err != nil {
		t.Fatal(err)
	}
	want.Epoch = l.Info().Epoch
	for _, handle := range []state.Store{s, o.Open()} {
		if diff := diff(want, read(t, handle)); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	}
	// Handles that read before see what another writes later.
	other := o.Open()
	first := read(t, other)
	second := write(t, s, want.Next(nil), l)
	if diff := diff(second, read(t, other)); diff != "" || second.Serial != first.Serial+1 {
		t.Fatalf("serial %d after %d; %s", second.Serial, first.Serial, diff)
	}
}

func notShared(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	records := Records(1)
	want := write(t, s, state.State{}.Next(records), l)
	records["gpt"].Slots[0].Rank = 99
	read(t, s).Jobs["gpt"].Slots[0].Rank = 98
	if diff := diff(want, read(t, s)); diff != "" {
		t.Fatalf("the stored state changed with what was handed in or out:\n%s", diff)
	}
}

func onlySuccessor(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	first := state.State{}.Next(Records(1))
	first.Serial = 2
	refused := func(st state.State, stored uint64) {
		t.Helper()
		var e *state.SerialError
		if err := s.Write(t.Context(), st, l); !errors.As(err, &e) || e.Given != st.Serial || e.Stored != stored {
			t.Fatalf("serial %d over %d: %v; want a SerialError", st.Serial, stored, err)
		}
	}
	refused(first, 0)
	unchanged(t, o, state.State{})
	now := write(t, s, state.State{}.Next(Records(1)), l)
	for _, serial := range []uint64{0, 1, 3} {
		next := now.Next(nil)
		next.Serial = serial
		refused(next, 1)
		unchanged(t, o, now)
	}
}

func otherLineage(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	var e *state.LineageError
	if err := s.Write(t.Context(), state.State{Serial: 1}, l); !errors.As(err, &e) {
		t.Fatalf("no lineage: %v; want a LineageError", err)
	}
	now := write(t, s, state.State{}.Next(Records(1)), l)
	for _, lineage := range []string{"", "another"} {
		next := now.Next(nil)
		next.Lineage = lineage
		if err := s.Write(t.Context(), next, l); !errors.As(err, &e) || e.Stored != now.Lineage || e.Given != lineage {
			t.Fatalf("lineage %q: %v; want a LineageError", lineage, err)
		}
		unchanged(t, o, now)
	}
}

func newerVersion(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	now := write(t, s, state.State{}.Next(Records(1)), l)
	next := now.Next(nil)
	next.Version = state.Version + 1
	var e *state.VersionError
	if err := s.Write(t.Context(), next, l); !errors.As(err, &e) {
		t.Fatalf("%v; want a VersionError", err)
	}
	unchanged(t, o, now)
}

func excludes(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	l := lock(t, o, a)
	for _, s := range []state.Store{a, b} {
		var locked *state.LockedError
		if second, err := s.Lock(t.Context(), self, 0); !errors.As(err, &locked) {
			t.Fatalf("a second lock: %v, %v; want a LockedError", second, err)
		}
	}
	unlock(t, l)
	lock(t, o, b)
}

func tellsHolder(t *testing.T, o Opener) {
	s, other := o.Open(), o.Open()
	l := lock(t, o, s)
	info := l.Info()
	if info.ID == "" || info.Epoch == 0 || info.PID == 0 || info.Created.IsZero() || info.Who != self.Who || info.Operation != self.Operation {
		t.Fatalf("incomplete: %+v", info)
	}
	var locked *state.LockedError
	if _, err := other.Lock(t.Context(), self, 0); !errors.As(err, &locked) {
		t.Fatalf("%v; want a LockedError", err)
	}
	holder, err := other.Holder(t.Context())
	if err != nil || holder == nil {
		t.Fatalf("holder %v, %v", holder, err)
	}
	for _, got := range []state.LockInfo{locked.Holder, *holder} {
		if diff := cmp.Diff(info, got); diff != "" {
			t.Errorf("(-held +reported):\n%s", diff)
		}
	}
	unlock(t, l)
	if holder, err := other.Holder(t.Context()); holder != nil || err != nil {
		t.Fatalf("after unlock: %v, %v; want nobody", holder, err)
	}
}

func timeoutRespected(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	lock(t, o, a)
	var locked *state.LockedError
	if _, err := b.Lock(t.Context(), self, 150*time.Millisecond); !errors.As(err, &locked) {
		t.Fatalf("%v; want a LockedError", err)
	}
}

func contextRespected(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	lock(t, o, a)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Lock(ctx, self, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v; want the context's error", err)
	}
}

// waitsEndInTime measures waits, so it runs only in a bubble.
func waitsEndInTime(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	const timeout = 150 * time.Millisecond
	start := time.Now()
	if _, err := b.Lock(t.Context(), self, timeout); err == nil {
		t.Fatal("two hold the lock")
	}
	if waited := time.Since(start); waited < timeout || waited > timeout+o.Lease() {
		t.Errorf("waited %v, asked for %v", waited, timeout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start = time.Now()
	if _, err := b.Lock(ctx, self, time.Hour); err == nil {
		t.Fatal("two hold the lock")
	}
	if waited := time.Since(start); waited > timeout+o.Lease() {
		t.Errorf("waited %v for a context of %v", waited, timeout)
	}
	o.Silence(first)
	start = time.Now()
	lock(t, o, b)
	if waited := time.Since(start); waited > 2*o.Lease() {
		t.Errorf("a silent holder blocked for %v at a lease of %v", waited, o.Lease())
	}
}

func releaseEndsWait(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	l := lock(t, o, a)
	got := make(chan error, 1)
	go func() {
		second, err := b.Lock(context.Background(), self, hang.Bound)
		if err == nil {
			err = second.Unlock(context.Background())
		}
		got <- err
	}()
	time.Sleep(20 * time.Millisecond) // the wait may or may not have started; both must work
	unlock(t, l)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func unlockTwice(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	l := lock(t, o, a)
	unlock(t, l)
	second := lock(t, o, b)
	unlock(t, l)
	write(t, b, state.State{}.Next(nil), second)
	if holder, err := a.Holder(t.Context()); err != nil || holder == nil || holder.ID != second.Info().ID {
		t.Fatalf("a second unlock released another's lock: %v, %v", holder, err)
	}
}

func lateUnlock(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	o.Silence(first)
	second := lock(t, o, b)
	unlock(t, first)
	write(t, b, state.State{}.Next(nil), second)
}

func epochsGrow(t *testing.T, o Opener) {
	last := uint64(0)
	var st state.State
	for i := range 6 {
		s := o.Open()
		l := lock(t, o, s)
		if e := l.Info().Epoch; e <= last {
			t.Fatalf("holder %d has epoch %d after %d", i, e, last)
		}
		last = l.Info().Epoch
		if i%2 == 0 { // grows even without a write in between
			if st = write(t, s, st.Next(nil), l); st.Epoch != last {
				t.Fatalf("written under epoch %d, stored with %d", last, st.Epoch)
			}
		}
		if i%3 == 0 {
			o.Silence(l)
		} else {
			unlock(t, l)
		}
	}
}

func liveHolderKeeps(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	l := lock(t, o, a)
	var locked *state.LockedError
	if _, err := b.Lock(t.Context(), self, 2*o.Lease()); !errors.As(err, &locked) {
		t.Fatalf("%v; want a LockedError: the holder renews", err)
	}
	if isLost(l) {
		t.Fatal("the holder was notified that it lost the lock")
	}
	write(t, a, state.State{}.Next(nil), l)
}

func silentHolder(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	o.Silence(first)
	second := lock(t, o, b)
	if second.Info().Epoch <= first.Info().Epoch {
		t.Fatalf("epoch %d after %d", second.Info().Epoch, first.Info().Epoch)
	}
}

func lostIsFenced(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	before := write(t, a, state.State{}.Next(Records(1)), first)
	o.Silence(first)
	second := lock(t, o, b)
	// Fenced before the successor's first write, and after it.
	for range 2 {
		if err := a.Write(t.Context(), before.Next(nil), first); !errors.Is(err, state.ErrFenced) {
			t.Fatalf("a write under the lost lock: %v; want ErrFenced", err)
		}
		unchanged(t, o, before)
		before = write(t, b, before.Next(Records(2)), second)
	}
	o.Resume(first)
	select {
	case <-first.Lost():
	case <-time.After(hang.Bound):
		t.Fatal("Lost was not closed")
	}
	if err := first.Why(); !errors.Is(err, state.ErrFenced) {
		t.Errorf("the lock was lost to another, but Why is: %v", err)
	}
	if err := second.Why(); err != nil {
		t.Errorf("a lock that is held was lost because: %v", err)
	}
	if isLost(second) {
		t.Fatal("the successor was notified that it lost the lock")
	}
}

func unlockedIsNotLost(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	unlock(t, first)
	lock(t, o, b)
	time.Sleep(2 * o.Lease()) // in which a held lock would be renewed, or lost
	if isLost(first) || first.Why() != nil {
		t.Errorf("a released lock is lost: %v", first.Why())
	}
}

func unlockedIsFenced(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	before := write(t, s, state.State{}.Next(Records(1)), l)
	unlock(t, l)
	if err := s.Write(t.Context(), before.Next(nil), l); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("%v; want ErrFenced", err)
	}
	unchanged(t, o, before)
}

func oneWriteWins(t *testing.T, o Opener) {
	s := o.Open()
	l := lock(t, o, s)
	before := write(t, s, state.State{}.Next(nil), l)
	const writers = 8
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		handle := s
		if i%2 == 1 {
			handle = o.Open()
		}
		wg.Go(func() { errs[i] = handle.Write(context.Background(), before.Next(Records(i+1)), l) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		var stale *state.SerialError
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Fatalf("writes %d and %d of the same serial both won", winner, i)
		case !errors.As(err, &stale):
			t.Fatalf("write %d: %v; want a SerialError", i, err)
		}
	}
	if winner < 0 {
		t.Fatal("nobody won")
	}
	want := before.Next(Records(winner + 1))
	want.Epoch = l.Info().Epoch
	if diff := diff(want, read(t, s)); diff != "" {
		t.Fatalf("the winner's state is not what is stored:\n%s", diff)
	}
}

func noUpdateLost(t *testing.T, o Opener) {
	const holders, rounds = 4, 5
	update := func() error {
		ctx := context.Background()
		s := o.Open()
		for range rounds {
			l, err := s.Lock(ctx, self, hang.Bound)
			if err != nil {
				return err
			}
			st, err := s.Read(ctx)
			if err == nil {
				err = s.Write(ctx, st.Next(nil), l)
			}
			if err = errors.Join(err, l.Unlock(ctx)); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make(chan error, holders)
	for range holders {
		go func() { errs <- update() }()
	}
	for range holders {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if st := read(t, o.Open()); st.Serial != holders*rounds {
		t.Fatalf("serial %d after %d updates", st.Serial, holders*rounds)
	}
}

func breakTakes(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	first := lock(t, o, a)
	before := write(t, a, state.State{}.Next(Records(1)), first)
	info, err := b.Break(t.Context(), first.Info().ID)
	if err != nil {
		t.Fatalf("break: %v", err)
	}
	if diff := cmp.Diff(first.Info(), info); diff != "" {
		t.Errorf("(-held +broken):\n%s", diff)
	}
	if err := a.Write(t.Context(), before.Next(nil), first); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("a write under the broken lock: %v; want ErrFenced", err)
	}
	unchanged(t, o, before)
	if holder, err := b.Holder(t.Context()); holder != nil || err != nil {
		t.Fatalf("after break: %v, %v; want nobody", holder, err)
	}
	second, err := b.Lock(t.Context(), self, 0) // at once: there is no holder to watch
	if err != nil {
		t.Fatalf("lock after break: %v", err)
	}
	if second.Info().Epoch <= first.Info().Epoch {
		t.Fatalf("epoch %d after %d", second.Info().Epoch, first.Info().Epoch)
	}
	write(t, b, before.Next(nil), second)
	select {
	case <-first.Lost():
	case <-time.After(hang.Bound):
		t.Fatal("Lost was not closed")
	}
	if err := first.Why(); !errors.Is(err, state.ErrFenced) {
		t.Errorf("the lock was broken, but Why is: %v", err)
	}
	unlock(t, first)
	if holder, err := a.Holder(t.Context()); err != nil || holder == nil || holder.ID != second.Info().ID {
		t.Fatalf("the broken lock's unlock released another's: %v, %v", holder, err)
	}
	unlock(t, second)
}

func breakOnlyThatLock(t *testing.T, o Opener) {
	a, b := o.Open(), o.Open()
	var none *state.NotHeldError
	if _, err := b.Break(t.Context(), "any"); !errors.As(err, &none) || none.Holder != nil {
		t.Fatalf("nobody holds it: %v; want a NotHeldError", err)
	}
	l := lock(t, o, a)
	if _, err := b.Break(t.Context(), "another"); !errors.As(err, &none) || none.Holder == nil || none.Holder.ID != l.Info().ID {
		t.Fatalf("another ID: %v; want a NotHeldError with the holder", err)
	}
	write(t, a, state.State{}.Next(nil), l)
	unlock(t, l)
	if _, err := b.Break(t.Context(), l.Info().ID); !errors.As(err, &none) || none.Holder != nil {
		t.Fatalf("released: %v; want a NotHeldError", err)
	}
}

func oneKey(t *testing.T, o Opener) {
	const handles = 4
	keys, errs := make([][]byte, handles), make([]error, handles)
	if key, err := o.Open().Key(t.Context()); key != nil || err != nil {
		t.Fatalf("before it is created the key is %x, %v", key, err)
	}
	var wg sync.WaitGroup
	for i := range handles {
		wg.Go(func() { keys[i], errs[i] = o.Open().MakeKey(context.Background()) })
	}
	wg.Wait()
	for i := range handles {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if !bytes.Equal(keys[i], keys[0]) || state.CheckKey(keys[i]) != nil {
			t.Fatalf("handle %d has the key %x, another %x", i, keys[i], keys[0])
		}
	}
	// It belongs to the place: locks, writes and other readers do not change it.
	s := o.Open()
	l := lock(t, o, s)
	write(t, s, state.State{}.Next(Records(1)), l)
	if key, err := o.Open().Key(t.Context()); err != nil || !bytes.Equal(key, keys[0]) {
		t.Fatalf("after a write the key is %x, %v", key, err)
	}
}
