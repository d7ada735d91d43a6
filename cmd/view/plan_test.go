package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// planCase is a case's input. Without a plan, the planner makes it from the facts' input.
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

// A plan is the same as text, as Markdown and as JSON: one model, golden in all three.
func TestPlan(t *testing.T) {
	for _, name := range cases(t, "plan") {
		t.Run(name, func(t *testing.T) {
			c, m := readPlanCase(t, name)
			var text, code, comment, lines bytes.Buffer
			WritePlan(Screen{Writer: &text}, m)
			if err := WriteJSON(&code, m); err != nil {
				t.Fatal(err)
			}
			if err := WritePlanMarkdown(&comment, m); err != nil {
				t.Fatal(err)
			}
			NewStream(&lines, "0.1.0", still).Plan(m)
			for _, out := range []*bytes.Buffer{&text, &code, &comment, &lines} {
				for _, secret := range c.Secrets {
					if strings.Contains(out.String(), secret) {
						t.Errorf("the plan shows the secret %q:\n%s", secret, out)
					}
				}
			}
			golden(t, filepath.Join("plan", name, "plan.txt"), text.String())
			golden(t, filepath.Join("plan", name, "plan.json"), code.String())
			golden(t, filepath.Join("plan", name, "plan.md"), comment.String())
			golden(t, filepath.Join("plan", name, "plan.jsonl"), lines.String())
		})
	}
}

// HashiCorp's own library stands for the policy tools for Terraform.
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
			if rc.Change.Importing != nil {
				counted.Import++
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
			case a.Replace() && slot: // a job's replacement only removes what is left of an earlier job
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

// A plan that asks no provider does not know whether anything is running that could write a checkpoint.
func TestACheckpointIsPromisedOnlyIfSomebodyLooked(t *testing.T) {
	c, _ := readPlanCase(t, "broken")
	c.Facts.Unseen = true
	said := map[string]string{}
	for _, cost := range NewPlan(c.Facts, NewRedactor(nil)).Eltrain.Costs {
		said[cost.Address] = strings.Join(cost.sentences(), " ")
	}
	for address, want := range map[string]string{
		"job.a-asked":            "that SIGUSR1 requests before the stop if it is still running, otherwise from step 500 or newer.",
		"job.b-processes-killed": "resumes from the checkpoint of step 500 in ckpt or newer",
	} {
		if !strings.Contains(said[address], want) {
			t.Errorf("of %s it says %q, and not %q", address, said[address], want)
		}
	}
}

// What is in the checkpoint directory counts where the output is not read, and more than what was recorded.
func TestACostFromWhatIsInTheDirectory(t *testing.T) {
	for _, test := range []struct {
		job  string
		live Reached
		want string
	}{
		{"back", Reached{Step: 40, Rate: 2, Saved: job.Saved{Step: 30, Generation: 2}, Path: "checkpoint-30"}, "resumes from the checkpoint of step 30 in ckpt; recomputed: 10 steps (5 s)."},
		{"back", Reached{Step: 40, Saved: job.Saved{Generation: 2}, Path: "ckpt.pt"}, "resumes from the newest checkpoint, ckpt.pt in ckpt; step unknown. Recomputed at most: 40 steps, 5 min of training."},
		{"known", Reached{Step: 534, Rate: 2, Saved: job.Saved{Step: 400, Generation: 1}, Path: "checkpoint-400"}, "resumes from the checkpoint of step 400 in ckpt; recomputed: 134 steps (67 s)."},
	} {
		c, _ := readPlanCase(t, "checkpoints")
		c.Facts.Reached[test.job] = test.live
		for _, cost := range NewPlan(c.Facts, NewRedactor(nil)).Eltrain.Costs {
			if said := strings.Join(cost.sentences(), " "); cost.Address == "job."+test.job && (!strings.HasSuffix(said, test.want) || cost.CheckpointPath != test.live.Path) {
				t.Errorf("with %+v it says %q, and not %q", test.live, said, test.want)
			}
		}
	}
}

// For slots that reserve nothing no amount is shown.
func TestSlotsWithoutResourcesAreGivenUp(t *testing.T) {
	var e exchange
	e.add(&job.Slot{}, []job.Reason{job.Because(plan.AboveMost, "most", "2")})
	c := JobCost{Address: "job.a", GivesUp: e.sum(NewRedactor(nil))}
	if got := c.sentences(); !slices.Equal(got, []string{"job.a: gives up 1 slot: its role may have at most 2 slots."}) {
		t.Errorf("it says %q", got)
	}
}

// Of many ranks only some are shown.
func TestRanksThatAreGivenUpStayALine(t *testing.T) {
	var even []int
	for rank := range 60 {
		even = append(even, 2*rank)
	}
	for _, c := range []struct {
		ranks []int
		want  string
	}{
		{[]int{3}, "gives up 1 slot of rank 3: why."},
		{[]int{1, 2, 3, 5}, "gives up 4 slots of ranks 1-3,5: why."},
		{even, "gives up 60 slots of ranks 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,…: why."},
	} {
		cost := JobCost{Address: "job.a", GivesUp: &Exchange{Slots: len(c.ranks), Ranks: c.ranks, Reasons: []string{"why"}}}
		if got := cost.sentences()[0]; got != "job.a: "+c.want {
			t.Errorf("it says %q, want %q", got, c.want)
		}
	}
}

// If a scheduler chooses, a note says that the nodes shown are hints; without nodes there is no such note.
func TestANoteOnNodesNeedsNodes(t *testing.T) {
	slot := func(node string) *PlannedChange {
		return &PlannedChange{Action: plan.Replace, was: "k1", Node: node, hinted: true}
	}
	for _, c := range []struct {
		changes []*PlannedChange
		want    row
	}{
		{[]*PlannedChange{slot("")}, row{mark: "~", name: "nodes", value: "k1 -> " + knownLater}},
		{[]*PlannedChange{slot("k2"), slot("")}, row{mark: "~", name: "nodes", value: "k1 (2 slots) -> k2, " + knownLater, note: schedulerChooses}},
		{[]*PlannedChange{{Action: plan.Replace, was: "k1"}}, row{mark: "~", name: "nodes", value: "k1 -> " + knownLater, note: placesInUse}},
	} {
		if got := nodesRow(c.changes); got != c.want {
			t.Errorf("it is %+v, want %+v", got, c.want)
		}
	}
}

// Exit code 2 of plan -detailed-exitcode: what runs is not what is declared, and waiting alone does not help.
func TestWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		wait    plan.Wait
		refresh bool
		want    bool
	}{
		"waits for room": {wait: plan.Wait{Job: "a"}},
		"can never run":  {wait: plan.Wait{Job: "a", Never: true}, want: true},
		"has ended":      {wait: plan.Wait{Job: "a", Unheard: true}, want: true},
		"refresh":        {wait: plan.Wait{Job: "a", Unheard: true}, refresh: true},
	} {
		f := PlanFacts{Input: plan.Input{Refresh: c.refresh}, Plan: plan.Plan{Waits: []plan.Wait{c.wait}}}
		if got := NewPlan(f, NewRedactor(nil)).Differs(); got != c.want {
			t.Errorf("%s: Differs is %t", name, got)
		}
	}
}

