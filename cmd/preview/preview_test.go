package preview

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

const files = `job "a" {
  lifecycle {
    prevent_destroy = true
  }
  role "worker" {
    command  = ["true"]
    replicas = 3
  }
  role "ps" {
    command  = ["true"]
    replicas = role.worker.replicas
  }
}
job "b" {
  role "worker" {
    command = ["true"]
  }
}
variable "token" {
  type      = string
  default   = "t"
  sensitive = true
}
output "answer" {
  value = 42
}
`

// opened is the workspace of a job directory with these files, which is the working directory then.
func opened(t *testing.T, text string) *workspace.Workspace {
	t.Helper()
	t.Chdir(t.TempDir())
	filetest.Put(t, "main.hcl", text)
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	d := workspace.Directory{Path: dir, Log: slog.New(slog.DiscardHandler), Secret: func(...string) {}}
	cfg, diags := d.Load(nil)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	w, errs := d.Open(cfg)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	t.Cleanup(w.Close)
	w.Store = memory.New()
	return w
}

func selectors(t *testing.T, addresses ...string) (out []job.Selector) {
	t.Helper()
	for _, a := range addresses {
		sel, err := job.ParseTarget(a)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sel)
	}
	return out
}

// What a plan is made from depends on the files, on the options, and on a saved plan, which has precedence.
func TestSetup(t *testing.T) {
	w := opened(t, files)
	w.Prior = state.Values{Outputs: map[string]state.Value{"prior": {}}}
	intend := func(change func(*Intent)) apply.Setup {
		var a Intent
		change(&a)
		return a.Setup(w, state.State{})
	}
	names := func(s apply.Setup) (out []string) {
		for i := range s.Files.Jobs {
			out = append(out, s.Files.Jobs[i].Name)
		}
		return out
	}

	all := intend(func(a *Intent) { a.Watch, a.Keep = true, true })
	if !slices.Equal(names(all), []string{"a", "b"}) || !all.Watch || !all.Keep || all.Prevent != nil || all.Scope.References != nil || len(all.Files.Values.Outputs["answer"].Value) == 0 {
		t.Errorf("of all it is %+v", all)
	}
	one := intend(func(a *Intent) { a.Scope.Targets = selectors(t, "job.a.ps") })
	if refs := one.Scope.References["job.a.ps"]; !slices.Equal(refs, []string{"worker"}) {
		t.Errorf("the references of a target are %v", one.Scope.References)
	}
	gone := intend(func(a *Intent) { a.Destroy = true })
	if names(gone) != nil || !gone.Prevent["a"] || gone.Prevent["b"] || gone.Files.Values.Outputs != nil {
		t.Errorf("of a destroy it is %+v", gone)
	}
	part := intend(func(a *Intent) { a.Destroy, a.Scope.Targets = true, selectors(t, "job.a") })
	if _, is := part.Files.Values.Outputs["prior"]; !is || part.Scope.References != nil {
		t.Errorf("of a destroy of one job it is %+v", part)
	}
	saved := &view.PlanFacts{Values: state.Values{Outputs: map[string]state.Value{"saved": {}}}}
	saved.Input.Scope = plan.Scope{Targets: selectors(t, "job.b")}
	saved.Input.Prevent = map[string]bool{"x": true}
	approved := intend(func(a *Intent) { a.Saved, a.UIDs = saved, map[string]string{"new": "u"} })
	if _, is := approved.Files.Values.Outputs["saved"]; !is || len(approved.Scope.Targets) != 1 || !approved.Prevent["x"] || approved.NewUID("new") != "u" || approved.NewUID("other") == "u" {
		t.Errorf("of a saved plan it is %+v", approved)
	}
}

