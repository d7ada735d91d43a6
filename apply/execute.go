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
	asked   map[target]*execution // changes that were due in the newest plan, or are still in flight
	effects map[ID]target         // effects in flight
	retries map[target]retry      // of changes that have failed
}

// target is what a change applies to: a slot, or a whole job (zero Slot).
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
	stage    int  // the index of the next incarnation to stop; past the last one, the launch is next
	inFlight ID   // its effect in flight; zero for none
	last     bool // it is carried out though the run is ending: see finishStops
	done     bool
	seen     int       // if done: the turn at that time, whose observation may not show it yet
	again    time.Time // if done: when to repeat it if no observation shows it
}

func newExecutor() executor {
	return executor{asked: map[target]*execution{}, effects: map[ID]target{}, retries: map[target]retry{}}
}

func (x *execution) is(c *plan.Change) bool {
	return x != nil && x.change.Action == c.Action && x.change.Incarnation == c.Incarnation
}

func (x *execution) busy() bool { return x.inFlight != ID{} }

// isForget reports whether a change removes what a job has besides its slots.
func isForget(c *plan.Change) bool { return c.Action == plan.Delete && c.Slot == (job.Address{}) }

// isStop reports whether a change only stops incarnations, which are first asked to leave.
func isStop(c *plan.Change) bool { return c.Launch == nil && len(c.Stop) > 0 }

// leaveTime is how long an incarnation that was asked to leave may take before it is stopped: its grace for a
// checkpoint, its grace to stop, and a second for the message.
func leaveTime(c *plan.Change) time.Duration {
	if c.Launch != nil || len(c.Stop) == 0 || c.Force {
		return 0
	}
	return 2*c.Grace.Std() + time.Second
}

// forgotten reports whether the provider has forgotten a job since the plan first asked for that.
func (e *executor) forgotten(uid string) bool {
	x := e.asked[target{uid: uid}]
	return x != nil && x.done && isForget(&x.change)
}

// inFlight returns the jobs, by UID, of which a slot is being launched or stopped. An effect that fails does not count: it is tried
// for as long as it fails, and what the provider shows may be all that will ever be known about its slot.
func (e *executor) inFlight() map[string]bool {
	jobs := map[string]bool{}
	for t, x := range e.asked {
		if x.busy() && !isForget(&x.change) && e.retries[t].failures == 0 {
			jobs[t.uid] = true
		}
	}
	return jobs
}

// forgets reports whether a request to forget a job is queued or in flight.
func (e *executor) forgets(uid string) bool {
	x := e.asked[target{uid: uid}]
	return x != nil && x.busy() && isForget(&x.change)
}

// launching reports whether any slot of a job is being launched.
func (e *executor) launching(uid string) bool {
	for t, x := range e.asked {
		if t.uid == uid && x.busy() && x.change.Launch != nil {
			return true
		}
	}
	return false
}

// batch is what one turn starts.
type batch struct {
	closed []Message    // what has ended with this plan, to report before it
	start  []*execution // what to carry out now
	news   []Message    // what to report before that
	fresh  bool         // some of it is started for the first time
	due    time.Time    // when the next change is due; zero for none
}

// take decides on every change of the first wave that is not in flight, and closes those that the plan no longer wants.
// A change waits for its target's previous change, for its job to be prepared or forgotten, and a planned stop for those whose world
// it ends. Forgetting a job waits for
// its launches, which would otherwise leave objects behind.
func (e *executor) take(l *Loop, p *plan.Plan) (b batch) {
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
		unheard := l.service.holds(l, p, c)
		b.due = earliest(b.due, unheard)
		held := c.Wave > 0 || !unheard.IsZero() || l.groups.holds(c) || c.Launch != nil && e.forgets(c.UID) || isForget(c) && e.launching(c.UID)
		if l.end.stopped() && !isStop(c) || held || x != nil && (x.busy() || x.is(c) && x.done && x.seen >= l.turn.number) {
			continue
		}
		if !x.is(c) {
			if x != nil && !x.done { // another change replaces it
				b.closed = append(b.closed, e.closeMessage(l, x))
			}
			x = &execution{since: l.now, asked: e.plan}
			e.asked[t] = x
			delete(e.retries, t) // those failures were of another change
			change := *c
			b.news = append(b.news, func(v View) { v.Started(&change) })
			b.fresh = true
		}
		x.change, x.stage = *c, 0
		pause := latest(e.retries[t].until, x.again)
		b.due = earliest(b.due, later(l.now, pause))
		if l.end.stopped() || l.now.Before(pause) {
			continue
		}
		if until := x.since.Add(leaveTime(c)); l.now.Before(until) && l.sight.leavesByItself(c) {
			b.due = earliest(b.due, until)
			continue
		}
		b.start = append(b.start, x)
	}
	e.withdraw(l)
	b.closed = append(b.closed, e.close(l, asked)...)
	return b
}

