package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// Rescan is how often a turn is made though nothing woke the loop: for what no event tells.
const Rescan = 30 * time.Second

// progressEvery is how often the view is told how training goes.
const progressEvery = 2 * time.Second

// retryStore is the pause after the state could not be stored, in which nothing is done; retryObserve the one
// after a provider could not be observed.
const (
	retryStore   = time.Second
	retryObserve = 2 * time.Second
)

// ErrLockLost ends a run whose lock was lost: another holder took it, or it could not be renewed.
var ErrLockLost = errors.New("the state's lock was lost")

// lockLost is an ErrLockLost that says why.
func lockLost(l state.Lock) error {
	why := l.Why()
	if why != nil && (!errors.Is(why, state.ErrFenced) || errors.As(why, new(*state.VanishedError))) {
		return fmt.Errorf("%w; jobs run on, and whoever takes it next looks after them: %w", ErrLockLost, why)
	}
	return fmt.Errorf("%w to another process; jobs run on under it", ErrLockLost)
}

// RefusedError ends a run whose first plan was not approved. Nothing was changed.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// Watch is what makes a run go on for ever.
type Watch struct {
	// Changed gets a value when the files may have changed.
	Changed <-chan struct{}
	// Reload reads them. With an error the last good jobs stay: an UnusableError says what is wrong with them, and an
	// UnsteadyError that it is too early.
	Reload func() (Files, error)
}

// Run runs the loop until there is nothing left to do: the plan is empty, nothing is under way, the agents that were found
// have reported, and each job runs, has ended, or waits for what no change of ours brings. With watch it runs until ctx ends.
//
// When ctx ends no change is begun any more, those under way are finished, and jobs are left running. A run that does not
// watch sees to it, however it ends, that what it told to leave has left: see finish. After one that watches there comes
// another.
func (r *Reconciler) Run(ctx context.Context, watch *Watch) (plan.Plan, error) {
	r.teller.begin()
	defer r.teller.end()
	acting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var guard sync.WaitGroup
	guard.Go(func() { // also while a turn, or the end of the run, takes its time
		select {
		case <-r.o.Lock.Lost():
			stop()
		case <-acting.Done():
		}
	})
	defer guard.Wait()
	defer stop()
	r.flights.acting = acting
	defer r.flights.wait()
	forwarding, quit := context.WithCancel(acting)
	defer quit()
	wakes := r.wakes(forwarding)
	p, err := r.loop(ctx, watch, wakes)
	if watch != nil || errors.Is(err, ErrLockLost) || isRefused(err) {
		return p, err
	}
	if unfinished := r.finish(acting, wakes); err == nil {
		err = unfinished
	}
	return p, err
}

// loop makes turns until the run is over.
func (r *Reconciler) loop(ctx context.Context, watch *Watch, wakes <-chan struct{}) (plan.Plan, error) {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	reload, requested := watch.changed(), r.requested
	if watch == nil {
		requested = nil
	} else {
		r.taken = r.revision
	}
	var rest rest
	unstored := 0 // turns in a row
	for {
		for _, news := range []<-chan struct{}{wakes, r.o.Service.Wake(), r.flights.landed} {
			heard(news)
		}
		asks := r.o.Approve != nil
		begun := time.Now()
		p, due, err := r.Turn(ctx)
		worked := time.Since(begun) - r.stored
		if asks {
			worked = 0 // a person may have taken their time
		}
		unstored++
		if err == nil {
			unstored = 0
		}
		switch {
		case errors.Is(err, ErrLockLost), isRefused(err):
			return p, err
		case ctx.Err() != nil:
			return p, nil
		case err != nil && watch == nil && unstored >= hopeless:
			return p, err
		case err != nil:
			r.view(func(v View) { v.Warned(storeTrouble, err.Error()) })
			due = r.o.Clock().Add(retryStore)
		case watch == nil && r.settled(&p):
			proven := latest(r.proven(&p), r.unheard(&p))
			if proven.IsZero() {
				return p, r.undone(&p)
			}
			due = earliest(due, proven)
		}
		if !sleep(ctx, rest.after(time.Now(), worked, r.stored, r.flights.queued())) {
			return p, nil
		}
		due = earliest(due, r.again)
		timer := time.NewTimer(r.untilDue(due))
	wait:
		select {
		case <-ctx.Done():
			timer.Stop()
			return p, nil
		case <-r.o.Lock.Lost():
			timer.Stop()
			return p, lockLost(r.o.Lock)
		case <-wakes:
		case <-r.o.Service.Wake():
		case <-r.flights.landed:
		case <-timer.C:
		case <-reload:
			r.heed(watch)
		case <-requested:
			r.heed(watch)
		case <-progress.C:
			r.tellProgress()
			r.flights.tellStill(r.o.Clock())
			if watch != nil {
				goto wait
			}
		}
		timer.Stop()
		if !r.again.IsZero() && !r.o.Clock().Before(r.again) {
			r.heed(watch)
		}
	}
}

