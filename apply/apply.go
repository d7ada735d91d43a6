// Package apply carries plans out. A Reconciler runs the one loop: observe, plan, store, tell the service
// what to form, and do the changes of the first wave, many at a time, each checked against the newest
// observation first. `eltrain plan` runs it once and stops before acting, `apply` until nothing is left to
// do, `apply -watch` for ever.
//
// It is the only room in which plans, providers, the service and the store meet. It decides nothing itself.
package apply

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// Service is what apply needs of the elastic training service.
type Service interface {
	// SetReady tells that it is known what is wanted, and stored.
	SetReady()
	Set(jobName string, d elastic.Desired)
	Remove(jobName string)
	// Gone tells that the provider is certain that an incarnation has ended.
	Gone(slot job.Address, incarnation int)
	Observe() map[string]elastic.Facts
	// Wake gets a value when a fact has changed that a plan depends on.
	Wake() <-chan struct{}
}

// Journal keeps what happened and what was decided.
type Journal interface {
	Append(entries ...state.Entry) error
}

// Options are the parts of a Reconciler. Zero values are defaults from Spawn on; the others are needed.
type Options struct {
	Jobs      []job.Job
	Outputs   map[string]state.Output
	Blocks    plan.Blocks // what the files say of jobs' names, and whose jobs are
	Store     state.Store
	Lock      state.Lock // nil only for Preview
	Journal   Journal    // nil only for Preview
	Service   Service    // nil only for Preview
	Providers map[string]providers.Provider
	View      View
	Words     Words // nil writes codes
	NewUID    func(name string) string
	// Sealer has the sensitive values of Jobs, whose texts have seals in their places; nil if there are none. Nothing is
	// given them but what is launched.
	Sealer *job.Sealer
	// Spawn runs a change; nil is a goroutine of its own. A simulation runs it at once.
	Spawn func(func())
	// Clock tells the time; nil is time.Now. A simulation has its own.
	Clock func() time.Time
	// Parallelism bounds how many changes are under way at once, of all providers together; 0 lets each provider
	// have what it can take.
	Parallelism int
	// Destroy tells that Jobs is empty because all are to be destroyed.
	Destroy bool
	// Prevent says which jobs the files keep from being destroyed, where Jobs is empty.
	Prevent map[string]bool
	// Keep leaves jobs alone that are recorded and not declared.
	Keep bool
	// MaxDestroy bounds how many slots a change of the files may have removed or replaced at once. What is beyond that
	// is not done, and is told. nil is no bound.
	MaxDestroy *int
	// Commit names what Jobs are of, for a person; "" if that is not known.
	Commit string
	// Rerun starts jobs that failed anew.
	Rerun bool
	// Once tells that the run ends once nothing is left to do: roles get what they begin with, and grow no further.
	Once bool
	// Scope bounds what may be changed, and Replace names slots to start anew besides those that Scope does.
	Scope   plan.Scope
	Replace []job.Selector
	// Refresh plans nothing but to record what is seen.
	Refresh bool
	// Conditions tells what of the files' conditions does not hold of the jobs as they run, each a summary with its
	// detail. It is asked in the loop, whenever the records have changed; nil asks nobody.
	Conditions func(job.Records) map[string]string
	// Approve is asked of the first plan, before anything is stored or done. Its error ends the run; nil asks nobody.
	Approve func(in *plan.Input, p *plan.Plan) error
	Log     *slog.Logger
}

