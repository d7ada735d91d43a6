package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// planCase is a case's input. Without a plan it is the planner's, of the facts' input.
type planCase struct {
	Secrets []string
	Facts   PlanFacts
}

func readPlanCase(t *testing.T, name string) (planCase, *PlanModel) {
	t.Helper()
	var c planCase
	input(t, filepath.Join("plan", name, "facts.json"), &c)
	for i := range c.Facts.Input.Jobs {
		c.Facts.Input.Jobs[i].Secrets = c.Secrets
	}
	if c.Facts.Plan.Changes == nil {
		c.Facts.Input.NewUID = func(name string) string { return "uid-of-" + name }
		c.Facts.Plan = plan.Make(c.Facts.Input)
	}
	return c, NewPlan(c.Facts, NewRedactor([]job.Job{{Secrets: c.Secrets}}))
}

// A plan is the same plan to people, to pull requests and to programs: one model, golden in all three.
func TestPlan(t *testing.T) {
	for _, name := range cases(t, "plan") {
		t.Run(name, func(t *testing.T) {
			c, m := readPlanCase(t, name)
			var text, code, comment bytes.Buffer
			WritePlan(Screen{Writer: &text}, m)
			if err := WriteJSON(&code, m); err != nil {
				t.Fatal(err)
			}
			if err := WritePlanMarkdown(&comment, m); err != nil {
				t.Fatal(err)
			}
			for _, out := range []*bytes.Buffer{&text, &code, &comment} {
				for _, secret := range c.Secrets {
					if strings.Contains(out.String(), secret) {
						t.Errorf("the plan shows the secret %q:\n%s", secret, out)
					}
				}
			}
			golden(t, filepath.Join("plan", name, "plan.txt"), text.String())
			golden(t, filepath.Join("plan", name, "plan.json"), code.String())
			golden(t, filepath.Join("plan", name, "plan.md"), comment.String())
		})
	}
}

