package apply

import (
	"context"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Offline is what can be told of the recorded jobs while no master runs: the records, what the providers see,
// what the jobs wait for by the planner's word, or were refused last, and what ended well since a master last looked. Nothing is
// changed. If a provider cannot be observed the records are all there is, and the snapshot is zero.
func (r *Reconciler) Offline(ctx context.Context) Live {
	records := r.Records()
	r.observe(ctx)
	if r.troubled() {
		return Live{Records: records}
	}
	var jobs []job.Job
	for _, name := range slices.Sorted(maps.Keys(records)) {
		jobs = append(jobs, records[name].Spec)
	}
	r.Declare(jobs)
	in := r.input(r.o.Clock())
	p := plan.Make(in)
	waits := slices.Concat(p.Waits, recordedRefusals(records, &in.Snapshot))
	return Live{Records: withEnds(records, p.Records), Snapshot: in.Snapshot, Waits: waits, Released: in.Released}
}

// withEnds takes over what ended well. What else the planner would decide is not taken: without a master
// nobody does it.
func withEnds(records, planned job.Records) job.Records {
	shown := make(job.Records, len(records))
	for name, rec := range records {
		now := planned[name]
		if now == nil || now.UID != rec.UID {
			shown[name] = rec
			continue
		}
		copied := *rec
		copied.Slots = slices.Clone(rec.Slots)
		for i := range copied.Slots {
			a := copied.Slots[i].Address
			if s := now.Slot(a.Role, a.Index); s != nil && s.Phase == job.Succeeded {
				copied.Slots[i].Phase = job.Succeeded
			}
		}
		if now.Phase == job.JobSucceeded {
			copied.Phase, copied.Ended, copied.Goodput = now.Phase, now.Ended, now.Goodput
		}
		shown[name] = &copied
	}
	return shown
}
