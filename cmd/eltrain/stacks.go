package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/eltrain/eltrain/cmd/slots"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

type stacksArgs struct {
	showing
	selectors []job.Selector
}

func (a *stacksArgs) take(_ *session, others []string) (err error) {
	a.selectors, err = selectors(others)
	return err
}

func stacksCommand() *command {
	return taking(command{
		name: "stacks", usage: "[options] [ADDRESS...]",
		synopsis: "Show what training processes do right now",
		about: `Shows the stacks of the training processes in the slots that the ADDRESSes name, or of all jobs, and of what they started. Processes
with equal stacks are shown once.

The stacks are those of Python if py-spy is installed in the slots, and may trace there, or if the script has registered
faulthandler:

    faulthandler.register(signal.SIGUSR2, file=open(os.environ["ELTRAIN_STACKS_FILE"], "w"))

Otherwise they are what the kernel tells of each thread. Nothing is signalled that does not handle it.`,
		exits: []string{
			"The stacks of at least one process are shown; slots without are named.",
			"No slot could be asked, or an error.",
		},
	}, manyArguments, (*session).stacks)
}

func (s *session) stacks(a *stacksArgs) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, records, ok := s.openRecords(ctx, a.vars)
	if !ok {
		return exitError
	}
	defer d.Close()
	if len(a.selectors) == 0 {
		for _, name := range slices.Sorted(maps.Keys(records)) {
			if !records[name].Phase.Ended() {
				a.selectors = append(a.selectors, job.Selector{Job: name})
			}
		}
	}
	asked := map[job.Address]slots.Slot{}
	for _, sel := range a.selectors {
		named, err := slots.Named(ctx, d, records, sel)
		if err != nil {
			return s.fail("Cannot read the stacks", err)
		}
		for _, slot := range named {
			asked[slot.Address] = slot
		}
	}
	if len(asked) == 0 {
		return s.fail("Cannot read the stacks", errors.New("no job runs"))
	}
	found, unreachable := slots.Stacks(ctx, asked)
	if ctx.Err() != nil {
		return exitInterrupted
	}
	model := view.NewStacks(found, unreachable, &s.redactor)
	switch err := a.show(s, model, func() error { return view.WriteStacks(s.streams.Out, model) }); {
	case err != nil:
		return s.fail("Cannot show the stacks", err)
	case len(found) == 0:
		return exitError
	}
	return exitDone
}
