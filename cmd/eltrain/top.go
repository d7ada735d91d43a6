package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

type topArgs struct {
	json      bool
	watch     bool
	history   time.Duration
	selectors []job.Selector // none for all jobs
}

func (a *topArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	fs.BoolVar(&a.watch, "watch", false, "Show it again every second, until interrupted.")
	fs.DurationVar(&a.history, "history", 0, "Also show how it was in the last `DURATION`, at most 24h.")
}

// maxHistory is how long a master remembers at least.
const maxHistory = 24 * time.Hour

func (a *topArgs) take(_ *session, others []string) (err error) {
	a.selectors, err = selectors(others)
	switch {
	case err != nil:
		return err
	case a.history < 0 || a.history > maxHistory:
		return fmt.Errorf("invalid value %s for -history: it must be between 0 and 24h", a.history)
	case a.history > 0 && len(a.selectors) == 0:
		return errors.New("-history needs ADDRESSes")
	}
	return nil
}

func topCommand() *command {
	return taking(command{
		name: "top", usage: "[options] [ADDRESS...]",
		synopsis: "Show what training processes do and use",
		about: `Shows a line for each training process: what it does, its progress, and what it uses together with all that it started. With
ADDRESSes it shows those of these jobs, roles or slots. An ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set:
[0-3,7], [*].

With -history=1h it also shows each interval of the last hour: 5 s, or 10 min where they are older than an hour.

With -watch it is shown again every second: a terminal is redrawn in place, any other output gets a further block whenever
something has changed, and with -json a further line of JSON.

The figures are in the memory of the master of this directory, to which the agents report them with each beat.`,
		exits: []string{
			"It was shown. Or -watch was interrupted.",
			"No master is running here, or an ADDRESS names nothing.",
		},
	}, manyArguments, (*session).showTop)
}

func (s *session) showTop(a *topArgs) int {
	if a.watch {
		shown := view.TopWatch{Watch: view.Watch{JSON: a.json, Now: time.Now}}
		return s.watch(&shown.Watch, "Cannot write the figures", func(ctx context.Context, first bool) (func() error, []view.Diagnostic) {
			model, problems := s.top(ctx, a, first)
			return func() error { return shown.Show(model) }, problems
		})
	}
	defer s.outlive()()
	model, problems := s.top(context.Background(), a, true)
	if len(problems) > 0 {
		s.diagnose(problems...)
		return exitError
	}
	var err error
	if a.json {
		err = view.WriteJSON(s.streams.Out, model)
	} else {
		err = view.WriteTop(s.streams.Out, model)
	}
	if err != nil {
		return s.fail("Cannot write the figures", err)
	}
	return exitDone
}

// top looks once. If strict, an address that names no process is a problem.
func (s *session) top(ctx context.Context, a *topArgs, strict bool) (view.TopModel, []view.Diagnostic) {
	usage, err := apply.FetchUsage(ctx, workspace.RunDirectory, apply.UsageAsked{History: a.history, Of: a.selectors})
	switch {
	case errors.Is(err, apply.ErrNoMaster):
		return view.TopModel{}, []view.Diagnostic{view.Problem("No master is running",
			"Agents report what training processes use to the master, and none answers in this directory. Start eltrain apply -watch, or run eltrain top where it runs.")}
	case err != nil:
		return view.TopModel{}, []view.Diagnostic{view.Problem("Cannot read the figures", view.Explain(err))}
	}
	model := view.Top(usage, &s.redactor)
	for i := 0; i < len(a.selectors) && strict; i++ {
		if len(model.Select(a.selectors[i]).Jobs) == 0 {
			return model, []view.Diagnostic{view.Problem("No such process", fmt.Sprintf("%s names no slot with an agent. eltrain status shows all slots.", a.selectors[i]))}
		}
	}
	if len(a.selectors) > 0 {
		model = model.Select(a.selectors...)
	}
	return model, nil
}
