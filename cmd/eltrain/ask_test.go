package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state/file"
)

// An operator asks a watch, which knows what the files say, and acts at once.
func TestAWatchHandlesRequests(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	eventually(t, "it runs", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "2 processes") })
	eltrain(t, dir, "suspend", "-reason=a switch is replaced", "job.tiny").check(t, exitDone, "suspend job.tiny: done")
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Suspended", "a switch is replaced", "eltrain resume ends this")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "Suspended by", "a switch is replaced")
	eltrain(t, dir, "resume", "job.tiny").check(t, exitDone, "resume job.tiny: done")
	eventually(t, "it runs again", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "generation 2, 2 processes") })
	eltrain(t, dir, "suspend", "job.other").check(t, exitError, "refused: there is no job.other")
	eltrain(t, dir, "suspend", "job.tiny.worker[0]").check(t, exitError, "refused", "only whole jobs")
	eltrain(t, dir, "events").check(t, exitDone, "asked to suspend it: a switch is replaced", "resume, as", "refused: there is no job.other")
	var all view.RequestsModel
	if err := json.Unmarshal([]byte(eltrain(t, dir, "requests", "-json").check(t, exitDone).out), &all); err != nil {
		t.Fatal(err)
	}
	states := ""
	for _, r := range all.Requests {
		states += string(r.Verb) + " " + r.State + ", "
	}
	if states != "suspend done, resume done, suspend refused, suspend refused, " {
		t.Errorf("the requests are %s", states)
	}
	first := all.Requests[0].ID
	eltrain(t, dir, "requests", first).check(t, exitDone, first, "a switch is replaced")
	eltrain(t, dir, "requests", "none").check(t, exitError, "There is no request none")
}

// Without a master the command leads itself, and does only what was asked: an edit waits for an apply.
func TestARequestWithoutAMasterIsCarriedOut(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitError, `There is no job "tiny"`)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "suspend", "job.tyni").check(t, exitError, `There is no job "tyni". Did you mean "tiny"?`)
	rewrite(t, dir, strings.Replace(twoWorkers, "replicas   = 2", "replicas   = 3", 1))
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitDone, "suspend job.tiny: done")
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Suspended")
	eltrain(t, dir, "resume", "-detach", "job.tiny").check(t, exitDone, "resume job.tiny: done")
	eltrain(t, dir, "status").check(t, exitDone, "generation 2, 2 processes")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "1 to add")
	for args, want := range map[string]string{"": "An address is missing", "tiny": `does not begin with "job."`, "-until=2 job.tiny": "Invalid value"} {
		eltrain(t, dir, append([]string{"suspend"}, strings.Fields(args)...)...).check(t, exitError, want)
	}
}

// Requests are beside the state: a watch takes those of every directory that has it.
func TestARequestFromAnotherDirectoryWithTheSameState(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf("eltrain {\n  state \"file\" {\n    path = %q\n  }\n}\n", filepath.Join(t.TempDir(), workspace.DefaultState)) + twoWorkers
	dir, other := directoryWith(t, map[string]string{"main.hcl": text}), directoryWith(t, map[string]string{"main.hcl": text})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	eventually(t, "it runs", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "2 processes") })
	eltrain(t, other, "restart", "job.tiny.worker[1]").check(t, exitDone, "restart job.tiny.worker[1]: done")
	eltrain(t, other, "destroy", "-auto-approve").check(t, exitDone, "watches these jobs and carries it out")
}

// The directory of requests is private, like all of .eltrain. One that is not holds up no apply.
func TestRequestsOfOthersAreNotRead(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	requests := filepath.Join(dir, workspace.RunDirectory, workspace.DefaultState+".requests")
	if err := os.MkdirAll(requests, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(requests, 0o777); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Operators' requests cannot be read", "writable by others")
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitError, "writable by others")
	eltrain(t, dir, "requests").check(t, exitError, "writable by others")
}

