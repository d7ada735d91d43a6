package local

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
