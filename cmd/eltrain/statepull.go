package main

import (
	"fmt"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/state"
)

type statePull struct{ noOperands }

func statePullCommand() *command {
	return lookCommand(command{
		name: "state pull", usage: "[options]",
		synopsis: "Print the state as JSON",
		about: `Prints the stored state as JSON: to inspect, copy, or edit for eltrain state push. Without a state it prints
nothing to the standard output and exits with 0. Sensitive values are not in it.`,
	}, 0, func() statePull { return statePull{} })
}

func (statePull) declare(*flags) {}

func (statePull) look(s *session, _ *workspace.Workspace, stored state.State) error {
	if stored.Serial == 0 {
		fmt.Fprintln(s.streams.Err, "Empty state (no state)")
		return nil
	}
	text, err := state.Encode(stored)
	if err != nil {
		return err
	}
	_, err = s.streams.Out.Write(text)
	return err
}
