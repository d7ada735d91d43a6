package file

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/state"
)

// A pipe or a link in place of a file neither blocks the store nor leads it elsewhere.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		for file, use := range map[string]func(*Store) error{
			"eltrain.state": func(s *Store) error {
				_, err := s.Read(t.Context())
				return err
			},
			".eltrain/eltrain.state.lock": func(s *Store) error {
				_, err := s.Holder(t.Context())
				_, lock := s.Lock(t.Context(), state.LockInfo{Who: "test"}, 0)
				return errors.Join(lock, err)
			},
			".eltrain/eltrain.state.guard": func(s *Store) error {
				_, err := s.Lock(t.Context(), state.LockInfo{Who: "test"}, 0)
				return err
			},
			".eltrain/eltrain.state.key": func(s *Store) error {
				_, err := s.Key(t.Context())
				_, made := s.MakeKey(t.Context())
				return errors.Join(made, err)
			},
		} {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, ".eltrain"), 0o700), make(filepath.Join(dir, file))); err != nil {
				t.Fatal(err)
			}
			s := open(t, filepath.Join(dir, "eltrain.state"), Options{})
			if irregular := new(regular.Error); !errors.As(use(s), &irregular) {
				t.Errorf("%s as %s: %v", file, name, use(s))
			}
		}
	}
	// Locking is possible without the last lock's epoch.
	s := open(t, filepath.Join(t.TempDir(), "eltrain.state"), Options{})
	if err := errors.Join(os.Mkdir(s.lockDir(), 0o700), syscall.Mkfifo(s.unlockedPath(), 0o600)); err != nil {
		t.Fatal(err)
	}
	take(t, s)
}
