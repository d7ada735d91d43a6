package e2e

import (
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// torchSteps take some seconds, about as long as the import of torch.
const torchSteps = 250

func TestTorchProcessKilledEndsWithTheLossOfAnUndisturbedRun(t *testing.T) {
	site.NeedTorch(t)
	t.Parallel()
	s := site.NewLocal(t, programs, "mnist-torch")
	s.UseExample("mnist-torch", "local")
	s.Edit("job.hcl", "max = 4", "max = 2") // two ranks, however many nodes the example has
	s.SetSteps(torchSteps)
	s.Watch()
	before := s.AwaitWorld(2, 1)
	victim := before.Worker(1)
	site.Kill(t, syscall.SIGKILL, victim.PID)
	after := s.AwaitWorld(2, before.Generation+1)
	if after.Generation != before.Generation+1 {
		t.Errorf("generation %d -> %d", before.Generation, after.Generation)
	}
	s.Untouched(before, after)
	s.Blamed(after, "process_killed", []site.Slot{victim})
	if action := after.Last().Action; action != "restart_in_place" {
		t.Errorf("the action is %s", action)
	}
	s.TorchEndsRight(torchSteps)
}
