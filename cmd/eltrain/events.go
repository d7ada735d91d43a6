package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

type eventsArgs struct {
	follow    bool
	json      bool
	since     time.Duration // 0 for all
	tail      int           // -1 for all
	vars      assignments
	selectors []job.Selector
}

func (a *eventsArgs) declare(fs *flags) {
	a.tail = -1
	fs.BoolVar(&a.follow, "f", false, "Keep printing new entries until interrupted.")
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	fs.waitVar(&a.since, "since", "Only what happened within the last `DURATION`, such as 30m or 2h.")
	fs.Func("tail", "Start with the last `N` events instead of all.", fromZero(&a.tail))
	a.vars.declare(fs)
	declareTrust(fs)
}

func eventsCommand() *command {
	return &command{
		name: "events", usage: "[options] [ADDRESS...]",
		synopsis: "Show what happened and why",
		about: `Shows the journal of this directory's jobs, oldest first: phases, worlds, incidents with their evidence and the
action taken, what jobs wait for and when that is over, which slots were added, removed or replaced and why, what was
destroyed, and what was refused. The JSON has one event per line.

With ADDRESSes only what concerns these: job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. What happened
to a whole job concerns its slots.`,
		declare: new(eventsArgs).declare,
		run:     runEvents,
	}
}

func parseEvents(s *session, args []string) (a eventsArgs, err error) {
	addresses, err := s.parse(newFlags("events", a.declare), args, manyArguments)
	if err == nil {
		a.selectors, err = selectors(addresses)
	}
	return a, err
}

// selects reports whether a notice is to be shown at a time.
func (a *eventsArgs) selects(n *job.Notice, now time.Time) bool {
	if a.since > 0 && now.Sub(n.Time) > a.since {
		return false
	}
	about, err := job.ParseSelector(n.Address)
	return len(a.selectors) == 0 || err == nil && slices.ContainsFunc(a.selectors, about.Overlaps)
}

func runEvents(s *session, args []string) int {
	a, err := parseEvents(s, args)
	if err != nil {
		return s.misused("events", err)
	}
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
	if err := a.print(ctx, journal, show); err != nil {
		return s.fail("Cannot show the events", err)
	}
	return exitDone
}

// print shows the selected notices of a journal.
func (a *eventsArgs) print(ctx context.Context, journal state.Reader, show func(job.Notice) error) error {
	now, from := time.Now(), uint64(0)
	selected := func(use func(job.Notice) error) func(state.Entry) error {
		return eachNotice(func(n job.Notice) error {
			from = n.Seq + 1
			if !a.selects(&n, now) {
				return nil
			}
			return use(n)
		})
	}
	if a.tail >= 0 {
		var last []job.Notice
		err := journal.Read(0, selected(func(n job.Notice) error {
			if last = append(last, n); len(last) > a.tail {
				last = last[1:]
			}
			return nil
		}))
		for i := 0; i < len(last) && err == nil; i++ {
			err = show(last[i])
		}
		if err != nil || !a.follow {
			return err
		}
	}
	if a.follow {
		return journal.Follow(ctx, from, selected(show))
	}
	return journal.Read(from, selected(show))
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
