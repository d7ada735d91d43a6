// Package memory keeps a state in this process, for tests and simulations. It starts no goroutine and reads
// the clock only to wait for a lock, so that it can serve a simulation on a virtual clock.
package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/eltrain/eltrain/state"
)

// Store keeps one state. Where processes would each open a store, here they share the pointer.
//
// A holder lives in this very process, so its lease needs no renewal; Silence simulates a hang or a death.
type Store struct {
	mu     sync.Mutex
	stored []byte // JSON, so that what was written shares no memory with what is read
	key    []byte
	epoch  uint64
	holder *lock
	freed  chan struct{} // closed and replaced when the holder releases the lock or becomes silent
}

var _ state.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store { return &Store{freed: make(chan struct{})} }

// Read implements state.Store.
func (s *Store) Read(ctx context.Context) (state.State, error) {
	if err := ctx.Err(); err != nil {
		return state.State{}, fmt.Errorf("read state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read()
}

func (s *Store) read() (state.State, error) {
	var st state.State
	if s.stored == nil {
		return st, nil
	}
	if err := json.Unmarshal(s.stored, &st); err != nil {
		return state.State{}, fmt.Errorf("read state: %w", err)
	}
	return st, nil
}

// Write implements state.Store.
func (s *Store) Write(ctx context.Context, next state.State, l state.Lock) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil || s.holder.Info().ID != l.Info().ID {
		return fmt.Errorf("write state: %w", state.ErrFenced)
	}
	stored, err := s.read()
	if err != nil {
		return err
	}
	next, err = state.Accept(stored, next, s.holder.Info().Epoch)
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	b, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.stored = b
	return nil
}

// Lock implements state.Store.
func (s *Store) Lock(ctx context.Context, info state.LockInfo, timeout time.Duration) (state.Lock, error) {
	expired := time.NewTimer(timeout)
	defer expired.Stop()
	for {
		l, freed, err := s.tryLock(info)
		if err == nil {
			return l, nil
		}
		select {
		case <-freed:
		case <-expired.C:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("lock state: %w", ctx.Err())
		}
	}
}

// tryLock returns, with a *state.LockedError, a channel that is closed when a retry makes sense.
func (s *Store) tryLock(info state.LockInfo) (*lock, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil && !s.holder.silent {
		return nil, s.freed, &state.LockedError{Holder: s.holder.Info()}
	}
	if s.holder != nil {
		s.holder.Lose(state.ErrFenced)
	}
	s.epoch++
	info.ID, info.Epoch, info.PID = uuid.NewString(), s.epoch, os.Getpid()
	if info.Created.IsZero() {
		info.Created = time.Now().UTC()
	}
	s.holder = &lock{Hold: state.NewHold(info), store: s}
	return s.holder, nil, nil
}

// Holder implements state.Store.
func (s *Store) Holder(ctx context.Context) (*state.LockInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read lock: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil {
		return nil, nil
	}
	info := s.holder.Info()
	return &info, nil
}

// Break implements state.Store.
func (s *Store) Break(ctx context.Context, id string) (state.LockInfo, error) {
	if err := ctx.Err(); err != nil {
		return state.LockInfo{}, fmt.Errorf("break lock: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil {
		return state.LockInfo{}, &state.NotHeldError{ID: id}
	}
	info := s.holder.Info()
	if info.ID != id {
		return state.LockInfo{}, &state.NotHeldError{ID: id, Holder: &info}
	}
	s.holder.Lose(state.ErrFenced)
	s.holder = nil
	s.wake()
	return info, nil
}

// Key implements state.Store.
func (s *Store) Key(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.key), nil
}

// MakeKey implements state.Store.
func (s *Store) MakeKey(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key == nil {
		s.key = state.NewKey()
	}
	return bytes.Clone(s.key), nil
}

// Silence simulates that the current holder's lease expired: the next Lock takes over from it. It still holds the
// lock until then, like a process that hangs while nobody else wants the lock.
func (s *Store) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil {
		return
	}
	s.holder.silent = true
	s.wake()
}

// Resume undoes Silence, unless another took over.
func (s *Store) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil {
		s.holder.silent = false
	}
}

// wake makes waiting calls of Lock try again. s.mu is held.
func (s *Store) wake() {
	close(s.freed)
	s.freed = make(chan struct{})
}

type lock struct {
	*state.Hold
	store  *Store
	silent bool // guarded by store.mu
}

// Unlock does nothing if the lock was released before or taken over.
func (l *lock) Unlock(context.Context) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.holder == l {
		l.store.holder = nil
		l.store.wake()
	}
	return nil
}
