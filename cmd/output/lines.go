package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/regular"
)

const (
	// openTimeout bounds the wait for a pipe's reader, which may be started at the same time, as by `jq . < pipe &`.
	openTimeout = 5 * time.Second
	// openInterval is the interval of tries to open the pipe.
	openInterval = 20 * time.Millisecond
	// linesInterrupted is how long any run waits after an interrupt.
	linesInterrupted = time.Second
)

// Lines is a file for lines of JSON. If it is a pipe, a blocked reader does not block the run. It writes nothing after the
// first error: a partial line would corrupt the next.
type Lines struct {
	file   *os.File          // not embedded: its other ways to write know no deadline
	most   time.Duration     // bounds a write's wait for the reader; 0 for until an interrupt
	tell   func(why string)  // called once if the rest is dropped and the run continues
	settle func() (was bool) // stops waiting for the interrupt

	mu          sync.Mutex
	interrupted bool
	err         error // the first
}

// OpenLines opens a file for lines of JSON: a new file, a device, a pipe, or an older file of such lines, which is truncated.
// It refuses any other file: it may be the state. The end of ctx is an interrupt.
//
// most bounds the wait of a write for the reader, 0 for until an interrupt. tell is called once if the rest is dropped for that and the
// run continues.
func OpenLines(ctx context.Context, path string, most time.Duration, tell func(why string)) (*Lines, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if err := checkLines(path); err != nil {
			return nil, err
		}
	}
	f, err := openForWriting(ctx, path)
	if err != nil {
		return nil, err
	}
	l := &Lines{file: f, most: most, tell: tell}
	l.settle = context.AfterFunc(ctx, l.interrupt)
	return l, nil
}

// openForWriting opens a pipe write-only: as a reader too, eltrain would not notice that the last other reader is gone. With
// O_NONBLOCK the open does not wait for a reader, and writes can have a deadline.
func openForWriting(ctx context.Context, path string) (*os.File, error) {
	look := time.NewTicker(openInterval)
	defer look.Stop()
	for end := time.Now().Add(openTimeout); ; {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o666)
		if !errors.Is(err, syscall.ENXIO) || !isPipe(path) {
			return f, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the pipe %q has no reader. Start the reader first", path)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the pipe %q had no reader yet when the run was interrupted", path)
		}
	}
}

func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

// checkLines checks that a file begins like the output of a view.Stream.
func checkLines(path string) error {
	f, err := regular.OpenNamed(path)
	if err != nil {
		return err
	}
	defer f.Close()
	begin := make([]byte, len(view.StreamBegin))
	if _, err := io.ReadFull(f, begin); err != nil || string(begin) != view.StreamBegin {
		return fmt.Errorf("%q exists and was not written by -json-into, so it is left unchanged. Name another file, or remove that one", path)
	}
	return nil
}

// Write must not be called concurrently.
func (l *Lines) Write(b []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	n, err := l.file.Write(b)
	if err == nil {
		return n, nil
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	switch {
	case l.most == 0:
	case errors.Is(err, syscall.EPIPE):
		l.tell("its reader is gone")
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.tell("its reader is blocked")
	}
	return n, err
}

// begin sets the next write's deadline, or returns the first error. A regular file has no deadlines, and never blocks.
func (l *Lines) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
	case l.interrupted:
		l.file.SetWriteDeadline(time.Now().Add(linesInterrupted))
	case l.most > 0:
		l.file.SetWriteDeadline(time.Now().Add(l.most))
	}
	return l.err
}

// interrupt sets a deadline for the current write and later ones.
func (l *Lines) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = true
	l.file.SetWriteDeadline(time.Now().Add(linesInterrupted))
}

// Finish closes the file, and returns an error if output was lost. It ignores a reader that is gone, and losses that tell
// already reported.
func (l *Lines) Finish() error {
	l.settle()
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, syscall.EPIPE), late && l.most > 0:
		err = nil
	case late:
		err = fmt.Errorf("the run was interrupted before the reader of %q had read everything", l.file.Name())
	}
	return errors.Join(err, l.file.Close())
}
