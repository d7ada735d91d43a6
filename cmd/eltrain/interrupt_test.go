package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/state/file"
)

// A blocked reader, such as an open pager, keeps neither a watch from ending nor its lock from the next run. A second interrupt
// exits at once.
func TestAWatchGivesTheLockBackThoughNobodyReads(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": "provider \"local\" {\n}\n"})
	pipe := pipeIn(t, dir)
	r := readerOf(t, pipe)
	defer r.Close()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := commandIn(dir, "apply", "-watch", "-auto-approve")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	r.SetReadDeadline(time.Now().Add(hang.Bound))
	var said bytes.Buffer
	for b := make([]byte, 4096); !strings.Contains(said.String(), "Watching."); {
		n, err := r.Read(b)
		said.Write(b[:n])
		if err != nil {
			t.Fatalf("it never watches: %v; it says\n%s", err, &said)
		}
	}
	fill(t, pipe)
	store, err := file.New(filepath.Join(dir, workspace.DefaultState), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	held := func() bool {
		holder, err := store.Holder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return holder != nil
	}
	if !held() {
		t.Fatal("it watches without the lock")
	}
	interrupt := func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	interrupt()
	eventually(t, "the lock is free", func() bool { return !held() })
	select {
	case <-ended:
		t.Error("it exited before it reported the result")
	default:
	}
	interrupt()
	select {
	case <-ended:
	case <-time.After(hang.Bound):
		t.Fatal("two interrupts do not end it")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("exit code %d", code)
	}
}

// An interrupt also cancels the approval of a refresh: nothing is recorded.
func TestAnInterruptEndsTheQuestionOfARefresh(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	killAgent(t, dir, slotsOf(t, dir)["job.tiny.worker[1]"])
	before := read(t, filepath.Join(dir, workspace.DefaultState))
	cmd := commandIn(dir, "apply", "-refresh-only")
	answer, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	var said collected
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	eventually(t, "it asks", func() bool { return strings.Contains(said.String(), "Enter a value:") })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(hang.Bound):
		t.Fatalf("it still prompts:\n%s", said.String())
	}
	outcome{cmd.ProcessState.ExitCode(), said.String(), ""}.check(t, exitError, "Nothing was started.", "Apply cancelled.")
	if read(t, filepath.Join(dir, workspace.DefaultState)) != before {
		t.Error("what was seen is recorded")
	}
}

// The messages about an interrupted destroy call it a destroy, whenever it was interrupted.
func TestAnEarlyInterruptOfADestroyNamesIt(t *testing.T) {
	for want, a := range map[string]applyArgs{"Destroy was interrupted": {planning: planning{Intent: destroying}}, "Apply was interrupted": {}} {
		s := newScreenless("")
		if code := s.interruptedEarly(a, "while observing what is running"); code != exitError || !strings.Contains(s.err.String(), want) {
			t.Errorf("code %d, want %q: %s", code, want, &s.err)
		}
	}
}
