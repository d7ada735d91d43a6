package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

// Two ranks wait for each other, a third process has no stacks of its own, and one slot does not run.
const stuckJob = `job "stuck" {
  role "worker" {
    replicas   = 2
    command    = ["python3", "train.py"]
    stop_grace = "1s"
  }
  role "helper" {
    ranked     = false
    command    = ["sleep", "300"]
    stop_grace = "1s"
  }
}

job "done" {
  role "worker" {
    command = ["true"]
  }
}
`

const stuckScript = `import faulthandler, os, signal, threading
faulthandler.register(signal.SIGUSR2, file=open(os.environ["ELTRAIN_STACKS_FILE"], "w"))
def all_reduce():
    print("step 1 waits", flush=True)
    threading.Event().wait()
all_reduce()
`

func TestStacks(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": stuckJob, "train.py": stuckScript})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "stacks").check(t, exitError, "No job runs")
	startWatch(t, dir)
	eventually(t, "all train", func() bool {
		return strings.Count(eltrain(t, dir, "logs", "job.stuck").out, "step 1 waits") == 2 && strings.Contains(eltrain(t, dir, "status", "job.done").out, "Succeeded")
	})
	o := eltrain(t, dir, "stacks").check(t, exitDone, "job.stuck\n", "ranks 0-1: python3, by faulthandler\n", "all_reduce (", "helper[0]: sleep, as the kernel sees it\n")
	if strings.Count(o.out, "all_reduce (") != 1 {
		t.Errorf("equal stacks are not folded:\n%s", o.out)
	}
	o = eltrain(t, dir, "stacks", "-json", "job.stuck.worker").check(t, exitDone)
	var m view.StacksModel
	if err := json.Unmarshal([]byte(o.out), &m); err != nil || len(m.Slots) != 2 || len(m.Slots[1].Processes) != 1 || m.Slots[1].Processes[0].Source != job.StacksFaulthandler {
		t.Errorf("%v in %s", err, o.out)
	}
	eltrain(t, dir, "stacks", "job.done").check(t, exitError, "job.done.worker[0]: It is Succeeded: ")
	eltrain(t, dir, "stacks", "job.none").check(t, exitError, `There is no job "none"`)
	if !strings.Contains(eltrain(t, dir, "status", "job.stuck").out, "generation 1") {
		t.Error("asking for stacks has ended a process")
	}
}
