package main

import (
	"context"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// reportingPlanner makes a planner for one observation that the user waits for: its start and end go to the JSON stream. The loop of
// an apply observes in each turn without reporting it.
func (s *session) reportingPlanner(d *workspace.Workspace, setup apply.Setup) *apply.Planner {
	asked := maps.Clone(d.Providers)
	if s.stream != nil {
		for name, p := range asked {
			asked[name] = refreshing{p, name, s.stream, setup.State.Jobs}
		}
	}
	return apply.NewPlanner(setup, asked, d.Sealer)
}

// refreshing is a provider that reports the start and end of each observation to a stream, for each of its jobs in the
// state. What is not in the state is not refreshed, as in Terraform.
type refreshing struct {
	providers.Provider
	name    string
	stream  *view.Stream
	records job.Records
}

// Observe implements providers.Provider.
func (p refreshing) Observe(ctx context.Context) (*providers.Observation, error) {
	p.each(p.stream.Refreshing)
	o, err := p.Provider.Observe(ctx)
	if err == nil {
		p.each(p.stream.Refreshed)
	}
	return o, err
}

// each calls tell for each job of the provider.
func (p refreshing) each(tell func(name string, rec *job.Record)) {
	for _, name := range slices.Sorted(maps.Keys(p.records)) {
		if p.records[name].Spec.Provider == p.name {
			tell(name, p.records[name])
		}
	}
}