// What HashiCorp's own library reads is what policy tools for Terraform read.
func TestPlanJSONIsAPlanOfTerraform(t *testing.T) {
	for _, name := range cases(t, "plan") {
		_, m := readPlanCase(t, name)
		var code bytes.Buffer
		if err := WriteJSON(&code, m); err != nil {
			t.Fatal(err)
		}
		var p tfjson.Plan
		if err := json.Unmarshal(code.Bytes(), &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		counted := plan.Summary{}
		done := map[string]bool{}
		for i := range m.ResourceChanges {
			done[m.ResourceChanges[i].Address] = m.ResourceChanges[i].Eltrain != nil
		}
		for _, rc := range p.ResourceChanges {
			if rc.Mode != tfjson.ManagedResourceMode || rc.Address == "" || rc.Name == "" || len(rc.Change.Actions) == 0 {
				t.Errorf("%s: %+v is not whole", name, rc)
			}
			slot := rc.Type == slotType
			if index, ok := rc.Index.(float64); slot && (!ok || !strings.HasSuffix(rc.Address, fmt.Sprintf("[%d]", int(index)))) {
				t.Errorf("%s: %s has the index %v", name, rc.Address, rc.Index)
			}
			a := rc.Change.Actions
			switch {
			case a.Create() && rc.Change.Before != nil, a.Delete() && rc.Change.After != nil:
				t.Errorf("%s: %s is %v and has a value on the wrong side", name, rc.Address, a)
			}
			if !done[rc.Address] {
				continue
			}
			switch {
			case a.Create():
				counted.Add++
			case a.Update():
				counted.Change++
			case a.Replace():
				counted.Add++
				counted.Remove++
			case a.Delete() && slot:
				counted.Remove++
			}
		}
		if counted != m.Eltrain.Summary {
			t.Errorf("%s: the JSON's actions add up to %+v, the summary says %+v", name, counted, m.Eltrain.Summary)
		}
	}
}

func TestPlanColourAddsOnlyEscapes(t *testing.T) {
	_, m := readPlanCase(t, "mixed")
	var plain, coloured bytes.Buffer
	WritePlan(Screen{Writer: &plain}, m)
	WritePlan(Screen{Writer: &coloured, Colour: true}, m)
	if !strings.Contains(coloured.String(), string(red)) {
		t.Error("a plan with a replacement has no red in it")
	}
	if got := stripEscapes(coloured.String()); got != plain.String() {
		t.Errorf("without its escapes the coloured plan is\n%s\nand the plain one is\n%s", got, plain.String())
	}
}

// stripEscapes removes SGR sequences.
func stripEscapes(s string) string {
	var b strings.Builder
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			_, s, _ = strings.Cut(rest, "m")
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

// big is a plan of n new slots on n/8 nodes, each with a program, and if reasons is set also a reason, of its own.
func big(n int, reasons bool) *PlanModel {
	p := plan.Plan{}
	for i := range n {
		c := plan.Change{
			Action: plan.Create, Job: "big", Slot: job.Address{Job: "big", Role: "worker", Index: i},
			Reasons: []string{"new job"}, Node: fmt.Sprintf("n%d", i/8), Incarnation: 1,
			Fields: []job.FieldChange{
				{Path: "command", After: fmt.Sprintf(`["train", "--shard=%d"]`, i), Change: job.Replaces},
				{Path: "resources.cpu", After: "8", Change: job.Replaces},
			},
		}
		if reasons {
			c.Reasons = []string{fmt.Sprintf("exit %d", i)}
		}
		p.Changes = append(p.Changes, c)
	}
	return NewPlan(PlanFacts{Plan: p}, NewRedactor(nil))
}

func TestPlanOfManySlotsStaysAPage(t *testing.T) {
	for _, reasons := range []bool{false, true} {
		var out bytes.Buffer
		start := time.Now()
		WritePlan(Screen{Writer: &out}, big(10_000, reasons))
		if lines := strings.Count(out.String(), "\n"); lines > 40 {
			t.Errorf("a plan of 10,000 like slots has %d lines:\n%.3000s", lines, out.String())
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took) // a bound against quadratic work, not a benchmark
		}
		if !reasons {
			golden(t, "plan_10000_slots.txt", out.String())
		}
	}
}

func BenchmarkPlanText10000(b *testing.B) {
	for b.Loop() {
		WritePlan(Screen{Writer: new(bytes.Buffer)}, big(10_000, false))
	}
}

func TestFoldOfSlotsThatDoNotFold(t *testing.T) {
	var every2nd []int
	for i := range 5000 {
		every2nd = append(every2nd, 2*i)
	}
	got := fold("worker", every2nd)
	if !strings.HasPrefix(got, "worker[0,2,4,") || !strings.HasSuffix(got, ",…] (5000 slots)") || len(got) > 120 {
		t.Errorf("every second of 10,000 slots folds to %q", got)
	}
}

func TestNaturalOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		less bool
	}{
		{"n2", "n10", true}, {"n10", "n2", false}, {"n1", "n01", false}, {"n01", "n1", true},
		{"a", "ab", true}, {"gpu-1-9", "gpu-1-10", true}, {"same", "same", false},
	} {
		if got := natural(c.a, c.b) < 0; got != c.less {
			t.Errorf("natural(%q, %q) < 0 is %t", c.a, c.b, got)
		}
	}
}

func TestRedactor(t *testing.T) {
	r := NewRedactor([]job.Job{{Secrets: []string{"s3cret", "s3cret-and-more", "7", "line\none", " "}}})
	for _, c := range []struct{ in, text, value string }{
		{"token s3cret!", "token (sensitive value)!", sensitive},
		{"s3cret-and-more", "(sensitive value)", sensitive},
		{"72 and 17", "72 and 17", "72 and 17"},
		{"x = 7.", "x = (sensitive value).", sensitive},
		{`"line\none"`, `"(sensitive value)"`, sensitive},
		{"bell \a", `bell \a`, `bell \a`},
		{"a \x1b[2J b", `a \x1b[2J b`, `a \x1b[2J b`},
		{"größe", "größe", "größe"},
	} {
		if got := r.Text(c.in); got != c.text {
			t.Errorf("Text(%q) is %q, want %q", c.in, got, c.text)
		}
		if got := r.Value(c.in); got != c.value {
			t.Errorf("Value(%q) is %q, want %q", c.in, got, c.value)
		}
	}
	if got := new(Redactor).Text("s3cret"); got != "s3cret" {
		t.Errorf("the zero Redactor changed it to %q", got)
	}
}
