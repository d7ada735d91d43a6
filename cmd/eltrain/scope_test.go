package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// twoJobs is a job with two workers and one with one worker, on a declared node.
const twoJobs = `provider "local" {
  node "n1" {
    cpu    = 1
    memory = "1GiB"
  }
}
` + twoWorkers + `
job "other" {
  role "worker" {
    command    = ["sh", "-c", "exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// slotStatus is a slot in status -json.
type slotStatus struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	AgentPID    int    `json:"agent_pid"`
}

// slotsOf returns the slots of all jobs by address.
func slotsOf(t *testing.T, dir string) map[string]slotStatus {
	t.Helper()
	var status struct {
		Jobs []struct{ Slots []slotStatus }
	}
	if err := json.Unmarshal([]byte(eltrain(t, dir, "status", "-json").out), &status); err != nil {
		t.Fatal(err)
	}
	slots := map[string]slotStatus{}
	for _, j := range status.Jobs {
		for _, s := range j.Slots {
			slots[s.Address] = s
		}
	}
	return slots
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// killAgent kills a slot's agent, and waits until the provider observes that.
func killAgent(t *testing.T, dir string, s slotStatus) {
	t.Helper()
	if err := syscall.Kill(s.AgentPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(hang.Bound); ; time.Sleep(50 * time.Millisecond) {
		o := eltrain(t, dir, "plan")
		if strings.Contains(o.out, "its agent ended") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the end of %s is not seen:\n%s", s.Address, o.out)
		}
	}
}

func TestTargetOneOfTwoJobs(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	o := eltrain(t, dir, "apply", "-auto-approve", "-target=job.other").check(t, exitDone,
		"Warning: Resource targeting is in effect", "Warning: Applied changes may be incomplete", "Plan: 1 to add, 0 to change, 0 to destroy.", "Apply complete!")
	if strings.Contains(o.out, "job.tiny") {
		t.Errorf("the plan for one job speaks of the other:\n%s", o.out)
	}
	if slots := slotsOf(t, dir); len(slots) != 1 || slots["job.other.worker[0]"].Phase != "Running" {
		t.Errorf("what runs is %+v", slots)
	}
	eltrain(t, dir, "apply", "-auto-approve", "-exclude=job.other").check(t, exitDone, "Plan: 2 to add", "with the -exclude option")

	// An address that names nothing.
	eltrain(t, dir, "plan", "-target=job.othr").check(t, exitError, "job.othr matches nothing", `"job.other"?`)
	eltrain(t, dir, "plan", "-exclude=job.other.wroker").unwrapped().check(t, exitError, `Did you mean "worker"? Of job.other there are: worker[0].`)
	eltrain(t, dir, "plan", "-replace=job.other.worker[7]").check(t, exitError, "matches nothing")

	// Part of a gang is not started, stopped or edited alone; the plan says so in every format, and an apply is not complete.
	writeFile(t, filepath.Join(dir, "main.hcl"), strings.Replace(twoJobs, "echo step", "echo Step", 1))
	eltrain(t, dir, "plan", "-target=job.tiny.worker[1]").check(t, exitDone, "Held back:", "Target job.tiny.worker", "No changes")
	eltrain(t, dir, "plan", "-markdown", "-target=job.tiny.worker[1]").check(t, exitDone, "**Held back**", "-target=job.tiny.worker")
	eltrain(t, dir, "plan", "-json", "-target=job.tiny.worker[1]").check(t, exitDone, `"held":true`, `"summary":"Resource targeting is in effect"`)
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.tiny.worker[1]").check(t, exitError, "job.tiny was only partly changed")
	eltrain(t, dir, "plan", "-destroy", "-target=job.tiny.worker[0]").check(t, exitDone, "A job can only be stopped as a whole", "No changes for now. Not everything can be destroyed")
	if o := eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny.worker[0]").check(t, exitError,
		"Destroy ended, but not everything is gone", "job.tiny was only partly changed"); strings.Contains(o.out, "Destroy complete!") {
		t.Errorf("a destroy that is held back is complete:\n%s", o.out)
	}

	// Destroy one job; the other keeps running. A saved plan keeps to its targets.
	before := slotsOf(t, dir)["job.other.worker[0]"]
	eltrain(t, dir, "plan", "-destroy", "-target=job.tiny", "-out=p").check(t, exitDone, "Plan: 0 to add, 0 to change, 2 to destroy.")
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.", "Applied changes may be incomplete")
	if slots := slotsOf(t, dir); len(slots) != 1 || slots["job.other.worker[0]"] != before {
		t.Errorf("what runs is %+v, and other was %+v", slots, before)
	}
}

// Outputs belong to the whole directory: a destroy of one job keeps them, a destroy of all removes them. In JSON the operation is
// always "plan", and a plan with -target is not complete.
func TestADestroyOfOneJobLeavesTheOutputs(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs + "output \"answer\" {\n  value = 42\n}\n"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "answer = 42")
	for _, limit := range []string{"-target=job.tiny", "-exclude=job.other"} {
		if o := eltrain(t, dir, "plan", "-destroy", limit).check(t, exitDone, "2 to "); strings.Contains(o.out, "answer") {
			t.Errorf("%s takes the outputs:\n%s", limit, o.out)
		}
	}
	eltrain(t, dir, "plan", "-destroy", "-target=job.tiny", "-json").check(t, exitDone, `"operation":"plan"`)
	eltrain(t, dir, "plan", "-destroy", "-target=job.tiny", "-out=p").check(t, exitDone)
	eltrain(t, dir, "show", "-json", "p").check(t, exitDone, `"complete": false`)
	o := eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny", "-json").check(t, exitDone)
	plan, end := strings.Index(o.out, `"operation":"plan"`), strings.Index(o.out, `"operation":"destroy"`)
	if plan < 0 || end < plan {
		t.Errorf("the summaries are not those of a plan and then of a destroy:\n%s", o.out)
	}
	eltrain(t, dir, "show", "-json").check(t, exitDone, `"answer"`)
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.other").check(t, exitDone)
	eltrain(t, dir, "plan", "-destroy").check(t, exitDone, "- answer = 42 -> null")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	if o := eltrain(t, dir, "show", "-json"); strings.Contains(o.out, "answer") {
		t.Errorf("a destroy of all leaves the outputs:\n%s", o.out)
	}
	eltrain(t, dir, "plan", "-destroy").check(t, exitDone, "No changes. No objects need to be destroyed.")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "No changes. No objects need to be destroyed.")
}

// What -max-destroy holds back is explained once, in the plan.
func TestMaxDestroyExplainsItselfOnce(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.Split(twoJobs, "job \"other\"")[0])
	o := eltrain(t, dir, "apply", "-auto-approve", "-max-destroy=0").check(t, exitError,
		"job.other is Degraded", "-max-destroy=0 holds it back, as the plan above shows.",
		"Held back:", "No changes. Not everything in the configuration is running: see what is held back.")
	if strings.Contains(o.out, "Waiting:") || strings.Contains(o.out, "for now") {
		t.Errorf("what is held back waits:\n%s", o.out)
	}
	if n := strings.Count(o.out, "it keeps running as last applied"); n != 1 {
		t.Errorf("the explanation is there %d times:\n%s", n, o.out)
	}
}

func TestAnAddressOfNothingNamesThoseThatThereAre(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	eltrain(t, dir, "plan", "-target=job.nope").unwrapped().check(t, exitError, "job.nope matches nothing that is declared or recorded. There are: job.other, job.tiny.")
	eltrain(t, dir, "plan", "-target=job.tinny.worker").unwrapped().check(t, exitError, "job.tinny.worker matches nothing that is declared or recorded. Did you mean \"job.tiny\"? There are: job.other, job.tiny.")
	eltrain(t, dir, "plan", "-replace=job.tiny.ps").unwrapped().check(t, exitError, "recorded. Of job.tiny there are: worker[0-1].")
	eltrain(t, dir, "plan", "-target=job.tiny.worker[7]").unwrapped().check(t, exitError, "recorded. Of job.tiny there are: worker[0-1].")
}

// A destroy of nothing creates nothing, not even the files of a lock.
func TestDestroyOfNothingLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "No objects need to be destroyed.", "Destroy complete! Resources: 0 destroyed.")
	eltrain(t, dir, "destroy", "-auto-approve", "-json").check(t, exitDone, `"type":"change_summary"`)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// A destroy waits for another run that has not written a state yet, or fails: that run is about to start something.
func TestDestroyIsNotCompleteWhileAnotherIsAtWork(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	resign := leader(t, dir)
	o := eltrain(t, dir, "destroy", "-auto-approve").check(t, exitError, "Cannot ask the watch", "lovelace", "has only just begun")
	if strings.Contains(o.out, "complete") {
		t.Errorf("it says\n%s", o.out)
	}
	resign()
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete!")
}

// A destroy fails if it cannot observe what runs. It does not try again under the lock, which would leave files.
func TestDestroyOfWhatCannotBeSeenLooksOnce(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "nobody may", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	dir := directoryWith(t, map[string]string{
		"main.hcl": "provider \"kubernetes\" {\n  kubeconfig = \"kubeconfig\"\n  image = \"train:1\"\n}\n",
		"kubeconfig": "apiVersion: v1\nkind: Config\ncurrent-context: near\nclusters: [{name: a, cluster: {server: \"" + server.URL +
			"\"}}]\ncontexts: [{name: near, context: {cluster: a, namespace: ml}}]\n",
	})
	o := eltrain(t, dir, "destroy", "-auto-approve").check(t, exitError, "Planning failed", "nobody may")
	if strings.Count(o.err, "Error:") != 1 {
		t.Errorf("it says\n%s", o.err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// A destroy also stops what runs without a state.
func TestDestroyWithoutAStateStopsWhatRuns(t *testing.T) {
	t.Parallel()
	dir, pids := started(t, sleeper("a", ""))
	if err := os.Remove(filepath.Join(dir, workspace.DefaultState)); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete!")
	for _, pid := range pids {
		eventually(t, "the agent has ended", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

func TestReplaceRestartsExactlyThatSlot(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	before := slotsOf(t, dir)
	eltrain(t, dir, "plan", "-json", "-replace=job.tiny.worker[1]").check(t, exitDone, `"reason":"requested"`)
	eltrain(t, dir, "apply", "-auto-approve", "-detailed-exitcode", "-replace=job.tiny.worker[1]").check(t, exitChanges,
		"job.tiny.worker[1] will be replaced", "(replacement was requested)", "Plan: 1 to add, 0 to change, 1 to destroy.", "Apply complete!")
	after := slotsOf(t, dir)
	if after["job.tiny.worker[0]"] != before["job.tiny.worker[0]"] {
		t.Errorf("the other slot was %+v and is %+v", before["job.tiny.worker[0]"], after["job.tiny.worker[0]"])
	}
	if s := after["job.tiny.worker[1]"]; s.Incarnation != 2 || s.Phase != "Running" {
		t.Errorf("the slot is %+v", s)
	}
	// A replacement is made once, and a saved plan has it too.
	eltrain(t, dir, "apply", "-auto-approve", "-detailed-exitcode").check(t, exitDone, "No changes")
	eltrain(t, dir, "plan", "-replace=job.tiny.worker[0]", "-out=p").check(t, exitDone, "job.tiny.worker[0] will be replaced")
	eltrain(t, dir, "apply", "p").check(t, exitDone)
	if s := slotsOf(t, dir); s["job.tiny.worker[0]"].Incarnation != 2 || s["job.tiny.worker[1]"].Incarnation != 2 {
		t.Errorf("the slots are %+v", s)
	}
}

func TestRefreshOnlyAfterAKill(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "plan", "-refresh-only", "-detailed-exitcode").check(t, exitDone, "No changes. What is running still matches the state")
	before := slotsOf(t, dir)
	killAgent(t, dir, before["job.tiny.worker[1]"])
	eltrain(t, dir, "plan", "-refresh-only", "-detailed-exitcode").check(t, exitChanges, "Note: Objects have changed outside of eltrain",
		"job.tiny.worker[1] has been deleted", "This is a refresh-only plan")
	eltrain(t, dir, "plan", "-refresh-only", "-json").check(t, exitDone, `job.tiny.worker[1]: Drift detected (delete)`, `"type":"resource_drift"`)
	eltrain(t, dir, "plan", "-refresh-only", "-markdown").check(t, exitDone, "- role \"worker\"", "has been deleted")
	eltrain(t, dir, "plan", "-refresh-only", "-target=job.tiny.worker[0]").check(t, exitDone, "No changes")
	eltrain(t, dir, "plan", "-refresh-only", "-out=p").check(t, exitDone)
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Apply complete! Resources: 0 added, 0 changed, 0 destroyed.")

	// The state records it, and nothing else changed: the slot was not healed, and the other slot is as it was.
	if state := read(t, filepath.Join(dir, workspace.DefaultState)); !strings.Contains(state, `"Failing"`) {
		t.Errorf("the state does not say what was seen: %s", state)
	}
	after := slotsOf(t, dir)
	if after["job.tiny.worker[0]"].AgentPID != before["job.tiny.worker[0]"].AgentPID || after["job.tiny.worker[1]"].Incarnation != 1 {
		t.Errorf("what runs was %+v and is %+v", before, after)
	}
	eltrain(t, dir, "apply", "-refresh-only", "-auto-approve").check(t, exitDone, "No changes", "0 added, 0 changed")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "its agent ended", "Apply complete!")
	if s := slotsOf(t, dir)["job.tiny.worker[1]"]; s.Incarnation != 2 || s.Phase != "Running" {
		t.Errorf("the slot is %+v", s)
	}
	var events int
	for line := range strings.Lines(eltrain(t, dir, "events", "-json").out) {
		if strings.Contains(line, `"agent_gone`) {
			events++
		}
	}
	if events == 0 {
		t.Error("the events do not tell of the fault")
	}
}

