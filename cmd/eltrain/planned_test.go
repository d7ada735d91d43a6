package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// linesOf returns the lines of -json, by type.
func linesOf(t *testing.T, text string) map[string][]map[string]any {
	t.Helper()
	out := map[string][]map[string]any{}
	for line := range strings.Lines(text) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out[l["type"].(string)] = append(out[l["type"].(string)], l)
	}
	return out
}

// A plain apply does what its plan shows, and does not grow an elastic role further although there is room; a watch does. So a
// saved plan does what was approved, and a plan after it is empty.
func TestARunThatEndsGrowsNothingThatWasNotShown(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": strings.NewReplacer("replicas   = 1", "replicas   = 3", "min = 1", "min = 2", "max = 2", "max = 4").Replace(growing("", ""))})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "Plan: 3 to add, 0 to change, 0 to destroy.")
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Resources: 3 added, 0 changed, 0 destroyed.")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "No changes.", "Resources: 0 added, 0 changed, 0 destroyed.")
	if slots := slotsOf(t, dir); len(slots) != 3 {
		t.Errorf("there are %d slots: %v", len(slots), slots)
	}
	grow(t, dir, 4)
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "4 slots, scaled within 2..4. replicas = 3 is only where it starts", "No changes.")
}

// A size that scaling chose is not drift, whatever initial number the file has: it is shown, and kept. A changed bound clamps
// it.
func TestScalingAndFilesNeverFightOverASize(t *testing.T) {
	t.Parallel()
	text := strings.Replace(growing("", ""), "max = 2", "max = 4", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": text})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.Replace(text, "replicas   = 1", "replicas   = 4", 1))
	grown := linesOf(t, eltrain(t, dir, "apply", "-auto-approve", "-json").check(t, exitDone).out)["scale_decision"]
	// It is reported when planned, and when started.
	if len(grown) != 2 || !strings.HasPrefix(grown[1]["@message"].(string), "job.elastic.worker: scaled within 1..4: 1 -> 4 slots") {
		t.Errorf("apply -json decides %v", grown)
	}
	rewrite(t, dir, text)
	const kept = "job.elastic.worker: 4 slots, scaled within 1..4. replicas = 1 is only where it starts, and does not change it now. For fewer, lower scaling.max."
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, kept, "No changes.")
	eltrain(t, dir, "plan", "-markdown").check(t, exitDone, "**Scaled**\n\n- "+kept)
	if lines := linesOf(t, eltrain(t, dir, "plan", "-json").out); len(lines["scale_decision"]) > 0 {
		t.Errorf("a size that stays is decided: %v", lines["scale_decision"])
	}
	before := slotsOf(t, dir)
	rewrite(t, dir, strings.Replace(text, "replicas   = 1", "replicas   = 2", 1))
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "4 slots, scaled within 1..4. replicas = 2 is only where it starts", "No changes.")
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	var model struct {
		Changes []struct {
			Change struct{ Actions []string }
		} `json:"resource_changes"`
		Eltrain struct{ Sizes []view.RoleSize }
	}
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").out), &model); err != nil {
		t.Fatal(err)
	}
	for _, c := range model.Changes {
		if len(c.Change.Actions) != 1 || c.Change.Actions[0] != "no-op" {
			t.Errorf("the JSON has a change: %v", c.Change.Actions)
		}
	}
	if s := model.Eltrain.Sizes; len(s) != 1 || s[0].Replicas != 2 || s[0].Now != 4 || s[0].Min != 1 || s[0].Max != 4 {
		t.Errorf("the JSON has the sizes %+v", s)
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resources: 0 added, 0 changed, 0 destroyed.")
	for address, s := range slotsOf(t, dir) {
		if before[address] != s {
			t.Errorf("%s was %+v and is %+v", address, before[address], s)
		}
	}
	rewrite(t, dir, strings.Replace(text, "max = 4", "max = 3", 1))
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "role.worker.scaling.max = 4 -> 3", "its role may have at most 3 slots", "0 to add, 1 to change, 1 to destroy")
}

