package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// flights carries changes out: one at a time per slot, many slots at once. What fails is tried again after
// a growing pause, as long as the newest plan still asks for it.
type flights struct {
	r      *Reconciler
	queues map[string]*queue // by provider; "" is for changes of none
	wg     sync.WaitGroup
	landed chan struct{} // gets a value when one has ended
	// acting is under what changes are carried out; nil is what the turn runs under. It outlives the end of a
	// run, so that what is under way is finished.
	acting context.Context

	mu     sync.Mutex
	turn   int               // number of the newest observation
	plan   int               // number of the newest plan that was followed
	begun  map[target]*begun // every change that the newest plan asks for and that may be done now
	paused map[target]retry
}

// target is what a change is about: a slot, or a whole job (zero Slot).
type target struct {
	uid  string
	slot job.Address
}

// begun is one change from when the plan first asks for it until it no longer does.
type begun struct {
	change plan.Change
	since  time.Time
	still  time.Time // when the view was last told of it
	asked  int       // the newest plan that asked for it
	flying bool      // or waits in its queue
	// finishing is set by the run's end for what is carried out all the same; see finish.
	finishing bool
	done      bool
	seen      int // with done: the newest observation when it was, which may not show it yet
}

// stillEvery is how often a change that takes long is told of, as Terraform does.
const stillEvery = 10 * time.Second

// stopMargin is what a provider may take to stop an incarnation beyond the slot's own grace.
const stopMargin = 15 * time.Second

// DefaultParallelism is how many changes of a provider are under way at once where neither the user nor the
// provider says: Terraform's.
const DefaultParallelism = 10

func newFlights(r *Reconciler) *flights {
	return &flights{r: r, queues: queues(r.o), landed: make(chan struct{}, 1), begun: map[target]*begun{}, paused: map[target]retry{}}
}

// queue is the changes that wait to be carried out, and the workers that take them: what stops or heals ahead of what is
// new, or a world would stand still while another job's 10,000 slots are launched, and each in the plan's order. There are
// no more workers than may be at work at once: a goroutine for each of 10,000 changes would cost more than all else.
type queue struct {
	most      int // workers
	workers   int
	mend, add []*begun
}

// put lets a change wait for its turn.
func (q *queue) put(b *begun) {
	if c := &b.change; c.Launch == nil || c.Incarnation > 1 {
		q.mend = append(q.mend, b)
		return
	}
	q.add = append(q.add, b)
}

// next takes the change whose turn it is; nil if none waits.
func (q *queue) next() *begun {
	list := &q.mend
	if len(*list) == 0 {
		list = &q.add
	}
	if len(*list) == 0 {
		*q = queue{most: q.most, workers: q.workers} // what the lists held may be collected
		return nil
	}
	b := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	return b
}

// queues bounds what is under way: the user's number is of all together, else each provider has its own.
func queues(o Options) map[string]*queue {
	all := &queue{most: cmp.Or(o.Parallelism, DefaultParallelism)}
	of := map[string]*queue{"": all}
	for name, prov := range o.Providers {
		of[name] = all
		if o.Parallelism == 0 {
			of[name] = &queue{most: cmp.Or(prov.Capabilities().Parallelism, DefaultParallelism)}
		}
	}
	return of
}

// queueOf is where the changes of a provider wait.
func (f *flights) queueOf(provider string) *queue {
	if of := f.queues[provider]; of != nil {
		return of
	}
	return f.queues[""]
}

// enqueue lets changes be carried out, in their order, once their queues have come to them.
func (f *flights) enqueue(ctx context.Context, all []*begun) {
	hired := map[*queue]int{}
	f.mu.Lock()
	for _, b := range all {
		q := f.queueOf(b.change.Provider)
		q.put(b)
		if q.workers < q.most {
			q.workers++
			hired[q]++
		}
	}
	f.mu.Unlock()
	for q, n := range hired {
		for range n {
			f.wg.Add(1)
			f.r.o.Spawn(func() {
				defer f.wg.Done()
				for b := f.dequeue(q); b != nil; b = f.dequeue(q) {
					f.fly(ctx, b)
				}
			})
		}
	}
}

