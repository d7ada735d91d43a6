package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
)

// expire decides about jobs that have waited for places for as long as they may. It comes after admission, so that a job that gets
// its places in this pass does not fail in it.
func (p *pass) expire() {
	for _, w := range p.servingOrder {
		if !p.about(w) {
			continue
		}
		policy, since := w.policy(job.PendingTimeout), p.pendingSince(w)
		if w.part != nil || policy.After == 0 || since.IsZero() || p.pending(since, policy.After) || p.in.Now.Before(since) {
			continue
		}
		known := slices.ContainsFunc(w.rec.Incidents, func(i job.Incident) bool {
			return i.Cause == job.PendingTimeout && !i.Time.Before(since)
		})
		if known {
			continue
		}
		why := job.Because(PendingTooLong, "after", job.Duration(policy.After).String())
		i := job.Incident{Time: p.in.Now, Cause: job.PendingTimeout, Confidence: 1, Evidence: []job.Reason{why}}
		if policy.Action == job.RemedyReport {
			i.Action = job.Report
		}
		p.addIncident(w, i)
		if policy.Action == job.RemedyFail {
			p.out.Waits = slices.DeleteFunc(p.out.Waits, func(of Wait) bool { return of.Job == w.name })
			p.failJob(w, why)
			p.settle(w)
		}
	}
}

// pendingSince is since when the job waits for places, or for its infrastructure to start its slots; zero if it does not.
func (p *pass) pendingSince(w *work) (since time.Time) {
	if !w.active() || w.rec.Goodput.Mode != goodput.Scheduling {
		return since
	}
	if w.unplaced() == nil && !slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return p.queued(w, s) != "" }) && w.admitted() {
		return since
	}
	return w.rec.Goodput.At
}
