package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A job whose steps are shared by its slots grows as far as that is efficient, one size at a time, and stays there. What each size
// showed is recorded once its world has ended.
func TestEfficiencyFindsTheSize(t *testing.T) {
	for _, c := range []struct {
		explore int
		sizes   string
	}{{5, "[2 4 8 16 32]"}, {2, "[2 4 8]"}, {0, "[2]"}} { // that 64 would not be efficient follows from the others
		if got := fmt.Sprint(efficientSizes(t, c.explore)); got != c.sizes {
			t.Errorf("with %d explorations the sizes are %s, want %s", c.explore, got, c.sizes)
		}
	}
}

// efficientSizes are those that such a job has in ten hours.
func efficientSizes(t *testing.T, explore int) (sizes []int) {
	w := newWorld()
	for i := range 8 {
		w.nodes = append(w.nodes, jobtest.Node(fmt.Sprintf("n%d", i), jobtest.GPUs(8)))
	}
	gpt := jobtest.Job("gpt", jobtest.Role("worker", 2, jobtest.Needs(jobtest.GPUs(1)), jobtest.Elastic(2, 64), jobtest.Sizes(2, 4, 8, 16, 32, 64)))
	gpt.Checkpoint = &job.Checkpoint{Signal: "SIGUSR1"}
	gpt.Roles[0].Scaling.Explore = new(explore)
	gpt.Roles[0].Scaling.Batch = job.BatchGlobal
	gpt.Roles[0].Scaling.Policies = []job.Policy{{Name: "worth-it", Strategy: &job.Strategy{Kind: job.Efficiency}}}
	w.jobs = []job.Job{gpt}
	stepTime := func(slots int) float64 { return 0.02 + 2/float64(slots) } // 64 slots: 61 % of perfect scaling from 2, 32: 77 %
	for range 600 {                                                        // ten hours
		if err := w.settle(50, func(plan.Plan) {}); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Minute)
		formed, rec := w.worlds["gpt"], w.records["gpt"]
		n := len(formed.Members)
		if n == 0 || formed.Broken {
			continue
		}
		if len(sizes) == 0 || sizes[len(sizes)-1] != n {
			sizes = append(sizes, n)
		}
		if w.surveys == nil {
			w.surveys = []job.Survey{{UID: rec.UID, Role: "worker"}}
		}
		s := &w.surveys[0]
		s.Evaluations = append(s.Evaluations[max(0, len(s.Evaluations)-job.MaxEvaluations+1):], job.Evaluation{At: w.now, Size: n, Target: n,
			Pace: &job.Pace{Generation: formed.Generation, Nodes: max(1, n/8), Replicas: n, StepTime: stepTime(n)}})
	}
	if measured := w.records["gpt"].Measured; explore > 0 && (measured == nil || len(measured.Sizes) != len(sizes)-1) {
		t.Errorf("of the sizes %v were measured %+v", sizes, measured)
	}
	if err := w.settle(50, func(plan.Plan) {}); err != nil {
		t.Fatal(err)
	}
	if p := plan.Make(w.input()); p.Dirty || len(p.Changes) > 0 || len(p.Scaling) != 1 {
		t.Errorf("at rest the plan has %d changes; dirty %v; scaling %+v", len(p.Changes), p.Dirty, p.Scaling)
	}
	return sizes
}
