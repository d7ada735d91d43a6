package main

import (
	"context"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

type whyArgs struct {
	showing
	selectors []job.Selector // none for all jobs
}

func (a *whyArgs) take(_ *session, others []string) (err error) {
	a.selectors, err = selectors(others)
	return err
}

func whyCommand() *command {
	return taking(command{
		name: "why", usage: "[options] [ADDRESS...]",
		synopsis: "Show why roles have the slots that they have",
		about: `Shows for each role why it has as many slots as it has: what each scaling policy proposes and from which value, what bounds
that, and what was decided, also if nothing changes. Then what its job waits for, and its slots that do not run or had a fault. With ADDRESSes it
shows those of these jobs or roles. An ADDRESS is job.NAME or job.NAME.ROLE.

What policies decide comes from the master if one is running. Without one no source is asked.`,
		exits: []string{
			"It was shown.",
			"An ADDRESS names nothing, or the status cannot be read.",
		},
	}, manyArguments, (*session).showWhy)
}

func (s *session) showWhy(a *whyArgs) int {
	lookout := s.dir.Lookout(a.vars)
	defer lookout.Close()
	defer s.outlive()()
	status, problems := s.status(context.Background(), lookout, a.selectors, true)
	if len(problems) > 0 {
		s.diagnose(problems...)
		return exitError
	}
	why := view.Why(status)
	if err := a.show(s, why, func() error { view.WriteWhy(s.streams.Out, why); return nil }); err != nil {
		return s.fail("Cannot write why", err)
	}
	return exitDone
}
