// Package output writes what a command prints to readers that may be slow, gone or full. It must not know what is printed.
package output

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// LostError is the error of a write to an output that was lost.
type LostError struct{ err error }

func (l *LostError) Error() string { return l.err.Error() }

func (l *LostError) Unwrap() error { return l.err }

// Checked remembers the first failed write. A reader that closed its end (EPIPE) is no failure.
type Checked struct {
	io.Writer
	mu   sync.Mutex
	lost error // the first
}

func (f *Checked) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return n, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = cmp.Or(f.lost, err)
	return n, &LostError{err}
}

// Lost returns the error of the first write that failed.
func (f *Checked) Lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Outlive lets a run outlive the reader of its output w: it must not die of SIGPIPE in the middle of a change. The first failed write to
// out cancels the context run instead. Call release once.
func Outlive(ctx context.Context, w io.Writer) (run context.Context, out io.Writer, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	// Catching SIGPIPE makes the write return an error. Ignoring it would too, but agents would inherit that.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGPIPE)
	return ctx, &pipe{Writer: w, broken: cancel}, func() {
		signal.Stop(caught)
		cancel()
	}
}

// pipe calls broken when its reader is gone, and then discards what is written.
type pipe struct {
	io.Writer
	broken func()
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.broken()
		return len(b), nil
	}
	return n, err
}