// An address that names nothing is an error with those that there are; slots that are not there are only told.
func TestAddresses(t *testing.T) {
	w := opened(t, files)
	in := plan.Input{Jobs: w.Config.Jobs}
	for address, want := range map[string]string{
		"job.a": "", "job.a.worker": "", "job.a.worker[0-7]": "",
		"job.aa":          `Did you mean "job.a"?`,
		"job.a.wroker":    `Did you mean "worker"? Of job.a there are: ps[0-2], worker[0-2].`,
		"job.a.worker[7]": "Of job.a there are: ps[0-2], worker[0-2].",
	} {
		for _, destroy := range []bool{false, true} {
			a := Intent{Intent: apply.Intent{Destroy: destroy, Scope: plan.Scope{Targets: selectors(t, address)}}}
			if err := a.CheckAddresses(in, w.Config); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, destroy %t: %v", address, destroy, err)
			}
		}
	}
	a := Intent{Intent: apply.Intent{Scope: plan.Scope{Targets: selectors(t, "job.a.worker[0-3,7]")}, Replace: selectors(t, "job.b.worker[0-1]")}}
	var told []string
	for _, d := range append(a.Cautions(in), a.Incomplete()...) {
		told = append(told, d.Summary)
		if d.Summary == "No such slots" && !strings.Contains(d.Detail, "job.a.worker[3,7], job.b.worker[0-1]: these slots do not exist") {
			t.Errorf("it names %s", d.Detail)
		}
	}
	if !slices.Equal(told, []string{"No such slots", "Resource targeting is in effect", "Applied changes may be incomplete"}) {
		t.Errorf("it tells %q", told)
	}
	if told := append(new(Intent).Cautions(in), new(Intent).Incomplete()...); told != nil {
		t.Errorf("of a plan without a scope it tells %v", told)
	}
}

// A plan is recorded without what is sensitive, and is for this directory and its state alone.
func TestSavedPlans(t *testing.T) {
	w := opened(t, files)
	facts := view.PlanFacts{Input: plan.Input{Jobs: w.Config.Jobs, Destroy: true, Scope: plan.Scope{Targets: selectors(t, "job.b")}}}
	vars := []lang.Assignment{{Name: "token", Value: "secret"}, {Name: "n", Value: "1"}, {File: "token"}}
	f, err := File(w, state.State{Lineage: "l", Serial: 3}, facts, vars, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Assignments, vars[1:]) || f.Lineage != "l" || f.Serial != 3 || f.Eltrain != "0.1.0" {
		t.Errorf("it is saved as %+v", f)
	}
	a, cfg, err := Intended(f)
	if err != nil || !a.Destroy || a.Rerun || a.Saved != &f.Facts || len(a.Scope.Targets) != 1 || len(cfg.Jobs) != 2 {
		t.Errorf("it intends %+v with %+v, %v", a, cfg, err)
	}
	shared := *f
	shared.Settings.State.Path = "/shared/eltrain.state"
	if shared.Home, err = workspace.HomeOf(shared.Settings.State); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		f    *planfile.File
		want string
	}{"another state": {f, "its state is at"}, "the same state": {&shared, "its jobs run in"}} {
		if _, _, err := Intended(c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("in another directory with %s: %v", name, err)
		}
	}
}