// A plan from an observation is byte for byte the plan of that time, wherever it is made: without the state, and without the
// provider.
func TestObservedEqualsLive(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.tiny").check(t, exitDone)
	edited := strings.Replace(twoJobs, "echo step", "echo Step", 1)
	writeFile(t, filepath.Join(dir, "main.hcl"), edited)
	live := eltrain(t, dir, "plan", "-out=live").check(t, exitDone, "Plan: 3 to add, 0 to change, 2 to destroy.")
	elsewhere := directoryWith(t, map[string]string{"main.hcl": edited})
	file := filepath.Join(dir, "live")
	offline := eltrain(t, elsewhere, "plan", "-observed="+file, "-out=live").check(t, exitDone)
	if offline.out != live.out || offline.err != live.err {
		t.Errorf("live:\n%s%s\nobserved:\n%s%s", live.out, live.err, offline.out, offline.err)
	}
	for _, face := range []string{"-json", "-markdown", "-no-color"} {
		a := eltrain(t, dir, "show", face, "live").check(t, exitDone).out
		if b := eltrain(t, elsewhere, "show", face, "live").check(t, exitDone).out; a != b {
			t.Errorf("show %s of the live plan:\n%s\nand of the observed one:\n%s", face, a, b)
		}
	}
	if a, b := eltrain(t, dir, "show", "-markdown", "live"), eltrain(t, elsewhere, "plan", "-markdown", "-observed="+file); a.out != b.out {
		t.Errorf("live:\n%s\nobserved:\n%s", a.out, b.out)
	}
	for _, name := range []string{workspace.DefaultState, filepath.Join(workspace.RunDirectory, "nodes")} {
		if _, err := os.Stat(filepath.Join(elsewhere, name)); err == nil {
			t.Errorf("a plan from what was observed left %s behind", name)
		}
	}
	// Other files with the same observation.
	writeFile(t, filepath.Join(elsewhere, "main.hcl"), strings.Replace(edited, "replicas   = 2", "replicas   = 3", 1))
	eltrain(t, elsewhere, "plan", "-observed="+file).check(t, exitDone, "Plan: 4 to add, 1 to change, 2 to destroy.")
	eltrain(t, elsewhere, "plan", "-observed=main.hcl").check(t, exitError, "not a saved plan")

	// It is carried out if the observation still holds, and rejected otherwise.
	eltrain(t, dir, "apply", "-auto-approve", "-observed=live").check(t, exitDone, "Resources: 3 added, 0 changed, 2 destroyed.")
	eltrain(t, dir, "apply", "-auto-approve", "-observed=live").check(t, exitError, "Error: The plan is stale", "state was changed by another operation")
}

