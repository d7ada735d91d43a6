package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

type eventsArgs struct {
	follow bool
	json   bool
	vars   assignments
}

func (a *eventsArgs) declare(fs *flags) {
	fs.BoolVar(&a.follow, "f", false, "Keep printing new entries until interrupted.")
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	a.vars.declare(fs)
}

func eventsCommand() *command {
	return &command{
		name: "events", usage: "[options]",
		synopsis: "Show what happened and why",
		about: `Shows the journal of this directory's jobs, oldest first: phases, worlds, incidents with their evidence and the
action taken, what was removed, replaced or destroyed and why, and what was refused. The JSON has one event per line.`,
		declare: new(eventsArgs).declare,
		run:     runEvents,
	}
}

func runEvents(s *session, args []string) int {
	var a eventsArgs
	if _, err := s.parse(newFlags("events", a.declare), args, 0); err != nil {
		return s.misused("events", err)
	}
	// The files are read for their sensitive values only; they need not be valid.
	s.read(a.vars)
	show := func(n job.Notice) error {
		if a.json {
			return view.WriteEventJSON(s.streams.Out, &s.redactor, n)
		}
		view.WriteEvent(s.streams.Out, &s.redactor, n)
		return nil
	}
	journal := state.Reader{Dir: journalDirectory, Damaged: func(d state.Damage) {
		s.diagnose(view.Caution("Cannot read part of the journal", d.String()))
	}}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if a.follow {
		err = journal.Follow(ctx, 0, eachNotice(show))
	} else {
		err = journal.Read(0, eachNotice(show))
	}
	if err != nil {
		return s.fail("Cannot show the events", err)
	}
	return exitDone
}

// eachNotice calls show with the notices among a journal's entries.
func eachNotice(show func(job.Notice) error) func(state.Entry) error {
	return func(e state.Entry) error {
		if e.Kind != state.NoticeEntry {
			return nil
		}
		var n job.Notice
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return fmt.Errorf("entry %d is not a notice: %w", e.Seq, err)
		}
		n.Seq = e.Seq
		return show(n)
	}
}