// A canceled job is neither healed nor applied; a restart is a new run of it, or the next incarnation of what runs.
func TestCancelAndRestart(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	eventually(t, "it runs", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "2 processes") })
	first := uidOf(t, dir)
	eltrain(t, dir, "restart", "job.tiny.worker[1]").check(t, exitDone, "restart job.tiny.worker[1]: done")
	eltrain(t, dir, "status").check(t, exitDone, "generation 2, 2 processes")
	eltrain(t, dir, "cancel", "job.tiny").check(t, exitDone, "cancel job.tiny: done")
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Canceled")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes")
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitError, "refused: job.tiny is Canceled")
	if uidOf(t, dir) != first {
		t.Error("the job is another before it was restarted")
	}
	eltrain(t, dir, "restart", "job.tiny").check(t, exitDone, "restart job.tiny: done")
	if uidOf(t, dir) == first {
		t.Error("a new run has the UID of the former")
	}
	eltrain(t, dir, "status").check(t, exitDone, "generation 1, 2 processes")
	eltrain(t, dir, "restart", "job.tiny.worker[7]").check(t, exitError, "refused: there is no job.tiny.worker[7]")
}

// A destroy beside a watch is carried out by it, and lasts although the files declare the job.
func TestAWatchDestroysOnRequest(t *testing.T) {
	t.Parallel()
	other := strings.Replace(twoWorkers, `"tiny"`, `"other"`, 1)
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "other.hcl": other})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	running := func(what string) func() bool {
		return func() bool { return strings.Contains(eltrain(t, dir, "status", "job.tiny").out, what) }
	}
	eventually(t, "it runs", running("generation 1, 2 processes"))
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny.worker[0]").check(t, exitError, "only whole jobs can be destroyed")
	eltrain(t, dir, "destroy", "-auto-approve", "-refresh=false").check(t, exitError, "-refresh=false cannot be used while a watch leads")
	eltrain(t, dir, "destroy", "-input=false").check(t, exitError, "cannot prompt")
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny").check(t, exitDone, "# job.tiny.worker[0-1] will be destroyed", "watches these jobs and carries it out", "Destroy complete! Resources: 2 destroyed.")
	eltrain(t, dir, "status").check(t, exitDone, "job.other  Running", "job.tiny: Destroyed by", "eltrain restart, or an edit of its block, starts it again")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "Destroyed by")
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitError, "refused: job.tiny is destroyed")
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny").check(t, exitDone, "Resources: 0 destroyed.")
	eltrain(t, dir, "restart", "job.tiny").check(t, exitDone, "restart job.tiny: done")
	eltrain(t, dir, "status", "job.tiny").check(t, exitDone, "generation 1, 2 processes")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "Resources: 4 destroyed.")
	rewrite(t, dir, strings.Replace(twoWorkers, "step $RANK", "step $RANK again", 1))
	eventually(t, "an edit starts it", running("generation 1, 2 processes"))

	// It outlasts the watch. Without one a restart starts it again, and after a destroy an apply starts everything.
	w.cmd.Process.Signal(os.Interrupt)
	w.code(t)
	eltrain(t, dir, "status").check(t, exitDone, "job.other: Destroyed by")
	eltrain(t, dir, "state", "rm", "job.other").check(t, exitError, "is not in the state", "destroyed it")
	eltrain(t, dir, "restart", "job.other").check(t, exitDone, "restart job.other: done")
	eltrain(t, dir, "destroy", "-auto-approve", "-target=job.tiny").check(t, exitDone, "Resources: 2 destroyed.")
	eltrain(t, dir, "plan").check(t, exitDone, "Plan: 2 to add, 0 to change, 0 to destroy.")
	eltrain(t, dir, "events").check(t, exitDone, "is destroyed: ", "its block was edited since")
}

