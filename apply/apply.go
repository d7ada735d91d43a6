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
	formed   []job.Notice                     // of worlds, until the next pass tells them
	known    map[string]providers.Observation // by provider: the last good one
	trouble  map[string]error                 // by provider: why the last observation failed
	gone     map[incarnation]bool             // ended incarnations that the service was told of
	sent     map[string]bool                  // jobs that the service knows
	tokens   map[string]string                // by job UID
	flights  *flights
	waits    []plan.Wait      // last told
	steps    map[string]int64 // last told
	viewing  sync.Mutex       // one call of the view at a time
}

type incarnation struct {
	slot   job.Address
	number int
}

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
	r := &Reconciler{
		o: o, state: s, known: map[string]providers.Observation{}, trouble: map[string]error{},
		gone: map[incarnation]bool{}, sent: map[string]bool{}, steps: map[string]int64{}, tokens: map[string]string{},
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
	uids := r.uids()
	r.mu.Unlock()
	s.Incarnations = slices.Clone(s.Incarnations)
	if r.o.Service != nil {
		merge(&s, r.o.Service.Observe(), uids)
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
		seen, err := r.o.Providers[name].Observe(ctx)
		summary := "Provider " + name + " cannot be observed"
		if err != nil {
			if r.trouble[name] == nil && ctx.Err() == nil {
				r.o.View.Warned(summary, err.Error())
			}
			r.trouble[name] = err
			continue
		}
		if r.trouble[name] != nil {
			r.o.View.Recovered(summary)
		}
		r.trouble[name] = nil
		r.mu.Lock()
		r.known[name] = seen
		r.mu.Unlock()
		r.tellGone(seen)
	}
}

// tellGone passes certain deaths on to the service, each once, as soon as it knows the job.
func (r *Reconciler) tellGone(seen providers.Observation) {
	if r.o.Service == nil {
		return
	}
	r.mu.Lock()
	uids := r.uids()
	r.mu.Unlock()
	for i := range seen.Incarnations {
		inc := &seen.Incarnations[i]
		key := incarnation{inc.Slot, inc.Number}
		if inc.State == job.Gone && !r.gone[key] && r.sent[inc.Slot.Job] && uids[inc.Slot.Job] == inc.UID {
			r.gone[key] = true
			r.o.Service.Gone(inc.Slot, inc.Number)
		}
	}
}

// input is what the planner is given: jobs of providers that answered, and everything known of them.
func (r *Reconciler) input(now time.Time) plan.Input {
	in := plan.Input{Now: now, NewUID: r.o.NewUID, Keep: r.o.Keep, Rerun: r.o.Rerun,
		Capabilities: map[string]job.Capabilities{}, Records: job.Records{}}
	snapshot := job.Snapshot{At: now}
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		if r.trouble[name] != nil {
			continue
		}
		in.Capabilities[name] = r.o.Providers[name].Capabilities()
		snapshot.Nodes = append(snapshot.Nodes, r.known[name].Nodes...)
		snapshot.Incarnations = append(snapshot.Incarnations, r.known[name].Incarnations...)
	}
	for _, j := range r.o.Jobs {
		if r.trouble[j.Provider] == nil {
			in.Jobs = append(in.Jobs, j)
		}
	}
	r.mu.Lock()
	uids := r.uids()
	r.mu.Unlock()
	if r.o.Service != nil {
		merge(&snapshot, r.o.Service.Observe(), uids)
	}
	r.mu.Lock()
	for name, rec := range r.state.Jobs {
		if r.trouble[rec.Spec.Provider] == nil {
			in.Records[name] = rec
		}
	}
	r.snapshot = snapshot
	r.live = make(map[incarnation]*job.Incarnation, len(snapshot.Incarnations))
	for i := range snapshot.Incarnations {
		if inc := &snapshot.Incarnations[i]; inc.State != job.Gone {
			r.live[incarnation{inc.Slot, inc.Number}] = inc
		}
	}
	r.mu.Unlock()
	in.Snapshot = snapshot
	return in
}

// uids are those of the recorded jobs, by name. r.mu is held.
func (r *Reconciler) uids() map[string]string {
	uids := make(map[string]string, len(r.state.Jobs))
	for name, rec := range r.state.Jobs {
		uids[name] = rec.UID
	}
	return uids
}

