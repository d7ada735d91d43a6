package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/hang"
)

const sleepers = `job "tiny" {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo $$ > pid.$RANK; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// Processes that ended while no master ran are shown by status and plan, and a plain apply heals them.
func TestAPlainApplyHealsWhatEndedUnseen(t *testing.T) {
	t.Parallel()
	patient := strings.TrimSuffix(sleepers, "}\n") + "  detect {\n    lease = \"10m\"\n  }\n}\n" // after a lease without a master its agents exit
	dir := directoryWith(t, map[string]string{"main.hcl": patient})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resources: 0 added, 0 changed, 0 destroyed.")
	var before []int
	for _, rank := range []string{"0", "1"} {
		pid := pidIn(t, filepath.Join(dir, "pid."+rank))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		before = append(before, pid)
	}
	healthy := func() bool { return strings.Contains(eltrain(t, dir, "status", "-json").out, `"healthy": true`) }
	for end := time.Now().Add(hang.Bound); healthy(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("status never finds that nothing runs")
		}
	}
	const ended = "no process is running"
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Degraded", ended)
	eltrain(t, dir, "plan").check(t, exitDone, "No changes for now.", "an apply reads it from the agents and continues from there", ended)
	eltrain(t, dir, "plan", "-markdown").check(t, exitDone, "an apply reads it from the agents and continues from there", ended)
	eltrain(t, dir, "plan", "-detailed-exitcode", "-json").check(t, exitChanges, `"unheard":true`)
	eltrain(t, dir, "plan", "-detailed-exitcode", "-refresh-only").check(t, exitDone, "No changes. None of this is recorded in the state: processes have ended, and only an apply can read how.")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "process killed in worker", "signal: killed", "Apply complete!")
	for i, rank := range []string{"0", "1"} {
		if pid := pidIn(t, filepath.Join(dir, "pid."+rank)); pid == before[i] || !alive(pid) {
			t.Errorf("rank %s is process %d and was %d", rank, pid, before[i])
		}
	}
	if !healthy() {
		t.Error("after the apply the job is not healthy")
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")
}

// Status and logs show what runs without a record in the state. The advice on how to continue works.
func TestStatusTellsWhatRunsWithoutARecord(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": strings.ReplaceAll(sleepers, "exec sleep", "echo here; exec sleep")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	lose := func() {
		t.Helper()
		for _, name := range []string{"eltrain.state", "eltrain.state.backup"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	const runs = "job.tiny  is running without a record in the state"
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	pid := pidIn(t, filepath.Join(dir, "pid.0"))

	lose()
	status := eltrain(t, dir, "status", "job.tiny")
	status.check(t, exitDone, runs, "worker[0-1]: 2 slots", "eltrain apply adopts it", "eltrain destroy stops it")
	if strings.Contains(status.out, "No jobs") {
		t.Errorf("it says that there are no jobs:\n%s", status.out)
	}
	eltrain(t, dir, "logs", "job.tiny").check(t, exitDone, "worker[0] [rank 0] here", "worker[1] [rank 1] here", "The state has no record of job.tiny")
	eltrain(t, dir, "logs", "job.other").check(t, exitError, `There is no job "other". There are: tiny.`)
	eltrain(t, dir, "logs", "-rank=0", "job.tiny").check(t, exitError, "no world has formed yet")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resources: 0 added, 0 changed, 0 destroyed.")
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Running")

	eltrain(t, dir, "state", "rm", "job.tiny").check(t, exitDone)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "0 destroyed")
	if !alive(pid) {
		t.Fatal("destroy has stopped what was forgotten")
	}
	forgotten := eltrain(t, dir, "status")
	forgotten.check(t, exitDone, runs, "nothing heals, scales or stops it", "import {")
	_, block, _ := strings.Cut(forgotten.out, "import {")
	writeFile(t, filepath.Join(dir, "back.hcl"), "import {"+block)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "1 imported, 0 added")

	lose()
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "2 destroyed")
	if alive(pid) {
		t.Error("destroy has not stopped what has no record")
	}
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
}

// Agents whose processes succeed while no master runs exit, and the next command knows it. A destroy does not end while one of
// them still runs, however recent its success is.
func TestSuccessWithoutAMasterIsKnown(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": strings.ReplaceAll(sleepers, "exec sleep 300", "while [ ! -e end ]; do sleep 0.05; done")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	writeFile(t, filepath.Join(dir, "end"), "")
	eventually(t, "status knows its success", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "job.tiny  Succeeded") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Succeeded")

	slots, err := filepath.Glob(filepath.Join(dir, ".eltrain/jobs/*/slots/worker-0/1"))
	if err != nil || len(slots) != 1 {
		t.Fatalf("the directories of worker[0] are %v, %v", slots, err)
	}
	var agent map[string]any
	text, err := os.ReadFile(filepath.Join(slots[0], "agent.json"))
	if err = errors.Join(err, json.Unmarshal(text, &agent)); err != nil {
		t.Fatal(err)
	}
	lingering := exec.Command("sleep", "300")
	if err := lingering.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- lingering.Wait() }()
	t.Cleanup(func() { lingering.Process.Kill() })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", lingering.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	agent["pid"] = lingering.Process.Pid
	agent["start_time"] = json.Number(strings.Fields(string(stat))[21])
	if text, err = json.Marshal(agent); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(slots[0], "agent.json"), string(text))
	for _, name := range []string{"exit.json", "ended.json"} {
		if err := os.Remove(filepath.Join(slots[0], name)); err != nil {
			t.Fatal(err)
		}
	}
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "1 destroyed")
	select {
	case <-ended:
	case <-time.After(hang.Bound):
		t.Error("destroy has left an agent")
	}
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
}

// The goodput of a job that ends while no master runs counts up to its end, not up to the next apply. This one shows no steps.
func TestGoodputEndsWithTheProcesses(t *testing.T) {
	t.Parallel()
	const looks = 3 * time.Second // how long a plain apply observes a job that prints no steps
	const alone, unseen = time.Second, 3 * time.Second
	for end, phase := range map[string]string{"exit 0": "Succeeded", "[ -e again ] && exec sleep 300; touch again; exit 3": "Running"} {
		command := fmt.Sprintf(`["sh", "-c", "while [ ! -e end ]; do sleep 0.05; done; %s"]`, end)
		dir := directoryWith(t, map[string]string{"main.hcl": strings.ReplaceAll(sleepers, `["sh", "-c", "echo $$ > pid.$RANK; exec sleep 300"]`, command)})
		t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
		begun := time.Now()
		eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
		time.Sleep(alone) // the job keeps training
		writeFile(t, filepath.Join(dir, "end"), "")
		eventually(t, "its processes end", func() bool { return !strings.Contains(eltrain(t, dir, "status").out, "job.tiny  Running") })
		time.Sleep(unseen)
		eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
		var status view.StatusModel
		if err := json.Unmarshal([]byte(eltrain(t, dir, "status", "-json").out), &status); err != nil {
			t.Fatal(err)
		}
		j, most := status.Jobs[0], (time.Since(begun) - unseen).Seconds()
		if g := j.Goodput; string(j.Phase) != phase || g.Unknown < (looks+alone).Seconds()-0.5 || g.Unknown > most {
			t.Errorf("%s: %s with %+v, of which at most %.1f s were training", end, j.Phase, g, most)
		}
	}
}

// A watch says why a job failed and how to continue, which works; at once that a job is no longer in the files; and at its end
// what it leaves.
func TestAWatchSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	failing := strings.ReplaceAll(sleepers, "echo $$ > pid.$RANK; exec sleep 300", "echo boom: no data; exit 3")
	failing = strings.TrimSuffix(failing, "}\n") + "  heal {\n    budget {\n      restarts = 1\n      window   = \"1h\"\n    }\n  }\n}\n"
	dir := directoryWith(t, map[string]string{"main.hcl": failing})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	eventually(t, "it fails", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "job.tiny  Failed") })
	eltrain(t, dir, "status").check(t, exitError, "exit code 3: boom: no data", "1 of 1 restart used within 1h", "A watch does not start it again by itself: eltrain restart does")
	rewrite(t, dir, sleepers)
	eventually(t, "it runs after an edit", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "job.tiny  Running") })
	rewrite(t, dir, "locals {}\n")
	end := writing(t, filepath.Join(dir, "main.hcl")) // otherwise the removal may be carried out before the check
	eventually(t, "the removal is reported", func() bool {
		return strings.Contains(eltrain(t, dir, "status").out, "It is no longer in the files. It is removed once")
	})
	rewrite(t, dir, sleepers)
	end()
	eventually(t, "it is back", func() bool { return strings.Contains(w.out.String(), "resolved: it is in the files again") })
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := w.code(t); code != exitDone {
		t.Errorf("it exits with %d", code)
	}
	for _, text := range []string{"job.tiny: It is no longer in the files. It is removed once the files have not changed for 5s, unless it comes back", "Watch ended. Resources: ",
		"job.tiny keeps running, and nothing heals it. To continue, run eltrain apply -watch; to stop everything, run eltrain destroy."} {
		if !strings.Contains(w.out.String(), text) {
			t.Errorf("it does not say %q", text)
		}
	}
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "events").check(t, exitDone, "removed  job.tiny.worker[0-1]: are removed: destroy was requested", "destroyed  job.tiny: is destroyed")
}

func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	eventually(t, path+" has a process's number", func() bool { // a shell empties a file before it writes there
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}
