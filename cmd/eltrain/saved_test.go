package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/providers/volcano"
)

// sensitiveWorkers is twoWorkers with a password.
const sensitiveWorkers = `variable "token" {
  type      = string
  sensitive = true
}
` + twoWorkers

func withToken(text string) string {
	return strings.Replace(text, "stop_grace = \"1s\"", "stop_grace = \"1s\"\n    env        = { TOKEN = var.token }", 1)
}

// in runs the binary in dir with additional environment.
func in(t *testing.T, dir string, environ []string, args ...string) outcome {
	t.Helper()
	cmd := commandIn(dir, args...)
	cmd.Env = clean(environ...)
	return run(t, cmd)
}

func TestSavedPlanIsShownAndApplied(t *testing.T) {
	t.Parallel()
	const token = "hunter2hunter2"
	dir := directoryWith(t, map[string]string{"main.hcl": withToken(sensitiveWorkers)})
	t.Cleanup(func() { in(t, dir, []string{"ELTRAIN_VAR_token=x"}, "destroy", "-auto-approve") })
	set := []string{"ELTRAIN_VAR_token=" + token}
	made := in(t, dir, set, "plan", "-out=p", "-json-into=lines").check(t, exitDone, "Plan: 2 to add", "Saved the plan to: p", `eltrain apply "p"`)
	text, _, _ := strings.Cut(made.out, "\nSaved the plan")
	if shown := eltrain(t, dir, "show", "p").check(t, exitDone); shown.out != text {
		t.Errorf("show gives\n%s\nand plan gave\n%s", shown.out, text)
	}
	var p tfjson.Plan
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").check(t, exitDone).out), &p); err != nil || len(p.ResourceChanges) != 3 {
		t.Errorf("the JSON has %d resources, %v", len(p.ResourceChanges), err)
	}
	markdown := eltrain(t, dir, "show", "-markdown", "p").check(t, exitDone, "**eltrain plan:** 2 to add", "```diff\n# job.tiny.worker[0-1]")
	if live := in(t, dir, set, "plan", "-markdown").check(t, exitDone); live.out != markdown.out {
		t.Errorf("plan -markdown gives\n%s\nand show\n%s", live.out, markdown.out)
	}
	if lines := read(t, filepath.Join(dir, "lines")); !strings.Contains(lines, `"type":"change_summary"`) || strings.Contains(lines, token) {
		t.Errorf("-json-into gives %s", lines)
	}

	// The same sensitive value must be given again; the current files do not matter.
	eltrain(t, dir, "apply", "p").check(t, exitError, "job.tiny", "ELTRAIN_VAR_x")
	in(t, dir, []string{"ELTRAIN_VAR_token=another"}, "apply", "p").check(t, exitError, "differ from those the plan was made with")
	if _, err := os.Stat(filepath.Join(dir, workspace.DefaultState)); err == nil {
		t.Fatal("a plan that was refused left a state behind")
	}
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(strings.Replace(withToken(sensitiveWorkers), "job \"tiny\" {", "job \"tiny\" {\n  priority = 5", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	in(t, dir, set, "apply", "p").check(t, exitDone, "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")

	// A plan cannot be applied twice.
	in(t, dir, set, "apply", "p").check(t, exitError, "Error: Saved plan is stale", "can no longer be applied because there was", "Nothing was changed.")
	in(t, dir, set, "plan", "-out=p3").check(t, exitDone, "Plan: 0 to add, 1 to change")
	in(t, dir, set, "apply", "-auto-approve").check(t, exitDone)
	in(t, dir, set, "apply", "p3").check(t, exitError, "Error: Saved plan is stale", "because the state was", "its serial is")

	// The state, as Terraform's JSON.
	var state tfjson.State
	if err := json.Unmarshal([]byte(in(t, dir, set, "show", "-json").check(t, exitDone).out), &state); err != nil || len(state.Values.RootModule.Resources) != 3 {
		t.Errorf("the state is %+v, %v", state, err)
	}

	// A plan to destroy can be saved too, and contains no secret of the records.
	in(t, dir, set, "plan", "-destroy", "-out=gone").check(t, exitDone, "Plan: 0 to add, 0 to change, 2 to destroy.", "its world of 2 slots")
	f, err := planfile.Read(filepath.Join(dir, "gone"), version)
	if err != nil {
		t.Fatal(err)
	}
	if env := f.Facts.Input.Records["tiny"].Spec.Roles[0].Env["TOKEN"]; env == token || env == "" {
		t.Errorf("the record in the file has the value %q", env)
	}
	eltrain(t, dir, "apply", "gone").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.")
}

// A saved plan contains its variables: another environment at apply does not change the job.
func TestASavedPlanHoldsItsVariables(t *testing.T) {
	t.Parallel()
	text := "variable \"n\" {\n  type    = number\n  default = 1\n}\n" + strings.Replace(twoWorkers, "replicas   = 2", "replicas   = var.n", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": text})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-var=n=2", "-out=p").check(t, exitDone, "Plan: 2 to add")
	in(t, dir, []string{"ELTRAIN_VAR_n=3"}, "apply", "p").check(t, exitDone, "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")
	eltrain(t, dir, "plan", "-var=n=2", "-detailed-exitcode").check(t, exitDone, "No changes.")
}

// A recreated state is another one, even if it has the serial that the plan expects.
func TestASavedPlanOfAnotherLineageIsRefused(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "plan", "-destroy", "-out=p").check(t, exitDone, "2 to destroy")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	left, err := filepath.Glob(filepath.Join(dir, workspace.DefaultState+"*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the state's files are %v, %v", left, err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	before := read(t, filepath.Join(dir, workspace.DefaultState))
	eltrain(t, dir, "apply", "p").unwrapped().check(t, exitError, "Error: Saved plan is stale", "different state lineage", "Nothing was changed.")
	if after := read(t, filepath.Join(dir, workspace.DefaultState)); after != before {
		t.Error("a plan that was refused changed the state")
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
}

func TestSavedPlanIsRefusedWhenItsObjectsMoved(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	edited := strings.Replace(twoWorkers, "echo step", "echo Step", 1)
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "Plan: 2 to add, 0 to change, 2 to destroy.")
	before := read(t, filepath.Join(dir, workspace.DefaultState))
	// An agent is killed: the state does not have that, but the object has changed.
	agent := slotsOf(t, dir)["job.tiny.worker[1]"].AgentPID
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent has ended", func() bool { return !alive(agent) })
	eltrain(t, dir, "apply", "p").check(t, exitError, "job.tiny.worker[1] was incarnation 1 on", "and is now not running", "Error: Saved plan is stale", "Nothing was changed.")
	if after := read(t, filepath.Join(dir, workspace.DefaultState)); after != before {
		t.Error("a plan that was refused changed the state")
	}
}

// A file that records an edit as already applied shows no change. It is refused: apply would start what nobody reviewed.
func TestSavedPlanWithForgedRecordsIsRefused(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	filetest.Put(t, filepath.Join(dir, "main.hcl"), strings.Replace(twoWorkers, "echo step", "echo stolen", 1))
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "Plan: 2 to add, 0 to change, 2 to destroy.")
	path := filepath.Join(dir, "p")
	f, err := planfile.Read(path, version)
	if err != nil {
		t.Fatal(err)
	}
	in := &f.Facts.Input
	rec, declared := in.Records["tiny"], &in.Jobs[0]
	rec.Spec = *declared
	for i := range rec.Slots {
		print := job.Fingerprints(declared, &declared.Roles[0])(rec.Slots[i].Address.Index)
		rec.Slots[i].Fingerprint, in.Snapshot.Incarnations[0][i].Fingerprint = print, print
	}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "show", "p").check(t, exitDone, "No changes.")
	eltrain(t, dir, "apply", "p").unwrapped().check(t, exitError, "Saved plan is stale", "job.tiny is recorded differently", "Nothing was changed.")
}