// queued tells whether changes wait for others to be carried out.
func (f *flights) queued() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		if len(q.mend)+len(q.add) > 0 {
			return true
		}
	}
	return false
}

// dequeue is the next change of the queue; nil if there is none, with which a worker ends.
func (f *flights) dequeue(q *queue) *begun {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := q.next()
	if b == nil {
		q.workers--
	}
	return b
}

func targetOf(c *plan.Change) target { return target{c.UID, c.Slot} }

func (b *begun) is(c *plan.Change) bool {
	return b != nil && b.change.Action == c.Action && b.change.Incarnation == c.Incarnation
}

// isForget tells whether a change takes away what a job has beside its slots.
func isForget(c *plan.Change) bool { return c.Action == plan.Delete && c.Slot == (job.Address{}) }

// forgotten tells whether a job was forgotten by its provider since the plan first asked for it.
func (f *flights) forgotten(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.begun[target{uid: uid}]
	return b != nil && b.done && isForget(&b.change)
}

// forgets tells whether a job is about to be forgotten, or is just now.
func (f *flights) forgets(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forgetting(uid)
}

// forgetting is forgets with f.mu held.
func (f *flights) forgetting(uid string) bool {
	b := f.begun[target{uid: uid}]
	return b != nil && b.flying && isForget(&b.change)
}

// look begins an observation.
func (f *flights) look() {
	f.mu.Lock()
	f.turn++
	f.mu.Unlock()
}

// heldBack tells whether a change has to wait for another, for its job to be prepared, or to have been forgotten; and
// forgetting it for its launches, which would make something of what is no more. f.mu is held.
func (f *flights) heldBack(c *plan.Change) bool {
	return c.Wave > 0 || f.r.preparations.holds(c) || c.Launch != nil && f.forgetting(c.UID) || isForget(c) && f.launching(c.UID)
}

// launching tells whether anything of a job is being launched. f.mu is held.
func (f *flights) launching(uid string) bool {
	for t, b := range f.begun {
		if t.uid == uid && b.flying && b.change.Launch != nil {
			return true
		}
	}
	return false
}

// takeoff is what one turn begins.
type takeoff struct {
	asked map[target]bool // what the plan asks for
	start []*begun        // what is to be carried out now
	news  []func(View)    // what is to be told before
	fresh bool            // something is begun that was not before
	due   time.Time       // the next time at which a change is due; zero is none
}

// at notes a time at which a change is due.
func (t *takeoff) at(due time.Time) { t.due = earliest(t.due, due) }

// take decides on every change of the first wave that is not under way, and closes those that the plan no longer asks for.
// What is begun by it is begun whatever lands before follow: the plan that is shown and journalled is the one that is done.
func (f *flights) take(ctx context.Context, now time.Time, p *plan.Plan) takeoff {
	off := takeoff{asked: make(map[target]bool, len(p.Changes))}
	ended := ctx.Err() != nil // the run did, after the plan was stored: its agents were told to leave, and finish sees them off
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan++
	for i := range p.Changes {
		c := &p.Changes[i]
		t := targetOf(c)
		off.asked[t] = true
		b := f.begun[t]
		if b.is(c) {
			b.asked = f.plan
		}
		if ended && !isStop(c) || f.grounded() || f.heldBack(c) {
			continue
		}
		if b != nil && (b.flying || b.is(c) && b.done && b.seen >= f.turn) {
			continue
		}
		if !b.is(c) {
			if b != nil && !b.done { // the next thing is asked for already
				off.news = append(off.news, f.unasked(now, b))
			}
			b = &begun{change: *c, since: now, still: now, asked: f.plan}
			f.begun[t] = b
			delete(f.paused, t) // what failed there was another change
			off.news = append(off.news, b.started())
			off.fresh = true
		}
		b.change = *c
		if ended || now.Before(f.paused[t].until) {
			continue
		}
		if until := b.since.Add(leaveTime(c)); now.Before(until) && f.r.leavesByItself(c) {
			off.at(until)
			continue
		}
		b.flying = true
		off.start = append(off.start, b)
	}
	off.news = append(off.news, f.close(now, off.asked)...)
	return off
}

