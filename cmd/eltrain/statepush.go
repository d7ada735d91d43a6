package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
)

type statePush struct {
	force bool
	file  string
	given state.State // the file's content
}

func statePushCommand() *command {
	return editCommand(command{
		name: "state push", usage: "[options] FILE",
		synopsis: "Replace the state with a file",
		about: `Replaces the state with FILE, as printed by eltrain state pull, or a state file or its backup from a job
directory; - is the standard input. A state of another lineage is refused, as is one with an older serial, or with the
same serial and different content: after an edit by hand, increase serial by one. -force writes it anyway.

The stored state gets the next serial and keeps its lineage, so that a plan made with the former state is stale.`,
	}, 1, func() *statePush { return new(statePush) })
}

func (p *statePush) declare(fs *flags) {
	fs.BoolVar(&p.force, "force", false, "Write the state even if it has another lineage or is older.")
}

func (p *statePush) take(_ *session, others []string) error {
	if len(others) == 0 {
		return errors.New("a file is missing: write its name, or - for the standard input")
	}
	p.file = others[0]
	return nil
}

// prepare reads the given state.
func (p *statePush) prepare(s *session) error {
	in := s.streams.In
	if p.file != "-" {
		f, err := os.Open(p.file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, file.MaxSize+1))
	if err != nil {
		return fmt.Errorf("read the state to push: %w", err)
	}
	if len(text) > file.MaxSize {
		return fmt.Errorf("%s is larger than %d bytes: it cannot be a state", p.file, file.MaxSize)
	}
	if text, err = file.Inside(text); err != nil {
		return err
	}
	p.given, err = state.Parse(text)
	return err
}

func (p *statePush) edit(stored state.State) (state.State, error) {
	if !p.force {
		if err := state.CheckPush(stored, p.given); err != nil {
			return stored, err
		}
	}
	if stored.Serial > 0 && state.Same(stored, p.given) {
		return stored, nil
	}
	return state.Pushed(stored, p.given), nil
}

func (p *statePush) tell(*session) {}
