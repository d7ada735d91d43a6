package main

import (
	"cmp"
	"context"

	"github.com/eltrain/eltrain/cmd/output"
	"github.com/eltrain/eltrain/cmd/terminal"
)

var (
	applyQuestion = terminal.Question{
		Ask:     "Do you want to perform these actions?",
		Explain: "eltrain will perform the actions described above.",
		Instead: "-auto-approve",
	}
	destroyQuestion = terminal.Question{
		Ask:     "Do you really want to destroy all jobs?",
		Explain: "eltrain will stop everything that is shown above. There is no undo.",
		Instead: "-auto-approve",
	}
)

// approved asks for approval of what is shown.
func (s *session) approved(ctx context.Context, q terminal.Question) (yes bool, err error) {
	s.asking.Store(true)
	defer s.asking.Store(false)
	return q.Approved(ctx, s.streams.In, s.streams.Out)
}

// The replies to a first interrupt, in general and at the approval prompt, where nothing was started.
const (
	interruptedAtWork = `
Interrupt received.
Please wait for eltrain to finish what is in flight; everything else keeps running.
A second interrupt exits at once.

`
	interruptedAsking = "\n\nInterrupt received. Nothing was started.\n"
)

// interruptible returns a context that the first SIGINT or SIGTERM cancels: changes in flight are finished, and the rest
// keeps running. The second signal exits at once. stop restores the signals; call it once.
func (s *session) interruptible() (ctx context.Context, stop func()) {
	return s.interrupts().Handle()
}

func (s *session) interrupts() terminal.Interrupts {
	reply := func() string {
		if s.asking.Load() {
			return interruptedAsking
		}
		return cmp.Or(s.interrupted, interruptedAtWork)
	}
	return terminal.Interrupts{Out: s.streams.Err, Reply: reply, Exit: func() { s.exit(exitError) }}
}

// detached lets a run outlive the reader of its output, which ends it as an interrupt does. Call release once.
//
// It is for commands that change something, or whose exit code matters: see outlive. The others only show something, and die
// of SIGPIPE as other tools do.
func (s *session) detached(ctx context.Context) (run context.Context, release func()) {
	run, s.streams.Out.Writer, release = output.Outlive(ctx, s.streams.Out.Writer)
	return run, release
}

// outlive is detached for short work that needs no interrupt. Call the returned function once, at the end.
func (s *session) outlive() (release func()) {
	_, release = s.detached(context.Background())
	return release
}
