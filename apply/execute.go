package apply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// executor carries out changes: one at a time per slot, many slots at once. Failures are retried after a growing
// pause, as long as the newest plan wants the change.
type executor struct {
	plan    int                   // number of the newest plan that was followed
	asked   map[target]*execution // every change of the newest plan that may be done now
	effects map[ID]target         // of those in flight
	retries map[target]retry      // of those that have failed
}

// target is what a change is about: a slot, or a whole job (zero Slot).
type target struct {
	uid  string
	slot job.Address
}

func targetOf(c *plan.Change) target { return target{c.UID, c.Slot} }

// execution is one change, for as long as the plan wants it.
type execution struct {
	change   plan.Change
	since    time.Time
	asked    int  // the newest plan that asked for it
	stage    int  // which of the incarnations to stop is next; past them it is the launch
	inFlight ID   // the effect that is under way for it; zero for none
	last     bool // it is carried out though the run has ended: see finish
	done     bool
	seen     int       // with done: the newest look when it was, which may not show it yet
	again    time.Time // with done: not again before, though no look shows it
}

func newExecutor() executor {
	return executor{asked: map[target]*execution{}, effects: map[ID]target{}, retries: map[target]retry{}}
}

func (x *execution) is(c *plan.Change) bool {
	return x != nil && x.change.Action == c.Action && x.change.Incarnation == c.Incarnation
}

func (x *execution) busy() bool { return x.inFlight != ID{} }

// isForget reports whether a change takes away what a job has beside its slots.
func isForget(c *plan.Change) bool { return c.Action == plan.Delete && c.Slot == (job.Address{}) }

// isStop reports whether a change only ends incarnations, which are told to leave and have a time for it.
func isStop(c *plan.Change) bool { return c.Launch == nil && len(c.Stop) > 0 }

// leaveTime is how long an incarnation that was told to leave has to do so: its grace for a checkpoint, its
// grace to stop, and a second for the news. Then it is stopped.
func leaveTime(c *plan.Change) time.Duration {
	if c.Launch != nil || len(c.Stop) == 0 {
		return 0
	}
	return 2*c.Grace.Std() + time.Second
}

// forgotten reports whether a job was forgotten by its provider since the plan first asked for it.
func (e *executor) forgotten(uid string) bool {
	x := e.asked[target{uid: uid}]
	return x != nil && x.done && isForget(&x.change)
}

// forgets reports whether a job is about to be forgotten, or is just now.
func (e *executor) forgets(uid string) bool {
	x := e.asked[target{uid: uid}]
	return x != nil && x.busy() && isForget(&x.change)
}

// launching reports whether anything of a job is being launched.
func (e *executor) launching(uid string) bool {
	for t, x := range e.asked {
		if t.uid == uid && x.busy() && x.change.Launch != nil {
			return true
		}
	}
	return false
}

// takeoff is what one turn starts.
type takeoff struct {
	start []*execution // what is to be carried out now
	news  []Message    // what is to be told before
	fresh bool         // something is started that was not before
	due   time.Time    // the next time at which a change is due; zero is none
}

// take decides on every change of the first wave that is not under way, and closes those that the plan no longer asks for.
// A change waits for another, for its job to be prepared, or to have been forgotten; and forgetting the job for its
// launches, which would make something of what is no more.
func (e *executor) take(l *Loop, p *plan.Plan) (off takeoff) {
	e.plan++
	asked := make(map[target]bool, len(p.Changes))
	for i := range p.Changes {
		c := &p.Changes[i]
		t := targetOf(c)
		asked[t] = true
		x := e.asked[t]
		if x.is(c) {
			x.asked = e.plan
		}
		held := c.Wave > 0 || l.groups.holds(c) || c.Launch != nil && e.forgets(c.UID) || isForget(c) && e.launching(c.UID)
		if l.end.stopped() && !isStop(c) || held || x != nil && (x.busy() || x.is(c) && x.done && x.seen >= l.turn.number) {
			continue
		}
		if !x.is(c) {
			if x != nil && !x.done { // the next thing is asked for already
				off.news = append(off.news, e.unasked(l, x))
			}
			x = &execution{since: l.now, asked: e.plan}
			e.asked[t] = x
			delete(e.retries, t) // what failed there was another change
			change := *c
			off.news = append(off.news, func(v View) { v.Started(&change) })
			off.fresh = true
		}
		x.change, x.stage = *c, 0
		pause := latest(e.retries[t].until, x.again)
		off.due = earliest(off.due, later(l.now, pause))
		if l.end.stopped() || l.now.Before(pause) {
			continue
		}
		if until := x.since.Add(leaveTime(c)); l.now.Before(until) && l.sight.leavesByItself(c) {
			off.due = earliest(off.due, until)
			continue
		}
		off.start = append(off.start, x)
	}
	e.withdraw(l)
	off.news = append(off.news, e.close(l, asked)...)
	return off
}

