package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/logs"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

type logsArgs struct {
	follow   bool
	previous bool
	since    time.Duration // 0 for all
	rank     int           // -1 for all
	tail     int           // lines of each slot; -1 for all
	vars     assignments
	selector job.Selector
}

func (a *logsArgs) declare(fs *flags) {
	a.rank, a.tail = -1, -1
	fs.BoolVar(&a.follow, "f", false, "Keep printing new output until the job has ended.")
	fs.BoolVar(&a.previous, "previous", false, "Only the incarnation of each slot before the current one.")
	fs.waitVar(&a.since, "since", "Only what was printed within the last `DURATION`, such as 10m or 2h.")
	fs.Func("rank", "Only the process with RANK `N` in the newest world.", fromZero(&a.rank))
	fs.Func("tail", "Start with the last `N` lines of each slot instead of all.", fromZero(&a.tail))
	a.vars.declare(fs)
	declareTrust(fs)
}

// fromZero parses an option's number, at least 0.
func fromZero(to *int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errors.New("write a number from 0")
		}
		*to = n
		return nil
	}
}

func (a *logsArgs) take(_ *session, others []string) (err error) {
	if a.previous && a.follow {
		return errors.New("-previous cannot be used with -f: an earlier incarnation prints nothing new")
	}
	if len(others) > 0 {
		a.selector, err = job.ParseSelector(others[0])
	}
	return err
}

// onlyJob returns the job that an omitted address means: the only one that is recorded or declared.
func onlyJob(records job.Records, declared []job.Job) (string, error) {
	names := slices.Collect(maps.Keys(records))
	for _, j := range declared {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return names[0], nil
	}
	return "", fmt.Errorf("an address is missing: write job.NAME, job.NAME.ROLE or job.NAME.ROLE[3]%s", view.WhatThereIs(".", "There are", names))
}

func logsCommand() *command {
	return taking(command{
		name: "logs", usage: "[options] [ADDRESS]",
		synopsis: "Show the output of training processes",
		about: `Shows the output of the training processes in the slots that ADDRESS names, of all incarnations.
ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]; if there is one job, it can be omitted.
Lines of several slots begin with the slot's address. -f ends by itself once the job has ended and its output is printed.

On a terminal the output has no colors, and other control characters are shown as escapes; into a pipe or file it goes
as it was written.

Sensitive values of the current files and variables are hidden. If the job was started with others, or with unknown
ones, a warning says so.`,
	}, 1, (*session).logs)
}

func (s *session) logs(a *logsArgs) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, records, ok := s.openRecords(ctx, a.vars)
	if !ok {
		return exitError
	}
	defer d.Close()
	var err error
	if a.selector.Job == "" {
		if a.selector.Job, err = onlyJob(records, d.Config.Jobs); err != nil {
			return s.misused("logs", err)
		}
	}
	record := records[a.selector.Job]
	if record == nil {
		if record, err = s.unrecorded(ctx, d, a.selector.Job); err != nil {
			return s.fail("No such job", err)
		}
	}
	if !a.follow && !slices.ContainsFunc(record.Slots, logs.Launched) {
		return s.fail("No output yet", fmt.Errorf("no slot of job.%s has started; eltrain status shows what it is waiting for", a.selector.Job))
	}
	sources, err := logs.Sources(record, a.selector, a.rank)
	if err != nil {
		return s.fail("No such slot", err)
	}
	provider := d.Providers[record.Spec.Provider]
	if provider == nil {
		return s.fail("No such provider", fmt.Errorf("job %s ran on provider %q, which is not configured here", a.selector.Job, record.Spec.Provider))
	}
	options := providers.LogOptions{Tail: a.tail}
	if a.since > 0 {
		options.Since = time.Now().Add(-a.since)
	}
	if a.follow {
		options.Follow = logs.WhenOver(ctx, record, d.Facts)
	}
	read := func(ctx context.Context, slot job.Address) (io.ReadCloser, error) {
		if s := record.Slot(slot.Role, slot.Index); !a.follow && !logs.Launched(*s) {
			return nil, fs.ErrNotExist // any output is that of an earlier job of the same name
		}
		options := options
		if a.previous {
			options.Before = record.Slot(slot.Role, slot.Index).Incarnation
		}
		slot.Job = record.LaunchedAs(slot.Job)
		return provider.Logs(ctx, record.UID, slot, options)
	}
	switch why, err := d.Unknown(ctx, record); {
	case err != nil:
		return s.fail("Cannot read the key of sensitive values", err)
	case why != "":
		s.diagnose(view.Caution("Sensitive values may be visible", why))
	}
	out := s.redactor.Output(s.streams.Out)
	var mute []job.Address
	if a.follow {
		err = logs.Follow(ctx, out, sources, read)
	} else {
		mute, err = logs.Print(ctx, out, sources, read)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		return s.fail("Cannot read the output", err)
	case len(mute) > 0 && len(mute) == len(sources):
		return s.fail(noOutput(a.previous), errors.New(logs.WhyNone(record, mute, a.previous)))
	case len(mute) > 0:
		s.diagnose(view.Caution("Some slots have no output", logs.WhyNone(record, mute, a.previous)))
	}
	return exitDone
}

// unrecorded finds the running slots of a job without a record in the state. It warns about that, and that the job's
// sensitive values are unknown.
func (s *session) unrecorded(ctx context.Context, d *workspace.Workspace, name string) (*job.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, workspace.LookTimeout)
	defer cancel()
	facts, err := d.Facts(ctx)
	if err != nil {
		return nil, err
	}
	record, err := facts.Job(name)
	if err != nil {
		gone, keptErr := logs.Kept(name, d.Providers)
		if gone == nil {
			return nil, errors.Join(err, keptErr)
		}
		fmt.Fprintf(s.streams.Err, "job.%s is gone: this is what is left of its output. Only sensitive values of the current files and variables are hidden.\n", name)
		return gone, nil
	}
	if facts.Records[name] == nil {
		s.diagnose(view.Caution("The state has no record of job."+name, "The output of its running slots is shown. eltrain status shows what to do about it. "+
			"The sensitive values it was started with are unknown: only those in the current files and variables are hidden."))
	}
	return record, nil
}

func noOutput(previous bool) string {
	if previous {
		return "No earlier output"
	}
	return "No output yet"
}
