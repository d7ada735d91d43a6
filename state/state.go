// Package state keeps what eltrain remembers between runs: the records of jobs (Store) and the append-only
// journal of what was observed and decided (Journal). It must not know plans, providers or the service. The truth
// about what runs is on the infrastructure: losing a state loses history, not jobs.
package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// Version is the version of the stored format. A newer one is refused, an older one is read.
//
//	2  has conditions; 1 had refused launches in the slots
const Version = 2

// State is everything that is stored.
type State struct {
	Version int         `json:"version"` // set by the store
	Lineage string      `json:"lineage"` // set once, by the first write
	Serial  uint64      `json:"serial"`  // grows by one with each write
	Epoch   uint64      `json:"epoch"`   // the epoch of the lock under which it was written; set by the store
	Jobs    job.Records `json:"jobs"`
	// Released are the jobs, by UID, that were forgotten and may still run.
	Released map[string]job.Released `json:"released,omitempty"`
	// Destroyed are the jobs, by name, that operators have destroyed and that the files may still declare.
	Destroyed map[string]job.Override `json:"destroyed,omitempty"`
	// Nodes are those about which operators asked for something.
	Nodes []job.NodeRecord `json:"nodes,omitempty"`
	// Spent is what was used of the directory's budget; zero without one.
	Spent  job.Spent `json:"spent,omitzero"`
	Values           // when the configuration was last applied
	// Conditions are those reported and in force when the state was written.
	Conditions []conditions.Condition `json:"conditions,omitempty"`
	// Notifications are what notify blocks know, and have to deliver.
	Notifications job.Notifications `json:"notifications,omitzero"`
}

// Values are those of a configuration's variables and outputs, by name.
type Values struct {
	Variables map[string]Value `json:"variables,omitempty"`
	Outputs   map[string]Value `json:"outputs,omitempty"`
}

// Equal reports whether all values are the same.
func (v Values) Equal(other Values) bool {
	return maps.EqualFunc(v.Variables, other.Variables, Value.Equal) && maps.EqualFunc(v.Outputs, other.Outputs, Value.Equal)
}

// Value is the value of a variable or an output. Of a sensitive one only the type is kept.
type Value struct {
	Value       json.RawMessage `json:"value,omitempty"`
	Type        json.RawMessage `json:"type,omitempty"` // as cty writes types
	Description string          `json:"description,omitempty"`
	Sensitive   bool            `json:"sensitive,omitempty"`
}

// Equal reports whether two values are the same, ignoring the formatting of their JSON and the description.
func (v Value) Equal(other Value) bool {
	return v.Sensitive == other.Sensitive && sameJSON(v.Value, other.Value) && sameJSON(v.Type, other.Type)
}

func sameJSON(a, b json.RawMessage) bool {
	var first, second bytes.Buffer
	json.Compact(&first, a)
	json.Compact(&second, b)
	return bytes.Equal(first.Bytes(), second.Bytes())
}

// Next is the successor of s: the state to write with the given records and all else unchanged. The successor of the zero
// State begins a new lineage.
func (s State) Next(jobs job.Records) State {
	if s.Lineage == "" {
		s.Lineage = uuid.NewString()
	}
	s.Version, s.Serial, s.Epoch, s.Jobs = Version, s.Serial+1, 0, jobs
	return s
}

// Accept checks whether next may replace stored under a lock of the given epoch; every store applies it to a
// write. It returns next as it is to be stored. The errors are *VersionError, *LineageError, *SerialError
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

