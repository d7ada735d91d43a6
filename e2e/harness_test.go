// Package e2e runs the built eltrain as a user does: real files, real agents, real training processes, and
// faults by real signals. Every test ends by checking that a destroy leaves nothing behind, and that healed
// training has the losses of an undisturbed run.
package e2e

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

var programs site.Programs

func TestMain(m *testing.M) {
	site.Main(m, 8, func(built site.Programs) error { programs = built; return nil }, func(bool) error { return nil })
}

// newSite makes a directory with the training script and these files.
func newSite(t *testing.T, files map[string]string) *site.Site {
	t.Helper()
	s := site.NewLocal(t, programs, "s")
	s.Write("train.py", s.Example("mnist-local", "train.py"))
	for name, text := range files {
		s.Write(name, text)
	}
	return s
}

// newDemo is the example for this machine, in a parallel test.
func newDemo(t *testing.T, nodes int) *site.Site {
	t.Helper()
	t.Parallel()
	return site.NewLocalDemo(t, programs, nodes)
}

// calmDemo is newDemo on four nodes, with a first world of all four even on a slow machine.
func calmDemo(t *testing.T) *site.Site {
	t.Helper()
	s := newDemo(t, 4)
	s.SetLease(site.Lenient)
	s.Together()
	return s
}

// runs counts the directory's processes by the beginning of their command line.
func runs(s *site.Site, begin string) int {
	n := 0
	for _, args := range s.Processes() {
		if strings.HasPrefix(args, begin) {
			n++
		}
	}
	return n
}