// A plan says which jobs have failed, why, and what happens to them: a plain apply starts them again, a watch does not.
func TestAPlanTellsOfFailedJobs(t *testing.T) {
	const failing = `job "bad" {
  role "worker" {
    command    = ["sh", "-c", "exit 3"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
  heal {
    budget {
      restarts = 0
    }
  }
}
`
	dir := directoryWith(t, map[string]string{"main.hcl": failing})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	o := eltrain(t, dir, "apply", "-auto-approve", "-json").check(t, exitError)
	lines := linesOf(t, o.out)
	if n := len(lines["change_summary"]); n != 1 {
		t.Errorf("an apply that did not reach its end has %d summaries, not only that of its plan", n)
	}
	told := false
	for _, l := range lines["diagnostic"] {
		d := l["diagnostic"].(map[string]any)
		told = told || d["address"] == "job.bad" && d["severity"] == "error" && d["summary"] == "job.bad is Failed"
	}
	if !told {
		t.Errorf("the diagnostics are %v", lines["diagnostic"])
	}
	const why = "It failed: process failed in worker[0]: exit code 3."
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "Failed:\n  job.bad\n    - "+why, "This plan starts it again",
		"# an earlier job.bad will be cleaned up", "\nPlan: 1 to add, 0 to change, 0 to destroy.\n")
	eltrain(t, dir, "plan", "-markdown").check(t, exitDone, "eltrain plan:** 1 to add, 0 to change, 0 to destroy.\n", "**Failed**", "| `job.bad` | 1 | 0 | 0 | failed | forms |")
	if failed := linesOf(t, eltrain(t, dir, "plan", "-json").out)["planned_failed"]; len(failed) != 1 || failed[0]["failed"].(map[string]any)["starts_anew"] != true {
		t.Errorf("plan -json has %v", failed)
	}
	out := watch(t, dir, func(said func() string) {
		for _, want := range []string{why, "so does the next eltrain apply if there is room.", "Not everything in the configuration is running"} {
			eventually(t, "a watch says "+want, func() bool { return strings.Contains(said(), want) })
		}
	})
	if strings.Contains(out, "What is running matches") {
		t.Errorf("a watch takes a failed job for what was asked for:\n%s", out)
	}
}

// A job that fails does not roll back another that starts with it. The failed one is named once, at the end, with the line that
// declares it, and the next plan has only that job.
func TestWhatSucceededStaysAndWhatFailedIsNamedOnce(t *testing.T) {
	t.Parallel()
	good := strings.Replace(twoWorkers, "tiny", "good", 1)
	bad := strings.Replace(strings.Replace(twoWorkers, "tiny", "bad", 1), `["sh", "-c", "echo step $RANK; exec sleep 300"]`, `["/no/such/program"]`, 1)
	dir := directoryWith(t, map[string]string{"main.hcl": good + bad})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "Error: job.bad is Failed", "on main.hcl line 11", `job "bad" {`, "/no/such/program")
	if n := strings.Count(o.err, "Error: "); n != 1 {
		t.Errorf("%d errors are reported:\n%s", n, o.err)
	}
	before := slotsOf(t, dir)
	if phase := before["job.good.worker[1]"].Phase; phase != string(job.Running) {
		t.Errorf("the other job is %s", phase)
	}
	rewrite(t, dir, good+strings.Replace(bad, "/no/such/program", "/bin/sleep\", \"300", 1))
	eltrain(t, dir, "plan").check(t, exitDone, "job.bad.worker[0-1]", "Plan: 2 to add, 0 to change, 0 to destroy.")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")
	after := slotsOf(t, dir)
	for _, address := range []string{"job.good.worker[0]", "job.good.worker[1]"} {
		if before[address] != after[address] {
			t.Errorf("%s was %+v and is %+v", address, before[address], after[address])
		}
	}
}

// A plan that changes only outputs counts no changes; show has the outputs of the state too.
func TestPlansOfOutputsAlone(t *testing.T) {
	const outputs = "output \"size\" {\n  value = 3\n}\noutput \"token\" {\n  value     = \"hunter2hunter2\"\n  sensitive = true\n}\n"
	dir := directoryWith(t, map[string]string{"main.hcl": outputs})
	eltrain(t, dir, "show").check(t, exitDone, "The state is empty.")
	o := eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "\nChanges to Outputs:\n  + size  = 3\n", "You can apply this plan to save these new output values")
	if strings.Contains(o.out, "to add") || strings.Contains(o.out, "No changes.") {
		t.Errorf("it counts:\n%s", o.out)
	}
	eltrain(t, dir, "show", "p").check(t, exitDone, "Changes to Outputs:", "+ size  = 3")
	eltrain(t, dir, "show", "-markdown", "p").check(t, exitDone, "**eltrain plan:** Changes to outputs only.", "\n+ size  = 3\n")
	planned := linesOf(t, eltrain(t, dir, "plan", "-json").out)["outputs"][0]["outputs"].(map[string]any)["token"].(map[string]any)
	if len(planned) != 2 || planned["action"] != "create" || planned["sensitive"] != true {
		t.Errorf("plan -json has the sensitive output %v", planned)
	}
	applied := linesOf(t, eltrain(t, dir, "apply", "-auto-approve", "-json").check(t, exitDone).out)
	all := applied["outputs"][len(applied["outputs"])-1]["outputs"].(map[string]any)
	if token := all["token"].(map[string]any); len(token) != 2 || token["sensitive"] != true || token["type"] != "string" {
		t.Errorf("apply -json has the sensitive output %v", token)
	}
	if size := all["size"].(map[string]any); size["value"] != 3.0 || size["type"] != "number" || size["action"] != nil {
		t.Errorf("apply -json has the output %v", size)
	}
	if text := applied["change_summary"][1]["@message"]; text != "Apply complete! Resources: 0 added, 0 changed, 0 destroyed." {
		t.Errorf("it ends with %q", text)
	}
	eltrain(t, dir, "show").check(t, exitDone, "Outputs:\n\nsize = 3\ntoken = (sensitive value)\n")
}

