// Package apply carries plans out. A Reconciler runs the one loop: observe, plan, store, tell the service
// what to form, and do the changes of the first wave, many at a time, each checked against the newest
// observation first. `eltrain plan` runs it once and stops before acting, `apply` until nothing is left to
// do, `apply -watch` for ever.
//
// It is the only room in which plans, providers, the service and the store meet. It decides nothing itself.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
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
	Store     state.Store
	Lock      state.Lock // nil only for Preview
	Journal   Journal    // nil only for Preview
	Service   Service    // nil only for Preview
	Providers map[string]providers.Provider
	View      View
	NewUID    func(name string) string
	// Spawn runs a change; nil is a goroutine of its own. A simulation runs it at once.
	Spawn func(func())
	// Clock tells the time; nil is time.Now. A simulation has its own.
	Clock func() time.Time
	// Parallelism bounds how many changes are under way at once.
	Parallelism int
	// Destroy tells that Jobs is empty because all are to be destroyed.
	Destroy bool
	// Keep leaves jobs alone that are recorded and not declared.
	Keep bool
	// Rerun starts jobs that failed anew.
	Rerun bool
	Log   *slog.Logger
}

// Reconciler runs the loop over one state.
type Reconciler struct {
	o Options

	// mu guards what flights, the service's ledger and status read beside the loop: the state, the snapshot
	// and the last good observations.
	mu     sync.Mutex
	state  state.State
	unsure bool // the last write failed: it may be stored all the same

	snapshot job.Snapshot
	live     map[incarnation]*job.Incarnation // of the snapshot, those not gone
	// unwritten are notices that the journal does not have yet: of worlds, until the next turn, and what it
	// could not take.
	unwritten []job.Notice
	known     map[string]providers.Observation // by provider: the last good one
	trouble   map[string]error                 // by provider: why the last observation failed
	gone      map[incarnation]bool             // ended incarnations that the service was told of
	sent      map[string]string                // the UIDs of the jobs that the service knows, by name
	tokens    map[string]string                // by job UID
	since     time.Time                        // when this one was made
	rerun     map[string]string                // UIDs of the jobs that had failed before and are to start anew, by name
	flights   *flights
	waits     []plan.Wait      // last told
	steps     map[string]int64 // last told
	viewing   sync.Mutex       // one call of the view at a time
}

type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func keyOf(inc *job.Incarnation) incarnation { return incarnation{inc.UID, inc.Slot, inc.Number} }