// follow has carried out what was taken on, and gives the next time at which a change is due.
func (f *flights) follow(ctx context.Context, now time.Time, off takeoff) (due time.Time) {
	f.tell(off.news)
	f.enqueue(ctx, off.start)
	f.mu.Lock()
	defer f.mu.Unlock()
	for t, failed := range f.paused { // one may have failed by now
		if off.asked[t] && now.Before(failed.until) {
			off.at(failed.until)
		}
	}
	return off.due
}

// close ends what the plan no longer asks for. f.mu is held; what is to be told is returned.
func (f *flights) close(now time.Time, asked map[target]bool) (news []func(View)) {
	if f.r.troubled() {
		return nil // the plan is not the whole: what it leaves out may be asked for still
	}
	for t, b := range f.begun {
		if asked[t] || b.flying {
			continue
		}
		if !b.done {
			news = append(news, f.unasked(now, b))
		}
		delete(f.begun, t)
		delete(f.paused, t)
	}
	return news
}

// unasked is what is told of a change that the plan asks for no more, and that was not seen to be done: it came about by
// itself, or never did, as a launch of what is not there.
func (f *flights) unasked(now time.Time, b *begun) func(View) {
	if c := &b.change; c.Launch != nil && f.r.live[incarnationOf(c.UID, c.Slot, c.Incarnation)] == nil {
		return b.withdrawn(now)
	}
	return b.finished(now, nil)
}

// tell tells the view, with no lock held.
func (f *flights) tell(news []func(View)) {
	for _, one := range news {
		f.r.view(one)
	}
}

// started and finished are what the view is told of a change, as it is now: the next turn may change its details.
func (b *begun) started() func(View) {
	c := b.change
	return func(v View) { v.Started(&c) }
}

func (b *begun) finished(now time.Time, err error) func(View) {
	c, took := b.change, now.Sub(b.since)
	return func(v View) { v.Finished(&c, took, err) }
}

func (b *begun) withdrawn(now time.Time) func(View) {
	c, took := b.change, now.Sub(b.since)
	return func(v View) { v.Withdrawn(&c, took) }
}

// tellStill tells the view of changes that take long.
func (f *flights) tellStill(now time.Time) {
	var news []func(View)
	f.mu.Lock()
	for _, b := range f.begun {
		if !b.done && now.Sub(b.still) >= stillEvery {
			b.still = now
			c, elapsed := b.change, now.Sub(b.since)
			news = append(news, func(v View) { v.Still(&c, elapsed) })
		}
	}
	f.mu.Unlock()
	f.tell(news)
}

// grounded tells whether nothing may be begun any more: the lock was lost.
func (f *flights) grounded() bool { return f.acting != nil && f.acting.Err() != nil }

// busy tells whether anything is under way.
func (f *flights) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.begun {
		if b.flying {
			return true
		}
	}
	return false
}

// wait returns when all have landed.
func (f *flights) wait() { f.wg.Wait() }

// fly carries the change out. When the run has ended, but for what is finished, or the world has moved while it waited, it
// is not begun.
func (f *flights) fly(ctx context.Context, b *begun) {
	begin := (ctx.Err() == nil || b.finishing) && !f.grounded() && f.asked(b)
	var failed retry
	var err error
	if begin {
		acting := f.acting
		if acting == nil {
			acting = ctx
		}
		failed, err = insist(acting, f.r.o.Clock, f.retryOf(b), func() error { return f.r.do(acting, &b.change) })
	}
	f.land(b, begin, failed, err)
}

func (f *flights) retryOf(b *begun) retry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused[targetOf(&b.change)]
}

// asked tells whether a change is still to be made once its queue has come to it.
func (f *flights) asked(b *begun) bool {
	if !isForget(&b.change) {
		return f.r.asked(&b.change)
	}
	// It is named by its job's UID alone, and a job that is in the files again goes on under that.
	f.mu.Lock()
	defer f.mu.Unlock()
	return b.asked == f.plan
}