// rest is the pause after a turn, in which news coalesce: as long as the turn was at work, and longer once turns take more
// than their share of the time, or while changes wait to be carried out. So a burst of 10,000 pods costs some turns more, and
// not a core; what comes alone is decided at once.
type rest struct {
	debt time.Duration // what turns took beyond their share
	at   time.Time     // as of when
}

const (
	// restFree is what turns may take beyond their share: that is an incident of a job of 1,000 slots that comes alone, a
	// fault, what follows from it, and each change that ends.
	restFree  = 200 * time.Millisecond
	restShare = 6 // one part in so many of the time is the turns' share
	// restStored is which part counts of what a turn takes to store: the most of it is waiting, for a disk or an API server
	// that others need as well. Counted whole, what follows from one lost node in ten held up the decision on the next.
	restStored = 3
	// restQueued is restShare from the first turn on while changes wait for others to be carried out, up to a rest of
	// restWhileQueued: what a turn would add waits behind them, but for what heals, and its processor time is theirs.
	restQueued      = 12
	restWhileQueued = 250 * time.Millisecond
	restCap         = time.Second
)

// after is how long to rest at a time, after a turn that took so long, and so long again to store. queued says that changes
// wait for others.
func (r *rest) after(now time.Time, took, stored time.Duration, queued bool) time.Duration {
	left := max(r.debt-now.Sub(r.at)/restShare, 0)
	r.debt, r.at = min(left+took+stored/restStored, restFree+restCap/restShare), now // no more than the longest rest makes good
	pause := max(took, (r.debt-restFree)*restShare)
	if queued {
		pause = max(pause, min(took*restQueued, restWhileQueued))
	}
	return min(pause, restCap)
}

const storeTrouble = "The state cannot be stored; nothing is changed until it can"

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// earliest of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (r *Reconciler) untilDue(due time.Time) time.Duration {
	if due.IsZero() {
		return Rescan
	}
	return min(max(due.Sub(r.o.Clock()), 0), Rescan)
}

func (w *Watch) changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.Changed
}

// Turn is one turn of the loop: observe, plan, store, tell, act. due is when the next one has to be, if
// nothing wakes it earlier; zero is never. With an error nothing was changed.
func (r *Reconciler) Turn(ctx context.Context) (p plan.Plan, due time.Time, err error) {
	r.stored = 0
	r.flights.look()
	r.observe(ctx)
	if ctx.Err() != nil {
		return p, due, nil
	}
	in, p := r.decide(r.input(r.o.Clock()))
	defer func() { r.answer(&in, &p, err) }()
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		rec := in.Records[c.Job]
		return isForget(&c) && rec != nil && rec.UID == c.UID && r.flights.forgotten(c.UID) // only its record is left
	})
	if r.o.Approve != nil {
		if err := r.o.Approve(&in, &p); err != nil {
			return p, due, &RefusedError{err}
		}
		r.o.Approve = nil
	}
	r.tellFiles(&in, &p)
	r.tellRefusals(&p)
	r.tellDelays()
	if ctx.Err() != nil { // somebody was asked, and has taken their time
		return p, due, nil
	}
	storing := time.Now()
	err = r.commit(ctx, in, &p)
	r.stored = time.Since(storing)
	r.enterStored(err)
	if err != nil {
		return p, due, err
	}
	if r.flights.grounded() {
		return p, due, lockLost(r.o.Lock)
	}
	r.tell(ctx, &p)
	r.o.Service.SetReady()
	off := r.flights.take(ctx, r.o.Clock(), &p)
	for _, seen := range r.known {
		r.tellGone(seen)
	}
	waits := r.newWaits(&p)
	ends := r.unended && len(p.Changes) == 0 && !r.troubled() // what a plan of an outage leaves out may be asked for still
	r.tellPlan(&p, off.fresh || waits || ends || p.Resizes())
	p.Waits = append(p.Waits, r.refusals()...)
	due = r.flights.follow(ctx, r.o.Clock(), off)
	due = earliest(earliest(due, p.Wake), r.preparations.due())
	if r.troubled() {
		due = earliest(due, r.o.Clock().Add(retryObserve))
	}
	if off.fresh {
		if err := r.chronicle(in, &p); err != nil {
			r.view(func(v View) { v.Warned("A decision could not be journalled", err.Error()) })
		}
	}
	return p, due, nil
}

