package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// torchPython is Debian's own Python, to which python3-torch belongs.
const torchPython = "/usr/bin/python3"

// torchSteps take some seconds; torch's own import takes as long.
const torchSteps = 250

// needTorch skips a test where there is no PyTorch, unless WITH_TORCH says that there has to be.
func needTorch(t *testing.T) {
	t.Helper()
	if os.Getenv("WITH_TORCH") != "" {
		return
	}
	if out, err := exec.Command(torchPython, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch for %s (apt-get install python3-torch): %v\n%s", torchPython, err, out)
	}
}

func TestTorchProcessKilledEndsWithTheLossOfAnUndisturbedRun(t *testing.T) {
	needTorch(t)
	t.Parallel()
	s := newSite(t, nil)
	for _, name := range []string{"job.hcl", "train.py"} {
		text, err := os.ReadFile(filepath.Join("../examples/mnist-torch", name))
		if err != nil {
			t.Fatal(err)
		}
		s.write(name, string(text))
	}
	// Two ranks, however many nodes the example has.
	s.write("job.hcl", strings.Replace(s.read("job.hcl"), "max = 4", "max = 2", 1))
	s.write("eltrain.vars", "steps = "+strconv.Itoa(torchSteps)+"\n")
	s.watch()
	before := s.awaitWorld("mnist-torch", 2, 1)
	kill(t, syscall.SIGKILL, before.slot("worker[1]").PID)
	after := s.awaitWorld("mnist-torch", 2, before.Generation+1)
	if after.Generation != before.Generation+1 || after.slot("worker[1]").AgentPID != before.slot("worker[1]").AgentPID {
		t.Errorf("it was not restarted in place: %+v -> %+v", before, after)
	}
	last := after.Incidents[len(after.Incidents)-1]
	if last.Cause != "process_killed" || last.Action != "restart_in_place" || len(last.Culprits) != 1 || last.Culprits[0] != "job.mnist-torch.worker[1]" {
		t.Errorf("incident %+v", last)
	}
	s.await("mnist-torch", "success", func(j jobStatus) bool {
		if j.Phase == "Failed" {
			t.Fatalf("it failed: %v", j.Reasons)
		}
		return j.Phase == "Succeeded"
	})

	alone := exec.Command(torchPython, filepath.Join(s.dir, "train.py"), "--steps="+strconv.Itoa(torchSteps), "--step-ms=0", "--ckpt-dir="+filepath.Join(t.TempDir(), "ckpt"))
	alone.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0")
	out, err := alone.CombinedOutput()
	if err != nil {
		t.Fatalf("the training alone: %v\n%s", err, out)
	}
	want := map[int]float64{}
	for _, m := range lossLine.FindAllStringSubmatch(string(out), -1) {
		step, _ := strconv.Atoi(m[1])
		want[step] = number(t, m[2])
	}
	got := s.losses("mnist-torch")
	// DDP sums in another order in another world: see the script.
	const close = 1e-7
	for step, loss := range want {
		if text, printed := got[step]; !printed {
			t.Errorf("step %d was never printed", step)
		} else if d := number(t, text) - loss; d > close || d < -close {
			t.Errorf("the loss at step %d is %s, undisturbed %.9f", step, text, loss)
		}
	}
	if _, ended := want[torchSteps]; !ended {
		t.Errorf("the training alone did not end at step %d:\n%s", torchSteps, out)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