func (f *flights) land(b *begun, begin bool, failed retry, err error) {
	now := f.r.o.Clock()
	var news []func(View)
	f.mu.Lock()
	t := targetOf(&b.change)
	if errors.Is(err, providers.ErrNotPrepared) || begin && isForget(&b.change) {
		f.r.preparations.lapse(t.uid) // before its launches may begin
	}
	b.flying = false
	switch {
	case !begin && isForget(&b.change):
		news = append(news, b.withdrawn(now))
		delete(f.begun, t)
		delete(f.paused, t)
	case !begin:
	case err != nil:
		b.done = false // it may have been, and have come undone
		f.paused[t] = failed
		news = append(news, b.finished(now, err))
	default:
		if !b.done {
			news = append(news, b.finished(now, nil))
		}
		b.done, b.seen = true, f.turn
		delete(f.paused, t)
	}
	f.mu.Unlock()
	f.tell(news)
	f.wake()
}

// wake lets the loop look at what has landed.
func (f *flights) wake() {
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// hopeless is how often a change fails before a run that does not watch stops waiting for it.
const hopeless = 5

// stuck tells whether nothing is left but changes that fail again and again, or jobs that cannot be prepared.
func (f *flights) stuck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t, b := range f.begun {
		if b.flying || !b.done && f.paused[t].failures < hopeless {
			return false
		}
	}
	return len(f.paused) > 0 || f.r.preparations.failing()
}

// asked tells whether the newest stored decision still wants the change as it is.
func (r *Reconciler) asked(c *plan.Change) bool {
	if c.Launch == nil {
		return true // what is to be stopped was named by its incarnation, which never comes back
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.state.Jobs[c.Job]
	if rec == nil || rec.UID != c.UID {
		return false
	}
	s := rec.Slot(c.Slot.Role, c.Slot.Index)
	if s == nil || s.Incarnation != c.Incarnation {
		return false
	}
	if c.Action == plan.Update {
		return s.Phase.Live() && s.Phase != job.Canceling
	}
	// Where a scheduler places, the node is a hint that may have changed.
	return s.Phase == job.Scheduling && (s.Node == c.Node || !r.places(c.Provider))
}

// places tells whether the planner chooses the nodes of a provider.
func (r *Reconciler) places(provider string) bool {
	prov := r.o.Providers[provider]
	return prov == nil || prov.Capabilities().Places
}

// do carries one change out.
func (r *Reconciler) do(ctx context.Context, c *plan.Change) error {
	if c.Launch == nil && (c.Action == plan.Update || c.Action == plan.Restart) {
		return nil // the service was told; the agents do it
	}
	if c.Action == plan.Forget || c.Action == plan.NoOp {
		return nil // it was done when the records were stored
	}
	prov, err := r.provider(c)
	if err != nil {
		return err
	}
	if isForget(c) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := prov.Forget(ctx, c.UID, c.Job); err != nil {
			return fmt.Errorf("forget job.%s: %w", c.Job, err)
		}
		return nil
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
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("launch %s, incarnation %d: %w", c.Slot, c.Incarnation, err)
	}
	launch, err := r.o.Sealer.Launch(*c.Launch)
	if err != nil {
		return fmt.Errorf("launch %s, incarnation %d: %w", c.Slot, c.Incarnation, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := prov.Launch(ctx, launch); err != nil {
		return fmt.Errorf("launch %s, incarnation %d: %w", c.Slot, c.Incarnation, err)
	}
	return nil
}

// leaveTime is how long an incarnation that was told to leave has to do so: its grace for a checkpoint, its
// grace to stop, and a second for the news. Then it is stopped.
func leaveTime(c *plan.Change) time.Duration {
	if c.Launch != nil || len(c.Stop) == 0 {
		return 0
	}
	return 2*c.Grace.Std() + time.Second
}

// leavesByItself tells whether the incarnation can be expected to leave as the service tells it to: it runs
// and is heard of, or has not registered yet with a master that has just begun.
func (r *Reconciler) leavesByItself(c *plan.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	inc := r.live[incarnationOf(c.UID, c.Slot, c.Incarnation)]
	if inc != nil && (inc.Node == "" || inc.Waiting != "") {
		return false // nothing of it has begun
	}
	return inc != nil && (inc.Member == nil || !inc.Member.Silent && !inc.Member.Expired)
}