func TestRefreshFalseAsksNoProvider(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-refresh=false").check(t, exitDone, "The providers were not asked", "of the nodes is recorded", "no node")
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.tiny").check(t, exitDone)
	var o apply.Observation
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, workspace.RunDirectory, "observation.json"))), &o); err != nil || len(o.Nodes) != 1 || o.Nodes[0].Name != "n1" {
		t.Errorf("the recorded observation is %+v, %v", o, err)
	}
	before := slotsOf(t, dir)
	killAgent(t, dir, before["job.tiny.worker[1]"])
	// With -refresh=false the plan does not see that, and still knows where job other fits.
	eltrain(t, dir, "plan").check(t, exitDone, "Plan: 2 to add, 0 to change, 1 to destroy.")
	eltrain(t, dir, "plan", "-refresh=false").check(t, exitDone, "be as observed at", "Plan: 1 to add, 0 to change, 0 to destroy.", "n1")
	short := eltrain(t, dir, "plan", "-refresh=false", "-compact-warnings").check(t, exitDone, "Warnings:\n\n- The providers were not asked\n", "run eltrain without -compact-warnings")
	if strings.Contains(short.err, "assumed to run") {
		t.Errorf("-compact-warnings shows\n%s", short.err)
	}
	// Not even an unusable provider is an error, since it is not asked. A file in place of a directory makes it unusable for root
	// too.
	runs := filepath.Join(dir, workspace.RunDirectory, "jobs")
	if err := os.Rename(runs, runs+".away"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, runs, "")
	eltrain(t, dir, "plan").unwrapped().check(t, exitError, "not a directory")
	eltrain(t, dir, "plan", "-refresh=false").check(t, exitDone, "Plan: 1 to add")
	if err := errors.Join(os.Remove(runs), os.Rename(runs+".away", runs)); err != nil {
		t.Fatal(err)
	}
	// Without the recorded observation, slots are still assumed to run as the state says.
	if err := os.Remove(filepath.Join(dir, workspace.RunDirectory, "observation.json")); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "plan", "-refresh=false", "-target=job.tiny").check(t, exitDone, "No changes")
	// An apply checks it against what really runs.
	eltrain(t, dir, "apply", "-auto-approve", "-refresh=false", "-replace=job.tiny.worker[1]").check(t, exitError, "Error: The plan is stale", "and is now not running")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "apply", "-auto-approve", "-refresh=false", "-replace=job.tiny.worker[1]").check(t, exitDone, "1 added")
}

