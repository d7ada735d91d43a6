package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// Planner observes and plans without acting, for `eltrain plan` and `status`.
type Planner struct {
	loop     *Loop
	observer observer
}

// NewPlanner returns a planner over a state.
func NewPlanner(s Setup, named map[string]providers.Provider, sealer *job.Sealer) *Planner {
	s.Providers = slices.Sorted(maps.Keys(named))
	s.Files.Seal = sealer
	return &Planner{New(time.Now(), s), observer{providers: named, sealer: sealer}}
}

// look observes every provider and returns the first error.
func (p *Planner) look(ctx context.Context, now time.Time) (failed error) {
	p.loop.now = now
	for _, name := range p.loop.sight.order {
		seen, err := p.observer.observe(ctx, name)
		if err := p.loop.sight.see(name, seen, err); err != nil && failed == nil {
			failed = fmt.Errorf("observe provider %q: %w", name, err)
		}
	}
	return failed
}

// Preview plans without acting: nothing is stored or sent.
func (p *Planner) Preview(ctx context.Context, now time.Time) (Decision, error) {
	if err := p.look(ctx, now); err != nil {
		return Decision{}, err
	}
	in, decided := p.loop.decide(p.loop.input())
	return Decision{in, decided}, nil
}

// Records returns the state's records.
func (p *Planner) Records() job.Records { return p.loop.book.state.Jobs }

// Offline returns the status of the recorded jobs while no master runs: the records, what the providers see, what the jobs
// wait for according to the planner or were last refused, and what has succeeded since a master last looked. It changes
// nothing. If a provider cannot be observed, only the records are returned and the snapshot is zero.
func (p *Planner) Offline(ctx context.Context, now time.Time) Live {
	records := p.Records()
	if p.look(ctx, now) != nil {
		return Live{Records: records, Conditions: p.loop.book.state.Conditions, Spent: p.loop.book.state.Spent.AsOf(now)}
	}
	p.loop.files.Jobs = nil
	for _, name := range slices.Sorted(maps.Keys(records)) {
		p.loop.files.Jobs = append(p.loop.files.Jobs, records[name].Spec)
	}
	in := p.loop.input()
	decided := plan.Make(in)
	held, refused := recordedRefusals(&p.loop.book.state, &in.Snapshot)
	latest := conditions.TakeOver(held, plan.Supplies)
	latest.Settle(now, func(k conditions.Key) bool {
		_, waits := plan.Waiting[k.Code]
		return waits || ofNodes[k.Code]
	}, append(conditionsOf(decided.Waits), aboutNodes(decided.Nodes, in.Snapshot.Nodes, now)...))
	return Live{Records: withEnds(records, decided.Records), Snapshot: in.Snapshot, Waits: slices.Concat(decided.Waits, refused), Scaling: decided.Scaling, Conditions: latest.All(), Released: in.Released, Spent: in.Spent.AsOf(now)}
}

// Nodes returns what is known of nodes while no master runs.
func (p *Planner) Nodes(ctx context.Context, now time.Time) Nodes {
	p.look(ctx, now) // its errors are in the result
	return nodesOf(p.loop.known(), p.loop.sight.unobserved(), now)
}

// withEnds returns the records with the successes that the planner found. Its other decisions are left out: without a
// master nobody carries them out.
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

// Observation is what the providers reported about themselves at one time. With the records, which say what ran, it is
// enough to plan without asking any provider.
type Observation struct {
	At           time.Time                    `json:"at"`
	Nodes        []job.Node                   `json:"nodes"`
	Held         map[string]string            `json:"held,omitempty"`
	Capabilities map[string]job.Capabilities  `json:"capabilities"`
	Bars         map[string]map[string]string `json:"bars,omitempty"`
	Extra        map[string]job.Resources     `json:"extra,omitempty"`
}

// Observed returns the newest observation; false if any provider did not answer.
func (p *Planner) Observed() (o Observation, whole bool) { return p.loop.observation() }

// observation returns the newest one; false if any provider did not answer.
func (l *Loop) observation() (o Observation, whole bool) {
	for _, name := range l.sight.order {
		if !l.sight.answered(name) {
			return o, false
		}
	}
	in := l.input()
	return Observation{At: in.Snapshot.At, Nodes: in.Snapshot.Nodes, Held: in.Snapshot.Held, Capabilities: in.Capabilities, Bars: in.Bars, Extra: in.Extra}, true
}