func TestSameDrift(t *testing.T) {
	observed := func(nodes ...string) *plan.Input {
		in := &plan.Input{Records: job.Records{"a": {UID: "u", Spec: job.Job{Name: "a", Roles: []job.Role{{Name: "w"}}}}}}
		for i, node := range nodes {
			at := job.Address{Job: "a", Role: "w", Index: i}
			in.Records["a"].Slots = append(in.Records["a"].Slots, job.Slot{Address: at, Incarnation: 1, Phase: job.Running, Node: "n"})
			if node != "" {
				in.Snapshot.Incarnations = in.Snapshot.Incarnations.With(job.Incarnation{UID: "u", Slot: at, Number: 1, Node: node})
			}
		}
		return in
	}
	if err := SameDrift(observed("n", ""), observed("n", "")); err != nil {
		t.Errorf("the same drift: %v", err)
	}
	var stale *planfile.StaleError
	if err := SameDrift(observed("n", ""), observed("", "")); !errors.As(err, &stale) || !slices.Equal(stale.Why, []string{"job.a.w[0]"}) {
		t.Errorf("another drift: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	cfg := &lang.Config{Files: map[string]*hcl.File{}, Removed: []lang.Removed{{Job: "old", Address: "job.old"}}}
	facts := &view.PlanFacts{
		Input: plan.Input{Records: job.Records{"gone": {Spec: job.Job{Name: "gone", Address: "job.gone"}}}},
		Plan:  plan.Plan{Changes: []plan.Change{{Action: plan.Delete, Job: "gone"}}},
	}
	if told := Misnamed(cfg, facts); len(told) != 1 || !strings.Contains(told[0].Detail, "job.gone") {
		t.Errorf("of a removed block that keeps nothing: %v", told)
	}
	facts.Plan.Changes = append(facts.Plan.Changes, plan.Change{Action: plan.Forget, Job: "old"})
	if told := Misnamed(cfg, facts); told != nil {
		t.Errorf("of one that keeps what runs without a record: %v", told)
	}
	if told := Forgetting(&facts.Plan); len(told) != 1 || !strings.Contains(told[0].Detail, "\n - job.old\n") || strings.Contains(told[0].Detail, "job.gone") {
		t.Errorf("of what is forgotten: %v", told)
	}
}

func TestJobsThatWouldLoseTheirTraining(t *testing.T) {
	changes := func(action plan.Action, jobs ...string) (all []plan.Change) {
		for _, name := range jobs {
			all = append(all, plan.Change{Action: action, Job: name, Slot: job.Address{Job: name, Role: "w"}})
		}
		return all
	}
	record := func(ranked bool, c *job.Checkpoint) *job.Record {
		return &job.Record{Spec: job.Job{Checkpoint: c, Roles: []job.Role{{Name: "w", Ranked: ranked}}}}
	}
	p := plan.Plan{Records: job.Records{
		"a": record(true, nil), "b": record(true, nil), "saves": record(true, &job.Checkpoint{Dir: "d"}), "says": record(true, &job.Checkpoint{}), "ps": record(false, nil),
	}}
	p.Changes = slices.Concat(changes(plan.Create, "a", "a", "saves", "says", "ps"), changes(plan.Replace, "b"))
	if told := Unsaved(&p); len(told) != 1 || !strings.HasPrefix(told[0].Detail, "job.a, job.b: ") {
		t.Errorf("it warns %+v", told)
	}
	p.Changes = slices.Concat(changes(plan.Delete, "a"), changes(plan.NoOp, "b"), changes(plan.Update, "a"))
	if told := Unsaved(&p); told != nil {
		t.Errorf("of what starts nothing it warns %+v", told)
	}
}

// Only a watch follows files of its own, with variables of its own.
func TestOtherValues(t *testing.T) {
	w := opened(t, "variable \"n\" {\n  default = 1\n}\n")
	w.Prior = state.Values{Variables: map[string]state.Value{"n": {Value: []byte("2"), Type: []byte(`"number"`)}}}
	for operation, want := range map[string]bool{view.WatchOperation: true, "apply": false} {
		lock, err := w.Store.Lock(t.Context(), state.LockInfo{Operation: operation, Who: "ada@lovelace"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		told := OtherValues(t.Context(), w)
		if (len(told) == 1) != want || want && !strings.Contains(told[0].Detail, "var.n is 2 there, and 1 here") {
			t.Errorf("beside %s: %v", operation, told)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Without an observation, slots are taken to run as the state says.
func TestRecorded(t *testing.T) {
	w := opened(t, files)
	facts, base, seen, err := Recorded(t.Context(), w, new(Intent))
	if err != nil || seen != nil || base.Serial != 0 || !facts.Unseen || len(facts.Input.Jobs) != 2 {
		t.Errorf("%v: of %+v it plans %+v", err, base, facts.Input)
	}
	if told := Unasked(seen); !strings.Contains(told.Detail, "No observation of the nodes is recorded here") {
		t.Errorf("it tells %v", told)
	}
}

func TestADestroyThatGaveUpNamesWhatIsLeft(t *testing.T) {
	slot := job.Address{Job: "gpt", Role: "worker", Index: 3}
	changes := []plan.Change{{Action: plan.Delete, Job: "gpt", Slot: slot}, {Action: plan.Delete, Job: "gpt"}}
	for n, want := range map[int]string{1: "job.gpt.worker[3] could not be destroyed", 2: "job.gpt.worker[3] and 1 more could not be destroyed"} {
		if err := Left(plan.Plan{Changes: changes[:n]}); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d changes are left: %v", n, err)
		}
	}
	if err := Left(plan.Plan{Changes: changes[1:]}); !strings.HasPrefix(err.Error(), "job.gpt could not be destroyed") {
		t.Errorf("a job is left: %v", err)
	}
}
