package file

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

// foreign writes a lock file as another process would.
func foreign(t *testing.T, s *Store, edit func(*record)) {
	t.Helper()
	start, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := record{
		LockInfo: state.LockInfo{ID: "foreign", Epoch: 7, Who: "ada@elsewhere", PID: os.Getpid(), Created: time.Now()},
		Kernel:   kernelID(), Start: start, Lease: job.Duration(s.lease),
	}
	edit(&r)
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.lockDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, s.lockPath(), content)
}

func bubbleStore(t *testing.T) *Store {
	return open(t, filepath.Join(memoryDir(t), "eltrain.state"), Options{})
}

func TestOnlyAProcessThatIsCertainlyGoneIsDead(t *testing.T) {
	tests := []struct {
		name string
		edit func(*record)
		dead bool
	}{
		{"this very process", func(*record) {}, false},
		{"a PID that nobody has", func(r *record) { r.PID = 1 << 30 }, true},
		{"a PID that was used again", func(r *record) { r.Start = "12345" }, true},
		{"another kernel, or PIDs of another container", func(r *record) { r.PID, r.Kernel = 1<<30, "other" }, false},
		{"a kernel that does not tell its name", func(r *record) { r.PID, r.Kernel = 1<<30, "" }, false},
		{"an unknown start time", func(r *record) { r.PID, r.Start = 1<<30, "" }, false},
		{"no PID", func(r *record) { r.PID = 0 }, false},
		{"a process group", func(r *record) { r.PID = -1 }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := bubbleStore(t)
			foreign(t, s, tt.edit)
			h, err := s.readLock()
			if err != nil || h.dead() != tt.dead {
				t.Fatalf("dead: %v, %v", h.dead(), err)
			}
			holder, err := s.Holder(t.Context())
			if (holder == nil) != tt.dead || err != nil {
				t.Fatalf("holder %+v, %v", holder, err)
			}
			l, err := s.Lock(t.Context(), state.LockInfo{}, 0)
			if !tt.dead {
				var locked *state.LockedError
				if !errors.As(err, &locked) || locked.Holder.ID != "foreign" {
					t.Fatalf("%v; want a LockedError", err)
				}
				return
			}
			if err != nil || l.Info().Epoch != 8 {
				t.Fatalf("a dead holder blocks: %v", err)
			}
			l.Unlock(t.Context())
		})
	}
}

func TestHolderOutOfSightIsTakenOverAfterItsOwnLease(t *testing.T) {
	for _, lease := range []time.Duration{5 * time.Second, time.Minute} { // shorter and longer than the contender's
		synctest.Test(t, func(t *testing.T) {
			s := bubbleStore(t)
			foreign(t, s, func(r *record) { r.Kernel, r.PID, r.Lease = "other", 1<<30, job.Duration(lease) })
			start := time.Now()
			l, err := s.Lock(t.Context(), state.LockInfo{}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock(t.Context())
			if waited := time.Since(start); waited < lease || waited > lease+time.Second {
				t.Fatalf("took over after %v, the holder's lease is %v", waited, lease)
			}
		})
	}
}

func TestUnreadableLockFileBlocksForALeaseOnly(t *testing.T) {
	for _, content := range []string{"", "{", "{}", `{"id": 4}`, "\x00\x00"} {
		synctest.Test(t, func(t *testing.T) {
			s := bubbleStore(t)
			foreign(t, s, func(*record) {})
			put(t, s.lockPath(), []byte(content))
			var locked *state.LockedError
			if _, err := s.Lock(t.Context(), state.LockInfo{}, 0); !errors.As(err, &locked) || locked.Holder.Who != unreadableHolder {
				t.Fatalf("%q: %v", content, err)
			}
			start := time.Now()
			l, err := s.Lock(t.Context(), state.LockInfo{}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock(t.Context())
			if waited := time.Since(start); waited < DefaultLease {
				t.Fatalf("%q: taken after %v", content, waited)
			}
		})
	}
}

// A holder whose clock runs backwards, stands still or is decades off still renews.
func TestNoClockIsCompared(t *testing.T) {
	stamps := map[string]func(i int) time.Time{
		"backwards": func(i int) time.Time { return time.Unix(2_000_000_000-int64(i)*3600, 0) },
		"1970":      func(i int) time.Time { return time.Unix(int64(i), 0) },
		"2100":      func(i int) time.Time { return time.Unix(4_102_444_800, int64(i)*1000) },
	}
	for name, stamp := range stamps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubbleStore(t)
				foreign(t, s, func(r *record) { r.Kernel = "other" })
				done := make(chan struct{})
				go func() {
					defer close(done)
					for i := range 30 {
						if err := os.Chtimes(s.lockPath(), stamp(i), stamp(i)); err != nil {
							t.Error(err)
						}
						time.Sleep(DefaultRenew)
					}
				}()
				var locked *state.LockedError
				if _, err := s.Lock(t.Context(), state.LockInfo{}, 30*DefaultRenew-time.Second); !errors.As(err, &locked) {
					t.Fatalf("stole a live lock: %v", err)
				}
				<-done
			})
		})
	}
}

