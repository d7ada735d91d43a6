package kubernetes

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

func TestTheLocalJobTrainsWithItsProviderChanged(t *testing.T) {
	s := newDemo(t, 4)
	s.Watch()
	j := s.AwaitWorld(4, 1)
	// One pod on each node, since each needs the one core, and ranks by rack.
	var byRank []string
	for rank := range 4 {
		slot := j.Ranked(rank)
		if slot.Node == "" {
			t.Fatalf("no slot has rank %d: %+v", rank, j.Slots)
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

// torchSteps take some seconds, about as long as the import of torch.
const torchSteps = 750

func TestTorchPodDeletedEndsWithTheLossOfAnUndisturbedRun(t *testing.T) {
	soak.Only(t)
	site.NeedTorch(t)
	t.Parallel()
	s := newDemoOf(t, podsite.Example{Dir: "mnist-torch", Job: "mnist-torch", Provider: "kubernetes", Nodes: 2, Memory: resource.MustParse("2Gi")})
	s.DropBlock("job.hcl", `provider "local"`) // this example declares its nodes in the same file
	s.SetSteps(torchSteps)
	s.Watch()
	before := s.AwaitWorld(2, 1)
	victim := before.Worker(1)
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	after := s.AwaitWorld(2, before.Generation+1)
	s.Replaced(before, after, victim)
	s.Blamed(after, "deleted", []site.Slot{victim})
	s.TorchEndsRight(torchSteps)
}
