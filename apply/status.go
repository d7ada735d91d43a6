package apply

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Live is what a running master knows now: what `eltrain status` shows.
type Live struct {
	Records  job.Records  `json:"records"`
	Snapshot job.Snapshot `json:"snapshot"`
	Waits    []plan.Wait  `json:"waits,omitempty"`
	// Conditions are what holds and somebody should know.
	Conditions []conditions.Condition `json:"conditions,omitempty"`
	// Released are the jobs that the state was told to forget and that may run on, by UID.
	Released map[string]job.Released `json:"released,omitempty"`
}

// Live is a copy of what is known now, with what the service knows by now.
func (l *Loop) Live(now time.Time, facts map[string]elastic.Facts) Live {
	snapshot := l.sight.snapshot
	snapshot.Incarnations = slices.Clone(snapshot.Incarnations)
	merge(&snapshot, l.book.names.fromService(facts), l.book.state.Jobs)
	unstored := l.unstoredJobs()
	records := make(job.Records, len(l.book.state.Jobs))
	for name, rec := range l.book.state.Jobs {
		copied := *rec
		if unstored != nil && rec.Phase == job.JobRunning {
			copied.Phase = job.JobDegraded // nothing of it is healed, and its record cannot say so
		}
		if !rec.Phase.Ended() {
			copied.Goodput = rec.Goodput.Until(now)
		}
		records[name] = &copied
	}
	waits := slices.Concat(unstored, l.turn.waits, l.refusals())
	held := sealed(l.holds.All(), l.book.seal)
	for _, c := range held {
		if name, ofJob := conditions.Job(c.About); ofJob && (c.Reason.Code == plan.NotPruned || c.Reason.Code == LeftFiles) {
			waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{c.Reason}})
		}
	}
	return Live{Records: records, Snapshot: snapshot, Waits: waits, Conditions: held, Released: l.book.state.Released}
}

// Records are the newest stored ones.
func (l *Loop) Records() job.Records { return l.book.state.Jobs }