// The contender's clock stands still between two of our renewals, or went back since the last one.
func TestRenewalIsSeenWhateverTheHoldersClockShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbleStore(t)
		l := take(t, s).(*lock)
		future := time.Now().Add(24 * time.Hour)
		if err := os.Chtimes(s.lockPath(), future, future); err != nil {
			t.Fatal(err)
		}
		before, err := s.readLock()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := l.touch(t.Context()); err != nil {
				t.Fatal(err)
			}
			after, err := s.readLock()
			if err != nil || after.renewal() == before.renewal() {
				t.Fatalf("a renewal does not show: %v, %v", after.renewed, err)
			}
			before = after
		}
	})
}

func TestSilenceCountsOnlyWhatWasWatched(t *testing.T) {
	t0 := time.Unix(1000, 0)
	const most = 2 * time.Second
	a, b := held{raw: "a", renewed: t0}, held{raw: "a", renewed: t0.Add(1)}
	looks := []struct {
		after time.Duration
		seen  held
		want  time.Duration
	}{
		{0, a, 0},
		{time.Second, a, time.Second},
		{time.Hour, a, 3 * time.Second}, // suspended for an hour, possibly together with the holder
		{time.Second, b, 0},             // renewed
		{time.Second, b, time.Second},
		{0, held{raw: "c", renewed: b.renewed}, 0}, // another holder, the same time
	}
	var w state.Silence[renewal]
	now := t0
	for i, l := range looks {
		now = now.Add(l.after)
		if got := w.Observe(l.seen.renewal(), now, most); got != l.want {
			t.Fatalf("observation %d: silent for %v, want %v", i, got, l.want)
		}
	}
}

func TestSteadyStateWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbleStore(t)
		l := take(t, s)
		if err := s.Write(t.Context(), state.State{}.Next(statetest.Records(2)), l); err != nil {
			t.Fatal(err)
		}
		type file struct {
			Content  string
			Modified time.Time
		}
		look := func() map[string]file {
			files := map[string]file{}
			err := filepath.WalkDir(filepath.Dir(s.Path()), func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				if err != nil {
					return err
				}
				f := file{Modified: info.ModTime()}
				if !d.IsDir() {
					f.Content = string(contents(t, path))
				}
				files[path] = f
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return files
		}
		before := look()
		time.Sleep(10 * DefaultLease)
		synctest.Wait()
		after := look()
		renewed := after[s.lockPath()]
		if renewed.Modified.Equal(before[s.lockPath()].Modified) {
			t.Fatal("the lock was not renewed")
		}
		renewed.Modified = before[s.lockPath()].Modified
		after[s.lockPath()] = renewed
		if d := cmp.Diff(before, after); d != "" {
			t.Fatalf("files changed while nothing happened:\n%s", d)
		}
	})
}

// breakHeld breaks the lock, whoever holds it.
func breakHeld(t *testing.T, s *Store) {
	t.Helper()
	holder, err := s.Holder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Break(t.Context(), holder.ID); err != nil {
		t.Fatal(err)
	}
}

