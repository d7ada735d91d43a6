package main

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
)

const (
	// openMost is how long a pipe's reader is waited for: it may be started beside eltrain, as by `jq . < pipe &`.
	openMost = 5 * time.Second
	// openAgain is how often it is looked for.
	openAgain = 20 * time.Millisecond
	// linesMost is how long a run that changes something waits for a reader that takes nothing. It is well below the time
	// after which such a run drops output for people.
	linesMost = 10 * time.Second
	// linesInterrupted is how long any run waits after an interrupt.
	linesInterrupted = time.Second
)

// lineFile is the file of -json-into. It may be a pipe, and the run does not hang on who reads that. It writes nothing
// more after the first error: a line that is half there spoils the next.
type lineFile struct {
	*os.File
	most   time.Duration     // that a write waits for the reader; 0 for until an interrupt
	tell   func(why string)  // is reported once if the rest is left out and the run continues
	settle func() (was bool) // ends the watch for the interrupt

	mu          sync.Mutex
	interrupted bool
	err         error // the first
}

// openLines opens a file for lines of JSON: a new one, a device or a pipe, or an old one, which is emptied if it has
// such lines. Any other file is left as it is: it may be the state. The end of ctx is an interrupt.
func openLines(ctx context.Context, path string, most time.Duration, tell func(why string)) (*lineFile, error) {
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
	l := &lineFile{File: f, most: most, tell: tell}
	l.settle = context.AfterFunc(ctx, l.interrupt)
	return l, nil
}

// openForWriting opens a pipe to write only, or eltrain would be a reader of it, and never hear that the last of the
// others has gone. That waits for nobody, nor does writing then hold up a thread: Go waits, to a deadline.
func openForWriting(ctx context.Context, path string) (*os.File, error) {
	look := time.NewTicker(openAgain)
	defer look.Stop()
	for end := time.Now().Add(openMost); ; {
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

// checkLines checks that the first line of a file is one of a view.Stream.
func checkLines(path string) error {
	f, err := os.Open(path)
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

// Write is for one caller at a time.
func (l *lineFile) Write(b []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	n, err := l.File.Write(b)
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

// begin sets the time to which the next write may wait, if there is to be one. What is no pipe has no such time, and
// waits for nobody.
func (l *lineFile) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
	case l.interrupted:
		l.SetWriteDeadline(time.Now().Add(linesInterrupted))
	case l.most > 0:
		l.SetWriteDeadline(time.Now().Add(l.most))
	}
	return l.err
}

// interrupt bounds the write that waits, and those to come.
func (l *lineFile) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = true
	l.SetWriteDeadline(time.Now().Add(linesInterrupted))
}

// finish closes the file, and reports whether all has arrived that was to. A reader that has gone has read enough, and what
// was left out of a run that went on was told.
func (l *lineFile) finish() error {
	l.settle()
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, syscall.EPIPE), late && l.most > 0:
		err = nil
	case late:
		err = fmt.Errorf("the run was interrupted before the reader of %q had read everything", l.Name())
	}
	return errors.Join(err, l.Close())
}