// A file that says that a new job already runs shows no change. It is refused: apply would start what nobody reviewed. What died
// since the plan is started again, as its record says.
func TestSavedPlanThatHidesAStartIsRefused(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	filetest.Put(t, filepath.Join(dir, "more.hcl"), strings.ReplaceAll(twoWorkers, "tiny", "more"))
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "Plan: 2 to add, 0 to change, 0 to destroy.")
	path := filepath.Join(dir, "p")
	f, err := planfile.Read(path, version)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(filepath.Join(dir, "honest")); err != nil {
		t.Fatal(err)
	}
	in := &f.Facts.Input
	for i := range in.Jobs {
		if j := &in.Jobs[i]; j.Name == "more" {
			j.Roles[0].Command = []string{"touch", "stolen"}
			for index := range 2 {
				in.Snapshot.Incarnations = in.Snapshot.Incarnations.With(job.Incarnation{Slot: job.Address{Job: "more", Role: j.Roles[0].Name, Index: index}, UID: f.UIDs["more"],
					Number: 1, Node: in.Snapshot.Nodes[0].Name, Provider: local.Name, State: job.Up, Fingerprint: job.Fingerprints(j, &j.Roles[0])(index), Reserved: j.Roles[0].Resources})
			}
		}
	}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "show", "p").check(t, exitDone, "No changes.")
	before := read(t, filepath.Join(dir, workspace.DefaultState))
	eltrain(t, dir, "apply", "p").unwrapped().check(t, exitError, "Saved plan is stale", "job.more.worker[0] was incarnation 1 on", "Nothing was changed.")
	if after := read(t, filepath.Join(dir, workspace.DefaultState)); after != before {
		t.Error("a plan that was refused changed the state")
	}
	if _, err := os.Stat(filepath.Join(dir, "stolen")); err == nil {
		t.Error("the hidden command ran")
	}

	agent := slotsOf(t, dir)["job.tiny.worker[1]"].AgentPID
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent has ended", func() bool { return !alive(agent) })
	healed := eltrain(t, dir, "apply", "honest").unwrapped().check(t, exitDone, "Apply complete!")
	if all := healed.out + healed.err; !strings.Contains(all, "More changes than planned") || !strings.Contains(all, "job.tiny.worker[1]") {
		t.Errorf("it says\n%s", all)
	}
}

