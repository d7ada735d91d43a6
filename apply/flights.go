package apply

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// flights carries changes out: one at a time per slot, many slots at once. What fails is tried again after
// a growing pause, as long as the newest plan still asks for it.
type flights struct {
	r      *Reconciler
	places *semaphore.Weighted
	wg     sync.WaitGroup

	mu      sync.Mutex
	flying  map[target]plan.Action
	paused  map[target]pause
	landed  chan struct{} // gets a value when one has ended
	started map[target]change
}

// target is what a flight is about: a slot, or a whole job (zero Slot).
type target struct {
	uid  string
	slot job.Address
}

// change identifies what was told as planned, so that it is told once.
type change struct {
	action      plan.Action
	incarnation int
}

// pause is the wait after a failure.
type pause struct {
	failures int
	until    time.Time
}

// Pauses after failures: doubling from the first to the most, with up to a quarter of jitter.
const (
	pauseFirst = 500 * time.Millisecond
	pauseMost  = 30 * time.Second
)

// stillEvery is how often a change that takes long is told of, as Terraform does.
const stillEvery = 10 * time.Second

// stopMargin is what stopping may take beyond the slot's own grace: for a checkpoint before it (another
// grace), and for the provider's own work.
const stopMargin = 15 * time.Second

func newFlights(r *Reconciler, parallelism int) *flights {
	return &flights{r: r, places: semaphore.NewWeighted(int64(parallelism)), flying: map[target]plan.Action{},
		paused: map[target]pause{}, landed: make(chan struct{}, 1), started: map[target]change{}}
}

func targetOf(c *plan.Change) target { return target{c.UID, c.Slot} }

// anyNew tells whether the plan has something to do that was not begun before.
func (f *flights) anyNew(p *plan.Plan) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range p.Changes {
		if f.isNew(&p.Changes[i]) {
			return true
		}
	}
	return false
}

func (f *flights) isNew(c *plan.Change) bool {
	told, known := f.started[targetOf(c)]
	return !known || told != change{c.Action, c.Incarnation}
}

// remember marks the plan's changes as told, and forgets what it no longer asks for.
func (f *flights) remember(p *plan.Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	started := make(map[target]change, len(p.Changes))
	for i := range p.Changes {
		c := &p.Changes[i]
		started[targetOf(c)] = change{c.Action, c.Incarnation}
	}
	f.started = started
	for t := range f.paused {
		if _, asked := started[t]; !asked {
			delete(f.paused, t)
		}
	}
}

// launch begins every change of the first wave that is not under way, and gives the next time at which a
// paused one is due.
func (f *flights) launch(ctx context.Context, now time.Time, p *plan.Plan) (due time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range p.Changes {
		c := p.Changes[i]
		t := targetOf(&c)
		if _, busy := f.flying[t]; busy || c.Wave > 0 || ctx.Err() != nil {
			continue
		}
		if w := f.paused[t]; now.Before(w.until) {
			if due.IsZero() || w.until.Before(due) {
				due = w.until
			}
			continue
		}
		f.flying[t] = c.Action
		f.wg.Go(func() { f.fly(ctx, &c) })
	}
	return due
}

// busy tells whether anything is under way.
func (f *flights) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.flying) > 0
}

// wait returns when all have landed.
func (f *flights) wait() { f.wg.Wait() }

func (f *flights) fly(ctx context.Context, c *plan.Change) {
	err := f.places.Acquire(ctx, 1)
	if err == nil {
		err = f.perform(ctx, c)
		f.places.Release(1)
	}
	f.mu.Lock()
	t := targetOf(c)
	delete(f.flying, t)
	if err != nil {
		n := f.paused[t].failures
		wait := min(pauseFirst<<min(n, 10), pauseMost)
		wait += rand.N(wait / 4)
		f.paused[t] = pause{n + 1, time.Now().Add(wait)}
	} else {
		delete(f.paused, t)
	}
	f.mu.Unlock()
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// perform does one change and tells the view.
func (f *flights) perform(ctx context.Context, c *plan.Change) error {
	if !f.r.asked(c) {
		return nil // the world moved while it waited for its turn
	}
	begun := time.Now()
	f.r.view(func(v View) { v.Started(c) })
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(stillEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f.r.view(func(v View) { v.Still(c, time.Since(begun)) })
			case <-done:
				return
			}
		}
	})
	err := f.r.do(ctx, c)
	close(done)
	telling.Wait()
	f.r.view(func(v View) { v.Finished(c, time.Since(begun), err) })
	return err
}

// asked tells whether the newest plan still wants the change as it is.
func (r *Reconciler) asked(c *plan.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Slot == (job.Address{}) {
		return true
	}
	rec := r.state.Jobs[c.Job]
	if rec == nil || rec.UID != c.UID {
		return c.Launch == nil // a stray: to be stopped whoever it belonged to
	}
	s := rec.Slot(c.Slot.Role, c.Slot.Index)
	if s == nil {
		return c.Launch == nil
	}
	if c.Launch != nil {
		return s.Phase == job.Scheduling && s.Incarnation == c.Incarnation && s.Node == c.Node
	}
	return true
}

// do carries one change out.
func (r *Reconciler) do(ctx context.Context, c *plan.Change) error {
	prov, err := r.provider(c)
	if err != nil {
		return err
	}
	switch {
	case c.Slot == (job.Address{}) && c.Action == plan.Delete:
		if err := prov.Forget(ctx, c.UID, c.Job); err != nil {
			return fmt.Errorf("forget job.%s: %w", c.Job, err)
		}
		return nil
	case c.Action == plan.Update, c.Action == plan.Restart:
		return nil // the service was told; the agents do it
	}
	if c.Launch == nil {
		r.letLeave(ctx, c)
	}
	for _, n := range c.Stop {
		stopping, cancel := context.WithTimeout(ctx, c.Grace.Std()+stopMargin)
		err := prov.Stop(stopping, c.UID, c.Slot, n, c.Grace.Std())
		cancel()
		if err != nil {
			return fmt.Errorf("stop %s, incarnation %d: %w", c.Slot, n, err)
		}
	}
	if c.Launch == nil {
		return nil
	}
	if err := prov.Launch(ctx, *c.Launch); err != nil {
		return fmt.Errorf("launch %s, incarnation %d: %w", c.Slot, c.Incarnation, err)
	}
	return nil
}

// letLeave gives an incarnation that was told to leave the time to do so: for its checkpoint and its grace.
// One that the service does not hear of is not waited for.
func (r *Reconciler) letLeave(ctx context.Context, c *plan.Change) {
	deadline := time.NewTimer(2*c.Grace.Std() + time.Second)
	defer deadline.Stop()
	for {
		told := r.observed.next()
		if !r.leavingByItself(c) {
			return
		}
		select {
		case <-told:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *Reconciler) leavingByItself(c *plan.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	inc := r.live[incarnation{c.Slot, c.Incarnation}]
	return inc != nil && inc.UID == c.UID && inc.Member != nil && !inc.Member.Silent && !inc.Member.Expired
}
