package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// The lock of state file S is .eltrain/S.lock: it is held while that file exists. Its content, a record, is
// written once, when the lock is acquired. The holder renews it by changing the file's modification time, which
// writes no content. Releasing it renames it to .eltrain/S.unlocked, which works on a full disk and keeps the
// epoch. Every step that depends on the holder is done under .eltrain/S.guard.
//
// Another process takes over when the holder is certainly dead (same kernel, and its PID is gone or has another start
// time), or has not renewed for a whole lease. The latter means that the modification time was seen not to change
// for that long; its value does not matter, so no clocks are compared.

func (s *Store) lockDir() string { return filepath.Join(filepath.Dir(s.path), ".eltrain") }

func (s *Store) makeLockDir() error {
	// Not MkdirAll: a removed directory of jobs must not be recreated.
	if err := os.Mkdir(s.lockDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return regular.CheckPrivate(s.lockDir())
}

func (s *Store) lockFile(ext string) string {
	return filepath.Join(s.lockDir(), filepath.Base(s.path)+ext)
}
func (s *Store) lockPath() string     { return s.lockFile(".lock") }
func (s *Store) unlockedPath() string { return s.lockFile(".unlocked") }
func (s *Store) guardPath() string    { return s.lockFile(".guard") }

// record is the lock file's content.
type record struct {
	state.LockInfo
	Host   string       `json:"host"`   // for people
	Kernel string       `json:"kernel"` // kernelID of the holder
	Start  string       `json:"start"`  // startTime of the holder
	Lease  job.Duration `json:"lease"`  // the holder's own lease, by which it renews
}

// held is the lock file at one moment; zero if there is none.
type held struct {
	record
	raw     string // content
	renewed time.Time
}

// unreadableHolder is the holder of a lock file that cannot be parsed.
const unreadableHolder = "an unknown holder (its lock file cannot be read)"

// readLock returns the zero held if the lock is free. A lock file that cannot be parsed has an unknown holder, which is
// waited for like one on another host.
func (s *Store) readLock() (held, error) {
	f, err := regular.Open(s.lockPath(), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return held{}, nil
	}
	if err != nil {
		return held{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return held{}, err
	}
	raw, err := regular.All(f, maxRecord)
	if err != nil {
		return held{}, err
	}
	h := held{raw: string(raw), renewed: info.ModTime()}
	if err := json.Unmarshal(raw, &h.record); err != nil || h.ID == "" {
		h.record = record{LockInfo: state.LockInfo{ID: "(unknown)", Who: unreadableHolder, Created: info.ModTime()}}
	}
	return h, nil
}

func (h held) free() bool { return h.ID == "" }

// dead reports whether the holder has certainly ended; false if that cannot be known.
func (h held) dead() bool {
	if h.Kernel == "" || h.Start == "" || h.PID <= 0 || h.Kernel != kernelID() {
		return false
	}
	if errors.Is(unix.Kill(h.PID, 0), unix.ESRCH) {
		return true
	}
	// Other users' processes may be hidden in /proc: a process that is not visible there may still run.
	start, err := startTime(h.PID)
	return err == nil && start != h.Start
}

// renewal identifies one renewal of one holder.
type renewal struct {
	raw     string
	renewed int64 // ns since 1970
}

func (h held) renewal() renewal { return renewal{h.raw, h.renewed.UnixNano()} }

// observationsPerLease is the minimum number of observations per lease to consider a holder silent.
const observationsPerLease = 10

// Lock implements state.Store. To take over from a holder that is silent, but not known to be dead, it has to
// watch for a whole lease of that holder; with a shorter timeout it fails.
func (s *Store) Lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (state.Lock, error) {
	l, err := s.lock(ctx, info, timeout)
	if err != nil {
		return nil, fmt.Errorf("lock state %s: %w", s.path, err)
	}
	return l, nil
}

func (s *Store) lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (*lock, error) {
	deadline := time.Now().Add(timeout)
	var silent state.Silence[renewal]
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := s.readLock()
		if err != nil {
			return nil, err
		}
		lease := h.Lease.Std()
		if lease <= 0 {
			lease = s.lease
		}
		if h.free() || h.dead() || silent.Observe(h.renewal(), time.Now(), lease/observationsPerLease) >= lease {
			l, err := s.claim(ctx, info, h)
			if l != nil || err != nil {
				return l, err
			}
			continue // another process was faster, or the holder renewed
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, &state.LockedError{Holder: h.LockInfo}
		}
		// A quarter of what counts, so that a late observation does not prolong the wait.
		pause := min(max(lease/observationsPerLease/4, time.Millisecond), 100*time.Millisecond)
		select {
		case <-ctx.Done():
		case <-time.After(min(left, pause)):
		}
	}
}

// claim acquires the lock if it is unchanged since it was judged; otherwise it returns nil without an error.
func (s *Store) claim(ctx context.Context, info state.LockInfo, judged held) (*lock, error) {
	if err := s.makeLockDir(); err != nil {
		return nil, err
	}
	g, err := s.takeGuard(ctx)
	if err != nil {
		return nil, err
	}
	defer g.release()
	now, err := s.readLock()
	if err != nil {
		return nil, err
	}
	if now.renewal() != judged.renewal() {
		return nil, nil
	}
	info.ID, info.PID = uuid.NewString(), os.Getpid()
	info.Epoch = max(now.Epoch, s.lastEpoch()) + 1
	if info.Created.IsZero() {
		info.Created = time.Now().UTC()
	}
	began := time.Now()
	if err := s.putLock(info); err != nil {
		return nil, err
	}
	s.sweep()
	l := &lock{Hold: state.NewHold(info), store: s}
	l.keep(began)
	return l, nil
}

// lastEpoch is the newest epoch known besides the lock file's: of the last released lock, and of the stored
// state. What cannot be read counts as 0: locking must work to repair a damaged state.
func (s *Store) lastEpoch() uint64 {
	last := s.lastUnlocked()
	stored, err := s.head()
	if err != nil {
		return last.Epoch
	}
	return max(last.Epoch, stored.Epoch)
}

// lastUnlocked is the last lock that was released or broken; the zero record if it cannot be read.
func (s *Store) lastUnlocked() record {
	raw, err := regular.Read(s.unlockedPath(), maxRecord)
	var last record
	if err != nil || json.Unmarshal(raw, &last) != nil {
		return record{}
	}
	return last
}

// putLock writes the lock file. The guard is held.
func (s *Store) putLock(info state.LockInfo) error {
	r := record{LockInfo: info, Kernel: kernelID(), Lease: job.Duration(s.lease)}
	r.Host, _ = os.Hostname()
	if start, err := startTime(info.PID); err == nil {
		r.Start = start // otherwise a successor has to wait for a lease
	}
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.lockPath(), append(content, '\n'), mode)
}

