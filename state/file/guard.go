package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/regular"
)

// guardPatience bounds the wait for the guard. It is held for a few file operations only, so a longer wait
// means that its holder is suspended, or hangs on its disk, in the middle of them.
const guardPatience = 5 * time.Second

// guard is a short critical section across processes: a kernel lock on a file, released when its process ends.
// It covers each check of the lock file together with what depends on it.
type guard struct{ file *os.File }

// takeGuard waits until no other handle, in this process or another, is in the critical section. If the lock's
// directory, which claim creates, does not exist, it fails with fs.ErrNotExist.
func (s *Store) takeGuard(ctx context.Context) (*guard, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, guardPatience,
		fmt.Errorf("another process has been writing or locking for more than %v (is it stopped?); see who has %s open", guardPatience, s.guardPath()))
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		g, err := s.tryGuard()
		if g != nil || err != nil {
			return g, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// tryGuard returns nil without an error if the guard is held.
func (s *Store) tryGuard() (*guard, error) {
	f, err := regular.Open(s.guardPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("flock %s: %w", f.Name(), err)
	}
	// The file may have been removed meanwhile: the lock would be on a file that nobody else opens.
	g := &guard{f}
	locked, err := f.Stat()
	if err != nil {
		g.release()
		return nil, err
	}
	if named, err := os.Stat(s.guardPath()); err != nil || !os.SameFile(locked, named) {
		g.release()
		return nil, nil
	}
	return g, nil
}

func (g *guard) release() {
	// Closing alone would not suffice while a process being forked has a copy of the descriptor.
	flock(g.file, unix.LOCK_UN)
	g.file.Close()
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}