// later is a time, if it has yet to come; else zero.
func later(now, at time.Time) time.Time {
	if now.Before(at) {
		return at
	}
	return time.Time{}
}

// begin starts the changes of a turn.
func (e *executor) begin(l *Loop, off takeoff) {
	for _, m := range off.news {
		l.tell(m)
	}
	for _, x := range off.start {
		e.proceed(l, x)
	}
}

// proceed starts the next effect of a change, or ends it.
func (e *executor) proceed(l *Loop, x *execution) {
	c := &x.change
	var next Effect
	slot := l.book.names.slot(c.UID, c.Slot)
	switch {
	case c.Action == plan.Forget, c.Action == plan.NoOp: // done when the records were stored
	case c.Launch == nil && (c.Action == plan.Update || c.Action == plan.Restart): // the service was told; the agents do it
	case l.sight.providers[c.Provider] == nil:
		err := fmt.Errorf("provider %q of job.%s is not configured", c.Provider, c.Job)
		e.retries[targetOf(c)], _ = e.retries[targetOf(c)].next(l.now, err, l.setup.Jitter())
		e.finish(l, x, err)
		return
	case isForget(c):
		next = Forget{c.Provider, c.UID, l.book.names.launched(c.UID, c.Job)}
	case x.stage < len(c.Stop):
		next = Stop{c.Provider, c.UID, slot, c.Stop[x.stage], c.Grace.Std()}
	case c.Launch != nil:
		launch := *c.Launch
		launch.Slot = slot
		next = Launch{c.Provider, launch, c.Incarnation > 1}
	}
	if next == nil {
		e.finish(l, x, nil)
		return
	}
	x.inFlight = next.ID()
	e.effects[x.inFlight] = targetOf(c)
	l.do(next)
}

// ended handles the outcome of a change's effect and continues with the change.
func (e *executor) ended(l *Loop, effect Effect, o Outcome) {
	t := e.effects[o.Of]
	x := e.asked[t]
	if x == nil || x.inFlight != o.Of {
		delete(e.effects, o.Of)
		return
	}
	c := &x.change
	failed := e.retries[t]
	if o.Err != nil && !errors.Is(o.Err, ErrDropped) {
		var tell bool
		failed, tell = failed.next(l.now, o.Err, l.setup.Jitter())
		e.retries[t] = failed
		if !tell && (!l.end.stopped() || x.last) && e.wanted(l, x) {
			l.again(effect, failed.until)
			return
		}
	}
	delete(e.effects, o.Of)
	x.inFlight = ID{}
	if errors.Is(o.Err, providers.ErrNotPrepared) || isForget(c) && !errors.Is(o.Err, ErrDropped) {
		l.groups.lapse(t.uid) // before its launches may begin
	}
	stopped := o.Err == nil && x.stage < len(c.Stop)
	if stopped && (x.stage+1 < len(c.Stop) || c.Launch != nil) && (!l.end.stopped() || x.last) && e.wanted(l, x) {
		x.stage++
		e.proceed(l, x)
		return
	}
	l.turn.dirty = true
	switch {
	case errors.Is(o.Err, ErrDropped) && isForget(c):
		took := l.now.Sub(x.since)
		l.tell(func(v View) { v.Withdrawn(c, took) })
		delete(e.asked, t)
		delete(e.retries, t)
	case errors.Is(o.Err, ErrDropped), stopped && (x.stage+1 < len(c.Stop) || c.Launch != nil):
	default:
		if x.done { // and no look has shown it
			x.again = l.now.Add(pauseFirst)
		}
		e.finish(l, x, o.Err)
	}
}

