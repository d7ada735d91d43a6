package kubernetes

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTheLocalJobTrainsWithItsProviderChanged(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	j := s.awaitWorld(4, 1)
	// One pod on each node, as one core for each has it, and ranks by rack.
	var byRank []string
	for rank := range 4 {
		at := slices.IndexFunc(j.Slots, func(s slotStatus) bool { return s.Rank == rank })
		if at < 0 {
			t.Fatalf("nobody has rank %d: %+v", rank, j.Slots)
		}
		byRank = append(byRank, j.Slots[at].Node)
	}
	if racks := []string{s.getNode(byRank[0]).Labels["rack"], s.getNode(byRank[1]).Labels["rack"], s.getNode(byRank[2]).Labels["rack"], s.getNode(byRank[3]).Labels["rack"]}; racks[0] != racks[1] || racks[2] != racks[3] {
		t.Errorf("racks by rank: %v", racks)
	}
	if slices.Sort(byRank); len(slices.Compact(byRank)) != 4 {
		t.Errorf("the nodes are %v", byRank)
	}
	pods := s.pods()
	for _, slot := range j.Slots {
		if pods[slot.Name].Spec.NodeName != slot.Node {
			t.Errorf("%s is on %q and its pod %q on %q", slot.Address, slot.Node, slot.Name, pods[slot.Name].Spec.NodeName)
		}
	}
	s.endsRight(steps)
	if last := s.job(); last.Generation != 1 || len(last.Incidents) > 0 {
		t.Errorf("nothing happened, and yet: generation %d, incidents %+v", last.Generation, last.Incidents)
	}
}

func TestPlainApplyLeavesTrainingToGoOn(t *testing.T) {
	s := newSite(t, 4)
	out := s.must("apply", "-auto-approve")
	has(t, out, "Apply complete! Resources: 4 added, 0 changed, 0 removed.")
	has(t, s.must("status"), "No master is watching")
	before := s.job()
	if len(before.Slots) != 4 {
		t.Fatalf("status: %+v", before)
	}
	if again := s.must("plan", "-detailed-exitcode"); !strings.Contains(again, "No changes.") {
		t.Errorf("the second plan said:\n%s", again)
	}
	s.watch()
	after := s.awaitWorld(4, 1)
	if after.Generation != 1 {
		t.Errorf("the next master made generation %d", after.Generation)
	}
	s.untouched(before, after)
	s.endsRight(steps)
}

// torchPython is Debian's own Python, to which python3-torch belongs.
const torchPython = "/usr/bin/python3"

// torchSteps take some seconds; torch's own import takes as long.
const torchSteps = 250

func TestTorchPodDeletedEndsWithTheLossOfAnUndisturbedRun(t *testing.T) {
	if os.Getenv("WITH_TORCH") == "" {
		if out, err := exec.Command(torchPython, "-c", "import torch").CombinedOutput(); err != nil {
			t.Skipf("no PyTorch for %s (apt-get install python3-torch): %v\n%s", torchPython, err, out)
		}
	}
	t.Parallel()
	s := newSiteOf(t, "mnist-torch", "mnist-torch", resource.MustParse("2Gi"), 2)
	s.dropBlock("job.hcl", `provider "local"`) // it has its nodes in the same file
	s.setSteps(torchSteps)
	s.watch()
	before := s.awaitWorld(2, 1)
	victim := before.worker(1)
	s.deletePod(victim.Name, nil)
	after := s.awaitWorld(2, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "deleted", []slotStatus{victim})
	s.succeeds()

	dir := t.TempDir()
	alone := exec.Command(torchPython, filepath.Join(s.dir, "train.py"), "--steps="+strconv.Itoa(torchSteps), "--step-ms=0",
		"--ckpt-dir="+filepath.Join(dir, "ckpt"), "--events="+filepath.Join(dir, eventsFile))
	alone.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0")
	if out, err := alone.CombinedOutput(); err != nil {
		t.Fatalf("the training alone: %v\n%s", err, out)
	}
	// DDP sums in another order in another world: see the script.
	const close = 1e-7
	want := losses(t, filepath.Join(dir, eventsFile), close)
	got := losses(t, filepath.Join(s.dir, eventsFile), close)
	for step, loss := range want {
		if now, printed := got[step]; !printed || math.Abs(now-loss) > close {
			t.Errorf("the loss at step %d is %v (printed: %v), undisturbed %v", step, now, printed, loss)
		}
	}
	if _, ended := want[torchSteps]; !ended {
		t.Errorf("the training alone did not end at step %d", torchSteps)
	}
}
