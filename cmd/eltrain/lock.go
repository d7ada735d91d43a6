package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/eltrain/eltrain/state"
)

const (
	// lockNews is after how long of waiting for the lock that is said; Terraform's time and words.
	lockNews = 400 * time.Millisecond
	// unlockTimeout bounds giving the lock back. If that fails, its lease runs out by itself.
	unlockTimeout = 5 * time.Second
)

// lock takes the state's lock.
func (s *session) lock(ctx context.Context, store state.Store, a applyArgs) (state.Lock, error) {
	news := time.AfterFunc(lockNews, func() {
		io.WriteString(s.streams.Err, "Acquiring state lock. This may take a few moments...\n")
	})
	defer news.Stop()
	lock, err := store.Lock(ctx, state.LockInfo{Operation: a.operation(), Who: whoami()}, a.lockTimeout)
	var locked *state.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w.\n\nTwo runs at once would undo each other's work. Wait for the other to end, with -lock-timeout for example. A holder that died loses the lock by itself", err)
	}
	return lock, err
}

func (s *session) unlock(lock state.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	if err := lock.Unlock(ctx); err != nil {
		s.log.Warn("giving the state's lock back", "error", err)
	}
}

// whoami is user@host, as far as it is known.
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
