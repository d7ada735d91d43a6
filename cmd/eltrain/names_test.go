package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/eltrain/eltrain/internal/hang"
)

// sleeper is a job that runs until it is stopped. more is added to its block.
func sleeper(name, more string) string {
	return fmt.Sprintf(`job %q {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo step $RANK; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
  %s
}
`, name, more)
}

// rewrite replaces the job directory's file.
func rewrite(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// started applies a file in a new directory, and returns the agents' processes.
func started(t *testing.T, text string) (dir string, pids []int) {
	t.Helper()
	dir = directoryWith(t, map[string]string{"main.hcl": text})
	t.Cleanup(func() {
		killLeft(t, dir)
	})
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	if _, _, pids = status(t, dir); len(pids) != 2 || pids[0] == 0 {
		t.Fatalf("after apply the agents are %v", pids)
	}
	return dir, pids
}

// killLeft ends what a directory's jobs left, forgotten jobs included, by a signal to each agent. A last plan observes their
// ends, to remove the agents' cgroups, which they cannot remove themselves.
func killLeft(t *testing.T, dir string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, ".eltrain", "jobs", "*", "slots", "*", "*", "agent.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ending []int
	for _, path := range records {
		var agent struct {
			PID int `json:"pid"`
		}
		if err := json.Unmarshal([]byte(read(t, path)), &agent); err == nil && agent.PID > 1 && alive(agent.PID) {
			syscall.Kill(agent.PID, syscall.SIGTERM)
			ending = append(ending, agent.PID)
		}
	}
	for end := time.Now().Add(hang.Bound); slices.ContainsFunc(ending, alive); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("agents %v do not end", ending)
		}
	}
	eltrain(t, dir, "plan")
}

func allAlive(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("agent %d has ended", pid)
		}
	}
}

func samePIDs(t *testing.T, dir string, want []int) {
	t.Helper()
	if _, running, pids := status(t, dir); running != len(want) || !slices.Equal(pids, want) {
		t.Errorf("%d slots run, under the agents %v; %v was there before", running, pids, want)
	}
}

// uidOf returns the UID of the directory's only job.
func uidOf(t *testing.T, dir string) string {
	t.Helper()
	uids, err := filepath.Glob(filepath.Join(dir, ".eltrain", "jobs", "*"))
	if err != nil || len(uids) != 1 {
		t.Fatalf("the directory has the jobs %v, %v", uids, err)
	}
	return filepath.Base(uids[0])
}

// A moved job keeps training in the same processes, under the next master too, and its output is found.
func TestMovedJobTrainsOn(t *testing.T) {
	t.Parallel()
	dir, pids := started(t, sleeper("old", ""))
	const moved = "moved {\n  from = job.old\n  to   = job.new\n}\n"
	rewrite(t, dir, sleeper("new", "")+moved)
	eltrain(t, dir, "plan").check(t, exitDone, "# job.old has moved to job.new", "Plan: 0 to add, 0 to change, 0 to destroy.")
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	var p tfjson.Plan
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").out), &p); err != nil {
		t.Fatal(err)
	}
	for _, rc := range p.ResourceChanges {
		if want := strings.Replace(rc.Address, "new", "old", 1); rc.PreviousAddress != want || !rc.Change.Actions.NoOp() {
			t.Errorf("%s was %q and is %v", rc.Address, rc.PreviousAddress, rc.Change.Actions)
		}
	}
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Apply complete! Resources: 0 added, 0 changed, 0 destroyed.")
	samePIDs(t, dir, pids)
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	eltrain(t, dir, "status").check(t, exitDone, "job.new")
	eltrain(t, dir, "logs", "job.new.worker[1]").check(t, exitDone, "[rank 1] step 1\n")

	// A slot that fails is healed under the new name, and the world forms again with the survivor.
	syscall.Kill(pids[1], syscall.SIGKILL)
	eventually(t, "the agent has ended", func() bool { return !alive(pids[1]) })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "job.new.worker[1]", "Apply complete!")
	if phase, running, now := status(t, dir); phase != "Running" || running != 2 || now[0] != pids[0] {
		t.Errorf("after a fault the job is %s with %d running, agents %v of %v", phase, running, now, pids)
	}
	// Without the state it is found under its original name.
	_, _, pids = status(t, dir)
	removeState(t, dir)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	samePIDs(t, dir, pids)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.")
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("agent %d of a moved job outlives its destroy", pid)
		}
	}
}