// later returns at if it is in the future, else zero.
func later(now, at time.Time) time.Time {
	if now.Before(at) {
		return at
	}
	return time.Time{}
}

// begin starts the changes of a turn.
func (e *executor) begin(l *Loop, b batch) {
	for _, m := range b.news {
		l.tell(m)
	}
	for _, x := range b.start {
		e.proceed(l, x)
	}
}

// proceed starts the next effect of a change, or finishes the change.
func (e *executor) proceed(l *Loop, x *execution) {
	c := &x.change
	var next Effect
	slot := l.book.names.slot(c.UID, c.Slot)
	switch {
	case c.Action == plan.Forget, c.Action == plan.NoOp: // done when the records were stored
	case c.Launch == nil && (c.Action == plan.Update || c.Action == plan.Restart): // agents do it; the service has instructed them
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
		l.groups.lapse(t.uid) // before its next launches start
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
		if x.done { // but no observation has shown it
			x.again = l.now.Add(firstPause)
		}
		e.finish(l, x, o.Err)
	}
}

// finish ends an attempt at a change.
func (e *executor) finish(l *Loop, x *execution, err error) {
	t, c := targetOf(&x.change), x.change
	took := l.now.Sub(x.since)
	if err != nil {
		x.done = false // an earlier attempt may have succeeded and been undone
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

// attempt wraps an error with what was being done.
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

// withdraw drops queued changes that are no longer wanted: launches that the newest stored decision does not contain
// as they are, and the forgetting of jobs that are declared again.
func (e *executor) withdraw(l *Loop) {
	for _, t := range e.targetsWhere(func(_ target, x *execution) bool { return x.busy() && !e.wanted(l, x) }) {
		l.do(Drop{e.asked[t].inFlight})
	}
}

// wanted reports whether the stored state still asks for a change exactly as it was started.
func (e *executor) wanted(l *Loop, x *execution) bool {
	c := &x.change
	if isForget(c) { // identified by the job's UID alone, which a job that is in the files again keeps
		return x.asked == e.plan
	}
	if c.Launch == nil {
		return true // incarnation numbers never return, so a stop never hits a newer one
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
	// If a scheduler places, the node is a hint that may have changed.
	p := l.sight.providers[c.Provider]
	return s.Phase == job.Scheduling && (s.Node == c.Node || p != nil && !p.can.Places)
}

// close closes changes that the plan no longer wants. During an outage plans are partial: what they leave out may still be
// wanted.
func (e *executor) close(l *Loop, asked map[target]bool) (news []Message) {
	if l.sight.incomplete() {
		return nil
	}
	for _, t := range e.targetsWhere(func(t target, x *execution) bool { return !asked[t] && !x.busy() }) {
		if x := e.asked[t]; !x.done {
			news = append(news, e.closeMessage(l, x))
		}
		if e.retries[t].err != nil {
			l.turn.dirty = true // to settle its condition
		}
		delete(e.asked, t)
		delete(e.retries, t)
	}
	return news
}

// closeMessage reports a change that the plan no longer wants and that was not done here: as withdrawn if it is a launch
// whose incarnation does not exist, else as finished, since it happened by itself.
func (e *executor) closeMessage(l *Loop, x *execution) Message {
	c, took := x.change, l.now.Sub(x.since)
	if c.Launch != nil && l.sight.at(&c) == nil {
		return func(v View) { v.Withdrawn(&c, took) }
	}
	return func(v View) { v.Finished(&c, took, nil) }
}

// tellStill reports changes that take long, each at every multiple of stillEvery that has passed since last.
func (e *executor) tellStill(l *Loop, last time.Time) {
	due := func(x *execution) bool { return l.now.Sub(x.since)/stillEvery > max(0, last.Sub(x.since)/stillEvery) }
	for _, t := range e.targetsWhere(func(_ target, x *execution) bool { return !x.done && due(x) }) {
		x := e.asked[t]
		c, elapsed := x.change, l.now.Sub(x.since)
		l.tell(func(v View) { v.Still(&c, elapsed) })
	}
}

// busy reports whether anything is in flight.
func (e *executor) busy() bool { return len(e.effects) > 0 }

// stuck reports whether all that is left are changes that keep failing and jobs that cannot be prepared.
func (e *executor) stuck(g *groups) bool {
	for t, x := range e.asked {
		if x.busy() || !x.done && e.retries[t].failures < maxFailures {
			return false
		}
	}
	return len(e.retries) > 0 || g.failing()
}

// targetsWhere returns the targets of the changes for which match is true, sorted.
func (e *executor) targetsWhere(match func(target, *execution) bool) (some []target) {
	for t, x := range e.asked {
		if match(t, x) {
			some = append(some, t)
		}
	}
	slices.SortFunc(some, compareTargets)
	return some
}

func compareTargets(a, b target) int {
	return cmp.Or(cmp.Compare(a.uid, b.uid), a.slot.Compare(b.slot))
}
