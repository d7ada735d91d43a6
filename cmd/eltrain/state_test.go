package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// agentPIDs returns the agents of a job's slots by address, from status.
func agentPIDs(t *testing.T, dir string) map[string]int {
	t.Helper()
	var status struct {
		Jobs []struct {
			Slots []struct {
				Address  string
				AgentPID int `json:"agent_pid"`
			}
		}
	}
	if err := json.Unmarshal([]byte(eltrain(t, dir, "status", "-json").check(t, exitDone).out), &status); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for _, j := range status.Jobs {
		for _, s := range j.Slots {
			pids[s.Address] = s.AgentPID
		}
	}
	return pids
}

// unwrapped replaces each run of white space by one space: long lines are wrapped.
func (o outcome) unwrapped() outcome {
	return outcome{o.code, strings.Join(strings.Fields(o.out), " "), strings.Join(strings.Fields(o.err), " ")}
}

func TestStateCommands(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })

	// Before anything was applied.
	for _, args := range [][]string{{"list"}, {"show", "job.tiny"}, {"rm", "job.tiny"}, {"mv", "job.tiny", "job.small"}} {
		eltrain(t, dir, append([]string{"state"}, args...)...).unwrapped().check(t, exitError, "No state was found")
	}
	if o := eltrain(t, dir, "state", "pull").check(t, exitDone, "Empty state"); o.out != "" {
		t.Errorf("pull prints %q", o.out)
	}
	eltrain(t, dir, "show").check(t, exitDone, "The state is empty")

	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	before := agentPIDs(t, dir)
	if o := eltrain(t, dir, "state", "list").check(t, exitDone); o.out != "job.tiny\njob.tiny.worker[0]\njob.tiny.worker[1]\n" {
		t.Errorf("list prints %q", o.out)
	}
	for address, want := range map[string]string{
		"job.tiny.worker[1]":   "job.tiny.worker[1]\n",
		"job.tiny.worker[0-1]": "job.tiny.worker[0]\njob.tiny.worker[1]\n",
		"job.tiny.worker[*]":   "job.tiny.worker[0]\njob.tiny.worker[1]\n",
		"job.tiny.worker":      "job.tiny.worker[0]\njob.tiny.worker[1]\n",
		"job.tiny":             "job.tiny\njob.tiny.worker[0]\njob.tiny.worker[1]\n",
	} {
		if o := eltrain(t, dir, "state", "list", address).check(t, exitDone); o.out != want {
			t.Errorf("list %s prints %q, want %q", address, o.out, want)
		}
	}
	if o := eltrain(t, dir, "state", "list", "-id=nobody").check(t, exitDone); o.out != "" {
		t.Errorf("an unknown UID lists %q", o.out)
	}
	for _, address := range []string{"job.other", "job.tiny.worker[7]", "job.tiny.ps"} {
		for _, verb := range []string{"list", "show", "rm"} {
			eltrain(t, dir, "state", verb, address).unwrapped().check(t, exitError, address)
		}
	}
	eltrain(t, dir, "state", "show", "worker[0]").unwrapped().check(t, exitError, "is not an address")
	eltrain(t, dir, "state", "show", "job.tiny").check(t, exitDone, "# job.tiny: (Running)", "job \"tiny\" {", "uid")
	slot := eltrain(t, dir, "state", "show", "job.tiny.worker[1]").check(t, exitDone, "# job.tiny.worker[1]: (Running)", "incarnation", "stop_grace")
	if all := eltrain(t, dir, "show").check(t, exitDone); !strings.Contains(all.out, slot.out) || strings.Count(all.out, "\n# ") != 2 {
		t.Errorf("show prints\n%s", all.out)
	}

	// A running job gets another name, and keeps running.
	eltrain(t, dir, "state", "mv", "-dry-run", "job.tiny", "job.small").check(t, exitDone, `Would move "job.tiny" to "job.small"`)
	eltrain(t, dir, "state", "mv", "job.tiny", "job.small").check(t, exitDone, `Move "job.tiny" to "job.small"`, "Successfully moved 1 object(s).")
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(strings.Replace(twoWorkers, `"tiny"`, `"small"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	for i := range 2 {
		was, is := fmt.Sprintf("job.tiny.worker[%d]", i), fmt.Sprintf("job.small.worker[%d]", i)
		if pid := agentPIDs(t, dir)[is]; pid != before[was] || pid == 0 {
			t.Errorf("%s has the agent %d, and %s had %d", is, pid, was, before[was])
		}
	}
	for _, c := range []struct{ from, to, why string }{
		{"job.tiny", "job.x", "does not match anything in the current state"}, {"job.small.worker[0]", "job.x", "a part of a job"},
		{"job.small", "job.small", "are the same"},
	} {
		eltrain(t, dir, "state", "mv", c.from, c.to).unwrapped().check(t, exitError, c.why)
	}

	// Pull, edit, push.
	pulled := eltrain(t, dir, "state", "pull").check(t, exitDone).out
	given, err := state.Parse([]byte(pulled))
	if err != nil {
		t.Fatalf("what is pulled cannot be pushed: %v", err)
	}
	push := func(s state.State, args ...string) outcome {
		t.Helper()
		text, err := state.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		cmd := commandIn(dir, append(append([]string{"state", "push"}, args...), "-")...)
		cmd.Stdin = strings.NewReader(string(text))
		return run(t, cmd)
	}
	push(given).check(t, exitDone)
	if eltrain(t, dir, "state", "pull").out != pulled {
		t.Error("pushing what is stored wrote it")
	}
	// The state's file itself can be pushed too, if it is unmodified.
	stored := filepath.Join(dir, "eltrain.state")
	eltrain(t, dir, "state", "push", stored).check(t, exitDone)
	eltrain(t, dir, "state", "push", stored+".backup").unwrapped().check(t, exitError, "over newer state with serial")
	text, err := os.ReadFile(stored)
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(t.TempDir(), "forged.state")
	writeFile(t, forged, strings.Replace(string(text), `"incarnation": 1`, `"incarnation": 7`, 1))
	eltrain(t, dir, "state", "push", forged).unwrapped().check(t, exitError, "was changed after eltrain wrote it", `set its "checksum" to "accept"`)
	if eltrain(t, dir, "state", "pull").out != pulled {
		t.Error("pushing the state's own file wrote it")
	}
	edited := given
	edited.Jobs, _ = given.Jobs.Move("small", "big")
	push(edited).unwrapped().check(t, exitError, "annot overwrite existing state with serial")
	edited.Serial--
	push(edited).unwrapped().check(t, exitError, "over newer state with serial")
	foreign := edited
	foreign.Lineage, foreign.Serial = "another", 1000
	push(foreign).unwrapped().check(t, exitError, `annot import state with lineage "another" over unrelated state`)
	push(foreign, "-force").check(t, exitDone)
	if o := eltrain(t, dir, "state", "list").check(t, exitDone); !strings.HasPrefix(o.out, "job.big\n") {
		t.Errorf("after a push: %s", o.out)
	}
	for text, why := range map[string]string{"": "not a state", `{"version": 99}`: "newer eltrain", `{"version":1,"lineage":"l","serial":3,"jobs":{"a":{"uid":"u","spec":{"Name":"b"}}}}`: "the specification of job.b", `{"version":2,"typo":2}`: "unknown field \"typo\"", "[]": "its JSON type is array, but a state is an object",
		`{"version":1,"serial":"x"}`: "serial has the wrong JSON type string"} {
		cmd := commandIn(dir, "state", "push", "-force", "-")
		cmd.Stdin = strings.NewReader(text)
		run(t, cmd).unwrapped().check(t, exitError, why)
	}
	eltrain(t, dir, "state", "push", "nowhere").unwrapped().check(t, exitError, "nowhere")
	eltrain(t, dir, "state", "push").unwrapped().check(t, exitError, "A file is missing")
	eltrain(t, dir, "state", "mv", "job.big", "job.small").check(t, exitDone)

	// A forgotten job keeps running, and nothing stops it. Its UID, by which it can be recovered, is shown.
	uid := uidOf(t, dir)
	pids := agentPIDs(t, dir)
	eltrain(t, dir, "state", "rm", "-dry-run", "job.small").check(t, exitDone, "Would remove job.small\n", "Would remove job.small.worker[1]")
	eltrain(t, dir, "state", "rm", "job.small").check(t, exitDone, "Removed job.small\n",
		fmt.Sprintf("  import {\n    to = job.small\n    id = %q\n  }\n", uid), "Successfully removed 3 object(s) from the state. What is running keeps running.")
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte("locals {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	for address, pid := range pids {
		if syscall.Kill(pid, 0) != nil {
			t.Errorf("%s was forgotten, and its agent is gone", address)
		}
		syscall.Kill(pid, syscall.SIGTERM) // nothing else stops it
	}
	eventually(t, "the agents end", func() bool {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
}

// A forgotten slot that runs is adopted again.
func TestForgottenSlotIsFoundAgain(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	before := agentPIDs(t, dir)
	eltrain(t, dir, "state", "rm", "job.tiny.worker[1]").check(t, exitDone, "Removed job.tiny.worker[1]", "removed 1 object(s)")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	if after := agentPIDs(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the agents were %v, and are %v", before, after)
	}
}

func TestForceUnlock(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	eventually(t, "the master holds the lock", func() bool { return w.probe("/readyz") == http.StatusOK })
	eltrain(t, dir, "state", "mv", "job.tiny", "job.x").unwrapped().check(t, exitError, "is locked by")
	locked := eltrain(t, dir, "state", "rm", "job.tiny").unwrapped().check(t, exitError, "is locked by", "apply -watch", "The other run is a watch, which does not end by itself", "force-unlock")
	_, id, _ := strings.Cut(locked.err, ", lock ")
	id = strings.Trim(strings.Fields(id)[0], ".")
	eltrain(t, dir, "force-unlock", "-force", "another").unwrapped().check(t, exitError, "Failed to unlock state", "does not match existing lock ID", id)
	eltrain(t, dir, "force-unlock", id).unwrapped().check(t, exitError, "use -force")
	eltrain(t, dir, "force-unlock", "-force").unwrapped().check(t, exitError, "The ID of the lock is missing")
	eltrain(t, dir, "force-unlock", "-force", id).check(t, exitDone, "has been successfully unlocked!")
	eltrain(t, dir, "force-unlock", "-force", id).unwrapped().check(t, exitError, "the state is not locked")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone) // the lock is free
	if code := w.code(t); code != exitError {                    // it notices at its next renewal
		t.Errorf("the master that lost its lock exits with %d", code)
	}
}

// A plan needs no right to write: even with sensitive values the first plan creates no files. A saved plan is sealed with the
// state's key, so that creates one.
func TestAPlanWritesNothing(t *testing.T) {
	t.Parallel()
	secret := "variable \"token\" {\n  sensitive = true\n}\n" + strings.Replace(twoWorkers, "replicas", "env = { TOKEN = var.token }\n    replicas", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": secret})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve", "-var=token=hunter2hunter2") })
	files := func() (names []string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			names = append(names, strings.TrimPrefix(path, dir))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := files()
	for _, args := range [][]string{{"plan"}, {"plan", "-json"}, {"plan", "-refresh-only"}, {"plan", "-refresh=false"}, {"plan", "-destroy"}, {"status"}, {"show"}, {"graph"}, {"state", "pull"}} {
		if args[0] == "plan" || args[0] == "graph" {
			args = append(args, "-var=token=hunter2hunter2")
		}
		eltrain(t, dir, args...).check(t, exitDone)
		if after := files(); !slices.Equal(before, after) {
			t.Errorf("%v changed the files from %v to %v", args, before, after)
		}
	}
	eltrain(t, dir, "plan", "-out=p", "-var=token=hunter2hunter2").check(t, exitDone)
	if after := files(); !slices.Contains(after, "/.eltrain/eltrain.state.key") {
		t.Errorf("a saved plan with no key: %v", after)
	}
	cmd := commandIn(dir, "apply", "p")
	cmd.Env = append(cmd.Env, "ELTRAIN_VAR_token=hunter2hunter2")
	run(t, cmd).check(t, exitDone, "Resources: 2 added")
	eltrain(t, dir, "plan", "-detailed-exitcode", "-var=token=hunter2hunter2").check(t, exitDone, "No changes")
	eltrain(t, dir, "plan", "-detailed-exitcode", "-var=token=another one").check(t, exitChanges, "2 to add, 0 to change, 2 to destroy")
}

// Conditions in the state are shown without a master, even those of a newer version, and follow renamed jobs. An apply that does
// not find them clears them and says so once.
func TestConditionsOfTheState(t *testing.T) {
	t.Parallel()
	dir, _ := started(t, sleeper("tiny", ""))
	pulled := eltrain(t, dir, "state", "pull").check(t, exitDone)
	given, err := state.Parse([]byte(pulled.out))
	if err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	given.Serial++
	for _, about := range []string{"job.tiny", "job.tiny.worker", "queue.gpus"} {
		given.Conditions = append(given.Conditions, conditions.Condition{About: about, Reason: job.Because("of_a_newer_version", "about", about), Since: since})
	}
	text, err := state.Encode(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := commandIn(dir, "state", "push", "-")
	cmd.Stdin = strings.NewReader(string(text))
	run(t, cmd).check(t, exitDone)
	held := func(args ...string) (abouts []string) {
		t.Helper()
		var m view.StatusModel
		if err := json.Unmarshal([]byte(eltrain(t, dir, append([]string{"status", "-json"}, args...)...).out), &m); err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Conditions {
			if c.Code != "of_a_newer_version" || !c.Since.Equal(since) {
				t.Errorf("there is %+v", c)
			}
			abouts = append(abouts, c.About)
		}
		return abouts
	}
	if got, want := held(), []string{"job.tiny", "job.tiny.worker", "queue.gpus"}; !slices.Equal(got, want) {
		t.Errorf("there hold %q, want %q", got, want)
	}
	eltrain(t, dir, "status").check(t, exitDone, "! of_a_newer_version(about=job.tiny) (since 2026", "queue.gpus: of_a_newer_version(about=queue.gpus) (since 2026")
	eltrain(t, dir, "state", "mv", "job.tiny", "job.small").check(t, exitDone)
	if got, want := held("job.small"), []string{"job.small", "job.small.worker"}; !slices.Equal(got, want) {
		t.Errorf("of the job there hold %q, want %q", got, want)
	}
	eltrain(t, dir, "state", "mv", "job.small", "job.tiny").check(t, exitDone)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resolved: queue.gpus")
	if got := held(); len(got) > 0 {
		t.Errorf("after an apply there hold %q", got)
	}
	events := eltrain(t, dir, "events").check(t, exitDone)
	if n := strings.Count(events.out, "queue.gpus: resolved: of_a_newer_version"); n != 1 {
		t.Errorf("its end is reported %d times:\n%s", n, events.out)
	}

	given.Conditions = given.Conditions[:2]
	stored, err := new(stateRm).edit(given)
	if err != nil || len(stored.Conditions) != 2 {
		t.Errorf("without a selector there are %v, %v", stored.Conditions, err)
	}
	if stored, err = (&stateRm{selectors: []job.Selector{{Job: "tiny"}}}).edit(given); err != nil || len(stored.Conditions) != 0 {
		t.Errorf("of a job that is forgotten there are %v, %v", stored.Conditions, err)
	}
}