// Reconciler runs the loop over one state.
type Reconciler struct {
	o Options

	// writing is held while the state or the journal is written, which may take long; mu never is. It guards what else is
	// part of that.
	writing sync.Mutex
	unsure  bool // the last write failed: it may be stored all the same
	// unwritten are notices that the journal does not have yet: of worlds, until the next turn, and what it
	// could not take.
	unwritten []job.Notice

	// mu guards what flights, the service's ledger and status read beside the loop: the state and the snapshot. The
	// state is changed with writing held as well, so either is enough to read it.
	mu       sync.Mutex
	state    state.State
	snapshot job.Snapshot
	live     map[incarnation]*job.Incarnation // of the snapshot, those not gone

	heard        map[string]elastic.Facts         // what the service knew when a turn began
	known        map[string]providers.Observation // by provider: the last good one
	trouble      map[string]error                 // by provider: why the last observation failed
	gone         map[incarnation]bool             // ended incarnations that the service was told of
	sent         map[string]introduced            // the jobs that the service knows, by the names that it knows
	since        time.Time                        // when this one was made
	rerun        map[string]string                // UIDs of the jobs that had failed before and are to start anew, by name
	scope        plan.Scope
	names        *names
	flights      *flights
	preparations *preparations
	stored       time.Duration // what the last turn took to store
	waits        []plan.Wait   // of the newest plan
	told         []plan.Wait   // last told, at toldAt
	toldAt       time.Time
	unended      bool              // the plan that the view was told last has changes
	steps        map[string]int64  // last told
	stale        string            // why the files are not what is in force; "" if they are
	unstored     string            // why nothing is changed: the last turn could not be stored; "" if it was; under mu
	taken        string            // a commit that was taken up, and is yet to be told
	read         string            // the last one of which it was told that something of it is held back
	left         []plan.Wait       // jobs that were last told to be left only because of Keep; under mu
	lost         []string          // jobs that are in the files no more, which is yet to be believed; under mu
	revision     string            // the commit that the jobs in force are of
	unsteady     time.Time         // since when the files are not to be read; zero if they are
	again        time.Time         // when they are to be read though nothing tells of a change; zero is never
	warnedFiles  map[string]bool   // summaries of what holds of how they are written, and was warned of
	unmet        map[string]string // what of the files' conditions did not hold last; nil until they were looked at
	failing      map[refused][]int // slots that were last told to fail, by why
	strays       map[string]bool   // UIDs of what runs without a record and was last told to be stopped
	refused      map[string]string // what must not be done and was last warned of: summaries, with why
	delayed      map[string]string // by UID: what does not come about, and why; under mu
	toldDelays   map[string]string // what was last warned of: summaries, with why
	requests     []request         // to reconcile; under mu
	requested    chan struct{}     // gets a value when there are requests
	heeded       []request         // taken up, and not answered yet
	confirmed    *int              // what they allow in the place of MaxDestroy

	withheld map[string]job.Reason // jobs that were last told to be held back, with the reason
	teller   teller
}

// New reads the state. The lock must be held when changes are to be made.
func New(ctx context.Context, o Options) (*Reconciler, error) {
	s, err := o.Store.Read(ctx)
	if err != nil {
		return nil, err
	}
	return assemble(o, s), nil
}

// Planner is a reconciler that only replans: it has no state.
func Planner(o Options) *Reconciler { return assemble(o, state.State{}) }

func assemble(o Options, s state.State) *Reconciler {
	if s.Jobs == nil {
		s.Jobs = job.Records{}
	}
	s.Jobs = o.Sealer.Records(s.Jobs)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Spawn == nil {
		o.Spawn = func(f func()) { go f() }
	}
	if o.Words == nil {
		o.Words = codes{}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	known := new(names)
	known.set(s.Jobs)
	o.Providers = maps.Clone(o.Providers)
	for name, prov := range o.Providers {
		o.Providers[name] = renaming{prov, known}
	}
	rerun := map[string]string{}
	for name, rec := range s.Jobs {
		if o.Rerun && rec.Phase.Ended() && rec.Phase != job.JobSucceeded {
			rerun[name] = rec.UID
		}
	}
	r := &Reconciler{
		o: o, state: s, names: known, rerun: rerun, since: o.Clock(), known: map[string]providers.Observation{}, trouble: map[string]error{},
		gone: map[incarnation]bool{}, warnedFiles: map[string]bool{}, sent: map[string]introduced{}, revision: o.Commit, requested: make(chan struct{}, 1), steps: map[string]int64{}, teller: teller{view: o.View},
	}
	r.scope = o.Scope.Named(o.Jobs, s.Jobs)
	r.scope.Replace = append(slices.Clone(r.scope.Replace), plan.Replacements(s.Jobs, plan.Named(o.Replace, o.Jobs, s.Jobs))...)
	r.flights, r.preparations = newFlights(r), newPreparations(r)
	return r
}

// Records are the newest stored ones.
func (r *Reconciler) Records() job.Records {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Jobs
}

// released are the forgotten jobs that may still run.
func (r *Reconciler) released() map[string]job.Released {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Released
}

// Outputs are those that were stored last.
func (r *Reconciler) Outputs() map[string]state.Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Outputs
}

