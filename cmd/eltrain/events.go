package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/eltrain/eltrain/cmd/events"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

type eventsArgs struct {
	events.Selection
	showing
}

func (a *eventsArgs) declare(fs *flags) {
	a.Tail = -1
	fs.BoolVar(&a.Follow, "f", false, "Keep printing new entries until interrupted.")
	fs.momentVar(&a.Since, "since", "Only what happened since `WHEN`: 2h ago, or at a time such as 2026-12-01T08:00:00Z.")
	fs.Func("tail", "Start with the last `N` events instead of all.", fromZero(&a.Tail))
	a.showing.declare(fs)
}

func eventsCommand() *command {
	return taking(command{
		name: "events", usage: "[options] [ADDRESS...]",
		synopsis: "Show what happened and why",
		about: `Shows the journal of this directory's jobs, oldest first: phases, worlds, incidents with their evidence and the
action taken, what jobs wait for and when that is over, which slots were added, removed or replaced and why, what was
destroyed, and what was refused. The JSON has one event per line.

With ADDRESSes only what concerns these: job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. What happened
to a whole job concerns its slots.`,
	}, manyArguments, (*session).events)
}

func (a *eventsArgs) take(_ *session, others []string) (err error) {
	a.On, err = selectors(others)
	return err
}

func (s *session) events(a *eventsArgs) int {
	// The files are read for their sensitive values only; they need not be valid.
	s.dir.Read(a.vars)
	show := func(n job.Notice) error {
		if a.json {
			return view.WriteEventJSON(s.streams.Out, &s.redactor, n)
		}
		view.WriteEvent(s.streams.Out, &s.redactor, n)
		return nil
	}
	journal := state.Reader{Dir: workspace.JournalDirectory, Damaged: func(d state.Damage) {
		s.diagnose(view.Caution("Cannot read part of the journal", d.String()))
	}}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := a.Read(ctx, journal, show); err != nil {
		return s.fail("Cannot show the events", err)
	}
	return exitDone
}