// The changes of a saved plan are reported before it is carried out, as in Terraform.
func TestApplyOfASavedPlanTellsItsChanges(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	lines := linesOf(t, eltrain(t, dir, "apply", "-json", "p").check(t, exitDone).out)
	if len(lines["planned_change"]) != 2 || len(lines["change_summary"]) != 1 || len(lines["apply_complete"]) != 2 {
		t.Errorf("there are %d planned changes, %d summaries, %d that are done", len(lines["planned_change"]), len(lines["change_summary"]), len(lines["apply_complete"]))
	}
	gone := linesOf(t, eltrain(t, dir, "destroy", "-auto-approve", "-json").check(t, exitDone).out)["change_summary"]
	if text := gone[len(gone)-1]["@message"]; text != "Destroy complete! Resources: 2 destroyed." {
		t.Errorf("a destroy ends with %q", text)
	}
}

// Refusals are reported in one form, even if found only once the lock is held: each with the line of the files that caused it.
func TestRefusalsAreToldInOneWay(t *testing.T) {
	refusal := plan.Refusal{Job: "a", Reason: job.Because(plan.ImportAmbiguous, "id", "x", "uid", "1", "other", "2")}
	want := "\nError: Ambiguous import\n\nThe id \"x\" exists in two jobs. Import by the job's UID: 1 or 2.\n"
	for _, saved := range []*planfile.File{nil, {}} {
		s := newScreenless("")
		m := newApply(&s.session, &workspace.Workspace{Config: &lang.Config{Files: map[string]*hcl.File{}}}, applyArgs{})
		m.saved = saved
		err := &apply.RefusedError{Err: &RefusedPlanError{[]plan.Refusal{refusal}}}
		if code := m.conclude(t.Context(), plan.Plan{}, err); code != exitError || s.err.String() != want {
			t.Errorf("it exits with %d and says %q", code, s.err.String())
		}
	}
}

// Warnings come by place and text, in all formats.
func TestWarningsComeInOrder(t *testing.T) {
	check := func(names ...string) string {
		var b strings.Builder
		for _, name := range names {
			b.WriteString("check \"" + name + "\" {\n  assert {\n    condition     = var.n == 2\n    error_message = \"about " + name + "\"\n  }\n}\n")
		}
		return b.String()
	}
	dir := directoryWith(t, map[string]string{"b.hcl": check("three", "four"), "a.hcl": "variable \"n\" {\n  default = 1\n}\n" + check("one", "two")})
	for range 5 { // a map's order would differ each time
		o := eltrain(t, dir, "plan").check(t, exitDone)
		at := -1
		for _, text := range []string{"about one", "about two", "about three", "about four"} {
			next := strings.Index(o.err, text)
			if next <= at {
				t.Fatalf("%q is out of order:\n%s", text, o.err)
			}
			at = next
		}
	}
}

