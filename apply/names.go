package apply

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// names are the jobs that were launched under another name than they have now. Plans, records and people know a job by
// the name that it has; its infrastructure and its agents, which nobody can rename while they run, by the one that it
// was launched under. The two meet here, and a UID tells which is which.
type names struct {
	mu    sync.Mutex
	byUID map[string]named // nil where no job was renamed, which is the rule
}

type named struct{ now, launched string }

func (n *names) set(records job.Records) {
	var byUID map[string]named
	for name, rec := range records {
		if launched := rec.LaunchedAs(name); launched != name {
			if byUID == nil {
				byUID = map[string]named{}
			}
			byUID[rec.UID] = named{name, launched}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byUID = byUID
}

// all is what set was last given; it is not changed.
func (n *names) all() map[string]named {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byUID
}

// launched is the name that a job's infrastructure knows it by.
func (n *names) launched(uid, name string) string {
	if known, renamed := n.all()[uid]; renamed {
		return known.launched
	}
	return name
}

// launchedSlot is a slot as its infrastructure knows it.
func (n *names) launchedSlot(uid string, slot job.Address) job.Address {
	slot.Job = n.launched(uid, slot.Job)
	return slot
}

// renaming is a provider whose jobs have the names that they have now.
type renaming struct {
	providers.Provider
	names *names

	mu      sync.Mutex
	seen    *providers.Observation // the provider's own, last
	by      map[string]named       // by which it was renamed
	renamed *providers.Observation
}

// Observe implements providers.Provider.
func (p *renaming) Observe(ctx context.Context) (*providers.Observation, error) {
	o, err := p.Provider.Observe(ctx)
	by := p.names.all()
	if err != nil || len(by) == 0 {
		return o, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o == p.seen && maps.Equal(by, p.by) {
		return p.renamed, nil
	}
	out := *o
	out.Incarnations = slices.Clone(o.Incarnations)
	for i := range out.Incarnations {
		inc := &out.Incarnations[i]
		if known, is := by[inc.UID]; is {
			inc.Slot.Job = known.now
		}
	}
	p.seen, p.by, p.renamed = o, by, &out
	return p.renamed, nil
}

// Prepare implements providers.Provider.
func (p *renaming) Prepare(ctx context.Context, g job.Group) (string, error) {
	g.Name = p.names.launched(g.UID, g.Name)
	return p.Provider.Prepare(ctx, g)
}

// Launch implements providers.Provider.
func (p *renaming) Launch(ctx context.Context, l job.Launch) error {
	l.Slot = p.names.launchedSlot(l.UID, l.Slot)
	return p.Provider.Launch(ctx, l)
}

// Stop implements providers.Provider.
func (p *renaming) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	return p.Provider.Stop(ctx, uid, p.names.launchedSlot(uid, slot), incarnation, grace)
}

// Logs implements providers.Provider.
func (p *renaming) Logs(ctx context.Context, uid string, slot job.Address, tail int, follow bool) (io.ReadCloser, error) {
	return p.Provider.Logs(ctx, uid, p.names.launchedSlot(uid, slot), tail, follow)
}

// Forget implements providers.Provider.
func (p *renaming) Forget(ctx context.Context, uid, name string) error {
	return p.Provider.Forget(ctx, uid, p.names.launched(uid, name))
}

// toService is what the service is told of a job, as the job's agents call it.
func (n *names) toService(name string, d elastic.Desired) (string, elastic.Desired) {
	launched := n.launched(d.UID, name)
	if launched == name {
		return name, d
	}
	d.World = d.World.Of(launched)
	d.Slots, d.Want.Unranked = slices.Clone(d.Slots), slices.Clone(d.Want.Unranked)
	for i := range d.Slots {
		d.Slots[i].Address.Job = launched
	}
	for i := range d.Want.Unranked {
		d.Want.Unranked[i].Job = launched
	}
	return launched, d
}

// fromService is what the service knows, by the names that jobs have now.
func (n *names) fromService(facts map[string]elastic.Facts) map[string]elastic.Facts {
	renamed := n.all()
	if len(renamed) == 0 {
		return facts
	}
	out := make(map[string]elastic.Facts, len(facts))
	for name, f := range facts {
		if known, is := renamed[f.UID]; is {
			name = known.now
			f.World = f.World.Of(name)
			f.Members = slices.Clone(f.Members)
			for i := range f.Members {
				f.Members[i].Slot.Job = name
			}
		}
		out[name] = f
	}
	return out
}
