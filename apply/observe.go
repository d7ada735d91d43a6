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

// incarnation is one of a job with that UID. The name of the job is left out of the slot: it may have got another.
type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func incarnationOf(uid string, slot job.Address, number int) incarnation {
	slot.Job = ""
	return incarnation{uid, slot, number}
}

func keyOf(inc *job.Incarnation) incarnation { return incarnationOf(inc.UID, inc.Slot, inc.Number) }

// hear takes in what the service knows. It comes before the providers are asked: an agent says that it was asked to go,
// and what its infrastructure knows of the reason is then no older.
func (r *Reconciler) hear() {
	if r.o.Service != nil {
		r.heard = r.o.Service.Observe()
	}
}

// observe asks every provider and merges what the service knows. A provider that does not answer is left
// out, with its jobs: they go on as they are until it answers again.
func (r *Reconciler) observe(ctx context.Context) {
	r.hear()
	for _, name := range slices.Sorted(maps.Keys(r.o.Providers)) {
		asking, cancel := context.WithTimeout(ctx, callTimeout)
		seen, err := r.o.Providers[name].Observe(asking)
		cancel()
		summary := "Provider " + name + " cannot be observed"
		if err != nil {
			if !repeats(err, r.trouble[name]) && ctx.Err() == nil {
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
	r.enterDelays()
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
func (r *Reconciler) tellGone(seen *providers.Observation) {
	if r.o.Service == nil {
		return
	}
	for i := range seen.Incarnations {
		inc := &seen.Incarnations[i]
		key := keyOf(inc)
		slot := r.names.launchedSlot(inc.UID, inc.Slot)
		if inc.State == job.Gone && !r.gone[key] && r.sent[slot.Job].uid == inc.UID {
			r.gone[key] = true
			r.o.Service.Gone(slot, inc.Number)
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
	in := plan.Input{Now: now, Since: r.since, Rerun: map[string]bool{}, Capabilities: map[string]job.Capabilities{}, Records: job.Records{}, Released: r.released()}
	r.declare(&in)
	snapshot := job.Snapshot{At: now}
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		if !r.answered(name) {
			continue
		}
		in.Capabilities[name] = r.o.Providers[name].Capabilities()
		snapshot.Nodes = append(snapshot.Nodes, r.known[name].Nodes...)
		snapshot.Incarnations = slices.Grow(snapshot.Incarnations, len(r.known[name].Incarnations))
		for _, inc := range r.known[name].Incarnations {
			inc.Provider = name
			inc.Exit, inc.Evidence, inc.Waiting = r.o.Sealer.Exit(inc.Exit), r.o.Sealer.Texts(inc.Evidence), r.o.Sealer.Text(inc.Waiting)
			inc.Drift = r.o.Sealer.Changes(inc.Drift)
			snapshot.Incarnations = append(snapshot.Incarnations, inc)
		}
		for uid, why := range r.known[name].Held {
			if snapshot.Held == nil {
				snapshot.Held = map[string]string{}
			}
			snapshot.Held[uid] = why
		}
	}
	r.mu.Lock()
	records := r.state.Jobs
	in.Released = r.state.Released
	r.mu.Unlock()
	for name, rec := range records {
		if r.answered(rec.Spec.Provider) {
			in.Records[name] = rec
		}
		in.Rerun[name] = r.rerun[name] == rec.UID
	}
	for _, j := range r.o.Jobs {
		// A job goes whole or not at all: one whose record is left out would look new.
		name := r.recordedAs(j.Name, records)
		left := records[name] != nil && in.Records[name] == nil || r.trouble[j.Provider] != nil
		if left {
			delete(in.Records, name)
			continue
		}
		in.Jobs = append(in.Jobs, j)
	}
	in.Bars, in.Extra = r.fits(&in)
	if r.o.Service != nil {
		r.merge(&snapshot, r.names.fromService(r.heard), records)
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

// recordedAs is the name that a declared job has in the records: another one while it is yet to be moved.
func (r *Reconciler) recordedAs(name string, records job.Records) string {
	if records[name] == nil {
		for from, to := range r.o.Blocks.Moved {
			if to == name && records[from] != nil {
				return from
			}
		}
	}
	return name
}

// fits asks the observations where the roles of all jobs can be and what they take there: as they are declared, or as they
// were last applied if they are not any more. What they could not see is told beside what they can, each once: roles by the
// thousand have the same caveat. Each answer costs a fraction of a millisecond, so nothing is asked twice.
func (r *Reconciler) fits(in *plan.Input) (bars map[string]map[string]string, extra map[string]job.Resources) {
	bars, extra = map[string]map[string]string{}, map[string]job.Resources{}
	ask := func(j *job.Job) {
		if !r.answered(j.Provider) {
			return
		}
		for i := range j.Roles {
			role := "job." + j.Name + "." + j.Roles[i].Name
			fit := r.known[j.Provider].Places.Fit(r.o.Sealer.Role(&j.Roles[i]))
			if len(fit.Bars) > 0 {
				bars[role] = fit.Bars
			}
			if !fit.Extra.Equal(job.Resources{}) {
				extra[role] = fit.Extra
			}
			for _, caveat := range fit.Caveats {
				if can := in.Capabilities[j.Provider]; !slices.Contains(can.Caveats, caveat) {
					can.Caveats = append(slices.Clip(can.Caveats), caveat) // the provider's own stay as they are
					in.Capabilities[j.Provider] = can
				}
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
	return bars, extra
}

// merge enters what the service knows of worlds and members, each under the UID of its job: one of the same
// name that was created anew knows nothing of its forerunner's. What processes wrote may have sensitive values in it.
func (r *Reconciler) merge(s *job.Snapshot, facts map[string]elastic.Facts, records job.Records) {
	s.Worlds = make(map[string]job.World, len(facts))
	members := map[incarnation]*job.Member{}
	for name, f := range facts {
		if rec := records[name]; f.World.Generation > 0 && rec != nil && rec.UID == f.UID {
			s.Worlds[name] = f.World
		}
		for i := range f.Members {
			m := &f.Members[i]
			if exit := r.o.Sealer.Exit(m.Member.Exit); exit != m.Member.Exit {
				sealed := *m // the others are the service's own
				sealed.Member.Exit = exit
				m = &sealed
			}
			members[incarnationOf(f.UID, m.Slot, m.Incarnation)] = &m.Member
		}
	}
	for i := range s.Incarnations {
		if m := members[keyOf(&s.Incarnations[i])]; m != nil {
			s.Incarnations[i].Member = m
		}
	}
}