// commitAll makes a directory a repository with one commit.
func commitAll(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "Add jobs"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// An apply beside a watch has it carry out what it holds back, start failed jobs again and replace slots, all in the same files.
func TestAWatchAppliesOnRequest(t *testing.T) {
	t.Parallel()
	files := "variable \"count\" {\n  type    = number\n  default = 3\n}\n" + strings.Replace(twoWorkers, "replicas   = 2", "replicas   = var.count", 1)
	failing := `job "failing" {
  heal {
    budget {
      restarts = 0
    }
  }
  role "worker" {
    command = ["./run"]
    resources {
      cpu = 0.1
    }
  }
}
`
	dir := directoryWith(t, map[string]string{"main.hcl": files, "failing.hcl": failing})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	commitAll(t, dir)
	startWatch(t, dir, "-max-destroy=0")
	runs := func(what string) func() bool {
		return func() bool { return strings.Contains(eltrain(t, dir, "status", "job.tiny").out, what) }
	}
	eventually(t, "it runs", runs("generation 1, 3 processes"))
	eventually(t, "it fails", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "job.failing  Failed") })

	rewrite(t, dir, strings.Replace(files, "default = 3", "default = 2", 1))
	eventually(t, "it is held back", runs("max-destroy"))
	eltrain(t, dir, "apply", "-auto-approve", "-var=count=1", "-target=job.tiny").check(t, exitError, "the watch applies other files of commit ", "not committed")
	eltrain(t, dir, "apply", "-auto-approve", "-prune=false").check(t, exitError, "-prune=false cannot be used while a watch leads")
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.tiny").check(t, exitDone, "1 to destroy", "watches these jobs and carries it out", "job.tiny.worker[2]: is removed: its role may have at most 2 slots", "Apply complete! Resources: 0 added, 1 changed, 1 destroyed.")
	eltrain(t, dir, "status", "job.tiny").check(t, exitDone, "2 processes")

	eltrain(t, dir, "apply", "-auto-approve").check(t, exitError, "job.failing is Failed")
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/sh\nexec sleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete! Resources: 1 added, 0 changed,")
	eltrain(t, dir, "status", "job.failing").check(t, exitDone, "job.failing  Running")

	eltrain(t, dir, "apply", "-auto-approve", "-replace=job.tiny.worker[1]").check(t, exitDone, "Apply complete!")
	if !runs("vm    2")() && !strings.Contains(eltrain(t, dir, "status", "job.tiny.worker[1]").out, " 2 ") {
		t.Errorf("worker[1] is not replaced:\n%s", eltrain(t, dir, "status", "job.tiny").out)
	}
	eltrain(t, dir, "requests").check(t, exitDone, "apply job.failing job.tiny job.tiny.worker[1] ")
	eltrain(t, dir, "plan", "-out=plan", "-destroy", "-target=job.failing").check(t, exitDone)
	eltrain(t, dir, "apply", "plan").check(t, exitDone, "Destroy complete! Resources: 1 destroyed.")
	eltrain(t, dir, "apply", "plan").check(t, exitError, "stale")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "No changes", "Resources: 0 added")
}