// Only a successful run ends with its counts in JSON, in Terraform's words.
func TestOnlyWhatReachedItsEndIsSummedUp(t *testing.T) {
	failed := plan.Plan{Records: job.Records{"a": {Spec: job.Job{Name: "a"}, Phase: job.JobFailed}}}
	for name, c := range map[string]struct {
		args applyArgs
		last plan.Plan
		want string // "" is no summary
	}{
		"applied":   {want: "Apply complete! Resources: 0 added, 0 changed, 0 destroyed."},
		"destroyed": {args: applyArgs{planning: planning{Intent: destroying}}, want: "Destroy complete! Resources: 0 destroyed."},
		"watched":   {args: applyArgs{planning: planning{Intent: watching}}, last: failed, want: "Watch ended. Resources: 0 added, 0 changed, 0 destroyed."},
		"failed":    {last: failed},
		"held back": {args: applyArgs{planning: planning{Intent: destroying}}, last: plan.Plan{Waits: []plan.Wait{{Job: "a", Held: true, Reasons: said("It goes as a whole.")}}}},
	} {
		s := newScreenless("")
		var out strings.Builder
		s.stream = view.NewStream(&out, version, time.Now)
		m := newApply(&s.session, &workspace.Workspace{Config: new(lang.Config)}, c.args)
		m.conclude(t.Context(), c.last, nil)
		text := ""
		for _, l := range linesOf(t, out.String())["change_summary"] {
			text += l["@message"].(string)
		}
		if text != c.want {
			t.Errorf("%s: the summary is %q, want %q", name, text, c.want)
		}
	}
}

// An interrupted watch says what it leaves running, and how to continue.
func TestAWatchSaysWhatItLeaves(t *testing.T) {
	running := []job.Slot{{Phase: job.Running, Incarnation: 1}}
	for name, c := range map[string]struct {
		left job.Records
		want string
	}{
		"nothing": {job.Records{"a": {Phase: job.JobSucceeded, Slots: []job.Slot{{Phase: job.Succeeded, Incarnation: 1}}}, "b": {Phase: job.JobPending, Slots: []job.Slot{{Phase: job.Pending}}}}, "No job of the state is left running.\n"},
		"one":     {job.Records{"a": {Phase: job.JobRunning, Slots: running}, "b": {Phase: job.JobFailed}}, "job.a keeps running, and nothing heals it. To continue, run eltrain apply -watch; to stop everything, run eltrain destroy.\n"},
		"some":    {job.Records{"a": {Slots: running}, "b": {Slots: running}, "c": {Slots: running}}, "job.a, job.b and job.c keep running, and nothing heals them. To"},
	} {
		s := newScreenless("")
		m := newApply(&s.session, &workspace.Workspace{Config: new(lang.Config)}, applyArgs{planning: planning{Intent: watching}})
		m.conclude(t.Context(), plan.Plan{Records: c.left}, nil)
		if out := s.out.String(); !strings.HasPrefix(out, "\nWatch ended. Resources: 0 added, 0 changed, 0 destroyed.\n"+c.want) {
			t.Errorf("%s: it says %q", name, out)
		}
	}
}

// Warnings of the files are reported once: below the plan, or with the error if there is no plan.
func TestWarningsOfTheFilesAreToldThoughThereIsNoPlan(t *testing.T) {
	t.Parallel()
	const doubt = "Value for an undeclared variable"
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs, "more.vars": "nobody = 1\n"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	once := func(code int, args ...string) {
		t.Helper()
		o := eltrain(t, dir, append(args, "-var-file=more.vars")...).check(t, code, doubt)
		if n := strings.Count(o.out+o.err, doubt); n != 1 {
			t.Errorf("%v: reported %d times:\n%s%s", args, n, o.out, o.err)
		}
		if i := strings.Index(o.err, "Error: "); i >= 0 && i < strings.Index(o.err, doubt) {
			t.Errorf("%v: the warning is below the error:\n%s", args, o.err)
		}
	}
	for _, command := range [][]string{{"plan"}, {"plan", "-compact-warnings"}, {"apply", "-auto-approve"}, {"apply", "-auto-approve", "-refresh-only"}} {
		once(exitError, append(slices.Clone(command), "-target=job.nobody")...) // found after planning
	}
	once(exitDone, "plan")
	o := eltrain(t, dir, "plan", "-json", "-target=job.nobody", "-var-file=more.vars").check(t, exitError)
	var told []string
	for _, l := range linesOf(t, o.out)["diagnostic"] {
		told = append(told, l["diagnostic"].(map[string]any)["severity"].(string))
	}
	if !slices.Equal(told, []string{"warning", "error"}) {
		t.Errorf("-json has %v:\n%s", told, o.out)
	}
	once(exitDone, "apply", "-auto-approve")
	rewrite(t, dir, twoJobs+"\nimport {\n  to = job.new\n  id = \"nobody\"\n}\n"+sleeper("new", ""))
	once(exitError, "plan") // refused
	once(exitError, "apply", "-auto-approve")
}

