package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state/file"
)

// leavesNothing checks that no job is known in a directory, and that processes have ended.
func leavesNothing(t *testing.T, dir string, pids ...int) {
	t.Helper()
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
	if slices.ContainsFunc(pids, alive) {
		t.Errorf("of the agents %v some are left", pids)
	}
}

// background starts a run whose training prints a line, and returns once it has done so. ended is its outcome.
func background(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, ended func() outcome) {
	t.Helper()
	var errs bytes.Buffer
	cmd = commandIn(dir, append([]string{"run"}, args...)...)
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(hang.Bound, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		hung.Stop()
		cmd.Process.Kill()
		cmd.Wait()
		killLeft(t, dir)
	})
	first := make([]byte, 1)
	if _, err := io.ReadFull(out, first); err != nil {
		cmd.Wait()
		t.Fatalf("it prints nothing: %v\n%s", err, &errs)
	}
	return cmd, func() outcome {
		rest, _ := io.ReadAll(out)
		cmd.Wait()
		return outcome{cmd.ProcessState.ExitCode(), string(first) + string(rest), errs.String()}
	}
}

func TestRunEndsWithTheTrainingsExitCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		out  string
		says []string
	}{
		"success":     {[]string{"--", "sh", "-c", "echo hello $RANK of $WORLD_SIZE"}, 0, "hello 0 of 1\n", []string{"job.sh: Succeeded"}},
		"failure":     {[]string{"-n=2", "-max-restarts=0", "--", "sh", "-c", "test $RANK = 0 && sleep 300; exit 7"}, 7, "", []string{"job.sh has not succeeded", "process failed in worker[1]: exit code 7"}},
		"signal":      {[]string{"-max-restarts=0", "--", "sh", "-c", "kill -9 $$"}, 137, "", []string{"signal: killed"}},
		"not started": {[]string{"-name=mine", "--", "./none"}, 127, "", []string{"job.mine has not succeeded", "no such file or directory"}},
		"healed":      {[]string{"--", "sh", "-c", "echo try; test -e tried && exit 0; touch tried; exit 7"}, 0, "try\ntry\n", []string{"process failed in worker[0]", "generation 2"}},
		"processes":   {[]string{"-nproc-per-node=2", "-n=1:2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE"}, 0, "0 of 4\n", nil},
		"a launcher":  {[]string{"--", "torchrun", "--nproc-per-node=2", "--no-python", "sh", "-c", "echo $LOCAL_RANK of $WORLD_SIZE"}, 0, "0 of 2\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			t.Cleanup(func() { killLeft(t, dir) })
			o := eltrain(t, dir, append([]string{"run"}, c.args...)...).check(t, c.code, c.says...)
			if o.out != c.out {
				t.Errorf("its output is %q, want %q", o.out, c.out)
			}
			leavesNothing(t, dir)
		})
	}
}