// A request whose watch ended before taking it surprises nobody: it waits for a watch, no command that leads for something else carries
// it out, and one about the same job ends it.
func TestOnlyAWatchTakesUpOlderRequests(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	requests := file.NewRequests(filepath.Join(dir, ".eltrain"), filepath.Join(dir, ".eltrain", "eltrain.state.requests"))
	ask := func(verb job.Verb) (id string) {
		now := time.Now()
		left, err := requests.Ask(t.Context(), job.Request{Verb: verb, On: []job.Selector{{Job: "tiny"}}, At: now, Expires: now.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return left.ID
	}
	reply := func(id string) job.Reply {
		asked, err := requests.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return asked.Reply
	}
	older := ask(job.AskDestroy)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "No changes")
	if r := reply(older); r.State != "" {
		t.Errorf("an apply carries out an older request: it is %s", r.State)
	}
	eltrain(t, dir, "restart", "job.tiny.worker[1]").check(t, exitDone, "restart job.tiny.worker[1]: done")
	if r := reply(older); r.State != job.Refused || r.Reason.Code != plan.RequestSuperseded {
		t.Errorf("after a later request the older one is %s: %s", r.State, r.Reason.Code)
	}
	older = ask(job.AskSuspend)
	startWatch(t, dir)
	eventually(t, "the watch takes it", func() bool { return reply(older).State == job.Done })
}

// A size that an operator asks for is kept, shown beside what the files say, and ended by an edit of that attribute.
func TestScale(t *testing.T) {
	t.Parallel()
	elastic := strings.Replace(twoWorkers, "replicas   = 2", "replicas = 2\n    scaling {\n      min = 1\n      max = 3\n    }", 1)
	dir := directoryWith(t, map[string]string{"main.hcl": elastic})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "scale", "job.tiny.worker=3").check(t, exitDone, "scale job.tiny.worker=3: done")
	eltrain(t, dir, "status").check(t, exitDone, "3 processes", "worker: 3 slots, as", "in place of 1 to 3", "eltrain scale job.tiny.worker=auto ends this")
	startWatch(t, dir)
	eventually(t, "the watch leads", func() bool { return !strings.Contains(eltrain(t, dir, "status").out, "No master is running") })
	eltrain(t, dir, "scale", "-reason=room for another", "job.tiny.worker=1").check(t, exitDone, "scale job.tiny.worker=1: done")
	eltrain(t, dir, "status").check(t, exitDone, "1 process\n", "room for another")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "worker: 1 slot, as", "room for another")
	eltrain(t, dir, "scale", "job.tiny.worker=4").check(t, exitError, "refused: job.tiny.worker cannot have 4 slots: it may have 1 to 3. 3 would be legal")
	eltrain(t, dir, "scale", "job.tiny=2").check(t, exitError, "write job.NAME.ROLE")
	for args, want := range map[string]string{
		"": "write job.NAME.ROLE=SIZE", "job.tiny.worker": "has no size", "job.tiny.worker=0": "Invalid size", "job.tiny.worker=some": "Invalid size",
		"job.tiny.worker=1 job.tiny.worker=2": "two sizes",
	} {
		eltrain(t, dir, append([]string{"scale"}, strings.Fields(args)...)...).check(t, exitError, want)
	}
	rewrite(t, dir, strings.Replace(elastic, "replicas = 2", "replicas = 3", 1))
	eventually(t, "the override ends", func() bool { return !strings.Contains(eltrain(t, dir, "status").out, "1 slot, as") })
	eltrain(t, dir, "events").check(t, exitDone, "role.worker.replicas was edited in the files")
}

// By force, the processes are killed without a signal that they could handle.
func TestCancelByForce(t *testing.T) {
	t.Parallel()
	for mode, asked := range map[string]bool{"": true, "-force": false} {
		told := filepath.Join(t.TempDir(), "told")
		script := "trap 'touch " + told + "; exit 1' TERM; echo step $RANK; while :; do sleep 0.05; done"
		dir := directoryWith(t, map[string]string{"main.hcl": strings.Replace(twoWorkers, "echo step $RANK; exec sleep 300", script, 1)})
		t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
		startWatch(t, dir)
		eventually(t, "it runs", func() bool { return strings.Contains(eltrain(t, dir, "status").out, "2 processes") })
		args := []string{"cancel", "job.tiny"}
		if mode != "" {
			args = []string{"cancel", mode, "job.tiny"}
		}
		eltrain(t, dir, args...).check(t, exitDone, strings.Join(args, " ")+": done")
		if _, err := os.Stat(told); (err == nil) != asked {
			t.Errorf("%v: the processes got SIGTERM: %v", args, err == nil)
		}
		eltrain(t, dir, "restart", "-elsewhere", "job.tiny").check(t, exitError, "refused: job.tiny is Canceled")
		eltrain(t, dir, "restart", "-elsewhere", "-in-place", "job.tiny").check(t, exitError, "cannot be used with -elsewhere")
	}
}

const signalled = `job "tiny" {
  checkpoint {
    dir    = "ckpt"
    signal = "SIGUSR1"
  }
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "trap 'echo hup' HUP; trap 'n=$((n+1)); : > ckpt/$RANK.tmp; echo > ckpt/$RANK.tmp; mv ckpt/$RANK.tmp ckpt/step-$n' USR1; echo ready from $ELTRAIN_RESUME_STEP.; while :; do sleep 0.05; done"]
    stop_grace = "10s"
    resources {
      cpu = 0.1
    }
  }
}
`

