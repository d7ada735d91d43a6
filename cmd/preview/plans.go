package preview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// Timeout bounds observing what runs. Lists of 10,000 pods take some seconds; a provider that takes longer than this
// is not reachable, and its own error is more useful than further waiting.
const Timeout = 30 * time.Second

// Live plans for the workspace as it is now. What is observed is told to a stream; nil for none.
func Live(ctx context.Context, d *workspace.Workspace, a *Intent, told *view.Stream) (view.PlanFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := d.Seal(ctx); err != nil {
		return view.PlanFacts{}, err
	}
	stored, err := d.Store.Read(ctx)
	if err != nil {
		return view.PlanFacts{}, err
	}
	d.Prior = stored.Values
	decided, err := NewPlanner(d, a.Setup(d, stored), told).Preview(ctx, time.Now())
	if err != nil {
		return view.PlanFacts{}, err
	}
	return d.PlanFacts(decided, workspace.Reached(ctx))
}

// Recorded plans from the last recorded observation, without asking the providers, and from the state base. seen is the observation; nil
// if there is none.
func Recorded(ctx context.Context, d *workspace.Workspace, a *Intent) (facts view.PlanFacts, base state.State, seen *apply.Observation, err error) {
	if err := d.Seal(ctx); err != nil {
		return facts, base, nil, err
	}
	if base, err = d.Store.Read(ctx); err != nil {
		return facts, base, nil, fmt.Errorf("read the state: %w", err)
	}
	d.Prior = base.Values
	if seen, err = workspace.LastObservation(); err != nil {
		return facts, base, nil, err
	}
	facts, err = d.PlanFacts(apply.NewPlanner(a.Setup(d, base), d.Providers, d.Sealer).PreviewRecorded(seen, time.Now()), nil)
	facts.Unseen = true
	return facts, base, seen, err
}

// Observed plans from the observation of a saved plan, without providers and state. base has what is known of the state.
func Observed(ctx context.Context, d *workspace.Workspace, a Intent, f *planfile.File) (facts view.PlanFacts, base state.State, err error) {
	if err := d.Seal(ctx); err != nil {
		return facts, base, err
	}
	a.UIDs = f.UIDs
	p := apply.NewPlanner(a.Setup(d, state.State{}), nil, d.Sealer)
	facts, err = d.PlanFacts(p.Replan(f.Facts.Input), f.Facts.Reached)
	facts.Unseen = f.Facts.Unseen
	return facts, state.State{Lineage: f.Lineage, Serial: f.Serial}, err
}

// NewPlanner makes a planner for one observation that the user waits for: its start and end go to the stream, if there is one. The loop of
// an apply observes in each turn without reporting it.
func NewPlanner(d *workspace.Workspace, setup apply.Setup, told *view.Stream) *apply.Planner {
	asked := maps.Clone(d.Providers)
	if told != nil {
		for name, p := range asked {
			asked[name] = refreshing{p, name, told, setup.State.Jobs}
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