// What apply FILE uses besides the jobs is in show FILE: where it listens, which cluster and pods.
func TestShowTellsTheSettingsOfAPlan(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	const title = "Applied with these settings"
	if o := eltrain(t, dir, "show", "p").check(t, exitDone); strings.Contains(o.out, title) {
		t.Errorf("it tells defaults:\n%s", o.out)
	}
	path := filepath.Join(dir, "p")
	f, err := planfile.Read(path, version)
	if err != nil {
		t.Fatal(err)
	}
	f.Settings.Service.Listen, f.Settings.Service.Advertise = "0.0.0.0:7999", "evil:1"
	pod := map[string]any{"spec": map[string]any{"hostPID": true, "x": strings.Repeat("x", 2000)}}
	config, err := json.Marshal(pods.Config{Kubeconfig: "/evil/config", Pod: pod, Parallelism: pods.DefaultParallelism})
	if err != nil {
		t.Fatal(err)
	}
	f.Providers = []planfile.Provider{{Name: pods.Name, Config: config}}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	service := `eltrain: service.listen = "0.0.0.0:7999", service.advertise = "evil:1"`
	cluster := `provider "kubernetes": kubeconfig = "/evil/config", pod = {"spec":{"hostPID":true,"x":"xxx`
	eltrain(t, dir, "show", "p").check(t, exitDone, title+":\n  - "+service+"\n  - "+cluster, `x"}}`)
	comment := strings.ReplaceAll(eltrain(t, dir, "show", "-markdown", "p").check(t, exitDone, "**"+title+"**", "more characters").out, "\\", "")
	var m struct{ Eltrain struct{ Settings []string } }
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").check(t, exitDone).out), &m); err != nil || len(m.Eltrain.Settings) != 2 {
		t.Errorf("the JSON has %q, %v", m.Eltrain.Settings, err)
	}
	for _, want := range []string{service, cluster} {
		if !strings.Contains(comment, want) {
			t.Errorf("the comment lacks %s:\n%s", want, comment)
		}
	}
	f.Providers = append(f.Providers, f.Providers...)
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "show", "p").check(t, exitError, `"kubernetes" has two blocks`)
}

