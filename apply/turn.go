package apply

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/eltrain/eltrain/plan"
)

// Rescan is how often a turn starts without an event: for changes that no event reports.
const Rescan = 30 * time.Second

// pulseEvery is how often the view gets training progress.
const pulseEvery = 2 * time.Second

// retryStore is the pause after the state could not be stored, in which nothing is done; retryObserve the one after a
// provider could not be observed.
const (
	retryStore   = time.Second
	retryObserve = 2 * time.Second
)

// phase is the stage of a turn.
type phase int

const (
	starting   phase = iota // the service's address is being published to agents
	resting                 // waiting until something is new or due
	hearing                 // waiting for the service's facts
	observing               // waiting for observations
	approving               // waiting for approval
	deciding                // the decision waits for another write
	storing                 // the decision is being stored
	journaling              // what happened is being journalled
)

// turn is the current turn, or the last one.
type turn struct {
	phase   phase
	number  int       // of the newest look at the providers
	woken   bool      // something may be new outside: look
	dirty   bool      // something was decided or has ended here: plan, also if nothing is new outside
	must    bool      // this turn plans in any case
	awaits  int       // observations that are still to come
	due     time.Time // when the next must be; zero if nothing is due
	rescan  time.Time // when the next is in any case
	pulse   time.Time // when the view is told how things go
	decided Decision  // of this turn
	newest  plan.Plan // of the last turn that came to its end
	storing time.Time // since when the decision is being stored
	acted   bool      // the last turn did, and it was not looked yet whether the run may end
	failed  int       // turns in a row that could not be stored

	waits   []plan.Wait // of the newest plan
	told    []plan.Wait // last told, at toldAt
	toldAt  time.Time
	unended bool             // the plan that the view was told last has changes
	steps   map[string]int64 // of training, last told
}

// at is when the next turn is to begin, not before a time.
func (t *turn) at(earliestAt time.Time) time.Time {
	at := earliest(t.due, t.rescan)
	if t.woken || t.dirty {
		at = earliestAt
	}
	if !at.IsZero() && at.Before(earliestAt) {
		at = earliestAt
	}
	return at
}

// begin begins a turn if one is due: it asks the service, then the providers.
func (l *Loop) begin() {
	t := &l.turn
	due := !t.due.IsZero() && !l.now.Before(t.due)
	rescan := !l.now.Before(t.rescan)
	if !t.woken && !t.dirty && !due && !rescan || l.end.stage == running && l.now.Before(l.rest.until) || !l.end.turns() {
		return
	}
	l.files.takeUp(l) // before anything is looked at: what is seen is then sealed as the files now ask for
	// A run that ends once nothing is left to do looks at the time as well.
	t.must = t.dirty || due || !l.setup.Watch
	t.woken, t.dirty = false, false
	t.phase = hearing
	t.number++
	known := l.sight.version
	if t.must {
		known = 0
	}
	l.do(Hear{known})
}

// looked continues once everybody has answered. If nothing is other than at the last plan, that was all: what a plan would
// cost grows with the slots, this does not.
func (l *Loop) looked() {
	switch l.end.stage {
	case stopping:
		l.rests()
		return
	case leaving:
		l.end.seeOff(l)
		return
	}
	if !l.turn.must && !l.sight.fresh {
		l.groups.refresh(l)
		l.rests()
		return
	}
	l.told.prune(&l.sight)
	l.sight.fresh, l.turn.due = false, time.Time{}
	l.plan()
}

// plan decides, and has the first decision approved.
func (l *Loop) plan() {
	in, p := l.decide(l.input())
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		rec := in.Records[c.Job]
		return isForget(&c) && rec != nil && rec.UID == c.UID && l.exec.forgotten(c.UID) // only its record is left
	})
	l.turn.decided = Decision{in, p}
	if l.setup.Approve {
		l.setup.Approve = false
		l.turn.phase = approving
		l.do(Approve{l.turn.decided})
		return
	}
	l.accept()
}

// approved handles the answer on the first plan.
func (l *Loop) approved(err error) {
	if err != nil {
		l.finish(l.turn.decided.Plan, &RefusedError{err})
		return
	}
	if l.end.stopped() { // they have taken their time
		l.finish(l.turn.decided.Plan, nil)
		return
	}
	l.accept()
}

// accept reports what happens to the files, and has the decision stored.
func (l *Loop) accept() {
	d := &l.turn.decided
	l.files.tell(l, &d.Input, &d.Plan)
	l.check.hold(l, &d.Plan)
	l.holdDelays()
	l.turn.phase = deciding
}

