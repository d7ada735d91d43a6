package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/scaling"
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

// While scaling is paused policies decide and tell, and nothing follows from it. Once it is no longer paused, they act.
func TestPausedPoliciesOnlyTell(t *testing.T) {
	w := newWorld()
	w.nodes = append(w.nodes, jobtest.Node("n", jobtest.GPUs(8)))
	gpt := jobtest.Job("gpt", jobtest.Role("worker", 2, jobtest.Needs(jobtest.GPUs(1)), jobtest.Elastic(2, 8)))
	gpt.Roles[0].Scaling.Policies = []job.Policy{
		{Name: "day", Strategy: &job.Strategy{Kind: job.FixedValue, Replicas: 4}},
		{Name: "night", Strategy: &job.Strategy{Kind: job.FixedValue, Replicas: 6}, Schedule: &job.Schedule{Start: "0 20 * * *", Duration: job.Duration(time.Hour)}},
	}
	w.jobs = []job.Job{gpt}
	check := func(when string, hour, size int, told bool) {
		t.Helper()
		w.now = time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC)
		if err := w.settle(50, func(plan.Plan) {}); err != nil {
			t.Fatal(err)
		}
		p := plan.Make(w.input())
		tells := slices.ContainsFunc(p.Waits, func(x plan.Wait) bool { return x.Reasons[0].Code == plan.WouldScale })
		if n := len(w.worlds["gpt"].Members); n != size || tells != told || len(p.Scaling) != 1 || p.Scaling[0].Paused != told {
			t.Errorf("%s: %d slots, want %d; it tells what it would do: %v, want %v; scaling %+v", when, n, size, tells, told, p.Scaling)
		}
	}
	ask := func(id, size string) {
		w.requests = append(w.requests, job.Request{ID: id, Verb: job.AskScale, On: []job.Selector{{Job: "gpt", Role: "worker"}}, Value: size, By: "ann", At: w.now})
	}
	check("by day", 4, 4, false)
	ask("r1", job.PausedSize)
	check("by night, paused", 20, 4, true)
	ask("r2", job.AutoSize)
	check("by night", 20, 6, false)
}

// A policy's change of the size of a job that cannot be asked for a checkpoint is made right after one that is near.
func TestPolicyAwaitsCheckpoint(t *testing.T) {
	w := newWorld()
	w.nodes = append(w.nodes, jobtest.Node("n1", jobtest.GPUs(8)))
	gpt := jobtest.Job("gpt", jobtest.Role("worker", 4, jobtest.Needs(jobtest.GPUs(1)), jobtest.Elastic(2, 8)))
	gpt.Roles[0].Scaling.Policies = []job.Policy{
		{Name: "days", Strategy: &job.Strategy{Kind: job.FixedValue, Replicas: 4}},
		{Name: "nights", Strategy: &job.Strategy{Kind: job.FixedValue, Replicas: 2}, Schedule: &job.Schedule{
			Start: w.now.Add(10*time.Minute).Format("4 15") + " * * *", Duration: job.Duration(time.Hour)}},
	}
	w.jobs = []job.Job{gpt}
	reaches := func(step, saved int64, size int, bound job.Code) {
		t.Helper()
		w.shows("gpt", step, 1, 0)
		w.at(job.Address{Job: "gpt", Role: "worker"}).Member.Saved = job.Saved{Generation: w.worlds["gpt"].Generation, Step: saved}
		var last plan.Plan
		if err := w.settle(50, func(p plan.Plan) { last = p }); err != nil {
			t.Fatal(err)
		}
		bounds := last.Scaling[0].Bounds
		if n := len(w.worlds["gpt"].Members); n != size || (len(bounds) > 0) != (bound != "") || bound != "" && bounds[0].Code != bound {
			t.Errorf("at step %d it has %d slots, bounded by %v; want %d, %q", step, n, bounds, size, bound)
		}
	}
	if err := w.settle(50, func(plan.Plan) {}); err != nil {
		t.Fatal(err)
	}
	reaches(100, 100, 4, "")
	reaches(200, 200, 4, "")
	w.now = w.now.Add(11 * time.Minute)
	reaches(290, 200, 4, scaling.AwaitsSave)
	w.now = w.now.Add(10 * time.Second)
	reaches(300, 300, 2, "")
}
