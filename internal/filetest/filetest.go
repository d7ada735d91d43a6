// Package filetest makes files for tests.
package filetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Put writes a file, with the directories above it.
func Put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Link creates a symbolic link, or replaces one atomically.
func Link(t testing.TB, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
}
