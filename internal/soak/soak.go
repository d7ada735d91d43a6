// Package soak marks the tests that are too long for the gate: `make test` skips them, `make soak` runs them.
package soak

import (
	"os"
	"testing"
)

// Only skips a test unless SOAK is set. It is called by a test itself, not by a helper: `make soak` looks for its callers.
func Only(t *testing.T) {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("runs in `make soak`")
	}
}
