package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// countsTwice prints two numbers, of which one is a thousand times the other.
const countsTwice = `
import time
step = 0
while True:
    step += 1
    print(f"at {step} of sample {step * 1000}", flush=True)
    time.sleep(0.02)
`

// An edit of how progress is read reaches the processes that run: each of them, and without a new world or incarnation.
func TestAnEditOfProgressRestartsNothing(t *testing.T) {
	t.Parallel()
	const job = `
job "p" {
  %s
  role "worker" {
    replicas = 2
    command  = ["python3", "train.py"]
    resources { cpu = 0.1 }
  }
}
`
	steps, samples := `progress { pattern = "at (?P<step>\\d+)" }`, `progress { pattern = "sample (?P<step>\\d+)" }`
	s := newSite(t, map[string]string{"train.py": countsTwice, "job.hcl": fmt.Sprintf(job, steps)}).Of("p")
	s.Watch()
	before := s.Await("steps", func(j site.Job) bool { return j.Trains(2, 1) && j.Step > 5 })
	if before.Step > 10_000 {
		t.Fatalf("at step %d before the edit", before.Step)
	}
	s.Edit("job.hcl", steps, samples)
	after := s.Await("samples", func(j site.Job) bool { return j.Trains(2, 1) && j.Step > 10_000 })
	s.Undisturbed(before, after)

	// Without a block, what is known of frameworks is recognized: nothing in these lines. The newest step stays what it was.
	s.Edit("job.hcl", samples, "")
	s.Await("no samples any more", func(j site.Job) bool {
		return len(j.Running()) == 2 && !slices.ContainsFunc(j.Slots, func(s site.Slot) bool { return len(s.Ranks) != 1 || s.Ranks[0].Progress != nil })
	})
	s.Edit("job.hcl", "job \"p\" {", "job \"p\" {\n"+steps)
	s.Undisturbed(before, s.Await("steps again", func(j site.Job) bool { return j.Trains(2, 1) && j.Step < 10_000 }))
	if j := s.Now(); len(j.Incidents) > 0 {
		t.Errorf("incidents %+v", j.Incidents)
	}
}
