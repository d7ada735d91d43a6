package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/state"
)

// unlockTimeout bounds the release of the lock. If that fails, its lease expires.
const unlockTimeout = 5 * time.Second

// Lock takes the state's lock for an operation. If another holds it, Lock calls waiting once with who, and waits up to timeout.
// waited: what was read before may be out of date.
func Lock(ctx context.Context, store state.Store, operation string, timeout time.Duration, waiting func(*state.LockedError)) (lock state.Lock, waited bool, err error) {
	info := state.LockInfo{Operation: operation, Who: whoami()}
	lock, err = store.Lock(ctx, info, 0)
	var locked *state.LockedError
	if errors.As(err, &locked) && timeout > 0 {
		waiting(locked)
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
	return lock, waited, workspace.MakeRoom(err)
}

// Unlock releases the lock.
func Unlock(lock state.Lock, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	if err := lock.Unlock(ctx); err != nil {
		log.Warn("Cannot release the state's lock", "error", err)
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
