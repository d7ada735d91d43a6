package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// A copy of a job directory has the original's state, with its UIDs and incarnation numbers. While the original's agents run,
// the copy names all of them as the original's. Without the run directory it is refused by its state, and without that too it is new.
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

	if err := os.RemoveAll(filepath.Join(copied.Dir, ".eltrain")); err != nil {
		t.Fatal(err)
	}
	out, code = copied.Run("apply", "-auto-approve")
	if code != 1 {
		t.Errorf("apply in a copy without the run directory: exit code %d", code)
	}
	site.Has(t, out, "It runs with its run-time files in", original.Dir+"/.eltrain")
	if err := os.Remove(filepath.Join(copied.Dir, "eltrain.state")); err != nil {
		t.Fatal(err)
	}
	copied.Must("apply", "-auto-approve")
	theirs := original.Status()
	if ours := copied.Status(); theirs.UID == ours.UID {
		t.Fatalf("both jobs are %s", ours.UID)
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
