// Package state keeps what eltrain remembers between runs: the records of jobs (Store) and the append-only
// journal of what was seen and decided (Journal). It must not know plans, providers or the service. The truth
// about what runs is on the infrastructure: losing a state loses history, not jobs.
package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Version is that of the stored format. A newer one is refused, never guessed at.
const Version = 1

// State is all that is stored.
type State struct {
	Version int         `json:"version"`
	Lineage string      `json:"lineage"` // made once, with the first write
	Serial  uint64      `json:"serial"`  // grows by one with each write
	Epoch   uint64      `json:"epoch"`   // of the lock under which it was written
	Jobs    job.Records `json:"jobs"`
}

// Store is one place that keeps one State. Implementations pass statetest.Run.
type Store interface {
	// Read gives the newest state; a zero State (Serial 0) when there is none yet. A state that cannot be
	// read is an error that says why and what to do; it is never taken for an empty one.
	Read(ctx context.Context) (State, error)

	// Write replaces the state, atomically and durably: after a crash either the old or the new one is read.
	// The lineage must match what is stored, the serial be its successor, and the lock be held with
	// the newest epoch. The previous state stays as a backup.
	Write(ctx context.Context, s State, l Lock) error

	// Lock takes the lock, waiting up to timeout for another holder to let go or to die. ErrLocked (with the
	// holder's LockInfo) after that. The lock is a lease: it is renewed in the background until Unlock, and
	// a holder that is dead, or that stopped renewing, does not block.
	Lock(ctx context.Context, info LockInfo, timeout time.Duration) (Lock, error)

	// Holder tells who holds the lock now; nil if nobody.
	Holder(ctx context.Context) (*LockInfo, error)
}

// Lock is a held lock.
type Lock interface {
	// Info is as it was taken, with ID and Epoch filled in.
	Info() LockInfo
	// Lost is closed when the lease could not be renewed or another took over: stop acting at once.
	Lost() <-chan struct{}
	// Unlock gives it back; a second call does nothing.
	Unlock(ctx context.Context) error
}

// LockInfo says who holds a lock and why.
type LockInfo struct {
	ID        string    `json:"id"`
	Epoch     uint64    `json:"epoch"`     // grows with each change of holder
	Operation string    `json:"operation"` // "apply -watch"
	Who       string    `json:"who"`       // user@host
	PID       int       `json:"pid"`
	Created   time.Time `json:"created"`
}

// LockedError is returned when another holds the lock.
type LockedError struct{ Holder LockInfo }

func (e *LockedError) Error() string {
	return fmt.Sprintf("the state is locked by %s (pid %d), %s since %s, lock %s",
		e.Holder.Who, e.Holder.PID, e.Holder.Operation, e.Holder.Created.Format(time.RFC3339), e.Holder.ID)
}

// ErrFenced is returned by a write under a lock that was lost to another holder.
var ErrFenced = errors.New("the state's lock was taken over by another process: nothing was written")
