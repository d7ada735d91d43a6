package kubernetes

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

func TestTheLocalJobTrainsWithItsProviderChanged(t *testing.T) {
	s := newDemo(t, 4)
	s.Watch()
	j := s.AwaitWorld(4, 1)
	// One pod on each node, as one core for each has it, and ranks by rack.
	var byRank []string
	for rank := range 4 {
		slot := j.Ranked(rank)
		if slot.Node == "" {
			t.Fatalf("nobody has rank %d: %+v", rank, j.Slots)
		}
		byRank = append(byRank, slot.Node)
	}
	if racks := []string{s.GetNode(byRank[0]).Labels["rack"], s.GetNode(byRank[1]).Labels["rack"], s.GetNode(byRank[2]).Labels["rack"], s.GetNode(byRank[3]).Labels["rack"]}; racks[0] != racks[1] || racks[2] != racks[3] {
		t.Errorf("racks by rank: %v", racks)
	}
	if slices.Sort(byRank); len(slices.Compact(byRank)) != 4 {
		t.Errorf("the nodes are %v", byRank)
	}
	for _, slot := range j.Slots {
		if pod := s.Pod(slot.Name); pod.Spec.NodeName != slot.Node {
			t.Errorf("%s is on %q and its pod %q on %q", slot.Address, slot.Node, slot.Name, pod.Spec.NodeName)
		}
	}
	s.EndsRight(site.Steps)
	if last := s.Now(); last.Generation != j.Generation || len(last.Incidents) > 0 {
		t.Errorf("nothing happened, and yet: generation %d, incidents %+v", last.Generation, last.Incidents)
	}
}

func TestPlainApplyLeavesTrainingToGoOn(t *testing.T) {
	const long = 3 * site.Steps // while commands come and go
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.Together()
	out := s.Must("apply", "-auto-approve")
	site.Has(t, out, "Apply complete! Resources: 4 added, 0 changed, 0 destroyed.")
	site.Has(t, s.Must("status"), "No master is running")
	before := s.Now()
	if len(before.Slots) != 4 {
		t.Fatalf("status: %+v", before)
	}
	if again := s.Must("plan", "-detailed-exitcode"); !strings.Contains(again, "No changes.") {
		t.Errorf("the second plan said:\n%s", again)
	}
	s.Watch()
	after := s.AwaitWorld(4, 1)
	if after.Generation != before.Generation {
		t.Errorf("the next master made generation %d of %d", after.Generation, before.Generation)
	}
	s.Untouched(before, after)
	s.EndsRight(long)
}

// torchPython is Debian's own Python, to which python3-torch belongs.
const torchPython = "/usr/bin/python3"

// torchSteps take some seconds; torch's own import takes as long.
const torchSteps = 750

func TestTorchPodDeletedEndsWithTheLossOfAnUndisturbedRun(t *testing.T) {
	soak.Only(t)
	if os.Getenv("WITH_TORCH") == "" {
		if out, err := exec.Command(torchPython, "-c", "import torch").CombinedOutput(); err != nil {
			t.Skipf("no PyTorch for %s (apt-get install python3-torch): %v\n%s", torchPython, err, out)
		}
	}
	t.Parallel()
	s := newDemoOf(t, site.Example{Dir: "mnist-torch", Job: "mnist-torch", Provider: "kubernetes", Nodes: 2, Memory: resource.MustParse("2Gi")})
	s.DropBlock("job.hcl", `provider "local"`) // it has its nodes in the same file
	s.SetSteps(torchSteps)
	s.Watch()
	before := s.AwaitWorld(2, 1)
	victim := before.Worker(1)
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	after := s.AwaitWorld(2, before.Generation+1)
	s.Replaced(before, after, victim)
	s.Blamed(after, "deleted", []site.Slot{victim})
	s.Succeeds()

	// DDP sums in another order in another world: see the script.
	const close = 1e-7
	want := site.Alone(t, torchPython, filepath.Join(s.Dir, "train.py"), torchSteps, close)
	got := site.Losses(t, s.Dir, close)
	for step, loss := range want {
		if now, printed := got[step]; !printed || math.Abs(now-loss) > close {
			t.Errorf("the loss at step %d is %v (printed: %v), undisturbed %v", step, now, printed, loss)
		}
	}
	if _, ended := want[torchSteps]; !ended {
		t.Errorf("the training alone did not end at step %d", torchSteps)
	}
}
