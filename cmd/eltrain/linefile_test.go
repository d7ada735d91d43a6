package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// pipeIn makes a pipe in a directory.
func pipeIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readerOf opens a pipe read-only, without waiting for a writer.
func readerOf(t *testing.T, path string) *os.File {
	t.Helper()
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fill fills a pipe's buffer.
func fill(t *testing.T, path string) {
	t.Helper()
	w, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(w)
	for _, size := range []int{4096, 1} { // a write of up to a page is atomic
		for err = nil; err == nil; {
			_, err = syscall.Write(w, bytes.Repeat([]byte("\n"), size))
		}
		if err != syscall.EAGAIN {
			t.Fatal(err)
		}
	}
}

// A pipe without a reader is an error, after a bounded wait; a reader that comes a moment later is in time.
func TestJSONIntoAPipeWithoutReader(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	pipe := pipeIn(t, dir)
	eltrain(t, dir, "plan", "-json-into=pipe").check(t, exitError, `The pipe "pipe" has no reader`, "Start the reader first")

	planning := commandIn(dir, "plan", "-json-into=pipe")
	if err := planning.Start(); err != nil {
		t.Fatal(err)
	}
	// Opening blocks until there is a writer. If eltrain has given up, the timer opens the pipe instead.
	late := time.AfterFunc(hang.Bound, func() {
		if w, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			syscall.Close(w)
		}
	})
	r, err := os.Open(pipe)
	late.Stop()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var lines bytes.Buffer
	if _, err := lines.ReadFrom(r); err != nil || !strings.Contains(lines.String(), `"type":"change_summary"`) {
		t.Errorf("%v: %s", err, &lines)
	}
	if err := planning.Wait(); err != nil {
		t.Error(err)
	}
}

// A reader that closes the pipe early changes neither what is done nor the exit code.
func TestJSONIntoAPipeWhoseReaderGoes(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	pipe := pipeIn(t, dir)
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"plan", "-detailed-exitcode"}, exitChanges, ""},
		{[]string{"apply", "-auto-approve"}, exitDone, "its reader is gone"},
	} {
		r := readerOf(t, pipe)
		fill(t, pipe) // so that no line has been written when the reader closes it
		cmd := commandIn(dir, append(c.args, "-json-into=pipe")...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitWriter(t, cmd.Process.Pid, pipe)
		r.Close()
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != c.code || strings.Count(errs.String(), "JSON output stopped") != strings.Count(c.says, "reader") || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: code %d, want %d; it says %q", c.args, code, c.code, errs.String())
		}
		if !strings.Contains(out.String(), "2 to add") {
			t.Errorf("%v writes the text %s", c.args, &out)
		}
	}
}

// awaitWriter waits until a process has a file open for writing.
func awaitWriter(t *testing.T, pid int, path string) {
	t.Helper()
	descriptors := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	for end := time.Now().Add(hang.Bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		entries, _ := os.ReadDir(descriptors)
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(descriptors, e.Name())); err == nil && to == path {
				return
			}
		}
	}
	t.Fatalf("process %d never opens %s", pid, path)
}

// A plan waits for the reader of its pipe until an interrupt.
func TestAnInterruptEndsJSONIntoAFullPipe(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	pipe := pipeIn(t, dir)
	r := readerOf(t, pipe)
	defer r.Close()
	fill(t, pipe)
	cmd := commandIn(dir, "plan", "-json-into=pipe")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitWriter(t, cmd.Process.Pid, pipe)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(hang.Bound):
		cmd.Process.Kill()
		<-ended
		t.Fatal("SIGTERM does not end it")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitError || !strings.Contains(errs.String(), "was interrupted before the reader of") {
		t.Errorf("code %d: %s", code, &errs)
	}
}

// A watch keeps healing and writing its text output when the reader of its JSON is blocked or gone.
func TestAWatchGoesOnWithoutTheReaderOfItsJSON(t *testing.T) {
	t.Parallel()
	for _, goes := range []bool{false, true} {
		dir := directoryWith(t, map[string]string{"main.hcl": sleepers})
		pipe := pipeIn(t, dir)
		r := readerOf(t, pipe)
		fill(t, pipe)
		w := startWatch(t, dir, "-json-into=pipe")
		awaitWriter(t, w.cmd.Process.Pid, pipe)
		if goes {
			r.Close()
		}
		eventually(t, "it watches", func() bool { return strings.Contains(w.out.String(), "Watching.") })
		eventually(t, "a worker runs", func() bool {
			_, err := os.Stat(filepath.Join(dir, "pid.0"))
			return err == nil && w.probe("/readyz") == 200
		})
		pid := pidIn(t, filepath.Join(dir, "pid.0"))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the text output continues", func() bool { return strings.Contains(w.out.String(), "signal: killed") })
		eventually(t, "it heals", func() bool { now := pidIn(t, filepath.Join(dir, "pid.0")); return now != pid && alive(now) })
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := w.code(t); code != exitDone {
			t.Errorf("it ends with %d", code)
		}
		if n := strings.Count(w.out.String(), "JSON output stopped"); n != 1 {
			t.Errorf("with a reader that goes (%t) it says %d times that the JSON is lost", goes, n)
		}
		r.Close()
		eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	}
}
