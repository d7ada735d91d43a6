package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/state"
)

// keyPath is a separate file, so that removing the state does not make running jobs look changed.
func (s *Store) keyPath() string { return s.lockFile(".key") }

// Key implements state.Store.
func (s *Store) Key(ctx context.Context) ([]byte, error) {
	key, err := s.readKey(ctx, func() ([]byte, error) { return regular.Read(s.keyPath(), maxRecord) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return key, err
}

// MakeKey implements state.Store.
func (s *Store) MakeKey(ctx context.Context) ([]byte, error) {
	return s.readKey(ctx, s.makeKey)
}

func (s *Store) readKey(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("key of state %s: %w", s.path, err)
	}
	var key []byte
	err := regular.CheckPrivate(s.lockDir())
	if err == nil {
		key, err = read()
	}
	if err == nil {
		err = state.CheckKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("key of state %s: %s: %w", s.path, s.keyPath(), err)
	}
	return key, nil
}

// makeKey returns the existing key, or creates one atomically and durably, or reads the one that another process has just
// created.
func (s *Store) makeKey() ([]byte, error) {
	if key, err := regular.Read(s.keyPath(), maxRecord); !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := s.makeLockDir(); err != nil {
		return nil, err
	}
	if err := atomicfile.Create(s.keyPath(), state.NewKey(), mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return regular.Read(s.keyPath(), maxRecord)
}
