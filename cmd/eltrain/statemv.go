package main

import (
	"errors"
	"fmt"

	"github.com/eltrain/eltrain/state"
)

type stateMv struct {
	dryRun   bool
	from, to string // names
}

func stateMvCommand() *command {
	return editCommand(command{
		name: "state mv", usage: "[options] SOURCE DESTINATION",
		synopsis: "Rename a job in the state",
		about: `Renames the job SOURCE to DESTINATION, with all its slots. It keeps running: nothing restarts if the files
declare it under the new name. A moved block in the files does the same with the next apply, for everybody who uses
the files.

SOURCE and DESTINATION are addresses of jobs: job.NAME, job.NAME["KEY"], module.NAME.job.NAME. Roles and slots move
with their job.`,
	}, 2, func() *stateMv { return new(stateMv) })
}

func (m *stateMv) declare(fs *flags) {
	fs.BoolVar(&m.dryRun, "dry-run", false, "Only show what would change.")
}

func (m *stateMv) take(_ *session, others []string) error {
	if len(others) < 2 {
		return errors.New("two addresses are required: eltrain state mv job.OLD job.NEW")
	}
	sels, err := selectors(others)
	if err != nil {
		return err
	}
	for _, sel := range sels {
		if sel.Role != "" {
			return fmt.Errorf("%s is a part of a job, and moves with it: write job.NAME", sel)
		}
	}
	if m.from, m.to = sels[0].Job, sels[1].Job; m.from == m.to {
		return fmt.Errorf("source and destination are the same, job.%s", m.from)
	}
	return nil
}

func (m *stateMv) edit(stored state.State) (state.State, error) {
	if stored.Serial == 0 {
		return stored, errNoState
	}
	next, err := stored.Move(m.from, m.to)
	if err != nil || m.dryRun {
		return stored, err
	}
	return next, nil
}

func (m *stateMv) tell(s *session) {
	if m.dryRun {
		fmt.Fprintf(s.streams.Out, "Would move \"job.%s\" to \"job.%s\"\n", m.from, m.to)
		return
	}
	fmt.Fprintf(s.streams.Out, "Move \"job.%s\" to \"job.%s\"\nSuccessfully moved 1 object(s).\n", m.from, m.to)
}
