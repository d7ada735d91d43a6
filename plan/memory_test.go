package plan_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A plan with memory looks at no slot of a job at rest: it allocates as much for jobs of 400 slots as for jobs of 4.
func TestAPlanAgainCostsNothingForJobsAtRest(t *testing.T) {
	cost := func(slots int) float64 {
		in := settled(t, 10, slots).input()
		var m plan.Memory
		m.Make(in)
		return testing.AllocsPerRun(5, func() {
			if p := m.Make(in); len(p.Changes) > 0 || p.Dirty || len(p.Wants) != 10 || len(p.Wants["job003"].Roles[0].Slots) != slots {
				t.Errorf("%d changes, dirty %v, %d wants", len(p.Changes), p.Dirty, len(p.Wants))
			}
		})
	}
	if small, large := cost(4), cost(400); large > small+50 { // maps of nodes grow
		t.Errorf("a plan of 4,000 slots makes %.0f allocations, of 40 slots %.0f", large, small)
	}
}

// A plan that changes some jobs leaves the others at rest, in whichever order they change; what they hold of nodes is known.
func TestJobsComeToRestAgain(t *testing.T) {
	w := settled(t, 4, 8)
	w.nodes = w.nodes[:4]
	var m plan.Memory
	check := func(what string) plan.Plan {
		t.Helper()
		in := w.input()
		p, want := m.Make(in), plan.Make(in)
		p2, want2 := p, want
		if !reflect.DeepEqual(p2, want2) {
			t.Fatalf("%s: with memory\n%s\nwithout\n%s", what, render(p), render(want))
		}
		return p
	}
	check("at first")
	check("unchanged")
	for i := range 4 {
		w.end(w.incs[8*i+3], "", &job.Exit{Code: 137, Signal: "killed"})
		p := check(fmt.Sprint("a slot of job ", i, " is lost"))
		w.take(p)
		w.carryOut(p)
		w.serve()
		w.now = w.now.Add(1e9)
		check("repaired")
	}
	w.jobs = append(w.jobs, jobtest.Job("more", jobtest.Role("worker", 1, jobtest.Needs(jobtest.GPUs(1)))))
	if p := check("no room"); len(p.Waits) == 0 {
		t.Errorf("a job on a full cluster does not wait:\n%s", render(p))
	}
}
