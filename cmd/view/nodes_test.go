package view

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// someNodes are nodes as a master knows them: one in use, one drained, one of a cluster, and one that is gone.
func someNodes() apply.Nodes {
	const gpu = "nvidia.com/gpu"
	slots := func(jobName, role string, incarnation int, each job.Resources, indices ...int) (held []plan.Held) {
		for _, i := range indices {
			held = append(held, plan.Held{Slot: job.Address{Job: jobName, Role: role, Index: i}, Incarnation: incarnation, Resources: each})
		}
		return held
	}
	large := job.Resources{CPU: 8000, Memory: 32 << 30, Devices: map[string]int{gpu: 2}}
	one := job.Resources{CPU: 1000, Devices: map[string]int{gpu: 1}}
	o := &job.Override{Path: job.PathDrain, By: "ann@head", At: jobtest.Epoch, Why: "a disk is replaced", Until: jobtest.Epoch.Add(time.Hour), Request: "r1"}
	leaving := slots("gpt", "worker", 2, one, 4)
	leaving[0].Leaving = true
	cordoned := job.Because(plan.Draining, "node", "n2", "by", o.By, "at", o.At.Format(time.RFC3339), "why", o.Why, "until", o.Until.Format(time.RFC3339), "request", "r1")
	mark := &job.NodeMark{At: jobtest.Epoch, Until: jobtest.Epoch.Add(2 * time.Hour), Times: 2}
	marked := job.Because(plan.NodeMarked, "node", "n4", "at", mark.At.Format(time.RFC3339), "until", mark.Until.Format(time.RFC3339)).With(
		job.Because(plan.NodeProblem, "node", "n4", "name", "KernelDeadlock", "message", "task docker:7 is blocked"),
		job.Because(plan.NodeIncident, "job", "job.gpt", "cause", "lease_lost", "at", mark.At.Format(time.RFC3339)))
	return apply.Nodes{
		Nodes: []plan.NodeUse{
			{Node: job.Node{Name: "gpu-1", Provider: "kubernetes", Capacity: large, Slots: 110, Closed: "not ready"}, Free: large, Reasons: []job.Reason{
				job.Because(plan.NodeClosed, "node", "gpu-1", "message", "not ready"),
				job.Because(plan.NotForRole, "role", "job.eval.worker", "message", "taint dedicated=training"),
			}},
			{Node: job.Node{Name: "n1", Provider: "local", Capacity: large, Foreign: jobtest.Cores(1), Labels: map[string]string{"switch": "s1", "rack": "r1"}}, Usable: true,
				Free: job.Resources{CPU: 3000, Memory: 32 << 30},
				Held: append(append(slots("gpt", "worker", 1, one, 0, 1, 2), slots("a", "ps", 0, jobtest.Cores(1), 0)...), append(slots("b", "ps", 1, jobtest.Cores(0), 0), slots("c", "ps", 1, jobtest.Cores(0), 0)...)...)},
			{Node: job.Node{Name: "n2", Provider: "local", Capacity: large}, Free: large.Sub(one), Override: o, Held: leaving, Reasons: []job.Reason{
				cordoned, job.Because(plan.NodeAvoided, "node", "n2", "slots", "job.gpt.worker[5], job.gpt.worker[6]", "count", "3"),
			}},
			{Node: job.Node{Name: "n4", Provider: "local", Capacity: large}, Usable: true, Free: large, Mark: mark, Reasons: []job.Reason{marked}},
			{Node: job.Node{Name: "n3", Provider: "local"}, Unlisted: true, Reasons: []job.Reason{job.Because(plan.NodeUnlisted, "node", "n3")}},
		},
		Unobserved: map[string]string{"volcano": "connection refused"},
	}
}

func TestNodes(t *testing.T) {
	var r Redactor
	m := NodeList(someNodes(), &r)
	var text bytes.Buffer
	for _, brief := range []bool{true, false} {
		if err := WriteNodes(Screen{Writer: &text}, m, brief); err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n")
	}
	golden(t, "nodes.txt", text.String())
	var data bytes.Buffer
	if err := WriteJSON(Screen{Writer: &data}, m); err != nil {
		t.Fatal(err)
	}
	golden(t, "nodes.json", data.String())
	if left := m.Select([]string{"n2"}); len(left.Nodes) != 1 || left.Nodes[0].Name != "n2" || len(m.Nodes) != 5 {
		t.Errorf("selected %+v of %d", left.Nodes, len(m.Nodes))
	}
}

// The page on the commands names every field of the nodes' JSON.
func TestCommandsPageHasEveryFieldOfNodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []any{NodesModel{}, NodeStatus{}, NodeAmount{}, NodeSlot{}, NodeCordon{}, NodeMark{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "format_version" && name != "nodes" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/commands.md does not mention the field %s of %T", name, of)
			}
		}
	}
}
