package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A copy of a job directory has the original's state, with its UIDs and incarnation numbers. While the original's agents run
// the copy says whose they are, all of them; and once it has no run directory any more, what it starts and destroys under the
// very same numbers is its own.
func TestACopyOfAJobDirectoryEndsNothingOfTheOriginals(t *testing.T) {
	t.Parallel()
	files := map[string]string{"job.hcl": sleeper("s", 2, "cpu = 0.5"), "nodes.hcl": nodes("n1", "n2")}
	original, copied := newSite(t, files), newSite(t, nil)
	original.must("apply", "-auto-approve")
	if err := os.CopyFS(filepath.Join(copied.dir, "exp"), os.DirFS(original.dir)); err != nil {
		t.Fatal(err)
	}
	copied.dir = filepath.Join(copied.dir, "exp")
	first := original.job("s")
	pids := []int{first.slot("worker[0]").AgentPID, first.slot("worker[1]").AgentPID}
	slices.Sort(pids)
	out, code := copied.run("plan")
	if code != 1 {
		t.Errorf("plan in a copy: exit code %d", code)
	}
	has(t, out, fmt.Sprintf("agents %d, %d run for %s, and this is a copy", pids[0], pids[1], original.dir), copied.dir+"/.eltrain and the state, eltrain.state")

	// Both come to the second incarnations of the same slots.
	kill(t, syscall.SIGKILL, pids...)
	original.gone(pids[0])
	original.gone(pids[1])
	original.must("apply", "-auto-approve")
	if err := os.RemoveAll(filepath.Join(copied.dir, ".eltrain")); err != nil {
		t.Fatal(err)
	}
	copied.must("apply", "-auto-approve")
	theirs, ours := original.job("s"), copied.job("s")
	for _, worker := range []string{"worker[0]", "worker[1]"} {
		if a, b := theirs.slot(worker), ours.slot(worker); theirs.UID != ours.UID || a.Incarnation != 2 || b.Incarnation != 2 {
			t.Fatalf("%s: job %s, incarnation %d, and in the copy %s, %d: the test wants the same", worker, theirs.UID, a.Incarnation, ours.UID, b.Incarnation)
		}
	}
	copied.must("destroy", "-auto-approve")
	now, running := original.job("s"), original.processes()
	for _, worker := range []string{"worker[0]", "worker[1]"} {
		a, b := theirs.slot(worker), now.slot(worker)
		if b.Phase != "Running" || a.AgentPID != b.AgentPID || running[b.AgentPID] == "" {
			t.Errorf("%s was %+v, and is %+v after the copy was destroyed, among %v", worker, a, b, running)
		}
	}
	if len(running) < 2*len(pids) {
		t.Errorf("agents and their programs are %v", running)
	}
}
