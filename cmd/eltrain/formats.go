package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/eltrain/eltrain/cmd/output"
	"github.com/eltrain/eltrain/cmd/view"
)

// linesTimeout is how long a run that changes something waits for a blocked reader of -json-into. It is well below the time after
// which such a run drops output for people.
const linesTimeout = 10 * time.Second

// formats are the options for machine-readable output.
type formats struct {
	json     bool
	jsonInto string
}

func (a *formats) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON lines in the format of Terraform's machine-readable UI.")
	fs.StringVar(&a.jsonInto, "json-into", "", "Also write that JSON to `FILE`.")
}

// check reports flags that cannot be used together.
func (a *formats) check() error {
	if a.json && a.jsonInto != "" {
		return errors.New("-json and -json-into cannot be used together: they write the same")
	}
	return nil
}

// speak switches the session's output, errors included, to JSON if requested. most bounds the wait for a blocked reader of
// -json-into, 0 for until ctx ends. finish closes the file and returns an error if output was lost.
func (s *session) speak(ctx context.Context, a formats, most time.Duration) (finish func() error, err error) {
	switch {
	case a.json:
		s.stream, s.machine = view.NewStream(s.streams.Out.Writer, version, time.Now), true
		s.streams.Out.Writer = io.Discard // output for people
	case a.jsonInto != "":
		f, err := output.OpenLines(ctx, a.jsonInto, most, func(why string) { s.linesLost(a.jsonInto, why) })
		if err != nil {
			return nil, err
		}
		s.stream = view.NewStream(f, version, time.Now)
		return func() error { s.stream = nil; return f.Finish() }, nil
	}
	return func() error { return nil }, nil
}

// linesLost warns that the rest of the JSON is dropped. It warns in text only: the JSON is what was lost.
func (s *session) linesLost(path, why string) {
	view.WriteDiagnostics(s.streams.Err, s.redactor.Diagnostics([]view.Diagnostic{view.Caution("JSON output stopped",
		fmt.Sprintf("%s: %s. Later events are not in it; the run continues.", path, why))}))
}

// failIfOutputLost returns the exit code of carryOut, or 1 if some of its output was lost, as on a full disk.
func (s *session) failIfOutputLost(carryOut func() int) int {
	out := &output.Checked{Writer: s.streams.Out.Writer}
	s.streams.Out.Writer = out
	code := carryOut()
	lost := out.Lost()
	if lost == nil {
		return code
	}
	// As text only: JSON would go to the output that failed.
	view.WriteDiagnostics(s.streams.Err, s.redactor.Diagnostics([]view.Diagnostic{view.Problem("Cannot write the output", view.Explain(lost))}))
	return exitError
}