// Snapshot is the newest observation, with what the service knows now.
func (r *Reconciler) Snapshot() job.Snapshot {
	r.mu.Lock()
	s := r.snapshot
	records := r.state.Jobs
	r.mu.Unlock()
	s.Incarnations = slices.Clone(s.Incarnations)
	if r.o.Service != nil {
		r.merge(&s, r.facts(), records)
	}
	return s
}

// Preview plans without acting: nothing is stored, nobody is told.
func (r *Reconciler) Preview(ctx context.Context, now time.Time) (Decision, error) {
	r.hear()
	for name, prov := range r.o.Providers {
		seen, err := prov.Observe(ctx)
		if err != nil {
			return Decision{}, fmt.Errorf("observe provider %q: %w", name, err)
		}
		r.known[name] = seen
	}
	in, p := r.decide(r.input(now))
	return Decision{in, p}, nil
}

// facts are what the service knows, by the names that jobs have now.
func (r *Reconciler) facts() map[string]elastic.Facts {
	return r.names.fromService(r.o.Service.Observe())
}

// introduced is a job that the service knows, and since when: its leases begin then.
type introduced struct {
	uid string
	at  time.Time
}

// tell gives the service what it is to form.
func (r *Reconciler) tell(ctx context.Context, p *plan.Plan) {
	now := map[string]bool{}
	leaving := map[incarnation]*plan.Change{}
	for i := range p.Changes {
		if c := &p.Changes[i]; isStop(c) && c.Wave == 0 {
			for _, n := range c.Stop {
				leaving[incarnationOf(c.UID, c.Slot, n)] = c
			}
		}
	}
	uids := map[string]bool{}
	labels := map[string]map[string]string{}
	for _, n := range r.snapshot.Nodes {
		labels[n.Name] = n.Labels
	}
	r.preparations.turn()
	for name, rec := range p.Records {
		uids[rec.UID] = true
		want, here := p.Wants[name] // or else it runs where its provider does not look now
		group, startable := p.Groups[name]
		if !here || !startable {
			r.preparations.cease(rec.UID)
			continue
		}
		token, prepared := r.preparations.ask(ctx, rec, group)
		if !prepared {
			continue // until then its agents train on, and the service does not know them
		}
		d := elastic.Desired{UID: rec.UID, Token: token, Want: want, World: rec.World,
			News: r.o.Providers[rec.Spec.Provider].Capabilities().News.Std(), Nodes: labels}
		for _, s := range rec.Slots {
			if s.Incarnation == 0 || s.Phase == job.Canceled {
				continue
			}
			stop := leaving[incarnationOf(rec.UID, s.Address, s.Incarnation)]
			slot := elastic.DesiredSlot{Address: s.Address, Incarnation: s.Incarnation, InPlace: s.InPlace, Rank: s.Rank, Node: s.Node,
				Leave: stop != nil && !r.preparations.holds(stop) || s.Phase == job.Succeeded, Return: s.Return, Processes: 1}
			if role := rec.Spec.Role(s.Address.Role); role != nil {
				slot.Processes = role.Processes
			}
			d.Slots = append(d.Slots, slot)
		}
		name, d = r.names.toService(name, d)
		now[name] = true
		r.o.Service.Set(name, d)
		if r.sent[name].uid != rec.UID {
			r.sent[name] = introduced{rec.UID, r.o.Clock()}
		}
	}
	if !r.troubled() {
		r.preparations.keep(uids)
	}
	for name := range r.sent {
		if !now[name] && !r.troubled() {
			r.o.Service.Remove(name)
			delete(r.sent, name)
		}
	}
}