// finish ends an attempt at a change.
func (e *executor) finish(l *Loop, x *execution, err error) {
	t, c := targetOf(&x.change), x.change
	took := l.now.Sub(x.since)
	if err != nil {
		x.done = false // it may have been, and have come undone
		failed := attempt(x, &c, err)
		l.tell(func(v View) { v.Finished(&c, took, failed) })
		return
	}
	if !x.done {
		l.tell(func(v View) { v.Finished(&c, took, nil) })
	}
	x.done, x.seen = true, l.turn.number
	delete(e.retries, t)
}

// attempt names what was being done when an error occurred.
func attempt(x *execution, c *plan.Change, err error) error {
	switch {
	case isForget(c):
		return fmt.Errorf("forget job.%s: %w", c.Job, err)
	case x.stage < len(c.Stop):
		return fmt.Errorf("stop %s, incarnation %d: %w", c.Slot, c.Stop[x.stage], err)
	case c.Launch != nil:
		return fmt.Errorf("launch %s, incarnation %d: %w", c.Slot, c.Incarnation, err)
	}
	return err
}

// withdraw takes back what waits for its turn and is not to be done anymore: launches that the newest stored decision does
// not want as they are, and jobs that are wanted again and were to be forgotten.
func (e *executor) withdraw(l *Loop) {
	for _, t := range e.those(func(_ target, x *execution) bool { return x.busy() && !e.wanted(l, x) }) {
		l.do(Drop{e.asked[t].inFlight})
	}
}

// wanted reports whether a change is still wanted as it is.
func (e *executor) wanted(l *Loop, x *execution) bool {
	c := &x.change
	if isForget(c) { // it is named by its job's UID alone, and a job that is in the files again continues under that
		return x.asked == e.plan
	}
	if c.Launch == nil {
		return true // what is to be stopped was named by its incarnation, which never comes back
	}
	rec := l.book.state.Jobs[c.Job]
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
	p := l.sight.providers[c.Provider]
	return s.Phase == job.Scheduling && (s.Node == c.Node || p != nil && !p.can.Places)
}

// close ends changes that the plan no longer wants. The plan of an outage is partial: what it leaves out may be wanted
// still.
func (e *executor) close(l *Loop, asked map[target]bool) (news []Message) {
	if l.sight.troubled() {
		return nil
	}
	for _, t := range e.those(func(t target, x *execution) bool { return !asked[t] && !x.busy() }) {
		if x := e.asked[t]; !x.done {
			news = append(news, e.unasked(l, x))
		}
		delete(e.asked, t)
		delete(e.retries, t)
	}
	return news
}

// unasked reports a change that the plan asks for no more, and that was not seen to be done: it happened by itself, or
// never did, as a launch of what is not there.
func (e *executor) unasked(l *Loop, x *execution) Message {
	c, took := x.change, l.now.Sub(x.since)
	if c.Launch != nil && l.sight.at(&c) == nil {
		return func(v View) { v.Withdrawn(&c, took) }
	}
	return func(v View) { v.Finished(&c, took, nil) }
}

// tellStill tells the view of changes that take long, each every while since the last time that it was told how things go.
func (e *executor) tellStill(l *Loop, last time.Time) {
	due := func(x *execution) bool { return l.now.Sub(x.since)/stillEvery > max(0, last.Sub(x.since)/stillEvery) }
	for _, t := range e.those(func(_ target, x *execution) bool { return !x.done && due(x) }) {
		x := e.asked[t]
		c, elapsed := x.change, l.now.Sub(x.since)
		l.tell(func(v View) { v.Still(&c, elapsed) })
	}
}

// busy reports whether anything is in flight.
func (e *executor) busy() bool { return len(e.effects) > 0 }

// stuck reports whether only changes that keep failing, or jobs that cannot be prepared, are left.
func (e *executor) stuck(g *groups) bool {
	for t, x := range e.asked {
		if x.busy() || !x.done && e.retries[t].failures < hopeless {
			return false
		}
	}
	return len(e.retries) > 0 || g.failing()
}

// those are the targets of changes that are so, in their order.
func (e *executor) those(so func(target, *execution) bool) (some []target) {
	for t, x := range e.asked {
		if so(t, x) {
			some = append(some, t)
		}
	}
	slices.SortFunc(some, compareTargets)
	return some
}

func compareTargets(a, b target) int {
	return cmp.Or(cmp.Compare(a.uid, b.uid), a.slot.Compare(b.slot))
}