func TestSavedPlanOfAnotherDirectoryOrDamaged(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	other := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	path := filepath.Join(dir, "p")
	eltrain(t, other, "apply", path).check(t, exitError, "another directory")
	whole := read(t, path)
	for name, text := range map[string]string{"cut": whole[:len(whole)-7], "edited": whole[:len(whole)-7] + "1234567", "plan": "not a plan\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		eltrain(t, dir, "apply", name).check(t, exitError, "cannot be used")
		eltrain(t, dir, "show", name).check(t, exitError, "cannot be used")
	}
	eltrain(t, dir, "apply", "missing").check(t, exitError, "The file missing does not exist: make a plan")
	if _, err := os.Stat(filepath.Join(dir, workspace.DefaultState)); err == nil {
		t.Error("a refused plan left a state behind")
	}
}

// Two directories with one state are two places for processes: a plan made in one is rejected in the other.
func TestSavedPlanOfAnotherDirectoryWithTheSameState(t *testing.T) {
	t.Parallel()
	shared := filepath.Join(t.TempDir(), workspace.DefaultState)
	text := fmt.Sprintf("eltrain {\n  state \"file\" {\n    path = %q\n  }\n}\n", shared) + twoWorkers
	dir := directoryWith(t, map[string]string{"main.hcl": text})
	other := directoryWith(t, map[string]string{"main.hcl": text})
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	path := filepath.Join(dir, "p")
	eltrain(t, other, "apply", path).check(t, exitError, "made for another directory", "Apply it there")
	in(t, dir, []string{"ELTRAIN_DATA_DIR=" + t.TempDir()}, "apply", path).check(t, exitError, "made for another directory")
	if _, err := os.Stat(shared); err == nil {
		t.Fatal("a refused plan left a state behind")
	}
	// By another path it is the same directory.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "-chdir="+link, "apply", "p").check(t, exitDone, "2 added")
}

// One state with two directories of run-time files: what runs with one is neither started again nor destroyed with the other.
func TestAJobRunsWithOneDirectoryOfRunTimeFiles(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	there := filepath.Join(t.TempDir(), "run")
	elsewhere := []string{"ELTRAIN_DATA_DIR=" + there}
	t.Cleanup(func() { in(t, dir, elsewhere, "destroy", "-auto-approve") })
	in(t, dir, elsewhere, "apply", "-auto-approve").check(t, exitDone, "2 added")
	for _, command := range [][]string{{"plan"}, {"status"}, {"apply", "-auto-approve"}, {"destroy", "-auto-approve"}, {"suspend", "job.tiny"}} {
		want := exitError
		if command[0] == "plan" {
			want = exitDone
		}
		out := eltrain(t, dir, command...).unwrapped()
		out.check(t, want, "It runs with its run-time files in", there)
		for _, text := range []string{"will be replaced", "is gone", "are gone"} {
			if strings.Contains(out.out+out.err, text) {
				t.Errorf("%s says %q:\n%s%s", command[0], text, out.out, out.err)
			}
		}
	}
	in(t, dir, elsewhere, "plan", "-detailed-exitcode").check(t, exitDone, "No changes")
}

// Jobs on a cluster may be planned in one directory and applied in another.
func TestAPlanForAClusterHasNoPlace(t *testing.T) {
	for provider, local := range map[string]bool{"kubernetes": false, "local": true} {
		j := job.Job{Name: "a", Provider: provider}
		for what, in := range map[string]plan.Input{"declared": {Jobs: []job.Job{j}}, "recorded": {Records: job.Records{"a": {Spec: j}}}} {
			if place, err := workspace.PlaceOf(&in); err != nil || (place != "") != local {
				t.Errorf("a job that is %s on %s has the place %q, %v", what, provider, place, err)
			}
		}
	}
}