func TestScopeOptions(t *testing.T) {
	screen := func() *session { return &newScreenless("").session }
	for args, want := range map[string]string{
		"-target=job.a -exclude=job.b": "-target and -exclude",
		"-target=a":                    `"a" is not an address`,
		"-refresh-only -destroy":       "-refresh-only cannot be used with -destroy",
		"-refresh-only -replace=job.a": "-refresh-only cannot be used with -replace",
		"-refresh-only -refresh=false": "-refresh-only and -refresh=false",
		"-destroy -replace=job.a":      "-destroy and -replace",
		"-observed=f -refresh=false":   "-observed and -refresh=false",
	} {
		if _, err := parsed[planArgs](screen(), 0, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("plan %s: %v, want %q", args, err, want)
		}
		if _, err := parsed[applyArgs](screen(), 1, strings.Fields("-auto-approve "+args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply %s: %v, want %q", args, err, want)
		}
	}
	for _, args := range []string{"-target=job.a", "-exclude=job.a", "-replace=job.a.w[0-3,7]", "-refresh-only", "-refresh=false", "-observed=f"} {
		option, _, _ := strings.Cut(args, "=")
		if _, err := parsed[applyArgs](screen(), 1, []string{args, "p"}); err == nil || !strings.Contains(err.Error(), option+" cannot be used with a saved plan") && !strings.Contains(err.Error(), args+" cannot be used with a saved plan") {
			t.Errorf("apply %s p: %v", args, err)
		}
		if _, err := parsed[applyArgs](screen(), 1, []string{"-auto-approve", "-watch", args}); err == nil || !strings.Contains(err.Error(), option) || !strings.Contains(err.Error(), "cannot be used with -watch") {
			t.Errorf("apply -watch %s: %v", args, err)
		}
	}
	a, err := parsed[planArgs](screen(), 0, strings.Fields("-target=job.a -target=job.b.w[*] -target job.c.w[0-3,7]"))
	if err != nil || len(a.Scope.Targets) != 3 || !a.Scope.Targets[2].Matches(job.Address{Job: "c", Role: "w", Index: 7}) {
		t.Errorf("the targets are %v, %v", a.Scope.Targets, err)
	}
	if _, err := parsed[applyArgs](screen(), 1, []string{"-auto-approve", "-watch", "-detailed-exitcode"}); err == nil {
		t.Error("apply -watch takes -detailed-exitcode")
	}
}

// As in Terraform, a module's address means all of its jobs, and an address without a key means all keys of for_each, of declared
// jobs and of those that only the records have.
func TestTargetsOfModulesAndOfAllKeys(t *testing.T) {
	t.Parallel()
	const modules = `module "x" {
  source   = "./m"
  for_each = toset(["a", "b"])
}
`
	const repeated = `job "k" {
  for_each = toset(["p", "q"])
  role "worker" {
    command    = ["sleep", "300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`
	inner := strings.Replace(strings.Replace(repeated, `"k"`, `"in"`, 1), "  for_each = toset([\"p\", \"q\"])\n", "", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": modules + repeated, "m/main.hcl": inner})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	planned := func(options ...string) string {
		t.Helper()
		o := eltrain(t, dir, append([]string{"plan", "-out=p"}, options...)...).check(t, exitDone)
		var p tfjson.Plan
		if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").check(t, exitDone).out), &p); err != nil {
			t.Fatalf("%v\n%s", err, o.out)
		}
		var changed []string
		for _, rc := range p.ResourceChanges {
			if rc.Type == "eltrain_slot" && !rc.Change.Actions.NoOp() {
				changed = append(changed, strings.TrimSuffix(strings.TrimPrefix(rc.Address, "job."), ".worker[0]"))
			}
		}
		return strings.Join(changed, " ")
	}
	for option, want := range map[string]string{
		"-target=module.x":              "x-a-in x-b-in",
		`-target=module.x["a"]`:         "x-a-in",
		"-target=module.x.job.in":       "x-a-in x-b-in",
		"-target=job.k":                 "k-p k-q",
		"-target=job.k.worker[0]":       "k-p k-q",
		`-target=job.k["q"]`:            "k-q",
		"-exclude=module.x":             "k-p k-q",
		"-exclude=job.k":                "x-a-in x-b-in",
		`-exclude=module.x["b"].job.in`: "k-p k-q x-a-in",
	} {
		if got := planned(option); got != want {
			t.Errorf("%s plans %s", option, got)
		}
	}
	eltrain(t, dir, "plan", "-target=module.y").check(t, exitError, "module.y matches nothing")
	eltrain(t, dir, "plan", `-target=module.x["c"]`).check(t, exitError, `"module.x[\"a\"]"?`)

	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "4 added")
	if got := planned("-replace=module.x"); got != "x-a-in x-b-in" {
		t.Errorf("replaced is %s", got)
	}
	rewrite(t, dir, repeated)
	if got := planned("-target=module.x"); got != "x-a-in x-b-in" {
		t.Errorf("of what is declared no more, planned is %s", got)
	}
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.k").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.")
	if slots := slotsOf(t, dir); len(slots) != 2 || slots["job.x-a-in.worker[0]"].Phase != "Running" {
		t.Errorf("what runs is %+v", slots)
	}
}

