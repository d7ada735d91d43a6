package ask

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// known returns an error for an address of a job that was never applied: nobody could act on it.
func known(ctx context.Context, store state.Store, on []job.Selector) error {
	stored, err := store.Read(ctx)
	if err != nil {
		return err
	}
	for _, sel := range on {
		if _, destroyed := stored.Destroyed[sel.Job]; stored.Jobs[sel.Job] == nil && !destroyed {
			names := slices.Sorted(maps.Keys(stored.Jobs))
			return fmt.Errorf("there is no job %q%s", sel.Job, view.WhatThereIs(view.DidYouMean(sel.Job, names), "There are", names))
		}
	}
	return nil
}

// AsApplied is the setup of a run for one request, if nobody else leads: with the jobs as they were last applied, so that no edit of the
// files that is still to be applied comes along.
func AsApplied(ctx context.Context, w *workspace.Workspace, r *job.Request) (setup apply.Setup, err error) {
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return setup, err
	}
	declared, err := w.Sealed(ctx, w.Config.Jobs) // what starts again needs the sensitive values
	if err != nil {
		return setup, err
	}
	setup = apply.Setup{
		Intent: apply.Intent{Keep: true, Scope: plan.Scope{}},
		Files:  apply.Files{Values: stored.Values}, NewUID: workspace.NewUID, Words: view.Words{}, Request: r.ID,
	}
	for _, name := range slices.Sorted(maps.Keys(stored.Jobs)) {
		setup.Files.Jobs = append(setup.Files.Jobs, stored.Jobs[name].Spec)
	}
	for i := range declared { // of a destroyed job nothing else is left
		if _, destroyed := stored.Destroyed[declared[i].Name]; destroyed && stored.Jobs[declared[i].Name] == nil {
			setup.Files.Jobs = append(setup.Files.Jobs, declared[i])
		}
	}
	for _, sel := range r.On {
		setup.Scope.Targets = append(setup.Scope.Targets, job.Selector{Job: sel.Job})
	}
	for i := 0; i < len(setup.Files.Jobs) && len(r.Nodes) > 0; i++ {
		name := setup.Files.Jobs[i].Name
		if r.Verb != job.AskDrain || stored.Jobs[name] == nil || !usesAny(stored.Jobs[name], r.Nodes) {
			setup.Scope.Excludes = append(setup.Scope.Excludes, job.Selector{Job: name})
		}
	}
	return setup, nil
}

// usesAny reports whether a job has slots on any of these nodes.
func usesAny(record *job.Record, nodes []string) bool {
	return slices.ContainsFunc(record.Slots, func(s job.Slot) bool { return s.Phase.Live() && slices.Contains(nodes, s.Node) })
}
