package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
)

// faces are the options by which a command speaks to programs.
type faces struct {
	json     bool
	jsonInto string
}

func (a *faces) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print what happens as JSON, one object a line, in the form of Terraform's machine-readable UI.")
	fs.StringVar(&a.jsonInto, "json-into", "", "Write that JSON to `FILE`, besides the text.")
}

// check tells what does not go together.
func (a *faces) check() error {
	if a.json && a.jsonInto != "" {
		return errors.New("-json and -json-into exclude each other: both give the same")
	}
	return nil
}

// speak makes the session speak JSON where that was asked for, errors included. finish tells whether the file has
// all of it.
func (s *session) speak(a faces) (finish func() error, err error) {
	switch {
	case a.json:
		s.stream, s.machine = view.NewStream(s.streams.Out.Writer, version, time.Now), true
		s.streams.Out.Writer = io.Discard // what is told to people
	case a.jsonInto != "":
		f, err := createLines(a.jsonInto)
		if err != nil {
			return nil, err
		}
		w := &failing{w: f}
		s.stream = view.NewStream(w, version, time.Now)
		return func() error { s.stream = nil; return errors.Join(w.err, f.Close()) }, nil
	}
	return func() error { return nil }, nil
}

// createLines opens a file for lines of JSON: a new one, a device or a pipe, or an old one, which is emptied if it has
// such lines. Any other file is left as it is: it may be the state.
func createLines(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if err := checkLines(path); err != nil {
			return nil, err
		}
	}
	return os.Create(path)
}

// checkLines holds that the first line of a file is one of a view.Stream.
func checkLines(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	begin := make([]byte, len(view.StreamBegin))
	if _, err := io.ReadFull(f, begin); err != nil || string(begin) != view.StreamBegin {
		return fmt.Errorf("%q is there and has other things in it than -json-into writes, so it is left as it is. Name another file, or remove that one", path)
	}
	return nil
}

// failing keeps the first error of a writer, and writes nothing more: a line that is half there spoils the next.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	var n int
	n, f.err = f.w.Write(b)
	return n, f.err
}

// lostOutput is the error of a write to an output that was lost.
type lostOutput struct{ err error }

func (l *lostOutput) Error() string { return l.err.Error() }

func (l *lostOutput) Unwrap() error { return l.err }

// faithful remembers whether all that was written to an output has arrived. A reader that has gone has read enough.
type faithful struct {
	io.Writer
	mu   sync.Mutex
	lost error // the first
}

func (f *faithful) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return n, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = cmp.Or(f.lost, err)
	return n, &lostOutput{err}
}

// faithfully gives the exit code of what was carried out: 1 if some of its output was lost, as on a full disk.
func (s *session) faithfully(carryOut func() int) int {
	out := &faithful{Writer: s.streams.Out.Writer}
	s.streams.Out.Writer = out
	code := carryOut()
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.lost == nil {
		return code
	}
	// The other face of errors is the output that failed.
	view.WriteDiagnostics(s.streams.Err, s.redactor.Diagnostics([]view.Diagnostic{view.Problem("The output cannot be written", sentence(out.lost))}))
	return exitError
}
