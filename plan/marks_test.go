package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A scheduler chooses the nodes by itself: what it is told to avoid are the marked nodes, and those that the slot has left.
func TestSchedulersAvoidMarkedNodes(t *testing.T) {
	one := jobtest.Job("a", jobtest.Role("worker", 1))
	in := plan.Input{
		Jobs: []job.Job{one}, Now: jobtest.Epoch, NewUID: func(string) string { return "u1" },
		Capabilities: map[string]job.Capabilities{one.Provider: {}},
		Snapshot:     job.Snapshot{Nodes: []job.Node{jobtest.Node("n1", jobtest.Cores(2)), jobtest.Node("n2", jobtest.Cores(2))}},
		Nodes: []job.NodeRecord{
			{Provider: one.Provider, Name: "n1", Mark: &job.NodeMark{At: jobtest.Epoch, Until: jobtest.Epoch.Add(time.Hour), Times: 1}},
			{Provider: one.Provider, Name: "n2", Mark: &job.NodeMark{At: jobtest.Epoch.Add(-2 * time.Hour), Until: jobtest.Epoch.Add(-time.Hour), Times: 1}},
		},
	}
	p := plan.Make(in)
	if len(p.Changes) != 1 || p.Changes[0].Launch == nil || !slices.Equal(p.Changes[0].Launch.Avoid, []string{"n1"}) {
		t.Fatalf("changes %+v", p.Changes)
	}
	if p.Wake != jobtest.Epoch.Add(time.Hour) {
		t.Errorf("the mark's end wakes nobody: %v", p.Wake)
	}
}

// An outage of a whole cluster does not fill the state.
func TestIncidentsOfNodesAreBounded(t *testing.T) {
	in := plan.Input{Now: jobtest.Epoch.Add(time.Hour)}
	for i := range 2000 {
		n := job.NodeRecord{Provider: "local", Name: fmt.Sprintf("n%04d", i)}
		n.Incidents = []job.NodeIncident{{At: jobtest.Epoch.Add(time.Duration(i) * time.Second), Job: "a", Cause: job.LeaseLost}}
		in.Nodes = append(in.Nodes, n)
	}
	p := plan.Make(in)
	if n := len(p.Nodes); n == 0 || n > 1000 || p.Nodes[n-1].Name != "n1999" || p.Nodes[0].Name < "n1000" || !p.Dirty {
		t.Errorf("%d nodes are kept, dirty: %v", n, p.Dirty)
	}
}
