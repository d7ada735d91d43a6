package apply

import (
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// unheard is until when a run that does not watch waits for agents that it found: a process that ended while there was no
// master is known to its agent alone. Zero if all have reported to this service, or had the time for it: the lease, or
// what news of a service take to reach them, after which the service takes the members of a world for lost.
func (r *Reconciler) unheard(p *plan.Plan) (until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.o.Jobs {
		rec := p.Records[j.Name]
		if rec == nil || !r.scope.Touches(j.Name) || rec.Phase.Ended() {
			continue
		}
		known := r.sent[rec.LaunchedAs(j.Name)]
		if known.uid != rec.UID || !r.silent(rec) {
			continue
		}
		patience := max(rec.Spec.Detect.Lease.Std(), r.o.Providers[rec.Spec.Provider].Capabilities().News.Std())
		if at := known.at.Add(patience + proof); r.o.Clock().Before(at) && at.After(until) {
			until = at
		}
	}
	return until
}

// silent tells whether an agent of the job runs, as far as its provider sees, that took part in it and has not reported to
// this service. r.mu is held.
func (r *Reconciler) silent(rec *job.Record) bool {
	for i := range rec.Slots {
		s := &rec.Slots[i]
		switch s.Phase {
		case job.Registered, job.Running, job.Suspect:
		default:
			continue
		}
		inc := r.live[incarnationOf(rec.UID, s.Address, s.Incarnation)]
		if inc != nil && inc.State == job.Up && inc.Member == nil {
			return true
		}
	}
	return false
}
