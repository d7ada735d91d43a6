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
	given state.State // what is in it
}

func statePushCommand() *command {
	return editing(command{
		name: "state push", usage: "[options] FILE",
		synopsis: "Replace the state by a file",
		about: `Replaces the state by FILE, which is as eltrain state pull prints it, or a state's file or its backup as it lies in a
job directory; - is the standard input. A state of another lineage is refused, and one with an older serial, or with the same serial and another content: after an edit by hand,
count serial up by one. -force writes it all the same.

The state that is stored gets the serial that follows in its place, and the place keeps its lineage: so who has planned
with the former state learns that it changed.`,
	}, 1, func() *statePush { return new(statePush) })
}

func (p *statePush) declare(fs *flags) {
	fs.BoolVar(&p.force, "force", false, "Write the state even if it is of another lineage, or older.")
}

func (p *statePush) take(others []string) error {
	if len(others) == 0 {
		return errors.New("a file is needed, or - for the standard input")
	}
	p.file = others[0]
	return nil
}

// maxState bounds what is pushed: a state of 100,000 slots is some 50 MB.
const maxState = 256 << 20

// prepare reads the state that is given.
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
	text, err := io.ReadAll(io.LimitReader(in, maxState+1))
	if err != nil {
		return fmt.Errorf("read the state to push: %w", err)
	}
	if len(text) > maxState {
		return fmt.Errorf("%s is larger than %d bytes: that is no state", p.file, maxState)
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
