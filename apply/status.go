package apply

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Live is what a running master knows now, for `eltrain status`.
type Live struct {
	Records  job.Records  `json:"records"`
	Snapshot job.Snapshot `json:"snapshot"`
	Waits    []plan.Wait  `json:"waits,omitempty"`
	// Scaling is what policies decided about elastic roles.
	Scaling []plan.RoleScaling `json:"scaling,omitempty"`
	// Conditions are those that hold.
	Conditions []conditions.Condition `json:"conditions,omitempty"`
	// Released are the jobs that were removed from the state and may still run, by UID.
	Released map[string]job.Released `json:"released,omitempty"`
	// Spent is what was used of the directory's budget until now; zero without one.
	Spent job.Spent `json:"spent,omitzero"`
	// Holder is who leads; nil if nobody does.
	Holder *state.LockInfo `json:"holder,omitempty"`
}

// Live returns a copy of what is known now, including the given facts of the service.
func (l *Loop) Live(now time.Time, facts map[string]elastic.Facts) Live {
	snapshot := l.sight.snapshot
	merge(&snapshot, l.book.names.fromService(facts), l.book.state.Jobs)
	unstored := l.unstoredJobs()
	ledgers := plan.Goodput(l.book.state.Jobs, &snapshot, now)
	records := make(job.Records, len(l.book.state.Jobs))
	for name, rec := range l.book.state.Jobs {
		copied := *rec
		if unstored != nil && rec.Phase == job.JobRunning {
			copied.Phase = job.JobDegraded // the job is not healed, and the record cannot be written
		}
		copied.Goodput = ledgers[name]
		records[name] = &copied
	}
	waits := slices.Concat(unstored, l.waits(&l.turn.newest))
	held := sealed(l.holds.All(), l.book.seal)
	for _, c := range held {
		if name, ofJob := conditions.Job(c.About); ofJob && (c.Reason.Code == plan.NotPruned || c.Reason.Code == LeftFiles) {
			waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{c.Reason}})
		}
	}
	return Live{Records: records, Snapshot: snapshot, Waits: waits, Scaling: l.turn.newest.Scaling, Conditions: held, Released: l.book.state.Released, Spent: l.book.state.Spent.AsOf(now)}
}

// Nodes is what is known of nodes, for `eltrain nodes`.
type Nodes struct {
	Nodes []plan.NodeUse `json:"nodes"`
	// Unobserved says why the nodes of a provider are not known, by provider.
	Unobserved map[string]string `json:"unobserved,omitempty"`
}

// nodesOf returns what the planner's input says of nodes.
func nodesOf(in plan.Input, unobserved map[string]string, now time.Time) Nodes {
	in.Now = now
	return Nodes{plan.Nodes(in), unobserved}
}

// Records returns the stored records.
func (l *Loop) Records() job.Records { return l.book.state.Jobs }