// Provider blocks are stored in saved plans and in the journal: sensitive values are rejected in them.
func TestSensitiveValuesInProviderBlocks(t *testing.T) {
	const secret = "topsecret99"
	variable := "variable \"t\" {\n  sensitive = true\n  default   = \"" + secret + "\"\n}\n"
	for name, block := range map[string]string{
		"labels": "provider \"local\" {\n  node \"n1\" {\n    cpu    = 2\n    memory = \"1GiB\"\n    labels = { tok = var.t }\n  }\n}\n",
		"pod":    "provider \"kubernetes\" {\n  pod = { spec = { containers = [{ name = \"main\", env = [{ name = \"T\", value = var.t }] }] } }\n}\n",
	} {
		dir := directoryWith(t, map[string]string{"main.hcl": block + twoWorkers, "variables.hcl": variable})
		for _, args := range [][]string{{"validate"}, {"plan", "-out=p"}, {"apply", "-auto-approve"}} {
			o := eltrain(t, dir, args...).check(t, exitError, "Sensitive value outside of a job", `"`+name+`" in a provider block`, "main.hcl line")
			if strings.Contains(o.out+o.err, secret) {
				t.Errorf("%v shows the value:\n%s%s", args, o.out, o.err)
			}
		}
		for _, left := range []string{"p", workspace.DefaultState, ".eltrain"} {
			if _, err := os.Lstat(filepath.Join(dir, left)); err == nil {
				t.Errorf("%s: %s was written", name, left)
			}
		}
	}
}

func TestWhatGoesWithNoSavedPlan(t *testing.T) {
	for args, want := range map[string]string{
		"-var=a=1 p": "-var", "p -var-file=x": "-var", "-destroy p": "plan -destroy", "-watch p": "-watch", "-prune=false p": "-prune",
		"p q": `"q" is not expected`, "-parallelism=-1 p": "-parallelism",
	} {
		if _, err := parsed[applyArgs](&newScreenless("").session, 1, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply %s: %v, want %q", args, err, want)
		}
	}
	if a, err := parsed[applyArgs](&newScreenless("").session, 1, []string{"p"}); err != nil || a.planFile != "p" {
		t.Errorf("apply p: %+v, %v", a, err) // it does not prompt, so no terminal is needed
	}
	for args, want := range map[string]string{"-json -markdown p": "cannot be used together", "-markdown": "name its file", "-var=a=1 p": "-var", "p q": "not expected"} {
		if _, err := parsed[showArgs](&newScreenless("").session, 1, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("show %s: %v, want %q", args, err, want)
		}
	}
	if _, err := parsed[planArgs](&newScreenless("").session, 0, []string{"-json", "-markdown"}); err == nil {
		t.Error("plan takes -json and -markdown together")
	}
}

// A saved plan preserves the provider's block, which the master uses.
func TestProviderBlocksSurviveAPlanFile(t *testing.T) {
	kubernetes := pods.Config{Context: "prod", Namespace: "ml", QPS: 2.5, Parallelism: 7, Pod: map[string]any{"spec": map[string]any{"priority": 3.0}}}
	blocks := []lang.ProviderConfig{
		{Name: local.Name, Value: local.Config{Nodes: []local.Node{{Name: "n1", CPU: 1500, Memory: 3 << 20, Devices: map[string]int{"gpu": 2}, Labels: map[string]string{"rack": "r"}}}}},
		{Name: pods.Name, Value: kubernetes},
		{Name: volcano.Name, Value: volcano.Config{Config: kubernetes, Queue: "q", NetworkTopology: &volcano.NetworkTopology{Mode: "soft", HighestTier: 2}}},
	}
	f := &planfile.File{}
	for _, p := range blocks {
		text, err := json.Marshal(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		f.Providers = append(f.Providers, planfile.Provider{Name: p.Name, Config: text})
	}
	cfg, err := preview.ConfigOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg.Providers, blocks) {
		t.Errorf("got %+v\nwant %+v", cfg.Providers, blocks)
	}
}

