package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
)

// A plan's counts are those of the apply in all formats: text, Markdown, JSON, the changes, and apply's last line. That includes
// changes that follow from removed nodes.
func TestAPlanCountsWhatApplyDoes(t *testing.T) {
	t.Parallel()
	nodes := func(cores ...string) string {
		text := "provider \"local\" {\n"
		for _, node := range cores {
			name, cpu, _ := strings.Cut(node, "=")
			text += fmt.Sprintf("  node %q {\n    cpu = %s\n  }\n", name, cpu)
		}
		return text + "}\n"
	}
	one := strings.NewReplacer("cpu = 0.1", "cpu = 1")
	fixed := one.Replace(sleeper("a", "rendezvous {\n    settle = \"1s\"\n  }"))
	elastic := strings.Replace(fixed, "    resources", "    scaling {\n      min = 1\n      max = 2\n    }\n    resources", 1)
	edited := strings.Replace(fixed, "sleep 300", "sleep 400", 1)
	dir, _ := started(t, nodes("n1=2")+fixed)
	for _, step := range []struct {
		what, text  string
		code        int
		shown, told string // by the plan, and by apply
	}{
		{"the command is edited", nodes("n1=2") + edited, exitDone, "# forces replacement", "2 added, 0 changed, 2 destroyed"},
		{"there is room elsewhere", nodes("n2=2") + edited, exitDone, "nodes = n1 (2 slots) -> n2 (2 slots)", "2 added, 0 changed, 2 destroyed"},
		{"there is none for one of two", nodes("n3=1") + edited, exitError, "(no node has room for it: it starts again once one does)", "1 added, 0 changed, 2 destroyed"},
		{"there is again", nodes("n3=1", "n4=1") + edited, exitDone, "+ nodes         = n4", "1 added, 0 changed, 0 destroyed"},
		{"it is edited, and may have less", nodes("n3=1", "n4=1") + elastic, exitDone, "# forces replacement", "2 added, 1 changed, 2 destroyed"},
		{"it has less", nodes("n4=1") + elastic, exitDone, "(no node has room for more: 2 -> 1 slots)", "0 added, 0 changed, 1 destroyed"},
	} {
		rewrite(t, dir, step.text)
		var n struct{ Add, Change, Remove int }
		summary := linesOf(t, eltrain(t, dir, "plan", "-json", "-out=p").check(t, exitDone).out)["change_summary"][0]
		decode(t, summary["changes"], &n)
		counts := fmt.Sprintf("%d to add, %d to change, %d to destroy.", n.Add, n.Change, n.Remove)
		eltrain(t, dir, "plan").check(t, exitDone, step.shown, "Plan: "+counts)
		eltrain(t, dir, "plan", "-markdown").check(t, exitDone, "**eltrain plan:** "+counts)
		var p tfjson.Plan
		if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").out), &p); err != nil {
			t.Fatal(err)
		}
		changes := n
		changes.Add, changes.Remove = 0, 0
		seen := map[string]bool{}
		for _, rc := range p.ResourceChanges {
			a := rc.Change.Actions
			if a.Create() && rc.Type == "eltrain_slot" || a.Replace() {
				changes.Add++
			}
			if a.Delete() && rc.Type == "eltrain_slot" || a.Replace() {
				changes.Remove++
			}
			if seen[rc.Address] {
				t.Errorf("%s: %s is there twice", step.what, rc.Address)
			}
			seen[rc.Address] = true
		}
		if changes != n {
			t.Errorf("%s: the changes add up to %+v, and the summary says %+v", step.what, changes, n)
		}
		if done := fmt.Sprintf("%d added, %d changed, %d destroyed", n.Add, n.Change, n.Remove); done != step.told {
			t.Errorf("%s: the plan says %q, want %q", step.what, counts, step.told)
		}
		eltrain(t, dir, "apply", "-auto-approve").check(t, step.code, "Resources: "+step.told)
	}
	eltrain(t, dir, "plan", "-destroy").check(t, exitDone, "0 to add, 0 to change, 1 to destroy.")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete! Resources: 1 destroyed.")
}

// decode converts decoded JSON to a type.
func decode(t *testing.T, v, into any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
