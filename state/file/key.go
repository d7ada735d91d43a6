package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/eltrain/eltrain/state"
)

// keyPath is a file of its own: whoever removes the state does not make what runs look as if it was changed.
func (s *Store) keyPath() string { return s.lockFile(".key") }

// Key implements state.Store.
func (s *Store) Key(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("key of state %s: %w", s.path, err)
	}
	key, err := os.ReadFile(s.keyPath())
	if errors.Is(err, fs.ErrNotExist) {
		key, err = s.makeKey()
	}
	if err == nil {
		err = state.CheckKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("key of state %s: %s: %w", s.path, s.keyPath(), err)
	}
	return key, nil
}

// makeKey puts a key there, whole and on the disk, or takes the one that another process has just put there.
func (s *Store) makeKey() ([]byte, error) {
	if err := os.Mkdir(s.lockDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	temp := tempPath(s.keyPath())
	if err := writeSynced(temp, state.NewKey()); err != nil {
		return nil, besides(err)
	}
	defer os.Remove(temp)
	if err := os.Link(temp, s.keyPath()); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := syncDir(s.lockDir()); err != nil {
		return nil, err
	}
	return os.ReadFile(s.keyPath())
}
