package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func (b *bench) writeLog(text string) {
	b.Helper()
	path := b.logPath(worker(0))
	b.ok(os.MkdirAll(filepath.Dir(path), 0o700))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	b.ok(err)
	_, err = f.WriteString(text)
	b.ok(err)
	b.ok(f.Close())
}

func (b *bench) readLog(tail int) string {
	b.Helper()
	r, err := b.Logs(b.ctx, testUID, worker(0), tail, false)
	b.ok(err)
	defer r.Close()
	text, err := io.ReadAll(r)
	b.ok(err)
	return string(text)
}

func TestTail(t *testing.T) {
	var long strings.Builder // several times the read buffer
	for n := range 40_000 {
		fmt.Fprintf(&long, "line %d\n", n)
	}
	for _, test := range []struct {
		log  string
		tail int
		want string
	}{
		{"a\nb\nc\n", -1, "a\nb\nc\n"},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb\nhalf", 1, "half"},
		{"a\nb\nhalf", 2, "b\nhalf"},
		{"\n\n\n", 2, "\n\n"},
		{"", 5, ""},
		{strings.Repeat("x", 200_000) + "\nend\n", 1, "end\n"},
		{"begin\n" + strings.Repeat("x", 200_000), 1, strings.Repeat("x", 200_000)},
		{long.String(), 20_000, long.String()[strings.Index(long.String(), "line 20000\n"):]},
	} {
		b := newBench(t)
		b.writeLog(test.log)
		if got := b.readLog(test.tail); got != test.want {
			t.Errorf("last %d lines of %d bytes: %d bytes %.40q, want %d bytes %.40q",
				test.tail, len(test.log), len(got), got, len(test.want), test.want)
		}
	}
}

func TestLogsOfASlotThatNeverRan(t *testing.T) {
	b := newBench(t)
	if _, err := b.Logs(b.ctx, testUID, worker(0), -1, false); err == nil || !strings.Contains(err.Error(), "job.gpt.worker[0]") {
		t.Errorf("error %v", err)
	}
}

// What a training process puts in place of its log or its agent's files is neither waited for nor followed elsewhere.
func TestIrregularFilesAreRefused(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a named pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symbolic link": func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		b := newBench(t)
		b.writeLog("")
		b.ok(os.Remove(b.logPath(worker(0))))
		b.ok(place(b.logPath(worker(0))))
		if _, err := b.Logs(b.ctx, testUID, worker(0), -1, false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the log is %s: %v", name, err)
		}
		if lines := lastLines(b.logPath(worker(0)), 1); lines != nil {
			t.Errorf("the log is %s: it has the lines %q", name, lines)
		}
		dir := b.Provider.dir(key{testUID, "worker", 0, 1})
		b.ok(os.MkdirAll(dir, 0o700))
		for _, file := range []string{agentFile, processesFile, exitFile, endedFile, launchFile} {
			b.ok(place(filepath.Join(dir, file)))
			if _, err := readJSON(dir, file, new(any)); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s is %s: %v", file, name, err)
			}
		}
		b.ok(place(filepath.Join(dir, lockFile)))
		if _, err := lock(dir); err == nil || locked(dir) {
			t.Errorf("the lock is %s: %v", name, err)
		}
		b.ok(os.RemoveAll(dir))
		b.ok(os.Remove(filepath.Join(b.jobDir(testUID), tokenFile)))
		b.ok(place(filepath.Join(b.jobDir(testUID), tokenFile)))
		if _, err := b.Prepare(b.ctx, job.Group{UID: testUID, Name: "gpt"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the token is %s: %v", name, err)
		}
	}
}

func TestFollowGoesOnAcrossRotationAndTruncation(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(b.ctx)
	r, err := b.Logs(ctx, testUID, worker(0), 10, true) // the file does not exist yet
	b.ok(err)
	defer r.Close()
	lines := bufio.NewReader(r)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("followed %q, %v; want %q", got, err, want)
		}
	}
	path := b.logPath(worker(0))
	b.writeLog("first\n")
	expect("first\n")
	b.writeLog("second\n")
	expect("second\n")
	b.writeLog("last of the old\n")
	b.ok(os.Rename(path, path+".1"))
	b.writeLog("first of the new\n")
	expect("last of the old\n")
	expect("first of the new\n")
	b.ok(os.Truncate(path, 0))
	b.writeLog("again\n")
	expect("again\n")
	cancel()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the context ended: %v", err)
	}
}

func TestCloseEndsAReadThatWaits(t *testing.T) {
	b := newBench(t)
	b.writeLog("x\n")
	r, err := b.Logs(b.ctx, testUID, worker(0), 0, true)
	b.ok(err)
	ended := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 1))
		ended <- err
	}()
	b.ok(r.Close())
	select {
	case err := <-ended:
		if err != io.EOF {
			t.Errorf("it ended with %v", err)
		}
	case <-b.ctx.Done():
		t.Error("it keeps waiting")
	}
}
