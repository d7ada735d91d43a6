package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// A copy of a job directory has the original's state, with its UIDs and incarnation numbers. While the original's agents run,
// the copy names all of them as the original's. Once the copy has no run directory, it starts and destroys only its own agents,
// under the same numbers.
func TestACopyOfAJobDirectoryEndsNothingOfTheOriginals(t *testing.T) {
	t.Parallel()
	files := map[string]string{"job.hcl": sleeper("s", 2, "cpu = 0.5"), "nodes.hcl": site.Nodes("n1", "n2")}
	original, copied := newSite(t, files), newSite(t, nil)
	original.Must("apply", "-auto-approve")
	if out, err := exec.Command("cp", "-a", original.Dir, filepath.Join(copied.Dir, "exp")).CombinedOutput(); err != nil { // sockets too
		t.Fatalf("%v: %s", err, out)
	}
	copied.Dir = filepath.Join(copied.Dir, "exp")
	first := original.Status()
	pids := []int{first.Slot("worker[0]").AgentPID, first.Slot("worker[1]").AgentPID}
	slices.Sort(pids)
	out, code := copied.Run("plan")
	if code != 1 {
		t.Errorf("plan in a copy: exit code %d", code)
	}
	site.Has(t, out, fmt.Sprintf("agents %d, %d run for %s, and this is a copy", pids[0], pids[1], original.Dir), copied.Dir+"/.eltrain and the state, eltrain.state")

	// Both get second incarnations of the same slots.
	site.Kill(t, syscall.SIGKILL, pids...)
	site.AwaitExit(original.T, pids[0])
	site.AwaitExit(original.T, pids[1])
	original.Must("apply", "-auto-approve")
	if err := os.RemoveAll(filepath.Join(copied.Dir, ".eltrain")); err != nil {
		t.Fatal(err)
	}
	copied.Must("apply", "-auto-approve")
	theirs, ours := original.Status(), copied.Status()
	for _, worker := range []string{"worker[0]", "worker[1]"} {
		if a, b := theirs.Slot(worker), ours.Slot(worker); theirs.UID != ours.UID || a.Incarnation != 2 || b.Incarnation != 2 {
			t.Fatalf("%s: job %s, incarnation %d, and in the copy %s, %d: the test wants the same", worker, theirs.UID, a.Incarnation, ours.UID, b.Incarnation)
		}
	}
	copied.Must("destroy", "-auto-approve")
	now, running := original.Status(), original.Processes()
	for _, worker := range []string{"worker[0]", "worker[1]"} {
		a, b := theirs.Slot(worker), now.Slot(worker)
		if b.Phase != "Running" || a.AgentPID != b.AgentPID || running[b.AgentPID] == "" {
			t.Errorf("%s was %+v, and is %+v after the copy was destroyed, among %v", worker, a, b, running)
		}
	}
	if len(running) < 2*len(pids) {
		t.Errorf("agents and their programs are %v", running)
	}
}
