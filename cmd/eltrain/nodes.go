package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

func cordonCommand() *command {
	return verbCommand(job.AskCordon, "Keep new slots off nodes",
		`Keeps new slots off the NODEs; what runs there stays, and heals there. It lasts until eltrain uncordon or -until. It is for
nodes of the provider local: where a scheduler chooses the nodes, kubectl cordon does it.`)
}

func uncordonCommand() *command {
	return verbCommand(job.AskUncordon, "Let slots run on nodes again",
		`Ends a cordon or a drain of the NODEs: slots may be placed there again.`)
}

func drainCommand() *command {
	return verbCommand(job.AskDrain, "Empty nodes",
		`Cordons the NODEs, and has what runs there leave: slots for which other nodes have room are asked for a checkpoint, stopped, and
started there; elastic roles shrink otherwise, as far as their min allows. What fits nowhere stays until there is room.
It is done once nothing runs on the NODEs. They stay cordoned until eltrain uncordon or -until.`)
}

type nodesArgs struct {
	showing
	names []string
}

func (a *nodesArgs) take(_ *session, others []string) error {
	a.names = others
	return nil
}

func nodesCommand() *command {
	return taking(command{
		name: "nodes", usage: "[options] [NODE...]",
		synopsis: "Show nodes, what is held of them, and what is left",
		about: `Shows a line for each node of all providers: its capacity, what is free of it, who holds the rest, and why it is not used if so.
With NODEs it shows all of these: every slot there with what it holds, who keeps new slots off, and which roles cannot use it.

It comes from the master if one is running, otherwise from the state and the providers.`,
	}, manyArguments, (*session).nodes)
}

func (s *session) nodes(a *nodesArgs) int {
	defer s.outlive()()
	ctx, cancel := context.WithTimeout(context.Background(), workspace.LookTimeout)
	defer cancel()
	lookout := s.dir.Lookout(a.vars)
	defer lookout.Close()
	all, err := lookout.Nodes(ctx)
	unopened := (*workspace.OpenError)(nil)
	switch {
	case errors.As(err, &unopened):
		s.diagnose(unopened.Why...)
		return exitError
	case err != nil:
		return s.fail("Cannot read the nodes", err)
	}
	model := view.NodeList(all, &s.redactor)
	for _, name := range a.names {
		if there := model.Names(); !slices.Contains(there, name) {
			return s.fail("No such node", fmt.Errorf("there is no node %q%s", name, view.WhatThereIs(view.DidYouMean(name, there), "There are", there)))
		}
	}
	if len(a.names) > 0 {
		model = model.Select(a.names)
	}
	err = a.show(s, model, func() error { return view.WriteNodes(s.streams.Out, model, len(a.names) == 0) })
	if err != nil {
		return s.fail("Cannot write the nodes", err)
	}
	return exitDone
}