// When an apply would start a repeatedly failing job again, it takes nothing from a healthy job of the same priority, whose
// world keeps training: the job stays failed, with the reason and what to do. As a new job it gets its share.
func TestAJobThatFailsEachTimeLeavesAHealthyOneAlone(t *testing.T) {
	t.Parallel()
	const node = `provider "local" {
  node "n1" {
    cpu    = 4
    memory = "4GiB"
  }
}
`
	job := func(name, command, more string) string {
		return `job "` + name + `" {
  role "worker" {
    replicas = 2
    ` + more + `
    command    = ["sh", "-c", "` + command + `"]
    stop_grace = "1s"
    resources {
      cpu = 1
    }
  }
  rendezvous {
    settle = "60s" # who comes late on a busy machine is waited for
  }
  heal {
    budget {
      restarts = 0
    }
  }
}
`
	}
	good := strings.Replace(job("good", "exec sleep 300", "scaling {\n      min = 1\n      max = 4\n    }"), "replicas = 2", "replicas = 4", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": node + good + job("bad", "exit 3", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "job.bad is Failed")
	before := slotsOf(t, dir)
	if s := before["job.good.worker[3]"]; s.Phase != "Running" {
		t.Fatalf("the healthy job has not grown: %+v", before)
	}
	for range 2 {
		o := eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "No changes.", "so does the next eltrain apply if there is room", "job.bad is Failed", "exit code 3")
		if flat := strings.Join(strings.Fields(o.err), " "); !strings.Contains(flat, "unlike a new job it takes no places from jobs of its priority") || !strings.Contains(flat, "To start it as a new job, run eltrain apply -replace=job.bad.") {
			t.Errorf("it does not say why, and what to do:\n%s", o.err)
		}
		for address, s := range slotsOf(t, dir) {
			if before[address] != s {
				t.Errorf("%s was %+v and is %+v", address, before[address], s)
			}
		}
	}
	eltrain(t, dir, "plan", "-replace=job.bad").check(t, exitDone, "job.good: gives up 2 slots", "This plan starts it again", "Plan: 2 to add, 0 to change, 2 to destroy.")
	rewrite(t, dir, node+good+job("bad", "exec sleep 200", ""))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "job.good: gives up 2 slots", "Apply complete!")
}

// A plan lists ended jobs whose records it removes, and counts them beside the slots.
func TestAPlanSaysWhichJobsItRemovesFromTheState(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": strings.Replace(sleeper("done", ""), "exec sleep 300", "exit 0", 1) + sleeper("live", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	const counted = "0 to add, 0 to change, 2 to destroy. 1 job to be removed from the state."
	eltrain(t, dir, "plan", "-destroy").check(t, exitDone, "# job.done will be removed from the state", "Plan: "+counted)
	eltrain(t, dir, "plan", "-destroy", "-markdown").check(t, exitDone, "**eltrain plan:** "+counted)
	eltrain(t, dir, "plan", "-destroy", "-json").check(t, exitDone, `"@message":"Plan: 0 to add, 0 to change, 2 to destroy."`)
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.done").check(t, exitDone, "Plan: 0 to add, 0 to change, 0 to destroy. 1 job to be removed from the state.", "job.done: Removal complete", "Destroy complete!")
}

// A watch was started with variables that a plan beside it does not have: the plan shows what the watch will not do.
func TestPlanSaysThatTheWatchHasOtherVariables(t *testing.T) {
	t.Parallel()
	files := map[string]string{"main.hcl": "variable \"pause\" {\n  type    = number\n  default = 300\n}\nvariable \"token\" {\n  default   = \"secret-1\"\n  sensitive = true\n}\n" +
		strings.Replace(twoWorkers, "sleep 300", "sleep ${var.pause}", 1)}
	dir := directoryWith(t, files)
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	if !strings.Contains(files["main.hcl"], "var.pause}") {
		t.Fatalf("the command has another pause: %s", files["main.hcl"])
	}
	startWatch(t, dir, "-var=pause=301")
	eventually(t, "it runs", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "2 processes") })
	const warning = "The watch has other values of variables"
	eltrain(t, dir, "plan").check(t, exitDone, "2 to add, 0 to change, 2 to destroy", warning, "var.pause is 301 there, and 300 here")
	for _, same := range [][]string{{"plan", "-detailed-exitcode", "-var=pause=301"}, {"plan", "-destroy"}} {
		if out := eltrain(t, dir, same...).check(t, exitDone).out; strings.Contains(out, warning) {
			t.Errorf("%v:\n%s", same, out)
		}
	}
}