// tellPlan tells the view what is noticed, and what is planned if that is news. What waits to be told keeps no plan alive
// that is not told.
func (r *Reconciler) tellPlan(p *plan.Plan, news bool) {
	var planned *plan.Plan
	if news {
		copied := *p
		planned = &copied
		r.unended = len(p.Changes) > 0
	}
	notices := p.Notices
	r.view(func(v View) {
		v.Recovered(storeTrouble)
		for _, n := range notices {
			if aboutFiles(n) {
				v.Noticed(n)
			}
		}
		if planned != nil {
			v.Planned(planned)
		}
		for _, n := range notices {
			if !aboutFiles(n) {
				v.Noticed(n)
			}
		}
	})
}

// newWaits tells whether what the plan waits for is not what was told last. What is only queued changes with
// every slot that starts: it is told again every while.
func (r *Reconciler) newWaits(p *plan.Plan) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = p.Waits
	now := r.o.Clock()
	recent := now.Sub(r.toldAt) < stillEvery && slices.EqualFunc(lasting(p.Waits), lasting(r.told), sameWait)
	if recent || slices.EqualFunc(p.Waits, r.told, sameWait) {
		return false
	}
	r.told, r.toldAt = p.Waits, now
	return len(p.Waits) > 0
}

func sameWait(a, b plan.Wait) bool { return reflect.DeepEqual(a, b) }

// lasting leaves out what may pass by itself.
func lasting(waits []plan.Wait) []plan.Wait {
	return slices.DeleteFunc(slices.Clone(waits), func(w plan.Wait) bool { return w.Passing })
}

// settled tells whether a run that does not watch has nothing left to wait for.
func (r *Reconciler) settled(p *plan.Plan) bool {
	todo := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return !r.blocked(&c, p) })
	if r.troubled() || r.flights.busy() || r.preparations.open() || todo && !r.flights.stuck() {
		return false
	}
	for _, j := range r.o.Jobs {
		rec := p.Records[j.Name]
		if rec != nil && r.scope.Touches(j.Name) && !rec.Phase.Ended() && !r.stalled(rec) && r.growing(rec) {
			return false
		}
		if rec != nil && r.scope.Touches(j.Name) && tellsMore(rec) {
			return false
		}
		waits := slices.ContainsFunc(p.Waits, func(w plan.Wait) bool { return w.Job == j.Name && !w.Passing })
		if rec != nil && r.scope.Touches(j.Name) && !waits && !r.stalled(rec) && !rec.Phase.Ended() && (rec.Phase != job.JobRunning || joining(rec)) && !todo {
			return false
		}
	}
	return true
}

// blocked tells whether a change of a later wave will not come to its turn: its job did not come up, or what it waits for
// waits itself for what no change of ours brings.
func (r *Reconciler) blocked(c *plan.Change, p *plan.Plan) bool {
	rec := p.Records[c.Job]
	if c.Wave == 0 || rec == nil {
		return false
	}
	return r.stalled(rec) || slices.ContainsFunc(p.Waits, func(w plan.Wait) bool {
		return w.Job == c.Job && !w.Passing && startsAfter(&rec.Spec, c.Slot.Role, w.Role)
	})
}

// startsAfter tells whether a role of a job depends on another one, directly or by others.
func startsAfter(spec *job.Job, role, on string) bool {
	r := spec.Role(role)
	return r != nil && slices.ContainsFunc(r.DependsOn, func(dep string) bool { return dep == on || startsAfter(spec, dep, on) })
}

// tellsMore tells whether the job's newest incident has culprits that are yet to be told of.
func tellsMore(rec *job.Record) bool {
	n := len(rec.Incidents)
	return n > 0 && !rec.Incidents[n-1].Added.IsZero()
}

// joining tells whether a slot that the job is to have in any case is on its way into the world: a job that runs and
// grows runs on meanwhile. Whether one more of an elastic role comes is its cluster's to say: see growing.
func joining(rec *job.Record) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		role := rec.Spec.Role(s.Address.Role)
		return (s.Phase == job.Scheduling || s.Phase == job.Registered) && role != nil && role.Scaling == nil
	})
}

// growing tells whether a slot of an elastic role is about to join the world: it has its place, and its agent runs or
// is being started. One that its infrastructure keeps waiting may never come, and is not waited for. One that comes
// and does not join is waited for as long as a world may need to take it in: its settle time, the time in which those
// that train may write their checkpoint, and the proof.
func (r *Reconciler) growing(rec *job.Record) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		role := rec.Spec.Role(s.Address.Role)
		if s.Phase != job.Scheduling && s.Phase != job.Registered || role == nil || role.Scaling == nil {
			return false
		}
		inc := r.live[incarnationOf(rec.UID, s.Address, s.Incarnation)]
		if inc == nil || inc.Node == "" || inc.State != job.Up && inc.Waiting != "" {
			return false
		}
		until := latest(r.since, s.Since, inc.Started).Add(rec.Spec.Rendezvous.Settle.Std() + proof)
		if rec.World.Broken && !rec.World.Ordered.IsZero() {
			until = latest(until, rec.World.Ordered.Add(longestGrace(&rec.Spec)+proof))
		}
		return r.o.Clock().Before(until)
	})
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// longestGrace is how long a slot of the job may take to stop.
func longestGrace(spec *job.Job) (most time.Duration) {
	for i := range spec.Roles {
		most = max(most, spec.Roles[i].StopGrace.Std())
	}
	return most
}