// Store keeps one State in one place. Implementations pass statetest.Run.
type Store interface {
	// Read returns the newest state; a zero State (Serial 0) if there is none yet. If a state cannot be read, the error
	// says why and what to do; it is never mistaken for an empty one.
	Read(ctx context.Context) (State, error)

	// Write replaces the state, atomically and durably: after a crash either the old or the new one is read.
	// The lineage must match the stored one, the serial must be its successor, and the lock must be held with
	// the newest epoch (see Accept); otherwise nothing changes. A durable store keeps the previous state as a backup.
	Write(ctx context.Context, s State, l Lock) error

	// Lock acquires the lock. It waits up to timeout while another process holds it, then returns a *LockedError. It sets
	// info's ID, Epoch and PID, and Created if that is zero. The lock is a lease: it is renewed in the background until
	// Unlock, and a holder that is dead, or stopped renewing, does not block. Noticing that a holder elsewhere stopped
	// renewing takes a whole lease, so with a shorter timeout Lock may fail.
	Lock(ctx context.Context, info LockInfo, timeout time.Duration) (Lock, error)

	// Holder reports who holds the lock now; nil if nobody does.
	Holder(ctx context.Context) (*LockInfo, error)

	// Break releases the lock with the given ID, whether its holder is alive or not. That holder's writes fail with
	// ErrFenced from then on, and its Lost is closed with its next renewal at the latest. If no lock of that ID is
	// held, the error is a *NotHeldError, and nothing changes.
	Break(ctx context.Context, id string) (LockInfo, error)

	// Key is a random secret of KeySize bytes that belongs to the place, not to the state in it: it stays when the state is
	// removed. It has the same readers as the state. It is nil as long as there is none: nothing is written.
	Key(ctx context.Context) ([]byte, error)

	// MakeKey is Key, but creates the key if there is none.
	MakeKey(ctx context.Context) ([]byte, error)
}

// KeySize is the size of a key in bytes: that of a SHA-256 digest.
const KeySize = 32

// NewKey makes a key.
func NewKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key) // never fails
	return key
}

// CheckKey returns an error unless key has the size of a key.
func CheckKey(key []byte) error {
	if len(key) != KeySize {
		return fmt.Errorf("the key for sensitive values has %d bytes instead of %d. Remove it to have a new one created: jobs that use sensitive values are then replaced once", len(key), KeySize)
	}
	return nil
}

// Lock is a held lock.
type Lock interface {
	// Info is the LockInfo of Lock, with ID and Epoch filled in.
	Info() LockInfo
	// Lost is closed when the lease could not be renewed or another process took over: stop acting at once.
	Lost() <-chan struct{}
	// Why is why the lock was lost, once Lost is closed: ErrFenced if another process took over, a VanishedError if the
	// lock itself vanished, or why it could not be renewed.
	Why() error
	// Unlock releases the lock; a second call does nothing.
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

// LockedError is returned when another process holds the lock.
type LockedError struct{ Holder LockInfo }

func (e *LockedError) Error() string {
	return fmt.Sprintf("the state is locked by %s (pid %d), %s since %s, lock %s",
		e.Holder.Who, e.Holder.PID, e.Holder.Operation, e.Holder.Created.Format(time.RFC3339), e.Holder.ID)
}

// NotHeldError is returned by Break if the lock is not held.
type NotHeldError struct {
	ID     string
	Holder *LockInfo // the holder of the lock under another ID; nil if nobody holds it
}

func (e *NotHeldError) Error() string {
	if e.Holder == nil {
		return "the state is not locked"
	}
	return fmt.Sprintf("lock ID %q does not match existing lock ID %q, of %s (pid %d), %s since %s",
		e.ID, e.Holder.ID, e.Holder.Who, e.Holder.PID, e.Holder.Operation, e.Holder.Created.Format(time.RFC3339))
}

// ErrFenced is returned by a write under a lock that another holder took over.
var ErrFenced = errors.New("the state's lock was taken over by another process: nothing was written")

// VanishedError is an ErrFenced of a lock that nobody took over: its file was moved or removed.
type VanishedError struct{ Path string }

func (e *VanishedError) Error() string {
	return fmt.Sprintf("%s no longer exists: it, or one of its parent directories, was moved or removed", e.Path)
}

// Is makes it match ErrFenced.
func (e *VanishedError) Is(target error) bool { return target == ErrFenced }

// VersionError is returned for a state of a newer format than this program supports.
type VersionError struct{ Version int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the state has format version %d, but this eltrain supports versions up to %d: use the newer eltrain that wrote it", e.Version, Version)
}

// LineageError is returned by a write of a state that does not descend from the stored one.
type LineageError struct{ Stored, Given string }

func (e *LineageError) Error() string {
	if e.Given == "" {
		return "the state to write has no lineage: nothing was written"
	}
	return fmt.Sprintf("the state to write has lineage %s, the stored one lineage %s: they belong to different job directories; nothing was written", e.Given, e.Stored)
}

// SerialError is returned by a write of a state that is not the direct successor of the stored one:
// another write came first.
type SerialError struct{ Stored, Given uint64 }

func (e *SerialError) Error() string {
	return fmt.Sprintf("the state to write has serial %d, but the stored one has serial %d and only %d may follow it: it was changed in the meantime; nothing was written", e.Given, e.Stored, e.Stored+1)
}
