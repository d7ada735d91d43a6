package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
)

// Several jobs are a list, whatever is named is shown in full.
func TestStatusListsSeveralJobs(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"a.hcl": sleeper("a", ""), "b.hcl": sleeper("b", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	list := eltrain(t, dir, "status").unwrapped().check(t, exitDone, "JOB PHASE WORLD STEP", "job.a Running 2", "job.b Running 2", "No master is running")
	if strings.Contains(list.out, "SLOT") {
		t.Errorf("the list has slots:\n%s", list.out)
	}
	both := eltrain(t, dir, "status", "job.b.worker[0]", "job.a", "job.a").unwrapped().check(t, exitDone, "job.a Running", "job.b Running")
	if strings.Count(both.out, "SLOT") != 2 {
		t.Errorf("two addresses do not show two jobs:\n%s", both.out)
	}
	eltrain(t, dir, "status", "job.a", "job.c").check(t, exitError, `no job "c"`)
	eltrain(t, dir, "status", "-watch", "job.c").check(t, exitError, `no job "c"`)
}

// A status that is watched goes on when the master is killed and when another comes, and holds nothing more than before.
func TestStatusWatchOutlivesMasters(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"a.hcl": sleeper("a", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	first := startWatch(t, dir)
	eventually(t, "training", func() bool { return strings.Contains(first.out.String(), "job.a: Running") })

	status := commandIn(dir, "status", "-watch", "-json")
	pipe, err := status.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs collected
	status.Stderr = &errs
	if err := status.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { status.Process.Kill() })
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	await := func(what string, ok func(view.StatusModel) bool) {
		t.Helper()
		for lines.Scan() {
			var m view.StatusModel
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			if ok(m) {
				return
			}
		}
		t.Fatalf("it ends before it shows %s\n%s", what, errs.String())
	}
	open := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", status.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	pid := func(of *watchProcess) func(view.StatusModel) bool {
		return func(m view.StatusModel) bool { return m.Master.Watching && m.Master.PID == of.cmd.Process.Pid }
	}
	unwatched := func(m view.StatusModel) bool { return !m.Master.Watching && len(m.Jobs) == 1 }
	await("the first master", pid(first))
	before := open()
	first.cmd.Process.Kill()
	<-first.done
	await("that no master is running", unwatched)
	second := startWatch(t, dir)
	await("the second master", pid(second))
	// An edit opens the directory anew.
	writeFile(t, filepath.Join(dir, "b.hcl"), sleeper("b", ""))
	await("the new job", func(m view.StatusModel) bool { return len(m.Jobs) == 2 && m.Jobs[1].Healthy })
	if after := open(); after > before+2 {
		t.Errorf("it had %d files open, and has %d", before, after)
	}
	if err := status.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := status.Wait(); err != nil {
		t.Errorf("an interrupted status -watch: %v\n%s", err, errs.String())
	}
	if text := errs.String(); text != "" {
		t.Errorf("it complains: %s", text)
	}
	second.cmd.Process.Signal(syscall.SIGTERM)
	<-second.done
}

// It ends when nobody reads it any more.
func TestStatusWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"a.hcl": ""})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	status := commandIn(dir, "status", "-watch")
	status.Stdout = write
	read.Close()
	err = status.Run()
	write.Close()
	if err != nil {
		t.Errorf("status -watch without a reader: %v", err)
	}
}