func TestLostIsClosed(t *testing.T) {
	tests := []struct {
		name   string
		happen func(t *testing.T, s *Store)
		within time.Duration
		gone   bool // nobody took it over
	}{
		{"when the lock file is another's", func(t *testing.T, s *Store) { foreign(t, s, func(*record) {}) }, DefaultRenew, false},
		{"when the lock is broken", breakHeld, DefaultRenew, false},
		{"when the lock was broken, and taken and given back since", func(t *testing.T, s *Store) {
			breakHeld(t, s)
			if err := take(t, s).Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, DefaultRenew, false},
		{"when the lock file alone is gone", func(t *testing.T, s *Store) {
			if err := os.Remove(s.lockPath()); err != nil {
				t.Fatal(err)
			}
		}, DefaultRenew, true},
		{"when the directory was moved", func(t *testing.T, s *Store) {
			if err := os.Rename(filepath.Dir(s.Path()), filepath.Dir(s.Path())+"2"); err != nil {
				t.Fatal(err)
			}
		}, DefaultRenew, true},
		{"when the lock file's directory is gone", func(t *testing.T, s *Store) {
			if err := os.RemoveAll(s.lockDir()); err != nil {
				t.Fatal(err)
			}
		}, DefaultRenew, true},
		{"when the whole directory is gone", func(t *testing.T, s *Store) {
			if err := os.RemoveAll(filepath.Dir(s.Path())); err != nil {
				t.Fatal(err)
			}
		}, DefaultRenew, true},
		{"when it cannot be renewed for a lease", func(t *testing.T, s *Store) {
			// A file in place of the directory makes every access fail, even for root.
			if err := os.RemoveAll(s.lockDir()); err != nil {
				t.Fatal(err)
			}
			put(t, s.lockDir(), nil)
		}, DefaultLease, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubbleStore(t)
				l := take(t, s)
				time.Sleep(2*DefaultLease + DefaultRenew/2) // between two renewals, to avoid a race with one
				select {
				case <-l.Lost():
					t.Fatal("lost while renewed")
				default:
				}
				start := time.Now()
				tt.happen(t, s)
				<-l.Lost()
				if took := time.Since(start); took > tt.within {
					t.Fatalf("closed after %v, want at most %v", took, tt.within)
				}
				if gone := errors.As(l.Why(), new(*state.VanishedError)); gone != tt.gone {
					t.Errorf("lost because: %v", l.Why())
				}
				if err := s.Write(t.Context(), state.State{}.Next(nil), l); !errors.Is(err, state.ErrFenced) {
					t.Fatalf("write: %v; want ErrFenced", err)
				}
				_ = l.Unlock(t.Context()) // may fail if the directory cannot be read
				if strings.Contains(tt.name, "whole directory") {
					if _, err := os.Stat(filepath.Dir(s.Path())); !errors.Is(err, fs.ErrNotExist) {
						t.Fatalf("the removed directory was recreated: %v", err)
					}
				}
			})
		})
	}
}

// A process that is suspended inside the guard makes others fail after a while; they do not hang.
func TestStuckGuardBlocksNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbleStore(t)
		l := take(t, s)
		g, err := open(t, s.Path(), Options{}).takeGuard(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.Write(t.Context(), state.State{}.Next(nil), l); err == nil || !strings.Contains(err.Error(), s.guardPath()) {
			t.Fatalf("%v; want the guard named", err)
		}
		if took := time.Since(start); took > guardPatience {
			t.Fatalf("blocked for %v", took)
		}
		g.release()
		if err := s.Write(t.Context(), state.State{}.Next(nil), l); err != nil {
			t.Fatal(err)
		}
	})
}

// atTheGuard starts writes that have done everything up to the guard, calls happen, and returns their
// results.
func atTheGuard(t *testing.T, s *Store, l state.Lock, writes []state.State, happen func()) []error {
	t.Helper()
	g, err := s.takeGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make([]chan error, len(writes))
	for i, st := range writes {
		ended[i] = make(chan error, 1)
		handle := open(t, s.Path(), Options{})
		go func() { ended[i] <- handle.Write(context.Background(), st, l) }()
	}
	time.Sleep(time.Second) // on the fake clock: all of them wait for the guard now
	synctest.Wait()
	happen()
	g.release()
	errs := make([]error, len(writes))
	for i := range ended {
		errs[i] = <-ended[i]
	}
	return errs
}

