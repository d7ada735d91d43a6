package plan_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

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

// What changes with the time, with what sources say, or with what is recorded of a node changes the plan as it does without memory.
func TestJobsDoNotRestThatOtherThingsChange(t *testing.T) {
	below, scaled := 1.0, func(s job.Scaling) func(*job.Job) {
		s.Min, s.Max, s.Step = 2, 4, 1
		return func(j *job.Job) { j.Roles[0].Scaling = &s }
	}
	atNoon := job.Policy{Name: "noon", Schedule: &job.Schedule{Start: "0 12 * * *", Duration: job.Duration(time.Hour), Timezone: "UTC"},
		Strategy: &job.Strategy{Kind: job.FixedValue, Replicas: 2}}
	said := func(in *plan.Input, role string, e job.Evaluation) {
		e.At = in.Now
		in.Snapshot.Surveys = append(slices.Clone(in.Snapshot.Surveys), job.Survey{UID: in.Records["job000"].UID, Role: role, Evaluations: []job.Evaluation{e}})
	}
	hangs := func(in *plan.Input) {
		in.Snapshot.Suspicions = map[string][]job.Suspicion{"job000": {{Cause: job.Hang, Generation: 1, Since: in.Now, Due: in.Now.Add(time.Hour)}}}
	}
	at := func(in *plan.Input) *job.Slot { return &in.Records["job000"].Slots[0] }
	for name, c := range map[string]struct {
		declare func(*job.Job)
		change  func(*plan.Input)
	}{
		"a schedule begins": {scaled(job.Scaling{Policies: []job.Policy{atNoon}}), func(in *plan.Input) {
			in.Now = time.Date(in.Now.Year(), in.Now.Month(), in.Now.Day()+1, 12, 5, 0, 0, time.UTC)
		}},
		"a figure is reached": {func(j *job.Job) { j.StopWhen = &job.StopWhen{Metric: "loss", Below: &below} }, func(in *plan.Input) {
			said(in, "", job.Evaluation{Values: []job.Value{{Policy: "stop_when", Value: 0.5}}})
		}},
		"something was measured": {scaled(job.Scaling{}), func(in *plan.Input) {
			said(in, "worker", job.Evaluation{Pace: &job.Pace{Generation: 0, Replicas: 4, Nodes: 1, StepTime: 1}, Size: 4})
		}},
		"it may hang": {nil, hangs},
		"its node had incidents": {nil, func(in *plan.Input) {
			incident := job.NodeIncident{At: in.Now, Job: "job001", Cause: job.NodeFaulty}
			in.Nodes = []job.NodeRecord{{Provider: "local", Name: at(in).Node, Incidents: []job.NodeIncident{incident, incident}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3, 4)
			if c.declare != nil {
				c.declare(&w.jobs[0])
			}
			for range 2 {
				w.take(plan.Make(w.input()))
			}
			var m plan.Memory
			in := w.input()
			check := func() string {
				t.Helper()
				p, want := m.Make(in), plan.Make(in)
				with, without := digestsOf(t, &p), digestsOf(t, &want)
				if !maps.Equal(with, without) {
					t.Fatalf("with memory\n%s\n%v\nwithout\n%s\n%v", render(p), with, render(want), without)
				}
				in.Records = p.Records
				return fmt.Sprint(without)
			}
			check()
			before, first := in, check()
			c.change(&in)
			if check() == first {
				t.Error("the plan is the same as before")
			}
			check()
			check()
			in.Snapshot, in.Nodes = before.Snapshot, before.Nodes
			check()
			check()
		})
	}
}

func digestsOf(t *testing.T, p *plan.Plan) map[string]string {
	t.Helper()
	all, err := p.Digests()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
