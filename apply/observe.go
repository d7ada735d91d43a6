package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func keyOf(inc *job.Incarnation) incarnation { return incarnation{inc.UID, inc.Slot, inc.Number} }

// observe asks every provider and merges what the service knows. A provider that does not answer is left
// out, with its jobs: they go on as they are until it answers again.
func (r *Reconciler) observe(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(r.o.Providers)) {
		asking, cancel := context.WithTimeout(ctx, callTimeout)
		seen, err := r.o.Providers[name].Observe(asking)
		cancel()
		summary := "Provider " + name + " cannot be observed"
		if err != nil {
			if r.trouble[name] == nil && ctx.Err() == nil {
				r.view(func(v View) { v.Warned(summary, err.Error()) })
			}
			r.trouble[name] = err
			continue
		}
		if r.trouble[name] != nil {
			r.view(func(v View) { v.Recovered(summary) })
		}
		r.trouble[name] = nil
		r.known[name] = seen
		r.tellGone(seen)
	}
	r.pruneGone()
}

// answered tells whether a provider is there and could be observed.
func (r *Reconciler) answered(provider string) bool {
	_, known := r.known[provider]
	return known && r.trouble[provider] == nil
}

// troubled tells whether any provider could not be observed: what was planned is not the whole then.
func (r *Reconciler) troubled() bool {
	for _, err := range r.trouble {
		if err != nil {
			return true
		}
	}
	return false
}

// tellGone passes certain deaths on to the service, each once, as soon as it knows the job.
func (r *Reconciler) tellGone(seen providers.Observation) {
	if r.o.Service == nil {
		return
	}
	for i := range seen.Incarnations {
		inc := &seen.Incarnations[i]
		key := keyOf(inc)
		if inc.State == job.Gone && !r.gone[key] && r.sent[inc.Slot.Job] == inc.UID {
			r.gone[key] = true
			r.o.Service.Gone(inc.Slot, inc.Number)
		}
	}
}

// pruneGone forgets the ended incarnations that no provider shows any more.
func (r *Reconciler) pruneGone() {
	if len(r.gone) == 0 || r.troubled() {
		return
	}
	shown := 0
	each := func(f func(incarnation)) {
		for _, seen := range r.known {
			for i := range seen.Incarnations {
				if inc := &seen.Incarnations[i]; inc.State == job.Gone && r.gone[keyOf(inc)] {
					f(keyOf(inc))
				}
			}
		}
	}
	each(func(incarnation) { shown++ })
	if shown == len(r.gone) {
		return
	}
	still := make(map[incarnation]bool, shown)
	each(func(k incarnation) { still[k] = true })
	r.gone = still
}

// input is what the planner is given: jobs of providers that answered, and everything known of them.
func (r *Reconciler) input(now time.Time) plan.Input {
	in := plan.Input{Now: now, Since: r.since, Destroy: r.o.Destroy, NewUID: r.o.NewUID, Keep: r.o.Keep, Rerun: map[string]bool{},
		Capabilities: map[string]job.Capabilities{}, Records: job.Records{}}
	snapshot := job.Snapshot{At: now}
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		if !r.answered(name) {
			continue
		}
		in.Capabilities[name] = r.o.Providers[name].Capabilities()
		snapshot.Nodes = append(snapshot.Nodes, r.known[name].Nodes...)
		for _, inc := range r.known[name].Incarnations {
			inc.Provider = name
			snapshot.Incarnations = append(snapshot.Incarnations, inc)
		}
		for uid, why := range r.known[name].Held {
			if snapshot.Held == nil {
				snapshot.Held = map[string]string{}
			}
			snapshot.Held[uid] = why
		}
	}
	records := r.Records()
	for name, rec := range records {
		if r.answered(rec.Spec.Provider) {
			in.Records[name] = rec
		}
		in.Rerun[name] = r.rerun[name] == rec.UID
	}
	for _, j := range r.o.Jobs {
		// A job goes whole or not at all: one whose record is left out would look new.
		left := records[j.Name] != nil && in.Records[j.Name] == nil || r.trouble[j.Provider] != nil
		if left {
			delete(in.Records, j.Name)
			continue
		}
		in.Jobs = append(in.Jobs, j)
	}
	in.Bars = r.bars(&in)
	if r.o.Service != nil {
		merge(&snapshot, r.o.Service.Observe(), records)
	}
	r.mu.Lock()
	r.snapshot = snapshot
	r.live = make(map[incarnation]*job.Incarnation, len(snapshot.Incarnations))
	for i := range snapshot.Incarnations {
		if inc := &snapshot.Incarnations[i]; inc.State != job.Gone {
			r.live[keyOf(inc)] = inc
		}
	}
	r.mu.Unlock()
	in.Snapshot = snapshot
	return in
}

// bars asks the providers which nodes the roles of all jobs can never be on: as they are declared, or as they were last
// applied if they are not any more. Each answer costs a fraction of a millisecond, so nothing is asked twice.
func (r *Reconciler) bars(in *plan.Input) map[string]map[string]string {
	bars := map[string]map[string]string{}
	ask := func(j *job.Job) {
		if !r.answered(j.Provider) {
			return
		}
		for i := range j.Roles {
			if barred := r.o.Providers[j.Provider].Bars(&j.Roles[i]); len(barred) > 0 {
				bars["job."+j.Name+"."+j.Roles[i].Name] = barred
			}
		}
	}
	declared := make(map[string]bool, len(in.Jobs))
	for i := range in.Jobs {
		declared[in.Jobs[i].Name] = true
		ask(&in.Jobs[i])
	}
	for name, rec := range in.Records {
		if !declared[name] {
			ask(&rec.Spec)
		}
	}
	return bars
}

// merge enters what the service knows of worlds and members, each under the UID of its job: one of the same
// name that was created anew knows nothing of its forerunner's.
func merge(s *job.Snapshot, facts map[string]elastic.Facts, records job.Records) {
	s.Worlds = make(map[string]job.World, len(facts))
	members := map[incarnation]*job.Member{}
	for name, f := range facts {
		if rec := records[name]; f.World.Generation > 0 && rec != nil && rec.UID == f.UID {
			s.Worlds[name] = f.World
		}
		for i := range f.Members {
			m := &f.Members[i]
			members[incarnation{f.UID, m.Slot, m.Incarnation}] = &m.Member
		}
	}
	for i := range s.Incarnations {
		if m := members[keyOf(&s.Incarnations[i])]; m != nil {
			s.Incarnations[i].Member = m
		}
	}
}
