package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
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
	r, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: tail})
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
	if _, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: -1}); err == nil || !strings.Contains(err.Error(), "job.gpt.worker[0]") {
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
		if _, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: -1}); err == nil || !strings.Contains(err.Error(), name) {
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
	r, err := b.Logs(ctx, testUID, worker(0), providers.LogOptions{Tail: 10, Follow: make(chan struct{})}) // the file does not exist yet
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
	r, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: 0, Follow: make(chan struct{})})
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

// What is printed from a time on, and by the incarnation before another one.
func TestPartsOfALog(t *testing.T) {
	b := newBench(t)
	b.writeLog("old 1\nold 2\nnew 1\nnew 2\n")
	began := time.Now().Add(-time.Minute)
	for i, offset := range []int64{0, 12} {
		marks := logmarks.Begin(b.logPath(worker(0)), logmarks.Mark{UID: testUID, Incarnation: i + 1})
		marks.Write(began.Add(time.Duration(i)*30*time.Second), offset)
		marks.Close()
	}
	const all, old, current = "old 1\nold 2\nnew 1\nnew 2\n", "old 1\nold 2\n", "new 1\nnew 2\n"
	for _, c := range []struct {
		options providers.LogOptions
		want    string
	}{
		{providers.LogOptions{Tail: -1, Since: began}, all},
		{providers.LogOptions{Tail: -1, Since: began.Add(20 * time.Second)}, current},
		{providers.LogOptions{Tail: 1, Since: began.Add(20 * time.Second)}, "new 2\n"},
		{providers.LogOptions{Tail: 3, Since: began.Add(20 * time.Second)}, current},
		{providers.LogOptions{Tail: -1, Since: began.Add(50 * time.Second)}, ""},
		{providers.LogOptions{Tail: -1, Before: 2}, old},
		{providers.LogOptions{Tail: 1, Before: 2}, "old 2\n"},
		{providers.LogOptions{Tail: -1, Before: 2, Since: began.Add(20 * time.Second)}, ""},
		{providers.LogOptions{Tail: -1, Before: 9}, current},
	} {
		r, err := b.Logs(b.ctx, testUID, worker(0), c.options)
		b.ok(err)
		text, err := io.ReadAll(r)
		b.ok(errors.Join(err, r.Close()))
		if string(text) != c.want {
			t.Errorf("%+v: %q, want %q", c.options, text, c.want)
		}
	}
	later := logmarks.Begin(b.logPath(worker(0)), logmarks.Mark{UID: "later", Incarnation: 1})
	defer later.Close()
	own := func() string {
		r, err := b.Logs(b.ctx, "later", worker(0), providers.LogOptions{Tail: -1, Own: true})
		b.ok(err)
		text, err := io.ReadAll(r)
		b.ok(errors.Join(err, r.Close()))
		return string(text)
	}
	if text := own(); text != "" {
		t.Errorf("before a later job of the name prints anything it has %q", text)
	}
	later.Write(time.Now(), int64(len(all)))
	b.writeLog("later\n")
	if text := own(); text != "later\n" {
		t.Errorf("a later job of the name has %q", text)
	}
	if _, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: -1, Before: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the first incarnation: %v", err)
	}
}

func TestAFollowedLogIsReadToItsEnd(t *testing.T) {
	b := newBench(t)
	b.writeLog("first\n")
	over := make(chan struct{})
	r, err := b.Logs(b.ctx, testUID, worker(0), providers.LogOptions{Tail: -1, Follow: over})
	b.ok(err)
	defer r.Close()
	missing, err := b.Logs(b.ctx, testUID, worker(1), providers.LogOptions{Tail: -1, Follow: over})
	b.ok(err)
	defer missing.Close()
	b.writeLog(strings.Repeat("more\n", 50_000))
	close(over)
	for reader, want := range map[io.Reader]int{r: 6 + 5*50_000, missing: 0} {
		if text, err := io.ReadAll(reader); err != nil || len(text) != want {
			t.Errorf("%d bytes, %v; want %d", len(text), err, want)
		}
	}
}

func TestKeptLogs(t *testing.T) {
	b := newBench(t)
	b.writeLog("x\n")
	for _, name := range []string{"worker-0.log.1", "worker-01.log", "a-b-2.log", "other"} {
		b.ok(os.WriteFile(filepath.Join(filepath.Dir(b.logPath(worker(0))), name), nil, 0o600))
	}
	kept, err := b.Kept("gpt")
	if len(kept) != 2 || kept[0].Address.Short() != "a-b[2]" || kept[1].Address != worker(0) || err != nil {
		t.Errorf("kept are %v, %v", kept, err)
	}
	if kept, err := b.Kept("other"); len(kept) > 0 || err != nil {
		t.Errorf("of another job there are %v, %v", kept, err)
	}
}