// failed ends a turn whose decision could not be stored or journalled: nothing of it is done.
func (l *Loop) failed(err error) {
	t := &l.turn
	l.storedTook()
	l.files.answer(l, &t.decided, err)
	t.failed++
	switch {
	case l.end.stage == settling:
		l.end.stage, l.end.err = waiting, cmp.Or(l.end.err, err)
		l.rests()
		return
	case !l.setup.Watch && t.failed >= hopeless:
		l.rests()
		l.end.leave(l, t.decided.Plan, err)
		return
	}
	l.raiseIf(err, aboutStore, NotStored)
	t.dirty, t.newest = true, t.decided.Plan
	l.rests()
	l.rest.pause(l.now, retryStore)
}

// storedTook records of how long storing took.
func (l *Loop) storedTook() { l.rest.stored(l.now, l.now.Sub(l.turn.storing)) }

// act carries out what was stored: the service is told what it is to form, and the changes of the first wave begin.
func (l *Loop) act() {
	t := &l.turn
	d := &t.decided
	l.storedTook()
	t.failed = 0
	l.holds.Clear(aboutStore, NotStored)
	if l.end.stage == settling {
		l.end.settled(l, &d.Plan)
		return
	}
	if l.setup.Check && !l.sight.troubled() && (d.Plan.Dirty || l.check.due) {
		l.check.run(l, d.Plan.Records)
	}
	l.told.instruct(l, &d.Plan)
	off := l.exec.take(l, &d.Plan)
	waits := l.newWaits(&d.Plan)
	ends := t.unended && len(d.Plan.Changes) == 0 && !l.sight.troubled() // what a plan of an outage leaves out may be asked for still
	l.tellPlan(&d.Plan, off.fresh || waits || ends || d.Plan.Resizes())
	l.exec.begin(l, off)
	if off.fresh {
		l.book.chronicle(l, *d)
	}
	d.Plan.Waits = slices.Concat(d.Plan.Waits, l.refusals())
	t.due = earliest(earliest(off.due, d.Plan.Wake), l.groups.due())
	if l.sight.troubled() {
		t.due = earliest(t.due, l.now.Add(retryObserve))
	}
	l.files.answer(l, d, nil)
	t.newest, t.acted = d.Plan, true
	l.rests()
}

// rests ends the turn.
func (l *Loop) rests() {
	l.turn.phase = resting
	l.turn.rescan = l.now.Add(Rescan)
}

// tellPlan tells the view what is noticed, and what is planned if that is news. What waits to be told keeps no plan alive
// that is not told.
func (l *Loop) tellPlan(p *plan.Plan, news bool) {
	about := func(files bool) {
		for _, n := range p.Notices {
			if aboutFiles(n) == files {
				l.tell(func(v View) { v.Noticed(n) })
			}
		}
	}
	about(true)
	if news {
		planned := *p
		l.turn.unended = len(p.Changes) > 0
		l.tell(func(v View) { v.Planned(&planned) })
	}
	about(false)
}

// stillEvery is how often a change that takes long is told of, as Terraform does.
const stillEvery = 10 * time.Second

// newWaits reports whether what the plan waits for is not what was told last. What is only queued changes with
// every slot that starts: it is reported again every while.
func (l *Loop) newWaits(p *plan.Plan) bool {
	t := &l.turn
	t.waits = p.Waits
	recent := l.now.Sub(t.toldAt) < stillEvery && slices.EqualFunc(lasting(p.Waits), lasting(t.told), sameWait)
	if recent || slices.EqualFunc(p.Waits, t.told, sameWait) {
		return false
	}
	t.told, t.toldAt = p.Waits, l.now
	return len(p.Waits) > 0
}

func sameWait(a, b plan.Wait) bool { return reflect.DeepEqual(a, b) }

// lasting leaves out what may pass by itself.
func lasting(waits []plan.Wait) []plan.Wait {
	return slices.DeleteFunc(slices.Clone(waits), func(w plan.Wait) bool { return w.Passing })
}

// beat tells the view, every while, training progress and what takes long.
func (l *Loop) beat() {
	t := &l.turn
	if l.now.Before(t.pulse) {
		return
	}
	t.pulse = l.now.Add(pulseEvery)
	l.exec.tellStill(l)
	if _, asked := l.inFlight[Gauge{}.ID()]; !asked && l.end.stage == running && t.phase != starting {
		l.do(Gauge{})
	}
}

// gauged reports training progress, where it continues.
func (l *Loop) gauged(o Outcome) {
	progress, _ := o.Result.(map[string]Progress)
	if l.turn.steps == nil {
		l.turn.steps = map[string]int64{}
	}
	for launched, p := range progress {
		name := l.book.names.now(l.told.jobs[launched].uid, launched)
		if p.Step != l.turn.steps[name] {
			l.turn.steps[name] = p.Step
			l.tell(func(v View) { v.Progressed(name, p) })
		}
	}
}
