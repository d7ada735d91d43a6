package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// unreachable is a provider that fails the test if it is observed.
type unreachable struct {
	providers.Provider
	t *testing.T
}

func (u unreachable) Observe(context.Context) (*providers.Observation, error) {
	u.t.Error("the provider is observed")
	return nil, errors.New("unreachable")
}

func (u unreachable) Capabilities() job.Capabilities { return job.Capabilities{} }

func changesAndWaits(p plan.Plan) string {
	out := ""
	for _, c := range p.Changes {
		out += fmt.Sprintf("%s %s %s; ", c.Action, c.Slot.Short(), c.Node)
	}
	for _, w := range p.Waits {
		out += fmt.Sprintf("%s waits; ", w.Job)
	}
	return out
}

// Planning from records assumes that what they say runs, on nodes as they were observed. A node that was not observed is as
// large as what runs there. No provider is asked.
func TestPlansFromTheRecordsAskNobody(t *testing.T) {
	applied := jobtest.Job("a", jobtest.Role("worker", 2, jobtest.Needs(jobtest.Cores(1))))
	print := job.Fingerprints(&applied, &applied.Roles[0])(0)
	rec := &job.Record{UID: "u-a", Created: jobtest.Epoch, Spec: applied, Phase: job.JobRunning, Counts: map[string]int{"worker": 2},
		World: job.World{Generation: 1, Formed: jobtest.Epoch}}
	for i := range 2 {
		a := job.Address{Job: "a", Role: "worker", Index: i}
		rec.Slots = append(rec.Slots, job.Slot{Address: a, Phase: job.Running, Incarnation: 1, Node: "n1", Reserved: jobtest.Cores(1), Fingerprint: print, Rank: i})
		rec.World.Members = append(rec.World.Members, job.WorldMember{Slot: a, Incarnation: 1, Rank: i, Processes: 1})
	}
	other := jobtest.Job("b", jobtest.Role("worker", 1, jobtest.Needs(jobtest.Cores(1))))
	edited := jobtest.Job("a", jobtest.Role("worker", 2, jobtest.Needs(jobtest.Cores(1)), jobtest.Command("other")))
	n1 := jobtest.Node("n1", jobtest.Cores(3))
	seen := &Observation{At: jobtest.Epoch, Nodes: []job.Node{n1}, Capabilities: map[string]job.Capabilities{"local": {Places: true}}}
	barred := *seen
	barred.Bars = map[string]map[string]string{"job.b.worker": {"n1": "taint"}}
	for name, c := range map[string]struct {
		jobs []job.Job
		seen *Observation
		want string
	}{
		"as applied":                   {[]job.Job{applied}, seen, ""},
		"as applied, nothing seen":     {[]job.Job{applied}, nil, ""},
		"a new job":                    {[]job.Job{applied, other}, seen, "create worker[0] n1; "},
		"a new job that is barred":     {[]job.Job{applied, other}, &barred, "b waits; "},
		"a new job, nothing seen":      {[]job.Job{applied, other}, nil, "b waits; "},
		"an edited one":                {[]job.Job{edited}, seen, "replace worker[0] n1; replace worker[1] n1; "},
		"an edited one, not seen":      {[]job.Job{edited}, nil, "replace worker[0] n1; replace worker[1] n1; "},
		"one that is declared no more": {nil, seen, "delete worker[0] n1; delete worker[1] n1; "},
	} {
		setup := Setup{Files: Files{Jobs: c.jobs}, State: state.State{Lineage: "l", Serial: 1, Jobs: job.Records{"a": rec}}, NewUID: func(name string) string { return "u-" + name }}
		named := map[string]providers.Provider{"local": unreachable{t: t}}
		d := NewPlanner(setup, named, nil).PreviewRecorded(c.seen, jobtest.Epoch.Add(time.Minute))
		if got := changesAndWaits(d.Plan); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if len(c.jobs) == 2 && c.seen != nil {
			setup.State = state.State{}
			again := NewPlanner(setup, nil, nil).Replan(d.Input)
			if got := changesAndWaits(again.Plan); got != c.want {
				t.Errorf("%s, planned again from its input: %q, want %q", name, got, c.want)
			}
		}
	}
}

// emptySite is a provider without any slots.
type emptySite struct {
	unreachable
	nodes []job.Node
}

func (e emptySite) Observe(context.Context) (*providers.Observation, error) {
	return &providers.Observation{Nodes: e.nodes, Places: providers.Anywhere}, nil
}

func (e emptySite) Capabilities() job.Capabilities { return job.Capabilities{Places: true} }

// Without a master, what a job waits for is found out anew; only since when it has waited is taken from the state.
func TestWaitsWithoutAMasterAreThoseOfNow(t *testing.T) {
	rec := &job.Record{UID: "u-a", Created: jobtest.Epoch, Phase: job.JobPending,
		Spec: jobtest.Job("a", jobtest.Role("worker", 2, jobtest.Needs(jobtest.Cores(1))))}
	stored := state.State{Jobs: job.Records{"a": rec}, Conditions: []conditions.Condition{
		{About: "job.a", Reason: job.Because(plan.NoRoom).With(job.Because(plan.Wanted, "role", "gone")), Since: jobtest.Epoch},
		{About: "job.a", Reason: job.Because(plan.ProviderRefuses), Since: jobtest.Epoch},
		{About: "provider.local", Reason: job.Because(NotPublished), Since: jobtest.Epoch},
	}}
	site := emptySite{unreachable{t: t}, []job.Node{jobtest.Node("n1", jobtest.Cores(1)), jobtest.Node("n2", jobtest.Cores(0))}}
	p := NewPlanner(Setup{State: stored, Providers: []string{"local"}}, map[string]providers.Provider{"local": site}, nil)
	var got []string
	for _, c := range p.Offline(t.Context(), jobtest.Epoch.Add(time.Hour)).Conditions {
		got = append(got, fmt.Sprint(c.About, " ", c.Reason.Code, " since ", c.Since.Sub(jobtest.Epoch)))
	}
	if want := []string{"job.a never_fits since 1h0m0s", "provider.local not_published since 0s"}; !slices.Equal(got, want) {
		t.Errorf("holds are %q, want %q", got, want)
	}
	site.nodes = nil
	stored.Conditions[0].Reason = job.Because(plan.NeverFits).With(job.Because(plan.NoRoom).With(job.Because(plan.Wanted, "count", "5", "role", "worker", "each", "1 cpu")))
	p = NewPlanner(Setup{State: stored, Providers: []string{"local"}}, map[string]providers.Provider{"local": site}, nil)
	if all := p.Offline(t.Context(), jobtest.Epoch.Add(time.Hour)).Conditions; len(all) != 2 || !all[0].Since.Equal(jobtest.Epoch) {
		t.Errorf("what holds as before is %+v", all)
	}
}
