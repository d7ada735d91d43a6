package main

import (
	"context"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// looking makes a planner for an observation that somebody waits for: programs are told when it starts and when it
// has ended. The loop of an apply observes in each turn without reporting it.
func (s *session) looking(d *directory, setup apply.Setup) *apply.Planner {
	asked := maps.Clone(d.providers)
	if s.stream != nil {
		for name, p := range asked {
			asked[name] = refreshing{p, name, s.stream, setup.State.Jobs}
		}
	}
	return apply.NewPlanner(setup, asked, d.sealer)
}

// refreshing is a provider that reports to a stream when it is asked what runs, and when it has answered, for each job that the
// state has of it. Of what is in no state yet there is nothing to refresh, as in Terraform.
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

// each reports each of its jobs.
func (p refreshing) each(tell func(name string, rec *job.Record)) {
	for _, name := range slices.Sorted(maps.Keys(p.records)) {
		if p.records[name].Spec.Provider == p.name {
			tell(name, p.records[name])
		}
	}
}
