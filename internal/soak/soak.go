// Package soak marks the tests that are too slow for the gate: `make test` skips them, `make soak` runs them.
package soak

import (
	"os"
	"testing"
)

// Only skips a test unless SOAK is set. Tests must call it directly, not through a helper: `make soak` searches for its
// callers.
func Only(t *testing.T) {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("runs in `make soak`")
	}
}
