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

// looking makes a reconciler for a look at what runs that somebody waits for: programs are told when it begins and when it
// has ended. The loop of an apply looks again with each turn, and tells nobody.
func (s *session) looking(ctx context.Context, o apply.Options) (*apply.Reconciler, error) {
	if s.stream == nil {
		return apply.New(ctx, o)
	}
	var r *apply.Reconciler
	o.Providers = maps.Clone(o.Providers)
	for name, p := range o.Providers {
		o.Providers[name] = refreshing{p, name, s.stream, func() job.Records { return r.Records() }}
	}
	r, err := apply.New(ctx, o)
	return r, err
}

// refreshing is a provider that tells a stream when it is asked what runs, and when it has answered, of each job that the
// state has of it. Of what is in no state yet there is nothing to refresh, as in Terraform.
type refreshing struct {
	providers.Provider
	name    string
	stream  *view.Stream
	records func() job.Records
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

// each tells of each of its jobs.
func (p refreshing) each(tell func(name string, rec *job.Record)) {
	records := p.records()
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if records[name].Spec.Provider == p.name {
			tell(name, records[name])
		}
	}
}