// Jobs of the files run again and again, and without each other's output. Others stay as they are.
func TestRunOfFiles(t *testing.T) {
	t.Parallel()
	quick := func(name, script string) string {
		return fmt.Sprintf("job %q {\n  role \"worker\" {\n    command = [\"sh\", \"-c\", %q]\n  }\n  heal {\n    budget {\n      restarts = 0\n    }\n  }\n}\n", name, script)
	}
	dir := directoryWith(t, map[string]string{"main.hcl": sleeper("stays", ""), "a.hcl": quick("a", "echo from a; exit 3"), "b.hcl": "variable \"text\" {\n  type = string\n}\n" + strings.Replace(quick("b", "echo TEXT; sleep 0.5"), "TEXT", "${var.text}", 1)})
	t.Cleanup(func() { killLeft(t, dir) })
	eltrain(t, dir, "apply", "-auto-approve", "-target=job.stays", "-var=text=x").check(t, exitDone)
	_, _, pids := status(t, dir)
	for range 2 {
		if o := eltrain(t, dir, "run", "-var=text=from b", "job.a", "job.b").check(t, 3, "job.a has not succeeded"); strings.Join(slices.Sorted(strings.Lines(o.out)), "") != "job.a from a\njob.b from b\n" {
			t.Errorf("its output is %q", o.out)
		}
	}
	eltrain(t, dir, "status").check(t, exitDone, "job.stays  Running")
	if after := func() []int { _, _, p := status(t, dir); return p }(); !slices.Equal(after, pids) {
		t.Errorf("of the job that was there the agents were %v, and are %v", pids, after)
	}
	eltrain(t, dir, "run", "-var=text=x", "job.stays").check(t, exitError, "job.stays was started before, and is Running")
	eltrain(t, dir, "run", "-var=text=x", "job.c").check(t, exitError, `he files declare no job "c"`, "There are: ")
	eltrain(t, dir, "run", "-var=text=x", "-name=a", "--", "true").check(t, exitError, `Duplicate job "a"`, "command line.hcl")
	rewrite(t, dir, strings.Replace(sleeper("kept", "lifecycle {\n    prevent_destroy = true\n  }"), "replicas   = 2", "", 1))
	eltrain(t, dir, "run", "-var=text=x", "job.kept").check(t, exitError, "prevent_destroy")
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, ended := background(t, dir, "-n=2", "--", "sh", "-c", "trap 'echo saved; exit 0' TERM; echo on; while :; do sleep 0.1; done")
	_, _, pids := status(t, dir)
	if len(pids) != 2 || !alive(pids[0]) {
		t.Fatalf("its agents are %v", pids)
	}
	eltrain(t, dir, "status").check(t, exitDone, "has been running eltrain run since")
	eltrain(t, dir, "logs", "-rank=1").check(t, exitDone, "[rank 1] on")
	eltrain(t, dir, "run", "--", "true").check(t, exitError, "the state is locked by")
	cmd.Process.Signal(syscall.SIGINT)
	if o := ended().check(t, exitInterrupted, "Please wait for eltrain to stop what it started.", "Destroy complete! Resources: 2 destroyed."); !strings.HasPrefix(o.out, "on\n") || !strings.HasSuffix(o.out, "saved\n") {
		t.Errorf("its output is %q", o.out)
	}
	leavesNothing(t, dir, pids...)
}

// A second interrupt does not wait for training that does not want to stop.
func TestASecondInterruptOfARunExitsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, ended := background(t, dir, "--", "sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.1; done")
	_, _, pids := status(t, dir)
	cmd.Process.Signal(syscall.SIGINT)
	eventually(t, "the first interrupt", func() bool {
		stored := read(t, filepath.Join(dir, workspace.DefaultState))
		return strings.Contains(stored, `"Canceling"`)
	})
	cmd.Process.Signal(syscall.SIGINT)
	ended().check(t, exitError, "Two interrupts received. Exiting immediately.")
	if !alive(pids[0]) {
		t.Error("it waited")
	}
}

// A run whose reader is gone counts as interrupted.
func TestARunEndsWithItsReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { killLeft(t, dir) })
	cmd := exec.Command("sh", "-c", "\"$0\" run -- sh -c 'while :; do echo on; sleep 0.1; done' 2>err | head -n 1", binary)
	cmd.Dir, cmd.Env = dir, clean()
	run(t, cmd).check(t, exitDone, "on\n")
	eventually(t, "the end of the run", func() bool { return strings.Contains(read(t, filepath.Join(dir, "err")), "Destroy complete!") })
	leavesNothing(t, dir)
}

func TestRunDetached(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { killLeft(t, dir) })
	o := eltrain(t, dir, "run", "-detach", "-name=det", "--", "sh", "-c", "echo on; exec sleep 300").check(t, exitDone)
	if want := "job.det: started, and left without a master: nothing heals or scales it."; strings.Count(o.out, "\n") != 1 || !strings.HasPrefix(o.out, want) {
		t.Errorf("it says %q", o.out)
	}
	_, _, pids := status(t, dir)
	if len(pids) != 1 || !alive(pids[0]) {
		t.Fatalf("its agents are %v", pids)
	}
	eltrain(t, dir, "run", "-name=det", "--", "true").check(t, exitError, "job.det was started before, and is Running")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "1 destroyed")
	leavesNothing(t, dir, pids...)
	eltrain(t, dir, "run", "-detach", "--", "./none").check(t, exitError, "job.none is Failed")
	eltrain(t, dir, "run", "--", "./none").check(t, exitError, "job.none is in the state as Failed", "eltrain destroy -target=job.none removes it")
}

func TestRunShowsAllSlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { killLeft(t, dir) })
	o := eltrain(t, dir, "run", "-all", "-n=2", "--", "sh", "-c", "echo line of $RANK").check(t, exitDone)
	for _, line := range []string{"worker[0] [rank 0] line of 0\n", "worker[1] [rank 1] line of 1\n"} {
		if strings.Count(o.out, line) != 1 {
			t.Errorf("%q is not there once:\n%s", line, o.out)
		}
	}
}

// What needs more than there is would wait for ever.
func TestARunThatNeverFitsIsAnError(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": strings.Replace(twoWorkers, "cpu = 0.1", "cpu = 100000", 1)})
	eltrain(t, dir, "run").check(t, exitError, "job.tiny cannot run")
	leavesNothing(t, dir)
}

func TestARunBesideAWatch(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": sleeper("led", "")})
	t.Cleanup(func() { killLeft(t, dir) })
	cmd := commandIn(dir, "apply", "-watch", "-auto-approve")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }()
	eventually(t, "the watch", func() bool { _, running, _ := status(t, dir); return running == 2 })
	eltrain(t, dir, "run", "--", "true").check(t, exitError, "Cannot lock the state", "which does not end by itself")
}

// A request to apply that a watch left open is for other files, and no run reads any.
func TestARunRefusesToApplyOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, ended := background(t, dir, "--", "sh", "-c", "echo on; until test -e done; do sleep 0.1; done")
	requests := file.NewRequests(filepath.Join(dir, ".eltrain"), filepath.Join(dir, ".eltrain", workspace.DefaultState+".requests"))
	now := time.Now()
	asked, err := requests.Ask(t.Context(), job.Request{Verb: job.AskApply, Files: "other", On: []job.Selector{{Job: "sh"}}, At: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reply", func() bool {
		r, err := requests.Get(t.Context(), asked.ID)
		return err == nil && r.Reply.State == job.Refused
	})
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ended().check(t, exitDone)
}

func TestParseRun(t *testing.T) {
	for _, c := range []struct {
		args string
		min  int
		max  int
		err  string
	}{
		{args: "job.a job.b", min: 1, max: 1},
		{args: "-n 2:4 -- python train.py -n 9", min: 2, max: 4},
		{args: "-n=3 -- true", min: 3, max: 3},
		{args: "-n=0 -- true", err: "write a number of slots from 1"},
		{args: "-n=4:2 -- true", err: "or MIN:MAX such as 2:4"},
		{args: "-n=2: -- true", err: "or MIN:MAX such as 2:4"},
		{args: "-n=2", err: "-n needs a command"},
		{args: "-max-restarts=-1 -- true", err: "write a number from 0"},
		{args: "-nproc-per-node=0 -- true", err: "write a number from 1"},
		{args: "-name=-x -- true", err: "write letters, digits"},
		{args: "--", err: "a command is missing after --"},
		{args: "job.a -- true", err: "one argument too many"},
		{args: "job.a.worker", err: "only whole jobs can be run"},
		{args: "-all -detach", err: "-all cannot be used with -detach"},
		{args: "-n=2 -- torchrun train.py", err: "-n cannot be used with a launcher: use the options of torchrun"},
	} {
		a, err := parsed[runArgs](&newScreenless("").session, manyArguments, strings.Fields(c.args))
		switch {
		case c.err == "" && (err != nil || a.program.Min != c.min || a.program.Max != c.max):
			t.Errorf("run %s: %+v, %v", c.args, a.program, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("run %s: error %v, want one with %q", c.args, err, c.err)
		}
	}
}

// The exit code is that of the job that failed first, and in it of the process that exited first.

func TestEachJobThatHasNotSucceededIsNamed(t *testing.T) {
	s := newScreenless("")
	r := &jobsRun{session: &s.session}
	r.showFailed([]*job.Record{{Spec: job.Job{Name: "ended"}, Phase: job.JobCanceled}, {Spec: job.Job{Name: "gone"}, Phase: "destroyed"}})
	for _, text := range []string{"job.ended has not succeeded\n\nIt is Canceled.", "job.gone has not succeeded\n\nIt is destroyed."} {
		if !strings.Contains(s.err.String(), text) {
			t.Errorf("%q is missing in\n%s", text, &s.err)
		}
	}
}