// merge enters what the service knows of worlds and members. It knows jobs by name: an incarnation of an
// earlier job of the name has no member.
func merge(s *job.Snapshot, facts map[string]elastic.Facts, uids map[string]string) {
	s.Worlds = make(map[string]job.World, len(facts))
	members := map[incarnation]*job.Member{}
	for name, f := range facts {
		if f.World.Generation > 0 {
			s.Worlds[name] = f.World
		}
		for i := range f.Members {
			m := &f.Members[i]
			members[incarnation{m.Slot, m.Incarnation}] = &m.Member
		}
	}
	for i := range s.Incarnations {
		inc := &s.Incarnations[i]
		if m := members[incarnation{inc.Slot, inc.Number}]; m != nil && uids[inc.Slot.Job] == inc.UID {
			inc.Member = m
		}
	}
}

// Form is the service's ledger: a world is stored before any member hears of it.
func (r *Reconciler) Form(jobName string, w job.World) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.state.Jobs[jobName]
	if old == nil {
		return fmt.Errorf("job %s is not recorded", jobName)
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
	r.formed = append(r.formed, job.Notice{Time: w.Formed, Type: "world_formed", Address: "job." + jobName,
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

// storeTimeout bounds one write of the state.
const storeTimeout = 30 * time.Second

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
	r.unsure = false
	return nil
}

// commit stores what the plan decided, before any of it is done, and journals it.
func (r *Reconciler) commit(ctx context.Context, in plan.Input, p *plan.Plan) error {
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
	return r.chronicle(in, p)
}

// Decision is a plan with all that it was made from: plan.Make gives the same again.
type Decision struct {
	Input plan.Input `json:"input"`
	Plan  plan.Plan  `json:"plan"`
}

// chronicle journals the notices, and a plan that has something new to do with all that it was made from.
func (r *Reconciler) chronicle(in plan.Input, p *plan.Plan) error {
	p.Notices = append(r.formed, p.Notices...)
	r.formed = nil
	var entries []state.Entry
	add := func(at time.Time, kind string, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("journal a %s: %w", kind, err)
		}
		entries = append(entries, state.Entry{Time: at, Kind: kind, Data: data})
		return nil
	}
	for _, n := range p.Notices {
		if err := add(n.Time, state.NoticeEntry, n); err != nil {
			return err
		}
	}
	if r.flights.anyNew(p) {
		if err := add(in.Now, state.DecisionEntry, Decision{in, *p}); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := r.o.Journal.Append(entries...); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// tell gives the service what it is to form.
func (r *Reconciler) tell(ctx context.Context, p *plan.Plan) {
	now := map[string]bool{}
	leaving := map[job.Address]bool{}
	for _, c := range p.Changes {
		if len(c.Stop) > 0 && c.Launch == nil && c.Wave == 0 {
			leaving[c.Slot] = true
		}
	}
	labels := map[string]map[string]string{}
	for _, n := range r.snapshot.Nodes {
		labels[n.Name] = n.Labels
	}
	for name, rec := range p.Records {
		token, err := r.token(ctx, rec, name)
		if err != nil {
			r.o.View.Warned("Job "+name+" cannot be prepared", err.Error())
			continue
		}
		d := elastic.Desired{UID: rec.UID, Token: token, Want: p.Wants[name], World: rec.World}
		for _, s := range rec.Slots {
			if s.Incarnation == 0 || s.Phase == job.Canceled {
				continue
			}
			slot := elastic.DesiredSlot{Address: s.Address, Incarnation: s.Incarnation, InPlace: s.InPlace, Rank: s.Rank,
				Leave: leaving[s.Address] || s.Phase == job.Succeeded, Return: s.Return, Processes: 1}
			if role := rec.Spec.Role(s.Address.Role); role != nil {
				slot.Processes = role.Processes
			}
			for _, label := range d.Want.RankBy {
				slot.Levels = append(slot.Levels, labels[s.Node][label])
			}
			d.Slots = append(d.Slots, slot)
		}
		now[name] = true
		r.sent[name] = true
		r.o.Service.Set(name, d)
	}
	for name := range r.sent {
		if !now[name] && r.trouble[r.providerOf(name)] == nil {
			r.o.Service.Remove(name)
			delete(r.sent, name)
		}
	}
}

func (r *Reconciler) providerOf(jobName string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.state.Jobs[jobName]; rec != nil {
		return rec.Spec.Provider
	}
	return ""
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
	t, err := prov.Prepare(ctx, rec.UID, name)
	if err != nil {
		return "", err
	}
	r.tokens[rec.UID] = t
	return t, nil
}
