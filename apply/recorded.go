package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Observation is what the providers showed of themselves at one time: what a plan that asks nobody is made from, beside
// the records. What ran then is not in it: the records say that.
type Observation struct {
	At           time.Time                    `json:"at"`
	Nodes        []job.Node                   `json:"nodes"`
	Held         map[string]string            `json:"held,omitempty"`
	Capabilities map[string]job.Capabilities  `json:"capabilities"`
	Bars         map[string]map[string]string `json:"bars,omitempty"`
	Extra        map[string]job.Resources     `json:"extra,omitempty"`
}

// Observed is the newest observation; false if any provider did not answer.
func (r *Reconciler) Observed() (o Observation, whole bool) {
	if r.troubled() || len(r.known) < len(r.o.Providers) {
		return o, false
	}
	in := r.input(r.o.Clock())
	return Observation{At: in.Snapshot.At, Nodes: in.Snapshot.Nodes, Held: in.Snapshot.Held, Capabilities: in.Capabilities, Bars: in.Bars, Extra: in.Extra}, true
}

// PreviewRecorded plans from the records and an observation, and asks no provider: what the records say runs is taken to
// run. A node that is not in the observation is as large as what the records have on it. A nil observation knows of no
// node and of no provider what it can: whatever needs a place that it does not have waits.
func (r *Reconciler) PreviewRecorded(o *Observation, now time.Time) Decision {
	in := plan.Input{Snapshot: job.Snapshot{At: now}, Records: r.Records(), Released: r.released(), Capabilities: map[string]job.Capabilities{}, Now: now, Since: now}
	if o != nil {
		in.Snapshot.At, in.Snapshot.Nodes, in.Snapshot.Held = o.At, slices.Clone(o.Nodes), o.Held
		in.Capabilities, in.Bars, in.Extra = maps.Clone(o.Capabilities), o.Bars, o.Extra
	}
	unobserved := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		addRecorded(&in, in.Records[name], unobserved)
	}
	for i := range r.o.Jobs {
		allow(&in, r.o.Jobs[i].Provider)
	}
	return r.Replan(in)
}

// addRecorded enters what a record says runs, and the nodes that only it knows, which are unobserved.
func addRecorded(in *plan.Input, rec *job.Record, unobserved map[string]bool) {
	provider := rec.Spec.Provider
	allow(in, provider)
	for i := range rec.Slots {
		s := &rec.Slots[i]
		extra := in.Extra["job."+s.Address.Job+"."+s.Address.Role]
		switch s.Phase {
		case job.Registered, job.Running, job.Suspect, job.Canceling:
		default:
			continue
		}
		in.Snapshot.Incarnations = append(in.Snapshot.Incarnations, job.Incarnation{
			Slot: s.Address, UID: rec.UID, Number: s.Incarnation, Node: s.Node, Provider: provider, Fingerprint: s.Fingerprint,
			Reserved: s.Reserved, Extra: extra, State: job.Up, Started: s.Since, Owner: in.Capabilities[provider].Owner,
		})
		if s.Node == "" {
			continue
		}
		at := slices.IndexFunc(in.Snapshot.Nodes, func(n job.Node) bool { return n.Name == s.Node && n.Provider == provider })
		if at < 0 {
			at = len(in.Snapshot.Nodes)
			in.Snapshot.Nodes = append(in.Snapshot.Nodes, job.Node{Name: s.Node, Provider: provider})
			unobserved[s.Node] = true
		}
		if unobserved[s.Node] {
			in.Snapshot.Nodes[at].Capacity = in.Snapshot.Nodes[at].Capacity.Add(s.Reserved).Add(extra)
		}
	}
}

// allow takes a provider of which nothing is known for one that does what is asked of it.
func allow(in *plan.Input, provider string) {
	if _, known := in.Capabilities[provider]; !known {
		in.Capabilities[provider] = job.Capabilities{Places: true, Images: true, Pods: true}
	}
}

// Replan plans what the files say now from what was observed and remembered before. Nobody is asked.
func (r *Reconciler) Replan(recorded plan.Input) Decision {
	in := recorded
	r.declare(&in)
	in.Rerun = map[string]bool{}
	for name, rec := range in.Records {
		in.Rerun[name] = r.o.Rerun && rec.Phase.Ended() && rec.Phase != job.JobSucceeded
	}
	in.Jobs = r.o.Jobs
	in.Scope = r.o.Scope.Named(in.Jobs, in.Records)
	in.Scope.Replace = plan.Replacements(in.Records, plan.Named(r.o.Replace, in.Jobs, in.Records))
	in, p := r.decide(in)
	return Decision{in, p}
}

// declare enters what the files and the user say, but for the jobs.
func (r *Reconciler) declare(in *plan.Input) {
	in.Destroy, in.NewUID, in.Keep, in.Blocks, in.Prevent = r.o.Destroy, r.o.NewUID, r.o.Keep, r.o.Blocks, r.o.Prevent
	in.Scope, in.Refresh, in.Once = r.scope, r.o.Refresh, r.o.Once
}

// Refresh records what is seen, and changes nothing else. It is asked of Approve, if there is one.
func (r *Reconciler) Refresh(ctx context.Context) (Decision, error) {
	d, err := r.Preview(ctx, r.o.Clock())
	if err != nil {
		return d, err
	}
	if r.o.Approve != nil {
		if err := r.o.Approve(&d.Input, &d.Plan); err != nil {
			return d, &RefusedError{err}
		}
	}
	return d, r.commit(ctx, d.Input, &d.Plan)
}