func TestWriteThatWasOvertakenBeforeItsLastStepIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbleStore(t)
		l := take(t, s)
		first := state.State{}.Next(nil)
		if err := s.Write(t.Context(), first, l); err != nil {
			t.Fatal(err)
		}
		errs := atTheGuard(t, s, l, []state.State{first.Next(nil)}, func() {
			foreign(t, s, func(*record) {})
		})
		if !errors.Is(errs[0], state.ErrFenced) {
			t.Fatalf("%v; want ErrFenced", errs[0])
		}
		if st, err := s.Read(t.Context()); err != nil || st.Serial != 1 {
			t.Fatalf("serial %d, %v", st.Serial, err)
		}
	})
}

func TestWritesAtTheSameMomentDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbleStore(t)
		l := take(t, s)
		var writes []state.State
		for slots := range 4 {
			writes = append(writes, state.State{}.Next(statetest.Records(slots)))
		}
		won := -1
		for i, err := range atTheGuard(t, s, l, writes, func() {}) {
			var refused *state.LineageError // each began a lineage of its own
			switch {
			case err == nil && won < 0:
				won = i
			case !errors.As(err, &refused):
				t.Fatalf("write %d: %v", i, err)
			}
		}
		st, err := s.Read(t.Context())
		if err != nil || won < 0 || len(st.Jobs["gpt"].Slots) != won {
			t.Fatalf("write %d won; %d slots are stored, %v", won, len(st.Jobs["gpt"].Slots), err)
		}
	})
}

func TestGuardIsOneHoldersAtATime(t *testing.T) {
	s := bubbleStore(t)
	if err := os.MkdirAll(s.lockDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := s.tryGuard()
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	if second, err := s.tryGuard(); second != nil || err != nil {
		t.Fatalf("two in the guard: %v", err)
	}
	first.release()
	third, err := s.tryGuard()
	if err != nil || third == nil {
		t.Fatal("the guard was not released", err)
	}
	third.release()
}

func TestEpochOutlivesTheLockFiles(t *testing.T) {
	s := bubbleStore(t)
	l := take(t, s)
	if err := s.Write(t.Context(), state.State{}.Next(nil), l); err != nil {
		t.Fatal(err)
	}
	l.Unlock(t.Context())
	last := l.Info().Epoch
	if err := os.RemoveAll(s.lockDir()); err != nil {
		t.Fatal(err)
	}
	l = take(t, s)
	if l.Info().Epoch <= last {
		t.Fatalf("epoch %d after %d: an old holder would not be fenced", l.Info().Epoch, last)
	}
}

func TestLockingWorksOverADamagedState(t *testing.T) {
	s := bubbleStore(t)
	put(t, s.Path(), []byte("garbage"))
	take(t, s)
}

func TestANewHolderSweepsWhatDeadOnesLeft(t *testing.T) {
	s := bubbleStore(t)
	dir := filepath.Dir(s.Path())
	foreign(t, s, func(r *record) { r.PID = 1 << 30 })
	for _, path := range []string{s.Path(), s.backupPath(), s.lockPath(), s.keyPath()} {
		if _, err := atomicfile.NewDraft(path, nil, mode); err != nil { // of an owner that died
			t.Fatal(err)
		}
	}
	kept := []string{filepath.Join(dir, ".eltrain.state.mine.tmp"), filepath.Join(dir, "other.tmp"), s.Path() + ".backup"}
	for _, path := range kept {
		put(t, path, nil)
	}
	take(t, s)
	want := []string{".eltrain", ".eltrain.state.mine.tmp", "eltrain.state.backup", "other.tmp"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("besides the state there are %v, want %v", got, want)
	}
	for _, name := range names(t, s.lockDir()) {
		if strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestLockErrorsSayWhatWasBeingDone(t *testing.T) {
	s := bubbleStore(t)
	put(t, s.lockDir(), nil) // a file in place of the directory
	for what, do := range map[string]func() error{
		"lock state":         func() error { _, err := s.Lock(context.Background(), state.LockInfo{}, 0); return err },
		"read lock of state": func() error { _, err := s.Holder(context.Background()); return err },
	} {
		if err := do(); err == nil || !strings.HasPrefix(err.Error(), what+" "+s.Path()) {
			t.Errorf("%v; want it to begin with %q", err, what)
		}
	}
}
