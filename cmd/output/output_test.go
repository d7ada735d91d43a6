package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/internal/hang"
)

// failsOnce fails its first write.
type failsOnce struct {
	with error
	got  strings.Builder
}

func (f *failsOnce) Write(b []byte) (int, error) {
	if err := f.with; err != nil {
		f.with = nil
		return 0, fmt.Errorf("write: %w", err)
	}
	return f.got.Write(b)
}

// A failed write is remembered although later ones succeed; a reader that is gone is no failure.
func TestCheckedRemembersWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		with error
		lost bool
	}{{nil, false}, {syscall.EPIPE, false}, {syscall.ENOSPC, true}, {errors.New("lost"), true}} {
		out := &failsOnce{with: c.with}
		w := &Checked{Writer: out}
		_, err := io.WriteString(w, "first")
		io.WriteString(w, "second")
		if lost := w.Lost(); (lost != nil) != c.lost || errors.As(err, new(*LostError)) != c.lost || c.lost && !errors.Is(lost, c.with) {
			t.Errorf("%v: the write returns %v, and %v is lost", c.with, err, lost)
		}
		if !strings.HasSuffix(out.got.String(), "second") {
			t.Errorf("%v: %q arrived", c.with, out.got.String())
		}
	}
}

func TestAReaderThatLeavesEndsTheRun(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	run, out, release := Outlive(t.Context(), w)
	defer release()
	if _, err := io.WriteString(out, "x"); err != nil || run.Err() != nil {
		t.Fatalf("with a reader: %v, %v", err, run.Err())
	}
	r.Close()
	if n, err := io.WriteString(out, "x"); n != 1 || err != nil {
		t.Errorf("the write returns %d, %v", n, err)
	}
	if run.Err() == nil {
		t.Error("the run continues without a reader")
	}
}

// Only a file of such lines is truncated: any other may be the state.
func TestLinesReplaceOnlyLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for text, writes := range map[string]bool{"": true, view.StreamBegin + "}\n": true, "job \"a\" {\n}\n": false, view.StreamBegin[:3]: false} {
		filetest.Put(t, path, text)
		l, err := OpenLines(t.Context(), path, 0, nil)
		if (err == nil) != writes {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		if _, err := io.WriteString(l, "new\n"); err != nil || l.Finish() != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "new\n" {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// pipe makes a pipe whose buffer is full, with a reader that reads nothing.
func pipeFilled(t *testing.T) (path string, reader *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	w, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(w)
	for err == nil {
		_, err = syscall.Write(w, make([]byte, 4096)) // a write of up to a page is atomic
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}
	return path, reader
}

// A blocked reader holds up a run that changes something for a bounded time, and any run only until an interrupt.
func TestLinesDoNotWaitForABlockedReader(t *testing.T) {
	path, _ := pipeFilled(t)
	told := ""
	l, err := OpenLines(t.Context(), path, time.Millisecond, func(why string) { told += why })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := io.WriteString(l, "line\n"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write ends with %v", err)
		}
	}
	if err := l.Finish(); err != nil || told != "its reader is blocked" {
		t.Errorf("it ends with %v, and tells %q", err, told)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	if l, err = OpenLines(ctx, path, 0, nil); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(l, "line\n")
		written <- err
	}()
	interrupt()
	select {
	case err := <-written:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an interrupted write ends with %v", err)
		}
	case <-time.After(hang.Bound):
		t.Fatal("an interrupt does not end the write")
	}
	if err := l.Finish(); err == nil || !strings.Contains(err.Error(), "interrupted before the reader") {
		t.Errorf("it ends with %v", err)
	}
}

// A reader that closes the pipe is told once, and is no error.
func TestLinesWhoseReaderGoes(t *testing.T) {
	path, reader := pipeFilled(t)
	told := ""
	l, err := OpenLines(t.Context(), path, hang.Bound, func(why string) { told += why })
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	for range 2 {
		if _, err := io.WriteString(l, "line\n"); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write ends with %v", err)
		}
	}
	if err := l.Finish(); err != nil || told != "its reader is gone" {
		t.Errorf("it ends with %v, and tells %q", err, told)
	}
}