// sweep removes temporary files of holders that died during a write. A live holder that lost its lock may
// lose its temporary file too; it is fenced anyway. The guard is held.
func (s *Store) sweep() {
	for _, path := range []string{s.path, s.backupPath(), s.lockPath(), s.keyPath()} {
		atomicfile.Sweep(path)
	}
}

// Holder implements state.Store. A dead holder does not count.
func (s *Store) Holder(ctx context.Context) (*state.LockInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read lock of state %s: %w", s.path, err)
	}
	h, err := s.readLock()
	if err != nil {
		return nil, fmt.Errorf("read lock of state %s: %w", s.path, err)
	}
	if h.free() || h.dead() {
		return nil, nil
	}
	return &h.LockInfo, nil
}

// Break implements state.Store.
func (s *Store) Break(ctx context.Context, id string) (state.LockInfo, error) {
	info, err := s.breakLock(ctx, id)
	if err != nil {
		return state.LockInfo{}, fmt.Errorf("break lock of state %s: %w", s.path, err)
	}
	return info, nil
}

func (s *Store) breakLock(ctx context.Context, id string) (state.LockInfo, error) {
	g, err := s.takeGuard(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return state.LockInfo{}, &state.NotHeldError{ID: id}
	}
	if err != nil {
		return state.LockInfo{}, err
	}
	defer g.release()
	h, err := s.readLock()
	switch {
	case err != nil:
		return state.LockInfo{}, err
	case h.free():
		return state.LockInfo{}, &state.NotHeldError{ID: id}
	case h.ID != id:
		return state.LockInfo{}, &state.NotHeldError{ID: id, Holder: &h.LockInfo}
	}
	return h.LockInfo, os.Rename(s.lockPath(), s.unlockedPath())
}

// lock is a held lock.
type lock struct {
	*state.Hold
	store *Store
}

// keep starts renewing. The lease counts from began.
func (l *lock) keep(began time.Time) {
	l.Keep(state.Renewal{Lease: l.store.lease, Every: l.store.renew, Renew: l.touch, Place: "the file system"}, began)
}

// touch renews once, or returns state.ErrFenced if the lock is no longer this one. It does so under the guard: a
// contender that has just found this holder silent either sees the renewal or has taken over before it.
func (l *lock) touch(ctx context.Context) error {
	g, err := l.store.takeGuard(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return &state.VanishedError{Path: l.store.lockPath()} // its directory vanished
	}
	if err != nil {
		return err
	}
	defer g.release()
	h, err := l.store.readLock()
	if err != nil {
		return err
	}
	if err := l.store.fenced(h, l.Info()); err != nil {
		return err
	}
	// The time has to change, whatever the clock says.
	stamp := time.Now()
	if !stamp.After(h.renewed) {
		stamp = h.renewed.Add(time.Millisecond)
	}
	return os.Chtimes(l.store.lockPath(), stamp, stamp)
}

// fenced returns how the lock was lost if it has another holder, or none; nil if it was not lost.
func (s *Store) fenced(now held, lost state.LockInfo) error {
	switch {
	case now.ID == lost.ID:
		return nil
	case now.free() && s.lastUnlocked().Epoch < lost.Epoch: // and neither broken nor taken over since
		return &state.VanishedError{Path: s.lockPath()}
	}
	return state.ErrFenced
}

// Unlock releases the lock. If it was lost, there is nothing to release.
func (l *lock) Unlock(ctx context.Context) error {
	if err := l.unlock(ctx); err != nil {
		return fmt.Errorf("unlock state %s: %w", l.store.path, err)
	}
	return nil
}

func (l *lock) unlock(ctx context.Context) error {
	if err := l.Halt(ctx); err != nil {
		return err
	}
	g, err := l.store.takeGuard(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.release()
	h, err := l.store.readLock()
	if err != nil || h.ID != l.Info().ID {
		return err
	}
	return os.Rename(l.store.lockPath(), l.store.unlockedPath())
}
