package main

import (
	"errors"
	"io"
	"os"
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

// speak makes the session speak JSON where that was asked for, errors included. finish tells whether the file has
// all of it.
func (s *session) speak(a faces) (finish func() error, err error) {
	switch {
	case a.json && a.jsonInto != "":
		return nil, errors.New("-json and -json-into exclude each other: both give the same")
	case a.json:
		s.stream, s.machine = view.NewStream(s.streams.Out.Writer, version, time.Now), true
		s.streams.Out.Writer = io.Discard // what is told to people
	case a.jsonInto != "":
		f, err := os.Create(a.jsonInto)
		if err != nil {
			return nil, err
		}
		w := &failing{w: f}
		s.stream = view.NewStream(w, version, time.Now)
		return func() error { s.stream = nil; return errors.Join(w.err, f.Close()) }, nil
	}
	return func() error { return nil }, nil
}

// failing keeps the first error of a writer.
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