// Errors of plan -json are JSON too, and neither output has anything else.
func TestPlanJSONTellsErrors(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": `job "x" {}`})
	o := eltrain(t, dir, "plan", "-json").check(t, exitError, `"type":"diagnostic"`, `"type":"version"`)
	if o.err != "" {
		t.Errorf("on the standard error there is %q", o.err)
	}
	for line := range strings.Lines(o.out) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	eltrain(t, dir, "plan", "-json-into=missing/lines").check(t, exitError, "Cannot write the JSON")
	both := eltrain(t, dir, "plan", "-json-into=lines").check(t, exitError, "Error: ")
	if lines := read(t, filepath.Join(dir, "lines")); !strings.Contains(lines, `"type":"diagnostic"`) || strings.Contains(both.out, "@level") {
		t.Errorf("-json-into gives %s", lines)
	}
}

// A reader may close the pipe early. Commands that change something, or whose exit code matters, continue to their end; others
// die of SIGPIPE as other tools do. None of them mentions the pipe.
func TestConsumersMayCloseThePipe(t *testing.T) {
	t.Parallel()
	const dies = -1
	files := map[string]string{
		"main.hcl": strings.Replace(twoWorkers, "{\n", "{\n  checkpoint {\n  }\n\n", 1), "outputs.hcl": "output \"n\" {\n  value = 2\n}\n", "ugly/main.hcl": "a=1\n", "empty/x": "",
	}
	dir := directoryWith(t, files)
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	lines := []struct {
		line string
		code int
	}{
		{"plan -json -out=q -detailed-exitcode", exitChanges}, {"plan -markdown -detailed-exitcode", exitChanges}, {"plan -detailed-exitcode", exitChanges},
		{"show p", dies}, {"show -json p", dies}, {"show -markdown p", dies}, {"graph -plan=p", dies},
		{"apply -auto-approve", exitError}, // a closed pipe is an interrupt
		{"", exitDone},                     // everything is applied
		{"validate", exitDone}, {"validate -json", exitDone}, {"status", exitDone}, {"why", exitDone}, {"status -json", exitDone},
		{"show", dies}, {"show -json", dies}, {"events", dies}, {"events -json", dies}, {"replay", exitDone}, {"replay -json", exitDone}, {"logs job.tiny", dies}, {"graph", dies}, {"console", dies}, {"output", dies}, {"requests", dies}, {"requests -json", dies},
		{"exec job.tiny.worker[0] -- true", exitDone}, {"stacks", dies},
		{"suspend job.tiny", exitDone}, {"resume job.tiny", exitDone}, {"cancel job.tiny", exitDone}, {"restart job.tiny", exitDone}, {"scale job.tiny.worker=2", exitError}, {"signal SIGCONT job.tiny", exitDone}, {"checkpoint job.tiny", exitError}, {"reload job.tiny", exitDone}, {"run job.tiny", exitError},
		{"nodes", exitDone}, {"nodes -json", exitDone}, {"top", exitError}, {"cordon none", exitError}, {"uncordon none", exitError}, {"drain none", exitError},
		{"providers schema -json", dies}, {"state list", dies}, {"state show job.tiny", dies}, {"state pull", dies}, {"version", dies}, {"version -json", dies},
		{"import -- torchrun train.py", dies}, {"fmt -check ugly", exitUnclean}, {"fmt ugly", exitDone}, {"-chdir=empty init", exitDone},
		{"state mv job.tiny job.small", exitDone}, {"state mv job.small job.tiny", exitDone}, {"state push pulled", exitDone},
		{"force-unlock -force no-such-lock", exitError},
		{"destroy -auto-approve", exitError}, {"state rm -dry-run job.tiny", exitDone}, {"-help", dies}, {"plan -help", dies},
	}
	tested := map[string]bool{}
	for _, c := range lines {
		if c.line == "" {
			eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
			eventually(t, "it writes", func() bool { return strings.Contains(eltrain(t, dir, "logs", "job.tiny").out, "step") })
			continue
		}
		if strings.HasPrefix(c.line, "state push") {
			filetest.Put(t, filepath.Join(dir, "pulled"), eltrain(t, dir, "state", "pull").check(t, exitDone).out)
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		cmd := commandIn(dir, strings.Fields(c.line)...)
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("1\n"), writer, &errs
		err = cmd.Run()
		writer.Close()
		ended := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if c.code == dies && (!ended.Signaled() || ended.Signal() != syscall.SIGPIPE) || c.code != dies && (ended.Signaled() || ended.ExitStatus() != c.code) {
			t.Errorf("%s with a closed pipe: %v, want code %d; %s", c.line, err, c.code, &errs)
		}
		if strings.Contains(errs.String(), "pipe") || errs.Len() > 0 && c.code != exitError {
			t.Errorf("%s says %s", c.line, &errs)
		}
		if l := readLine(strings.Fields(c.line), allCommands()); l.command != nil {
			tested[l.name] = true
		}
	}
	for _, c := range allCommands() {
		if !c.internal && c.subcommands == nil && !tested[c.name] {
			t.Errorf("%s is not tested", c.name)
		}
	}
	if _, err := planfile.Read(filepath.Join(dir, "q"), version); err != nil {
		t.Error(err)
	}
	if text := read(t, filepath.Join(dir, "ugly/main.hcl")); text != "a = 1\n" {
		t.Errorf("fmt leaves %q", text)
	}
}

// apply -json reports all that apply does, a line each, and nothing else.
func TestApplyJSON(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-json").check(t, exitError, "cannot prompt for approval")
	kinds := func(o outcome) map[string]int {
		t.Helper()
		counts := map[string]int{}
		for line := range strings.Lines(o.out) {
			var l struct {
				Type string `json:"type"`
				Hook struct {
					Resource struct{ Addr string }
				}
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if strings.HasPrefix(l.Type, "apply_") && !strings.HasPrefix(l.Hook.Resource.Addr, "job.tiny") {
				t.Errorf("a hook without its resource: %s", line)
			}
			counts[l.Type]++
		}
		if o.err != "" {
			t.Errorf("on the standard error there is %q", o.err)
		}
		return counts
	}
	got := kinds(eltrain(t, dir, "apply", "-json", "-auto-approve").check(t, exitDone))
	for kind, want := range map[string]int{"version": 1, "planned_change": 2, "change_summary": 2, "apply_start": 2, "apply_complete": 2} {
		if got[kind] != want {
			t.Errorf("%d lines of %s, want %d: %v", got[kind], kind, want, got)
		}
	}
	if got["reconcile_start"] == 0 || got["reconcile_complete"] == 0 || got["notice"] == 0 {
		t.Errorf("the lines are %v", got)
	}
	both := eltrain(t, dir, "destroy", "-auto-approve", "-json-into=lines").check(t, exitDone, "Destroy complete!")
	if lines := kinds(outcome{out: read(t, filepath.Join(dir, "lines")), err: both.err}); lines["apply_complete"] < 2 {
		t.Errorf("-json-into of destroy has %v", lines)
	}
}

// Errors about missing files name them, in plain words.
func TestMissingFilesAreNamed(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	for _, command := range [][]string{{"show", "nix"}, {"apply", "nix"}} {
		eltrain(t, dir, command...).unwrapped().check(t, exitError, "he file nix does not exist: make a plan with eltrain plan -out=nix")
	}
	eltrain(t, dir, "plan", "-out=no/where/p").unwrapped().check(t, exitError, "the directory no/where does not exist")
	eltrain(t, dir, "fmt", "nix").check(t, exitError, "The file or directory nix does not exist.")
	o := eltrain(t, dir, "plan", "-var-file=nix").check(t, exitError, "The file or directory nix does not exist.")
	if strings.Contains(o.err, "line 1") || strings.Contains(o.err, "stat ") {
		t.Errorf("of a file that is not there it says\n%s", o.err)
	}
}
