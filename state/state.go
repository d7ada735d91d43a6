// Package state keeps what eltrain remembers between runs: the records of jobs (Store) and the append-only
// journal of what was seen and decided (Journal). It must not know plans, providers or the service. The truth
// about what runs is on the infrastructure: losing a state loses history, not jobs.
package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/eltrain/eltrain/job"
)

// Version is that of the stored format. A newer one is refused, never guessed at.
const Version = 1

// State is all that is stored.
type State struct {
	Version int         `json:"version"` // set by the store
	Lineage string      `json:"lineage"` // made once, with the first write
	Serial  uint64      `json:"serial"`  // grows by one with each write
	Epoch   uint64      `json:"epoch"`   // of the lock under which it was written; set by the store
	Jobs    job.Records `json:"jobs"`
}

// Next is the state to write after s: its successor with the given records. The zero State's is the first
// of a new lineage.
func (s State) Next(jobs job.Records) State {
	if s.Lineage == "" {
		s.Lineage = uuid.NewString()
	}
	return State{Version: Version, Lineage: s.Lineage, Serial: s.Serial + 1, Jobs: jobs}
}

// Accept is the rule by which every store takes a write: next may replace stored under a lock of the given
// epoch. It returns next as it is to be stored. The errors are *VersionError, *LineageError, *SerialError
// and ErrFenced.
func Accept(stored, next State, epoch uint64) (State, error) {
	switch {
	case stored.Epoch > epoch:
		return State{}, fmt.Errorf("%w (stored under epoch %d, this lock is of epoch %d)", ErrFenced, stored.Epoch, epoch)
	case next.Version > Version:
		return State{}, &VersionError{next.Version}
	case next.Lineage == "" || stored.Lineage != "" && next.Lineage != stored.Lineage:
		return State{}, &LineageError{Stored: stored.Lineage, Given: next.Lineage}
	case next.Serial != stored.Serial+1:
		return State{}, &SerialError{Stored: stored.Serial, Given: next.Serial}
	}
	next.Version, next.Epoch = Version, epoch
	return next, nil
}

// Store is one place that keeps one State. Implementations pass statetest.Run.
type Store interface {
	// Read gives the newest state; a zero State (Serial 0) when there is none yet. A state that cannot be
	// read is an error that says why and what to do; it is never taken for an empty one.
	Read(ctx context.Context) (State, error)

	// Write replaces the state, atomically and durably: after a crash either the old or the new one is read.
	// The lineage must match what is stored, the serial be its successor, and the lock be held with
	// the newest epoch (see Accept); else nothing changes. A durable store keeps the previous state as a backup.
	Write(ctx context.Context, s State, l Lock) error

	// Lock takes the lock, waiting up to timeout for another holder to let go or to die, and *LockedError
	// after that. It sets info's ID, Epoch and PID, and Created if that is zero. The lock is a lease: it is
	// renewed in the background until Unlock, and a holder that is dead, or that stopped renewing, does not
	// block. To see that a holder out of sight stopped renewing takes a whole lease, so a timeout shorter
	// than that may end before.
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

// VersionError is returned for a state of a newer format than this program knows.
type VersionError struct{ Version int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the state is of format version %d, and this eltrain knows versions up to %d: use the newer eltrain that wrote it", e.Version, Version)
}

// LineageError is returned by a write of a state that does not descend from the stored one.
type LineageError struct{ Stored, Given string }

func (e *LineageError) Error() string {
	if e.Given == "" {
		return "the state to write has no lineage: nothing was written"
	}
	return fmt.Sprintf("the state to write is of lineage %s, the stored one of lineage %s: they belong to different job directories; nothing was written", e.Given, e.Stored)
}

// SerialError is returned by a write of a state that is not the direct successor of the stored one:
// somebody else wrote in between.
type SerialError struct{ Stored, Given uint64 }

func (e *SerialError) Error() string {
	return fmt.Sprintf("the state to write has serial %d, but the stored one has serial %d and only %d may follow it: it was changed in between; nothing was written", e.Given, e.Stored, e.Stored+1)
}
