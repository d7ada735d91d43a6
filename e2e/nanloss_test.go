package e2e

import (
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// divergesOnce prints a loss that is not finite after its first checkpoint, until it is killed, and is sound from then on.
const divergesOnce = `
import os, time
step = int(open("checkpoint").read()) if os.path.exists("checkpoint") else 0
ill = False
time.sleep(0.3)  # its imports
while True:
    step += 1
    if step == 30 and not os.path.exists("was-ill"):
        open("was-ill", "w").close()
        ill = True
    print(f"step {step} loss {'nan' if ill else 1 / step}", flush=True)
    if step % 10 == 0 and not ill and os.environ["RANK"] == "0":
        with open("checkpoint.new", "w") as f:
            f.write(str(step))
        os.replace("checkpoint.new", "checkpoint")
    time.sleep(0.02)
`

// A world whose loss is not finite is reloaded once: the loss of its successor is its own, also before it has shown one.
func TestALossThatIsNotFiniteReloadsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"train.py": divergesOnce, "job.hcl": `
job "n" {
  role "worker" {
    replicas = 2
    command  = ["python3", "train.py"]
    resources { cpu = 0.1 }
  }
  heal {
    on "nan_loss" {
      action = "reload"
      limit  = 1
    }
  }
}
`}).Of("n")
	s.Watch()
	after := s.Await("the reloaded world to train on", func(j site.Job) bool { return j.Trains(2, 2) && j.Step > 60 })
	if len(after.Incidents) != 1 || after.Last().Cause != "nan_loss" || after.Generation != 2 {
		t.Errorf("generation %d, incidents %+v", after.Generation, after.Incidents)
	}
}
