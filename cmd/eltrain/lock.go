package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

const (
	// unlockTimeout bounds the release of the lock. If that fails, its lease expires.
	unlockTimeout = 5 * time.Second
)

// lock takes the state's lock for an operation. If another holds it, lock says so once and waits up to timeout. waited: what
// was read before may be out of date.
func (s *session) lock(ctx context.Context, store state.Store, operation string, timeout time.Duration) (lock state.Lock, waited bool, err error) {
	info := state.LockInfo{Operation: operation, Who: whoami()}
	lock, err = store.Lock(ctx, info, 0)
	var locked *state.LockedError
	if errors.As(err, &locked) && timeout > 0 {
		fmt.Fprintf(s.streams.Err, "Acquiring state lock. %s Waiting for it, up to %s; an interrupt ends the wait.\n",
			view.Explain(locked), job.Duration(timeout))
		waited = true
		lock, err = store.Lock(ctx, info, timeout)
	}
	if errors.As(err, &locked) {
		wait := "Wait for the other run to end, for example with -lock-timeout."
		if view.Watching(&locked.Holder) {
			wait = "The other run is a watch, which does not end by itself: it applies changes of its own files, in this directory or wherever it runs, and what eltrain apply, destroy and the operators' verbs ask it for. For anything else, end it first. Another watch can stand by with -lock-timeout."
		}
		return nil, waited, fmt.Errorf("%w.\n\nTwo runs at the same time would undo each other's work. "+wait+" The lock of a holder that died expires by itself; eltrain force-unlock releases that of a holder that is alive but cannot be reached", err)
	}
	return lock, waited, makeRoom(err)
}

// makeRoom adds advice to an error of a full disk. It returns others unchanged.
func makeRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w.\n\nNothing changes until it can be recorded; jobs keep running. Free a few MiB on that disk and run the command again. Of eltrain's own files, the logs of jobs that are gone (in %s) can be removed", err, filepath.Join(workspace.RunDirectory, "logs"))
}

func (s *session) unlock(lock state.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	if err := lock.Unlock(ctx); err != nil {
		s.log.Warn("Cannot release the state's lock", "error", err)
	}
}

// whoami returns user@host, as far as known.
func whoami() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
