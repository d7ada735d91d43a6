package view

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

func TestPlan(t *testing.T) {
	for _, name := range cases(t, "plan") {
		t.Run(name, func(t *testing.T) {
			var in struct {
				Secrets []string
				Plan    plan.Plan
			}
			input(t, filepath.Join("plan", name, "plan.json"), &in)
			r := NewRedactor([]job.Job{{Secrets: in.Secrets}})
			var out bytes.Buffer
			Plan(Screen{Writer: &out}, r, &in.Plan)
			for _, secret := range in.Secrets {
				if strings.Contains(out.String(), secret) {
					t.Errorf("the plan shows the secret %q", secret)
				}
			}
			golden(t, filepath.Join("plan", name, "plan.txt"), out.String())
		})
	}
}

func TestPlanColourAddsOnlyEscapes(t *testing.T) {
	var in struct {
		Secrets []string
		Plan    plan.Plan
	}
	input(t, "plan/mixed/plan.json", &in)
	r := NewRedactor([]job.Job{{Secrets: in.Secrets}})
	var plain, coloured bytes.Buffer
	Plan(Screen{Writer: &plain}, r, &in.Plan)
	Plan(Screen{Writer: &coloured, Colour: true}, r, &in.Plan)
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
func big(n int, reasons bool) *plan.Plan {
	p := &plan.Plan{}
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
	return p
}

func TestPlanOfManySlotsStaysAPage(t *testing.T) {
	for _, reasons := range []bool{false, true} {
		var out bytes.Buffer
		start := time.Now()
		Plan(Screen{Writer: &out}, NewRedactor(nil), big(10_000, reasons))
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
	p := big(10_000, false)
	for b.Loop() {
		Plan(Screen{Writer: new(bytes.Buffer)}, NewRedactor(nil), p)
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