// PreviewRecorded plans from the records and an observation without asking any provider: whatever runs according to the
// records is assumed to run. A node that is missing from the observation has just the capacity that the records use on it.
// With a nil observation, no nodes or capabilities are known, and whatever needs a new place waits.
func (p *Planner) PreviewRecorded(o *Observation, now time.Time) Decision {
	in := plan.Input{Snapshot: job.Snapshot{At: now}, Records: p.Records(), Released: p.loop.book.state.Released, Destroyed: p.loop.book.state.Destroyed, Nodes: p.loop.book.state.Nodes, Spent: p.loop.book.state.Spent, Capabilities: map[string]job.Capabilities{}, Now: now, Since: now}
	if o != nil {
		in.Snapshot.At, in.Snapshot.Nodes, in.Snapshot.Held = o.At, slices.Clone(o.Nodes), o.Held
		in.Capabilities, in.Bars, in.Extra = maps.Clone(o.Capabilities), o.Bars, o.Extra
	}
	unobserved := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		addRecorded(&in, in.Records[name], unobserved)
	}
	for i := range p.loop.files.Jobs {
		allow(&in, p.loop.files.Jobs[i].Provider)
	}
	return p.Replan(in)
}

// addRecorded adds what runs according to a record, and its nodes that were not observed, which it adds to unobserved.
func addRecorded(in *plan.Input, rec *job.Record, unobserved map[string]bool) {
	provider := rec.Spec.Provider
	allow(in, provider)
	var incs []job.Incarnation
	for i := range rec.Slots {
		s := &rec.Slots[i]
		extra := in.Extra["job."+s.Address.Job+"."+s.Address.Role]
		switch s.Phase {
		case job.Registered, job.Running, job.Suspect, job.Canceling:
		default:
			continue
		}
		incs = append(incs, job.Incarnation{
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
	in.Snapshot.Incarnations = in.Snapshot.Incarnations.With(incs...)
}

// allow assumes that an unknown provider can do whatever is asked of it.
func allow(in *plan.Input, provider string) {
	if _, known := in.Capabilities[provider]; !known {
		in.Capabilities[provider] = job.Capabilities{Places: true, Images: true, Pods: true}
	}
}

// Replan plans the current files on a recorded input, without asking any provider.
func (p *Planner) Replan(recorded plan.Input) Decision {
	in := recorded
	l := p.loop
	l.declare(&in)
	in.Rerun = map[string]bool{}
	for name, rec := range in.Records {
		in.Rerun[name] = l.setup.Rerun && rec.Phase.Reruns()
	}
	in.Jobs = l.files.Jobs
	in.Scope = l.setup.Scope.Named(in.Jobs, in.Records)
	in.Scope.Replace = plan.Replacements(in.Records, plan.Named(l.setup.Replace, in.Jobs, in.Records))
	in, decided := l.decide(in)
	return Decision{in, decided}
}

// Refresh records what is observed, if approve returns nil, and changes nothing else.
func (p *Planner) Refresh(ctx context.Context, approve func(Decision) error, store state.Store, lock state.Lock, journal Appender) (Decision, error) {
	looking, cancel := context.WithTimeout(ctx, callTimeout) // approve may take longer
	defer cancel()
	d, err := p.Preview(looking, time.Now())
	if err != nil {
		return d, err
	}
	if err := approve(d); err != nil {
		return d, &RefusedError{err}
	}
	l := p.loop
	l.turn.decided = d
	if d.Plan.Dirty || !l.files.Values.Equal(l.book.state.Values) {
		writing, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if err := store.Write(writing, l.book.next(l), lock); err != nil {
			return d, fmt.Errorf("store the state: %w", err)
		}
	}
	notices := slices.Concat(d.Plan.Notices, l.resizes(&d.Input, &d.Plan))
	l.word(notices)
	if err := AppendNotices(journal, notices, d.Plan.Ledger...); err != nil {
		return d, fmt.Errorf("journal: %w", err)
	}
	return d, nil
}