// New reads the state. The lock must be held when changes are to be made.
func New(ctx context.Context, o Options) (*Reconciler, error) {
	s, err := o.Store.Read(ctx)
	if err != nil {
		return nil, err
	}
	if s.Jobs == nil {
		s.Jobs = job.Records{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Spawn == nil {
		o.Spawn = func(f func()) { go f() }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	rerun := map[string]string{}
	for name, rec := range s.Jobs {
		if o.Rerun && rec.Phase.Ended() && rec.Phase != job.JobSucceeded {
			rerun[name] = rec.UID
		}
	}
	r := &Reconciler{
		o: o, state: s, rerun: rerun, since: o.Clock(), known: map[string]providers.Observation{}, trouble: map[string]error{},
		gone: map[incarnation]bool{}, sent: map[string]string{}, steps: map[string]int64{}, tokens: map[string]string{},
	}
	r.flights = newFlights(r, max(o.Parallelism, 1))
	return r, nil
}

// Records are the newest stored ones.
func (r *Reconciler) Records() job.Records {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Jobs
}

// Snapshot is the newest observation, with what the service knows now.
func (r *Reconciler) Snapshot() job.Snapshot {
	r.mu.Lock()
	s := r.snapshot
	records := r.state.Jobs
	r.mu.Unlock()
	s.Incarnations = slices.Clone(s.Incarnations)
	if r.o.Service != nil {
		merge(&s, r.o.Service.Observe(), records)
	}
	return s
}

// Preview plans without acting: nothing is stored, nobody is told.
func (r *Reconciler) Preview(ctx context.Context, now time.Time) (plan.Plan, error) {
	for name, prov := range r.o.Providers {
		seen, err := prov.Observe(ctx)
		if err != nil {
			return plan.Plan{}, fmt.Errorf("observe provider %q: %w", name, err)
		}
		r.known[name] = seen
	}
	return plan.Make(r.input(now)), nil
}

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

// Form is the service's ledger: a world is stored before any member hears of it.
func (r *Reconciler) Form(jobName, uid string, w job.World) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.state.Jobs[jobName]
	if old == nil || old.UID != uid {
		return fmt.Errorf("job %s with uid %s is not recorded", jobName, uid)
	}
	rec := *old
	rec.World = w
	jobs := maps.Clone(r.state.Jobs)
	jobs[jobName] = &rec
	if err := r.write(ctx, jobs); err != nil {
		return err
	}
	processes := 0
	for _, m := range w.Members {
		processes += m.Processes
	}
	r.unwritten = append(r.unwritten, job.Notice{Time: w.Formed, Type: "world_formed", Address: "job." + jobName,
		Message: fmt.Sprintf("generation %d: %s, %s, rank 0 at %s:%d", w.Generation,
			count(len(w.Members), "slot"), count(processes, "process"), w.MasterAddr, w.MasterPort)})
	return nil
}

// count is a number of things: "1 slot", "2 processes".
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// storeTimeout bounds one write of the state, callTimeout one call of a provider that is not meant to wait.
const (
	storeTimeout = 30 * time.Second
	callTimeout  = time.Minute
)

// write stores the records as the next state. r.mu is held.
func (r *Reconciler) write(ctx context.Context, jobs job.Records) error {
	if r.unsure {
		if err := r.reread(ctx); err != nil {
			return err
		}
	}
	next := r.state.Next(jobs)
	if err := r.o.Store.Write(ctx, next, r.o.Lock); err != nil {
		r.unsure = true
		return fmt.Errorf("store the state: %w", err)
	}
	r.state = next
	return nil
}

// reread finds out whether the write that failed last is stored all the same: a store may fail after that.
func (r *Reconciler) reread(ctx context.Context) error {
	stored, err := r.o.Store.Read(ctx)
	if err != nil {
		return fmt.Errorf("read the state again: %w", err)
	}
	ours := stored.Lineage == r.state.Lineage || r.state.Lineage == ""
	if ours && stored.Serial == r.state.Serial+1 && stored.Epoch == r.o.Lock.Info().Epoch {
		r.state.Lineage, r.state.Serial = stored.Lineage, stored.Serial
	}
	if stored.Serial == 0 {
		r.state.Serial = 0 // somebody removed it: all that was in it is known here, and is written anew
	}
	r.unsure = false
	return nil
}

// commit stores what the plan decided, before any of it is done, and journals what happened.
func (r *Reconciler) commit(ctx context.Context, in plan.Input, p *plan.Plan) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Dirty {
		jobs := maps.Clone(r.state.Jobs)
		for name := range in.Records {
			delete(jobs, name)
		}
		for name, rec := range p.Records {
			// A world may have formed while the plan was made.
			if now := r.state.Jobs[name]; now != nil && now.UID == rec.UID && now.World.Generation > rec.World.Generation {
				rec.World = now.World
			}
			jobs[name] = rec
		}
		if err := r.write(ctx, jobs); err != nil {
			return err
		}
	}
	r.unwritten = append(r.unwritten, p.Notices...)
	p.Notices = r.unwritten
	entries := make([]state.Entry, len(r.unwritten))
	for i, n := range r.unwritten {
		data, err := json.Marshal(n)
		if err != nil {
			return fmt.Errorf("journal a notice: %w", err)
		}
		entries[i] = state.Entry{Time: n.Time, Kind: state.NoticeEntry, Data: data}
	}
	if len(entries) > 0 {
		if err := r.o.Journal.Append(entries...); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	r.unwritten = nil
	return nil
}

// Decision is a plan with all that it was made from: plan.Make gives the same again.
type Decision struct {
	Input plan.Input `json:"input"`
	Plan  plan.Plan  `json:"plan"`
}

// chronicle journals a decision. It comes after the changes have begun: of a large job it takes longer than
// they may wait, and what matters of it is stored before.
func (r *Reconciler) chronicle(in plan.Input, p *plan.Plan) error {
	data, err := json.Marshal(Decision{in, *p})
	if err != nil {
		return fmt.Errorf("journal a decision: %w", err)
	}
	if err := r.o.Journal.Append(state.Entry{Time: in.Now, Kind: state.DecisionEntry, Data: data}); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// tell gives the service what it is to form.
func (r *Reconciler) tell(ctx context.Context, p *plan.Plan) {
	now := map[string]bool{}
	leaving := map[incarnation]bool{}
	for _, c := range p.Changes {
		for _, n := range c.Stop {
			leaving[incarnation{c.UID, c.Slot, n}] = c.Launch == nil && c.Wave == 0
		}
	}
	labels := map[string]map[string]string{}
	for _, n := range r.snapshot.Nodes {
		labels[n.Name] = n.Labels
	}
	for name, rec := range p.Records {
		summary := "Job " + name + " cannot be prepared"
		token, err := r.token(ctx, rec, name)
		if err != nil {
			r.view(func(v View) { v.Warned(summary, err.Error()) })
			continue
		}
		r.view(func(v View) { v.Recovered(summary) })
		d := elastic.Desired{UID: rec.UID, Token: token, Want: p.Wants[name], World: rec.World}
		for _, s := range rec.Slots {
			if s.Incarnation == 0 || s.Phase == job.Canceled {
				continue
			}
			slot := elastic.DesiredSlot{Address: s.Address, Incarnation: s.Incarnation, InPlace: s.InPlace, Rank: s.Rank,
				Leave: leaving[incarnation{rec.UID, s.Address, s.Incarnation}] || s.Phase == job.Succeeded, Return: s.Return, Processes: 1}
			if role := rec.Spec.Role(s.Address.Role); role != nil {
				slot.Processes = role.Processes
			}
			for _, label := range d.Want.RankBy {
				slot.Levels = append(slot.Levels, labels[s.Node][label])
			}
			d.Slots = append(d.Slots, slot)
		}
		now[name] = true
		r.sent[name] = rec.UID
		r.o.Service.Set(name, d)
	}
	for name := range r.sent {
		if !now[name] && !r.troubled() {
			r.o.Service.Remove(name)
			delete(r.sent, name)
		}
	}
}

// token prepares a job with its provider, once, and gives its bearer token.
func (r *Reconciler) token(ctx context.Context, rec *job.Record, name string) (string, error) {
	if t, known := r.tokens[rec.UID]; known {
		return t, nil
	}
	prov := r.o.Providers[rec.Spec.Provider]
	if prov == nil {
		return "", fmt.Errorf("its provider %q is not configured", rec.Spec.Provider)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t, err := prov.Prepare(ctx, rec.UID, name)
	if err != nil {
		return "", err
	}
	r.tokens[rec.UID] = t
	return t, nil
}