func removeState(t *testing.T, dir string) {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(dir, "eltrain.state*"))
	if err != nil || len(states) == 0 {
		t.Fatalf("there is no state: %v", err)
	}
	for _, path := range states {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A forgotten job keeps running, even while masters watch; a job declared under its name is another job; and the forgotten one
// can be imported again.
func TestForgottenJobRunsOn(t *testing.T) {
	t.Parallel()
	dir, pids := started(t, sleeper("a", "lifecycle {\n    prevent_destroy = true\n  }"))
	uid := uidOf(t, dir)
	rewrite(t, dir, "removed {\n  from = job.a\n  lifecycle {\n    destroy = false\n  }\n}\n")
	eltrain(t, dir, "plan").check(t, exitDone, "# job.a will no longer be managed by eltrain, but will not be destroyed", "Warning: Some objects will no longer be managed by eltrain", "\n - job.a\n")
	watch(t, dir, func(func() string) {
		deadline := time.Now().Add(hang.Bound)
		for !strings.Contains(eltrain(t, dir, "status").out, "nothing heals, scales or stops it") {
			if time.Now().After(deadline) {
				t.Fatal("the watch never forgets the job")
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(2 * agentBeat) // an agent that was told to leave would have done so
		allAlive(t, pids)
	})
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	rewrite(t, dir, sleeper("a", ""))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete! Resources: 2 added")
	allAlive(t, pids)
	if _, _, others := status(t, dir); slices.Contains(others, pids[0]) {
		t.Errorf("the new job has the processes %v of the forgotten one %v", others, pids)
	}
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.")
	allAlive(t, pids)
	rewrite(t, dir, sleeper("b", "")+fmt.Sprintf("import {\n  to = job.b\n  id = %q\n}\n", uid))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "# job.b will be imported", "Plan: 1 to import, 0 to add", "1 imported")
	samePIDs(t, dir, pids)
}

// repeated are two jobs of one block.
const repeated = `
job "ev" {
  for_each = toset(["a", "b"])
  role "worker" {
    command    = ["sleep", "300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// A removed block without keys keeps all jobs of a block with for_each, its own or its module's. A removed block that matches no
// job, while others are destroyed, causes a warning.
func TestAllKeysOfAForgottenJobRunOn(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{
		"main.hcl":   repeated + "module \"m\" {\n  source   = \"./m\"\n  for_each = toset([\"de\"])\n}\n",
		"m/main.hcl": repeated,
	})
	t.Cleanup(func() { killLeft(t, dir) })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resources: 4 added")
	_, _, pids := status(t, dir)
	if len(pids) != 4 {
		t.Fatalf("after apply the agents are %v", pids)
	}
	removed := func(from string) string {
		return fmt.Sprintf("removed {\n  from    = %s\n  destroy = false\n}\n", from)
	}
	const warned = "A removed block matches nothing"
	rewrite(t, dir, removed("job.evv")+removed("module.m.job.ev"))
	o := eltrain(t, dir, "plan")
	o.check(t, exitDone, "# job.ev-a.worker[0] will be destroyed", "# job.m-de-ev-a will no longer be managed", warned, "on main.hcl line 1",
		"keeps job.evv running", "job.ev-a and 1 more", "Plan: 0 to add, 0 to change, 2 to destroy.")
	if n := strings.Count(o.out+o.err, warned); n != 1 {
		t.Errorf("it is warned of %d times", n)
	}
	moved := func(from, to string) string { return fmt.Sprintf("moved {\n  from = %s\n  to   = %s\n}\n", from, to) }
	for _, renamed := range []string{ // in the same step: by the block, by a key of it, and with its module
		moved("job.ev", "job.ev2") + removed("job.ev2") + moved("module.m", "module.n") + removed("module.n"),
		moved(`job.ev["a"]`, `job.ev2["x"]`) + removed("job.ev2") + removed("job.ev") + moved("module.m.job.ev", "module.n.job.e") + removed("module.n"),
	} {
		rewrite(t, dir, renamed)
		o = eltrain(t, dir, "plan").check(t, exitDone, "m-de-ev-a will no longer be managed", "m-de-ev-b will no longer be managed", "0 to destroy")
		if strings.Contains(o.out+o.err, warned) {
			t.Errorf("it is warned of nothing:\n%s", o.err)
		}
	}
	rewrite(t, dir, removed("job.ev")+removed("module.m.job.ev"))
	o = eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "# job.ev-a will no longer be managed", "# job.m-de-ev-b will no longer be managed", "0 destroyed")
	if strings.Contains(o.out+o.err, warned) {
		t.Errorf("it is warned of nothing:\n%s", o.err)
	}
	allAlive(t, pids)
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
}

// A watch, which does not prompt, warns too, and continues.
func TestAWatchWarnsOfARemovedBlockThatKeepsNothing(t *testing.T) {
	t.Parallel()
	dir, _ := started(t, sleeper("a", ""))
	out := watch(t, dir, func(func() string) {
		rewrite(t, dir, "removed {\n  from    = job.aa\n  destroy = false\n}\n")
		eventually(t, "the job is destroyed", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "No jobs.") })
	})
	if !strings.Contains(out, "Warning: A removed block matches nothing") || !strings.Contains(out, "Destroyed, because no longer in the files: job.a.") {
		t.Errorf("the watch says\n%s", out)
	}
}

// agentBeat is longer than an agent's interval between requests to the service.
const agentBeat = 2 * time.Second

// watch runs apply -watch until f returns. said returns its output so far.
func watch(t *testing.T, dir string, f func(said func() string)) (out string) {
	t.Helper()
	cmd := commandIn(dir, "apply", "-watch", "-auto-approve", "-timestamps=false")
	var text collected
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the watch: %v\n%s", err, text.String())
		}
		out = text.String()
	}()
	f(text.String)
	return
}

// After the state was lost, a running job is imported by its UID under another name. After that the block has no effect.
func TestImportAdoptsWhatRuns(t *testing.T) {
	t.Parallel()
	dir, pids := started(t, sleeper("old", ""))
	uid := uidOf(t, dir)
	removeState(t, dir)
	block := func(id string) string { return fmt.Sprintf("import {\n  to = job.b\n  id = %q\n}\n", id) }
	rewrite(t, dir, sleeper("b", "")+block("nobody"))
	for _, command := range []string{"plan", "apply"} {
		args := []string{command}
		if command == "apply" {
			args = append(args, "-auto-approve")
		}
		eltrain(t, dir, args...).check(t, exitError, "Error: Cannot import non-existent remote object", `nothing runs with the id "nobody"`, "main.hcl line 12")
	}
	allAlive(t, pids)
	rewrite(t, dir, sleeper("b", "")+block(uid))
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone, "# job.b will be imported", "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy.")
	var p tfjson.Plan
	if err := json.Unmarshal([]byte(eltrain(t, dir, "show", "-json", "p").out), &p); err != nil {
		t.Fatal(err)
	}
	if i := p.ResourceChanges[0].Change.Importing; i == nil || i.ID != uid || !p.ResourceChanges[0].Change.Actions.NoOp() {
		t.Errorf("the JSON has %+v, importing %+v", p.ResourceChanges[0].Change, i)
	}
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Resources: 1 imported, 0 added, 0 changed, 0 destroyed.")
	samePIDs(t, dir, pids)
	// Its world was formed once, before the import, and the event has the address of that time.
	events := eltrain(t, dir, "events").check(t, exitDone)
	worlds := regexp.MustCompile(`(world_\w+) +(job\.\w+): .* rank 0 at (\S+)`).FindAllStringSubmatch(events.out, -1)
	if len(worlds) != 2 || worlds[0][1] != "world_formed" || worlds[1][1] != "world_adopted" || worlds[1][2] != "job.b" || worlds[0][3] != worlds[1][3] {
		t.Errorf("of worlds the events tell %q", worlds)
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	eltrain(t, dir, "logs", "job.b.worker[0]").check(t, exitDone, "step 0")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete! Resources: 2 destroyed.")
}

// A job with prevent_destroy is never destroyed; a watch does everything else, and the job is Degraded.
func TestPreventDestroy(t *testing.T) {
	t.Parallel()
	keep := "lifecycle {\n    prevent_destroy = true\n  }"
	dir, pids := started(t, sleeper("a", keep))
	const refused = "Error: Instance cannot be destroyed"
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitError, refused, "job.a has lifecycle.prevent_destroy set", "main.hcl line 1")
	eltrain(t, dir, "plan", "-destroy").check(t, exitError, refused)
	const other = "job \"b\" {\n  role \"worker\" {\n    command = [\"sleep\", \"300\"]\n    stop_grace = \"1s\"\n    resources {\n      cpu = 0.1\n    }\n  }\n}\n"
	rewrite(t, dir, other)
	eltrain(t, dir, "plan", "-out=p").check(t, exitError, refused)
	if _, err := os.Stat(filepath.Join(dir, "p")); err == nil {
		t.Error("a plan that cannot be was saved")
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, refused)
	samePIDs(t, dir, pids)
	out := watch(t, dir, func(func() string) {
		deadline := time.Now().Add(hang.Bound)
		for {
			shown := eltrain(t, dir, "status", "job.a", "job.b").out
			if strings.Contains(shown, "job.a  Degraded") && strings.Contains(shown, "job.b  Running") && strings.Contains(shown, "prevent_destroy") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the watch came to\n%s", shown)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if !strings.Contains(out, "Instance cannot be destroyed") {
		t.Errorf("the watch says nothing of it:\n%s", out)
	}
	allAlive(t, pids)
	// The files' setting counts as long as they declare the job.
	rewrite(t, dir, sleeper("a", "")+other)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Destroy complete! Resources: 3 destroyed.")
}

// Ignored changes are neither made nor shown.
func TestIgnoredChangesAreNoChanges(t *testing.T) {
	t.Parallel()
	ignore := "lifecycle {\n    ignore_changes = [priority, role.worker.command]\n  }"
	dir, pids := started(t, sleeper("a", ignore))
	edited := strings.Replace(sleeper("a", "priority = 7\n  "+ignore), "sleep 300", "sleep 400", 1)
	rewrite(t, dir, edited)
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	if o := eltrain(t, dir, "show", "-json", "p"); strings.Contains(strings.Join(strings.Fields(o.out), ""), `"actions":["update"]`) {
		t.Errorf("the JSON has an update:\n%s", o.out)
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	samePIDs(t, dir, pids)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
}
