package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

type statusArgs struct {
	showing
	watch     bool
	selectors []job.Selector // none for all jobs
}

func (a *statusArgs) declare(fs *flags) {
	fs.BoolVar(&a.watch, "watch", false, "Show it again every second, until interrupted.")
	a.showing.declare(fs)
}

func (a *statusArgs) take(_ *session, others []string) (err error) {
	a.selectors, err = selectors(others)
	return err
}

func statusCommand() *command {
	return taking(command{
		name: "status", usage: "[options] [ADDRESS...]",
		synopsis: "Show what is running and how it progresses",
		about: `Shows what runs: a list with a line for each job or, if there is only one, all of it. With ADDRESSes it shows all of
the jobs that they name: phase, world and progress, why a job is not as configured if so, its roles and slots, and its last
incidents. An ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. Jobs that run without a record,
because the state was lost or their records were removed, are shown as well, with what to do about them.

With -watch it is shown again every second: a terminal is redrawn in place, any other output gets a further block whenever
something has changed, and with -json a further line of JSON.

The status comes from the master if one is running, otherwise from the state and the providers.`,
		exits: []string{
			"No job has failed, and each can run as configured. Or -watch was interrupted.",
			"A job has failed or can never run as configured, or the status cannot be read.",
		},
	}, manyArguments, (*session).showStatus)
}

// statusInterval is the pause between two looks.
const statusInterval = time.Second

func (s *session) showStatus(a *statusArgs) int {
	lookout := s.dir.Lookout(a.vars)
	defer lookout.Close()
	if a.watch {
		return s.watchStatus(lookout, a)
	}
	defer s.outlive()()
	model, problems := s.status(context.Background(), lookout, a.selectors, true)
	if len(problems) > 0 {
		s.diagnose(problems...)
		return exitError
	}
	err := a.show(s, model, func() error { view.WriteStatus(s.streams.Out, model, len(a.selectors) == 0); return nil })
	switch {
	case err != nil:
		return s.fail("Cannot write the status", err)
	case model.Failed():
		return exitError
	}
	return exitDone
}

// watchStatus shows the status until it is interrupted, or its reader is gone.
func (s *session) watchStatus(lookout *workspace.Lookout, a *statusArgs) int {
	shown := view.StatusWatch{Watch: view.Watch{JSON: a.json, Now: time.Now}, Brief: len(a.selectors) == 0}
	return s.watch(&shown.Watch, "Cannot write the status", func(ctx context.Context, first bool) (func() error, []view.Diagnostic) {
		model, problems := s.status(ctx, lookout, a.selectors, first)
		return func() error { return shown.Show(model) }, problems
	})
}

// watch looks and shows what it sees, again and again until it is interrupted. Only the first look must succeed: later a master may
// end and come back, and a job be destroyed.
func (s *session) watch(shown *view.Watch, unwritten string, look func(ctx context.Context, first bool) (show func() error, problems []view.Diagnostic)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	ctx, release := s.detached(ctx)
	defer release()
	shown.Screen = s.streams.Out
	told := "" // the problem that was told last
	for first := true; ; first = false {
		show, problems := look(ctx, first)
		switch {
		case ctx.Err() != nil:
			return exitDone
		case len(problems) == 0:
			told = ""
			if err := show(); err != nil {
				return s.fail(unwritten, err)
			}
		case first:
			s.diagnose(problems...)
			return exitError
		case told != problems[0].Detail:
			told = problems[0].Detail
			s.diagnose(problems...)
			shown.Overwritten()
		}
		select {
		case <-ctx.Done():
			return exitDone
		case <-time.After(statusInterval):
		}
	}
}

// status looks once. If strict, an address that names nothing is a problem.
func (s *session) status(ctx context.Context, lookout *workspace.Lookout, named []job.Selector, strict bool) (model view.StatusModel, problems []view.Diagnostic) {
	ctx, cancel := context.WithTimeout(ctx, workspace.LookTimeout)
	defer cancel()
	facts, err := lookout.Facts(ctx)
	unopened := (*workspace.OpenError)(nil)
	switch {
	case errors.As(err, &unopened):
		return model, unopened.Why
	case err != nil:
		return model, []view.Diagnostic{view.Problem("Cannot read the status", view.Explain(err))}
	}
	model = view.Status(facts, &s.redactor)
	for i := 0; i < len(named) && strict; i++ {
		record, err := facts.Job(named[i].Job)
		if err != nil {
			return model, []view.Diagnostic{view.Problem("No such job", view.Explain(err))}
		}
		if err := view.CheckSlots(named[i], record); err != nil {
			return model, []view.Diagnostic{view.Problem("No such slot", view.Explain(err))}
		}
	}
	if len(named) > 0 {
		model = model.Select(named...)
	}
	return model, nil
}