// A refresh-only plan does not say that nothing changed if it has seen that processes ended.
func TestARefreshDoesNotOverlookWhatEnded(t *testing.T) {
	for want, waits := range map[string][]plan.Wait{
		"found no differences": nil,
		"No changes. None of this is recorded in the state: processes have ended, and only an apply can read how.": {{Job: "a", Unheard: true, Reasons: said("worker[0]: no process is running.")}},
	} {
		model := NewPlan(PlanFacts{Input: plan.Input{Refresh: true}, Plan: plan.Plan{Waits: waits}}, NewRedactor(nil))
		var text bytes.Buffer
		if WritePlan(Screen{Writer: &text, Width: 200}, model); !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, text.String())
		}
	}
}

// HashiCorp's own library finds the conditions with their results, each instance under its declaration.
func TestChecksAreThoseOfTerraform(t *testing.T) {
	_, m := readPlanCase(t, "checks")
	var code bytes.Buffer
	if err := WriteJSON(&code, m); err != nil {
		t.Fatal(err)
	}
	var p tfjson.Plan
	if err := json.Unmarshal(code.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Checks {
		got = append(got, fmt.Sprintf("%s %s %q %s %s", c.Address.Kind, c.Address.ToDisplay, c.Address.Module, c.Address.Name, c.Status))
		for _, inst := range c.Instances {
			got = append(got, fmt.Sprintf("  %s %q %v %s %d", inst.Address.ToDisplay, inst.Address.Module, inst.Address.InstanceKey, inst.Status, len(inst.Problems)))
		}
	}
	want := []string{
		`resource job.m "" m pass`, `  job.m "" <nil> pass 0`,
		`check check.size "" size fail`, `  check.size "" <nil> fail 2`,
		`output_value output.n "" n pass`, `  output.n "" <nil> pass 0`,
		`resource module.eval.module.deep.job.train "module.eval.module.deep" train pass`,
		`  module.eval["de"].module.deep.job.train["x"] "module.eval[\"de\"].module.deep" x pass 0`,
		`  module.eval["fr"].module.deep.job.train["x"] "module.eval[\"fr\"].module.deep" x pass 0`,
		`check module.eval.check.lang "module.eval" lang error`,
		`  module.eval["de"].check.lang "module.eval[\"de\"]" <nil> pass 0`,
		`  module.eval["fr"].check.lang "module.eval[\"fr\"]" <nil> error 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the checks are\n%s", strings.Join(got, "\n"))
	}
	var addresses []string
	for _, w := range CheckWarnings([]CheckFact{{Kind: "check", Name: "a", Status: "pass"}, {Kind: "check", Name: "b", Status: "fail", Problems: []string{"No."}}, {Kind: "check", Name: "c", Status: "error"}}) {
		addresses = append(addresses, w.Summary+" "+w.Detail[strings.LastIndex(w.Detail, "This is"):])
	}
	if want := []string{"Check block assertion failed This is check.b. It does not stop an apply.", "Check block assertion failed This is check.c. It does not stop an apply."}; !slices.Equal(addresses, want) {
		t.Errorf("reported again: %q", addresses)
	}
}

// The former value of a sensitive argument is never shown, although only the job's record has it.
func TestFormerSecretsAreHidden(t *testing.T) {
	_, m := readPlanCase(t, "costs")
	var code bytes.Buffer
	if err := WriteJSON(&code, m); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(code.String(), "the-old-token") {
		t.Error("the JSON shows the value that was replaced by a sensitive one")
	}
	for i := range m.ResourceChanges {
		rc := &m.ResourceChanges[i]
		if rc.Address != "job.edited.worker[0]" {
			continue
		}
		want := map[string]any{"env": map[string]any{"TOKEN": true}}
		if !reflect.DeepEqual(rc.Change.BeforeSensitive, want) || !reflect.DeepEqual(rc.Change.AfterSensitive, want) {
			t.Errorf("marked are %v and %v, want %v", rc.Change.BeforeSensitive, rc.Change.AfterSensitive, want)
		}
		if rc.ActionReason != "replace_because_cannot_update" || len(rc.Change.ReplacePaths) != 2 {
			t.Errorf("the reason is %q, by %v", rc.ActionReason, rc.Change.ReplacePaths)
		}
		return
	}
	t.Error("the slot is not in the plan")
}

// An OPA policy finds these two action reasons where Terraform has them.
func TestPlanJSONSaysWhySlotsGo(t *testing.T) {
	_, m := readPlanCase(t, "costs")
	reasons := map[string]string{}
	for i := range m.ResourceChanges {
		reasons[m.ResourceChanges[i].Address] = m.ResourceChanges[i].ActionReason
	}
	for address, want := range map[string]string{
		"job.gone": "delete_because_no_resource_config", "job.gone.worker[0]": "delete_because_no_resource_config",
		"job.low.worker[3]": "delete_because_count_index", "job.high.worker[0]": "", "job.low.worker[0]": "",
	} {
		if got, there := reasons[address]; !there || got != want {
			t.Errorf("%s: %q, %t; want %q", address, got, there, want)
		}
	}
}

// Every line is valid in Terraform's machine-readable UI, according to the library that its users parse it with.
func TestStreamIsTheUIOfTerraform(t *testing.T) {
	_, m := readPlanCase(t, "costs")
	var out bytes.Buffer
	s := NewStream(&out, "0.1.0", still)
	s.Diagnostics([]Diagnostic{Problem("Planning failed", "Why."), Caution("Beware", "")})
	s.Plan(m)
	kinds := map[string]int{}
	for line := range strings.Lines(out.String()) {
		msg, err := tfjson.UnmarshalLogMessage([]byte(line))
		if err != nil || msg.Message() == "" || msg.Timestamp().IsZero() {
			t.Errorf("%v: %s", err, line)
		}
		var kind struct{ Type string }
		if err := json.Unmarshal([]byte(line), &kind); err != nil {
			t.Fatal(err)
		}
		kinds[kind.Type]++
		if d, ok := msg.(tfjson.DiagnosticLogMessage); ok && d.Summary == "" {
			t.Errorf("a diagnostic without its summary: %s", line)
		}
	}
	want := map[string]int{"version": 1, "diagnostic": 2, "planned_change": len(m.changes()), "planned_wait": 1, "planned_cost": 3, "scale_decision": 1, "outputs": 1, "change_summary": 1}
	if !maps.Equal(kinds, want) {
		t.Errorf("the lines are %v, want %v", kinds, want)
	}
}

// A comment on GitHub has 65,536 characters, of up to four bytes each: the rest is counted, and no collapsed section or fence
// stays open.
func TestMarkdownFitsAComment(t *testing.T) {
	for _, text := range []string{"a fence", strings.Repeat("\U0001f308", 40)} {
		testMarkdownFits(t, text)
	}
}

// testMarkdownFits starts 3,000 jobs, each for a reason with filling in it.
func testMarkdownFits(t *testing.T, filling string) {
	t.Helper()
	p := plan.Plan{Records: job.Records{}}
	f := PlanFacts{Input: plan.Input{Records: job.Records{}}}
	for i := range 3000 {
		name := fmt.Sprintf("job-%04d", i)
		p.Sizes = append(p.Sizes, plan.Size{Job: name, Role: "worker", Replicas: 1, Before: 2, Now: 2, Min: 1, Max: 4})
		p.Caveats = append(p.Caveats, "nothing enforces "+name)
		f.Input.Scope.Targets = append(f.Input.Scope.Targets, job.Selector{Job: name})
		f.Input.Jobs = append(f.Input.Jobs, job.Job{Name: name})
		member := job.WorldMember{Slot: job.Address{Job: name, Role: "ps"}, Incarnation: 1}
		f.Input.Records[name] = &job.Record{UID: name, Phase: job.JobRunning, World: job.World{Generation: 1, Members: []job.WorldMember{member}}}
		p.Records[name] = &job.Record{UID: name, Phase: job.JobFailed}
		p.Changes = append(p.Changes, plan.Change{Action: plan.Delete, Job: name, UID: name, Slot: member.Slot, Stop: []int{1}})
		p.Changes = append(p.Changes, plan.Change{Action: plan.Create, Job: name, Slot: job.Address{Job: name, Role: "wörker"},
			Reasons: said("new job ```` with " + filling + ", <b>HTML</b>, | and @somebody")})
		p.Waits = append(p.Waits, plan.Wait{Job: name, Reasons: said("it waits for @somebody <script> | `x` " + filling)},
			plan.Wait{Job: name, Held: true, Reasons: said("it is held back")})
	}
	f.Plan = p
	var out bytes.Buffer
	if err := WritePlanMarkdown(&out, NewPlan(f, NewRedactor(nil))); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := utf8.RuneCountInString(text); n > 65_536 || n < 60_000 {
		t.Errorf("it has %d characters", n)
	}
	if strings.Count(text, "`````") != 2 || strings.Count(text, "<details>") != strings.Count(text, "</details>") {
		t.Error("a fence or a fold stays open")
	}
	for _, want := range []string{"**What it costs**", "**Scaled**", "**Failed**", "**Waiting**", "**Held back**", "**Partial plan**", "**Not enforced here**", "more jobs", "more lines", "more\n", "&#64;somebody", "&lt;script&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	before, _, _ := strings.Cut(text, "<details>")
	if strings.Contains(before, "@somebody") || strings.Contains(before, "<script>") {
		t.Error("outside of the fence Markdown or HTML is not escaped")
	}
}

func TestDiffLine(t *testing.T) {
	for in, want := range map[string]string{
		"-/+ role \"w\" {":          "! role \"w\" {",
		"  ~ job \"j\" {":           "! job \"j\" {",
		"  + role \"w\"":            "+ role \"w\"",
		"  - role \"w\"":            "- role \"w\"",
		"  # job.j will be created": "# job.j will be created",
		"      ~ cpu = 1 -> 2":      "!     cpu = 1 -> 2",
		"      + cpu = 1":           "+     cpu = 1",
		"        nodes = n1":        "      nodes = n1",
		"    }":                     "  }",
		"":                          "",
	} {
		if got := diffLine(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// A plan over 10,000 slots is written whole.
func TestPlanJSONOfManySlots(t *testing.T) {
	m := big(10_000, true)
	var out bytes.Buffer
	if err := WriteJSON(&out, m); err != nil {
		t.Fatal(err)
	}
	if got := len(m.ResourceChanges); got != 10_001 {
		t.Errorf("there are %d resources", got)
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

// big returns a plan of n new slots on n/8 nodes, each with its own program, and if reasons is set also its own reason.
func big(n int, reasons bool) *PlanModel {
	p := plan.Plan{}
	for i := range n {
		c := plan.Change{
			Action: plan.Create, Job: "big", Slot: job.Address{Job: "big", Role: "worker", Index: i},
			Reasons: said("new job"), Node: fmt.Sprintf("n%d", i/8), Incarnation: 1,
			Fields: []job.FieldChange{
				{Path: "command", After: fmt.Sprintf(`["train", "--shard=%d"]`, i), Change: job.Replaces},
				{Path: "resources.cpu", After: "8", Change: job.Replaces},
			},
		}
		if reasons {
			c.Reasons = said(fmt.Sprintf("exit %d", i))
		}
		p.Changes = append(p.Changes, c)
	}
	return NewPlan(PlanFacts{Plan: p}, NewRedactor(nil))
}

func TestPlanOfManySlotsStaysAPage(t *testing.T) {
	for _, reasons := range []bool{false, true} {
		var out bytes.Buffer
		WritePlan(Screen{Writer: &out}, big(10_000, reasons))
		if lines := strings.Count(out.String(), "\n"); lines > 40 {
			t.Errorf("a plan of 10,000 like slots has %d lines:\n%.3000s", lines, out.String())
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

// A plan with a limited scope and no changes does not say that everything is as configured: the rest was not planned. A comment
// lists the scope.
func TestAPlanOfAPartSaysWhatIsLeftOut(t *testing.T) {
	a := []job.Selector{{Job: "a", Role: "ps"}}
	many := make([]job.Selector, 2000)
	for i := range many {
		many[i] = job.Selector{Job: fmt.Sprintf("a-job-with-a-name-of-some-length-%d", i)}
	}
	named := " -target=" + strings.Join([]string{many[0].String(), many[1].String(), many[2].String(), many[3].String()}, " -target=")
	for _, c := range []struct {
		scope         plan.Scope
		text, comment string
	}{
		{plan.Scope{}, "What is running matches the configuration.", "What is running matches the configuration."},
		{plan.Scope{Excludes: a}, "What -exclude=job.a.ps names, with its dependents, was left out.", "What -exclude names, with its dependents, was left out."},
		{plan.Scope{Targets: a}, "Only what -target=job.a.ps names, with its dependencies, was planned.", "Only what -target names, with its dependencies, was planned."},
		{plan.Scope{Targets: many}, "Only what" + named + " and 1996 more names,", "Only what -target names,"},
	} {
		model := NewPlan(PlanFacts{Input: plan.Input{Scope: c.scope}}, NewRedactor(nil))
		var text, comment bytes.Buffer
		WritePlan(Screen{Writer: &text}, model)
		if err := WritePlanMarkdown(&comment, model); err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCount(comment.Bytes()); n > maxMarkdown {
			t.Errorf("a comment on %d targets has %d characters", len(c.scope.Targets), n)
		}
		for shown, want := range map[string]string{text.String(): c.text, comment.String(): c.comment} {
			if !strings.Contains(strings.Join(strings.Fields(shown), " "), want) || c.scope.Limited() && strings.Contains(shown, "matches the configuration") {
				t.Errorf("it does not say %q:\n%.2000s", want, shown)
			}
		}
	}
}

// A world that has just formed is not broken: its processes are still to start.
func TestAWorldThatStartsIsNotSaidToBeBroken(t *testing.T) {
	c, _ := readPlanCase(t, "broken")
	rec := c.Facts.Input.Records["b-processes-killed"]
	for i := range rec.Slots {
		rec.Slots[i].Phase = job.Registered
	}
	for _, cost := range NewPlan(c.Facts, NewRedactor(nil)).Eltrain.Costs {
		said := strings.Join(cost.sentences(), " ")
		switch cost.Address {
		case "job.b-processes-killed":
			if !cost.Starting || !strings.Contains(said, "its world of 2 slots (generation 1) is still starting") {
				t.Errorf("it says %q", said)
			}
		case "job.c-agents-gone", "job.f-destroyed":
			if cost.Starting || !strings.Contains(said, "is already broken") {
				t.Errorf("of %s it says %q", cost.Address, said)
			}
		}
	}
}
