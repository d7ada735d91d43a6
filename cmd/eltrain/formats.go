package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
)

// formats are the options by which a command speaks to programs.
type formats struct {
	json     bool
	jsonInto string
}

func (a *formats) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print events as JSON, one object per line, in the format of Terraform's machine-readable UI.")
	fs.StringVar(&a.jsonInto, "json-into", "", "Also write that JSON to `FILE`.")
}

// check reports flags that cannot be used together.
func (a *formats) check() error {
	if a.json && a.jsonInto != "" {
		return errors.New("-json and -json-into cannot be used together: they write the same")
	}
	return nil
}

// speak makes the session speak JSON where that was asked for, errors included. most is how long the run waits for who
// reads the file of it and takes nothing, 0 for until ctx ends. finish reports whether the file has all of it.
func (s *session) speak(ctx context.Context, a formats, most time.Duration) (finish func() error, err error) {
	switch {
	case a.json:
		s.stream, s.machine = view.NewStream(s.streams.Out.Writer, version, time.Now), true
		s.streams.Out.Writer = io.Discard // output for people
	case a.jsonInto != "":
		f, err := openLines(ctx, a.jsonInto, most, func(why string) { s.linesLost(a.jsonInto, why) })
		if err != nil {
			return nil, err
		}
		s.stream = view.NewStream(f, version, time.Now)
		return func() error { s.stream = nil; return f.finish() }, nil
	}
	return func() error { return nil }, nil
}

// linesLost says that the rest of the JSON goes nowhere. It is for people alone: the other face is what was lost.
func (s *session) linesLost(path, why string) {
	view.WriteDiagnostics(s.streams.Err, s.redactor.Diagnostics([]view.Diagnostic{view.Caution("JSON output stopped",
		fmt.Sprintf("%s: %s. Later events are not in it; the run continues.", path, why))}))
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

// faithfully returns the exit code of what was carried out: 1 if some of its output was lost, as on a full disk.
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
	view.WriteDiagnostics(s.streams.Err, s.redactor.Diagnostics([]view.Diagnostic{view.Problem("Cannot write the output", sentence(out.lost))}))
	return exitError
}