// Named slots that do not exist cause a warning and are skipped.
func TestSlotsThatAreNotThereAreTold(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-target=job.tiny.worker[0-3,7]").check(t, exitDone, "No such slots", "job.tiny.worker[2-3,7]: these slots do not exist")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "plan", "-replace=job.tiny.worker[0-3,7]").check(t, exitDone, "2 to destroy", "job.tiny.worker[2-3,7]: these slots do not exist")
	eltrain(t, dir, "plan", "-exclude=job.tiny.worker[1-2]").check(t, exitDone, "job.tiny.worker[2]: these slots do not exist")
	if o := eltrain(t, dir, "plan", "-replace=job.tiny.worker[0-1]"); strings.Contains(o.err, "not there") {
		t.Errorf("of slots that are there: %s", o.err)
	}
}

// For a wildcard key, the error says what to write for all keys of for_each.
func TestATargetOfAllKeysSaysWhatToWrite(t *testing.T) {
	o := eltrain(t, t.TempDir(), "plan", "-target=job.sweep[*]").check(t, exitError)
	if want := `job.sweep["KEY"]; without a key, job.sweep selects all of them`; !strings.Contains(strings.Join(strings.Fields(o.err), " "), want) {
		t.Errorf("it does not say %q:\n%s", want, o.err)
	}
	help := eltrain(t, t.TempDir(), "plan", "-help").check(t, exitDone).out
	if want := `job.NAME (with for_each, all of its keys), job.NAME["KEY"]`; !strings.Contains(strings.Join(strings.Fields(help), " "), want) {
		t.Errorf("the help does not say %q", want)
	}
}
