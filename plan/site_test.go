package plan_test

import (
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A job that is declared for another provider moves there, and so does its recorded site.
func TestAJobThatMovesToAnotherProviderTakesItsSiteAlong(t *testing.T) {
	node := jobtest.Node("n1", jobtest.Cores(4))
	in := plan.Input{
		Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 1))}, Now: jobtest.Epoch,
		Capabilities: map[string]job.Capabilities{"local": {Places: true, Site: "here"}, "far": {Places: true, Site: "there"}},
		NewUID:       func(string) string { return "u" },
		Snapshot:     job.Snapshot{Nodes: []job.Node{node}},
	}
	p := plan.Make(in)
	if site := p.Records["a"].Site; site != "here" {
		t.Fatalf("launched at %q", site)
	}
	l := p.Changes[0].Launch
	in.Snapshot.Incarnations = job.Incarnations{{{Slot: l.Slot, UID: l.UID, Number: l.Incarnation, Node: l.Node, Provider: "local",
		Fingerprint: l.Fingerprint, Reserved: l.Reserved, State: job.Up}}}
	node.Name, node.Provider = "f1", "far"
	in.Snapshot.Nodes = append(in.Snapshot.Nodes, node)
	in.Records = p.Records
	in.Jobs[0].Provider = "far"
	for range 2 {
		p = plan.Make(in)
		if site := p.Records["a"].Site; site != "there" || len(p.Waits) > 0 {
			t.Errorf("recorded at %q, and it waits for %v", site, p.Waits)
		}
		if len(p.Changes) == 0 || p.Changes[len(p.Changes)-1].Provider != "local" {
			t.Errorf("what runs here is not stopped: %+v", p.Changes)
		}
		in.Records = p.Records
	}
}