// Training processes are reached through their agents, with a master and without.
func TestActs(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": signalled})
	if err := os.Mkdir(filepath.Join(dir, "ckpt"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	said := func(text string, times int) {
		t.Helper()
		eventually(t, text, func() bool { return strings.Count(eltrain(t, dir, "logs", "job.tiny").out, text) == times })
	}
	said("ready from .", 2)
	eltrain(t, dir, "reload", "job.tiny").check(t, exitError, "refused: worker[0]: there is no checkpoint in the checkpoint directory")
	eltrain(t, dir, "signal", "hup", "job.tiny").check(t, exitDone, "signal SIGHUP job.tiny: done")
	eltrain(t, dir, "checkpoint", "job.tiny").check(t, exitDone, "checkpoint job.tiny: done: step 1, "+filepath.Join(dir, "ckpt", "step-1"))

	w := startWatch(t, dir)
	eventually(t, "it watches", func() bool { return w.probe("/readyz") == http.StatusOK })
	eltrain(t, dir, "signal", "SIGHUP", "job.tiny.worker[1]").check(t, exitDone, "done")
	var asked view.RequestModel
	if err := json.Unmarshal([]byte(eltrain(t, dir, "checkpoint", "-json", "job.tiny").check(t, exitDone).out), &asked); err != nil {
		t.Fatal(err)
	}
	if len(asked.ResultCodes) != 1 || asked.ResultCodes[0].Args["step"] != "2" {
		t.Errorf("the checkpoint is %+v", asked)
	}
	eltrain(t, dir, "reload", "-step=7", "job.tiny").check(t, exitError, "refused: worker[0]: there is no checkpoint of step 7 in the checkpoint directory; there are steps 2, 1")
	eltrain(t, dir, "reload", "-step=1", "job.tiny").check(t, exitDone, "reload -step=1 job.tiny: done: step 1, ")
	said("ready from 1.", 2)
	eltrain(t, dir, "status").check(t, exitDone, "generation 2, 2 processes")
	eltrain(t, dir, "requests").check(t, exitDone, "signal SIGHUP job.tiny.worker[1]", "reload -step=7 job.tiny", "done: step 2, ")
	eltrain(t, dir, "checkpoint", "job.tiny.worker[1]").check(t, exitError, "only whole jobs")
	for args, want := range map[string]string{
		"signal": "A signal is missing", "signal job.tiny": `"job.tiny" is not a signal`, "signal USR1": "An address is missing",
		"reload -step=0 job.tiny": "it must be a step", "checkpoint -step=1 job.tiny": "-step",
	} {
		eltrain(t, dir, strings.Fields(args)...).check(t, exitError, want)
	}
}

const saving = `job "tiny" {
  progress {
    pattern = "step (?P<step>\\d+)"
  }
  checkpoint {
    dir = "out"
  }
  role "worker" {
    command    = ["sh", "-c", "echo step 420; echo resume from $ELTRAIN_RESUME_STEP.; exec sleep 600"]
    stop_grace = "10s"
    resources {
      cpu = 0.1
    }
  }
}
`

// The checkpoints of a framework are found in their directory without a pattern. One that is incomplete is named, and never resumed from.
func TestAnIncompleteCheckpointNeverCounts(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": saving})
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, "out", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("checkpoint-400/model.safetensors", "weights")
	put("checkpoint-400/trainer_state.json", `{"global_step": 400}`)
	put("checkpoint-500/model.safetensors", "weig")
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	const torn = "out/checkpoint-500 of step 500 is incomplete: trainer_state.json, which is written last, is missing"
	eventually(t, "the status names it", func() bool { return strings.Contains(eltrain(t, dir, "status").out, torn) })
	eltrain(t, dir, "status").check(t, exitDone, "step 420, checkpoint at step 400", "saved     out/checkpoint-400, ", " ago, 27B", "! The checkpoint "+torn)

	var status struct {
		Jobs []struct {
			CheckpointStep int64                 `json:"checkpoint_step"`
			Checkpoint     view.CheckpointStatus `json:"checkpoint"`
			Torn           []view.TornStatus     `json:"torn_checkpoints"`
		}
	}
	if err := json.Unmarshal([]byte(eltrain(t, dir, "status", "-json").check(t, exitDone).out), &status); err != nil {
		t.Fatal(err)
	}
	j := status.Jobs[0]
	if c := j.Checkpoint; j.CheckpointStep != 400 || c.Step != 400 || c.Path != "out/checkpoint-400" || c.Layout != "transformers" || c.Size != 27 || c.AgeSeconds == nil {
		t.Errorf("the checkpoint is %+v", j)
	}
	if len(j.Torn) != 1 || j.Torn[0].Step != 500 || j.Torn[0].ReasonCode.Args["file"] != "trainer_state.json" {
		t.Errorf("torn are %+v", j.Torn)
	}
	eltrain(t, dir, "plan", "-replace=job.tiny.worker[0]").check(t, exitDone, "resumes from the checkpoint of step 400 in out; recomputed: 20 steps")
	eltrain(t, dir, "reload", "-step=500", "job.tiny").check(t, exitError, "refused: worker[0]: the checkpoint "+filepath.Join(dir, torn))
	eltrain(t, dir, "reload", "job.tiny").check(t, exitDone, "done: step 400, "+filepath.Join(dir, "out", "checkpoint-400"))

	// One that becomes whole counts.
	put("checkpoint-500/trainer_state.json", `{"global_step": 500}`)
	eltrain(t, dir, "reload", "-step=500", "job.tiny").check(t, exitDone, "done: step 500, ")
	eventually(t, "it resumes from it", func() bool { return strings.Contains(eltrain(t, dir, "logs", "job.tiny").out, "resume from 500.") })
}

// Of ten thousand contradicting requests at once each has one outcome, and the last one counts.
func TestManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	soak.Only(t)
	const many = 10_000
	dir := execJob(t)
	q := file.NewRequests(dir, filepath.Join(dir, ".eltrain", workspace.DefaultState+".requests"))
	ids := make([]string, many)
	for i := range ids {
		r := job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "tiny"}}, At: time.Now(), Expires: time.Now().Add(time.Hour)}
		if i%2 == 1 {
			r.Verb = job.AskResume
		}
		r, err := q.Ask(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = r.ID
	}
	startWatch(t, dir)
	last := func() job.Reply {
		asked, err := q.Get(t.Context(), ids[many-1])
		if err != nil {
			t.Fatal(err)
		}
		return asked.Reply
	}
	eventually(t, "all are answered", func() bool {
		pending, err := q.Pending(t.Context())
		return err == nil && len(pending) == 0
	})
	if r := last(); r.State != job.Done {
		t.Errorf("the last one is %+v", r)
	}
	all, err := q.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	superseded := 0
	for _, asked := range all {
		switch {
		case asked.Reply.Reason.Code == plan.RequestSuperseded:
			superseded++
		case asked.Reply.State != job.Done:
			t.Errorf("%s is %+v", asked.ID, asked.Reply)
		}
	}
	if superseded < len(all)/2 {
		t.Errorf("%d of the %d that are kept were superseded", superseded, len(all))
	}
	if n := len(read(t, filepath.Join(dir, "eltrain.state"))); n > 1<<20 {
		t.Errorf("the state has %d bytes afterwards", n)
	}
	eltrain(t, dir, "suspend", "job.tiny").check(t, exitDone, "suspend job.tiny: done")
}

// A state block with an error says nothing about where the state is: no command guesses.
func TestAnInvalidStateBlockIsNoState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"state \"local\" {\n    path = \"other.state\"\n  }":                   `There is no state store "local"`,
		"state \"file\" {\n    name = \"a\"\n  }":                              `"name" is not an argument of the state store "file"`,
		"state \"file\" {\n    path = var.where\n  }\n}\nvariable \"where\" {": "variable",
	} {
		dir := directoryWith(t, map[string]string{"main.hcl": "eltrain {\n  " + text + "\n}\n" + twoWorkers})
		for _, command := range [][]string{{"plan"}, {"status"}, {"requests"}, {"suspend", "job.tiny"}} {
			eltrain(t, dir, command...).check(t, exitError, want)
		}
		if _, err := os.Stat(filepath.Join(dir, workspace.RunDirectory)); err == nil {
			t.Errorf("%s left something behind", text)
		}
	}
}
