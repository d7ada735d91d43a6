package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// quiet is longer than the 30 s after which the loop observes everything even if nothing is new.
const quiet = 35 * time.Second

// settled is how long there must be no write before the writes about a new world count as complete.
const settled = 5 * time.Second

// While a job trains undisturbed, the master, with provider, state and service, makes no write to the API server except renewals
// of its lock.
func TestSteadyTrainingWritesNothingToTheAPIServer(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.SetSteps(100 * site.Steps)
	s.SetLease(15 * time.Second)
	s.Edit("job.hcl", "eltrain {", "eltrain {\n  state \"kubernetes\" {\n    name = \"e2e\"\n  }")
	gate := s.Through()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	site.Until(t, "nothing is written", func() bool {
		wrote := len(gate.Asked())
		time.Sleep(settled)
		return wrote == len(gate.Asked())
	})
	gate.StopAt(0, "", false) // restarts the count
	renewed, step := gate.Proxy.Requests("update", "leases"), s.Now().Step
	time.Sleep(quiet)
	if wrote := gate.Asked(); len(wrote) > 0 {
		t.Errorf("in %v in which nothing happened it wrote: %q", quiet, wrote)
	}
	if n := gate.Proxy.Requests("update", "leases") - renewed; n < 2 {
		t.Errorf("in %v it renewed its lock %d times: its requests do not come here", quiet, n)
	}
	after := s.Now()
	if after.Step <= step || after.Generation != before.Generation {
		t.Errorf("it did not train: step %d -> %d, generation %d -> %d", step, after.Step, before.Generation, after.Generation)
	}
	s.Untouched(before, after)
	// A fault causes writes, and the gate sees them.
	s.DeletePod(before.Worker(1).Name, podsite.AtOnce())
	s.AwaitWorld(4, before.Generation+1)
	if wrote := strings.Join(gate.Asked(), "\n"); !strings.Contains(wrote, "post pods") || !strings.Contains(wrote, "put secrets") {
		t.Errorf("a pod was replaced, and it wrote:\n%s", wrote)
	}
}