// undone says what was to be destroyed and cannot be.
func (r *Reconciler) undone(p *plan.Plan) error {
	if !r.o.Destroy {
		return nil
	}
	var left []error
	for _, w := range p.Waits {
		if w.Never {
			var why []string
			for _, reason := range w.Reasons {
				why = append(why, r.o.Words.Sentence(reason))
			}
			left = append(left, fmt.Errorf("job.%s is not destroyed: %s", w.Job, strings.Join(why, " ")))
		}
	}
	return errors.Join(left...)
}

// stalled tells whether the job did not come up, in this run, in the time that its rendezvous may take. A slot that its node
// could not start has all of that from then on: it is tried again, and another node may be free later.
func (r *Reconciler) stalled(rec *job.Record) bool {
	timeout := rec.Spec.Rendezvous.Timeout.Std()
	if timeout > 0 && slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		return s.Cause == job.NodeFailed && s.Crashes > 0 && s.Phase.Live() && r.o.Clock().Sub(latest(r.since, s.CrashesSince)) >= timeout
	}) {
		return true
	}
	n := len(rec.Incidents)
	if n == 0 || rec.Incidents[n-1].Time.Before(r.since) {
		return false
	}
	last := rec.Incidents[n-1].Cause
	return last == job.LaunchFailed || last == job.RendezvousTimeout
}

// proof is how long a world has to train before a run that does not watch takes it for healthy, if no
// progress is read from its output: a script with a bug in its first lines has shown it by then.
const proof = 3 * time.Second

// proven is when every job that runs will have shown that it does; zero if they all have.
func (r *Reconciler) proven(p *plan.Plan) (at time.Time) {
	now := r.o.Clock()
	facts := r.facts()
	for _, j := range r.o.Jobs {
		rec := p.Records[j.Name]
		if rec == nil || !r.scope.Touches(j.Name) || rec.Phase != job.JobRunning || steps(facts[j.Name]) > 0 {
			continue
		}
		since := rec.World.Formed
		for i := range rec.Slots {
			if s := &rec.Slots[i]; s.Phase == job.Running && s.Since.After(since) {
				since = s.Since
			}
		}
		if until := since.Add(proof); now.Before(until) && until.After(at) {
			at = until
		}
	}
	return at
}

// steps is how far the job has come in its world.
func steps(f elastic.Facts) int64 {
	var most int64
	for i := range f.Members {
		if m := &f.Members[i].Member; m.State == job.MemberRunning && m.Generation == f.World.Generation {
			most = max(most, m.Step)
		}
	}
	return most
}

// wakes joins the providers' signals into one.
func (r *Reconciler) wakes(ctx context.Context) <-chan struct{} {
	joined := make(chan struct{}, 1)
	for _, prov := range r.o.Providers {
		heard(prov.Changes())
		r.flights.wg.Go(func() { forward(ctx, prov, joined) })
	}
	return joined
}

// heard takes what a channel says just now: the turn that follows looks at all there is.
func heard(news <-chan struct{}) {
	select {
	case <-news:
	default:
	}
}

func forward(ctx context.Context, prov providers.Provider, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-prov.Changes():
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}
}

// view tells the view.
func (r *Reconciler) view(call func(View)) { r.teller.tell(call) }

func (r *Reconciler) tellProgress() {
	for name, f := range r.facts() {
		var best *job.Member
		for i := range f.Members {
			if m := &f.Members[i].Member; m.State == job.MemberRunning && m.Step > 0 && (best == nil || m.Step > best.Step) {
				best = m
			}
		}
		if best != nil && best.Step != r.steps[name] {
			r.steps[name] = best.Step
			r.view(func(v View) { v.Progressed(name, best.Step, best.Loss, best.StepRate) })
		}
	}
}

// provider is who carries a change out.
func (r *Reconciler) provider(c *plan.Change) (providers.Provider, error) {
	if prov := r.o.Providers[c.Provider]; prov != nil {
		return prov, nil
	}
	return nil, fmt.Errorf("provider %q of job.%s is not configured", c.Provider, c.Job)
}

// Declare replaces the declared jobs; the next turn takes them up. What of the records is sensitive by now is sealed.
func (r *Reconciler) Declare(jobs []job.Job) {
	r.o.Jobs = jobs
	r.writing.Lock() // a world may be being stored, with the records as they were
	defer r.writing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Jobs = r.o.Sealer.Records(r.state.Jobs)
}
