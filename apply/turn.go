package apply

import (
	"cmp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
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

	waits   []plan.Wait         // of the newest plan that was carried out
	unended bool                // the plan that the view was told last has changes
	gauged  map[string]Progress // of training, last looked at
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

// accept tells what holds by the decision, and has it stored.
func (l *Loop) accept() {
	d := &l.turn.decided
	l.holds.decide(l, &d.Input, &d.Plan)
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
	l.holds.raiseIf(l, err, aboutStore, NotStored)
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
	waits := news(t.waits, d.Plan.Waits)
	t.waits = d.Plan.Waits
	ends := t.unended && len(d.Plan.Changes) == 0 && !l.sight.troubled() // what a plan of an outage leaves out may be asked for still
	l.tellPlan(&d.Plan, waits, off.fresh || len(waits) > 0 || ends || d.Plan.Resizes())
	l.exec.begin(l, off)
	if off.fresh || l.holds.Unseen(conditions.Key{About: aboutJournal, Code: NotChronicled}) {
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
	unkept := len(l.book.unwritten) > 0 || !l.holds.stored(&l.book)
	l.turn.dirty = l.turn.dirty || l.end.stage == running && unkept
	l.turn.rescan = l.now.Add(Rescan)
}

// tellPlan tells the view what is noticed, and what is planned if that is news. What waits to be told keeps no plan alive
// that is not told.
func (l *Loop) tellPlan(p *plan.Plan, waits []plan.Wait, news bool) {
	if news {
		planned := *p
		planned.Waits = waits
		l.turn.unended = len(p.Changes) > 0
		l.tell(func(v View) { v.Planned(&planned) })
	}
	l.tellNotices(p.Notices)
}

// tellNotices tells what is noticed, but for what the conditions have told.
func (l *Loop) tellNotices(notices []job.Notice) {
	for _, n := range notices {
		if n.Condition == "" {
			l.tell(func(v View) { v.Noticed(n) })
		}
	}
}

// stillEvery is how often a change that takes long is told of, as Terraform does.
const stillEvery = 10 * time.Second

// news are the waits that say something else than those before, and not only in other numbers: what is queued changes with
// every slot that starts.
func news(before, now []plan.Wait) []plan.Wait {
	type address struct{ job, role string }
	known := make(map[address][]plan.Wait, len(before))
	for _, w := range before {
		at := address{w.Job, w.Role}
		known[at] = append(known[at], w)
	}
	return slices.DeleteFunc(slices.Clone(now), func(w plan.Wait) bool {
		return slices.ContainsFunc(known[address{w.Job, w.Role}], func(old plan.Wait) bool {
			return slices.EqualFunc(old.Reasons, w.Reasons, conditions.Same)
		})
	})
}

// beat tells the view, every while, training progress and what takes long.
func (l *Loop) beat() {
	t := &l.turn
	if l.now.Before(t.pulse) {
		return
	}
	l.exec.tellStill(l, t.pulse.Add(-pulseEvery))
	t.pulse = l.now.Add(pulseEvery)
	if _, asked := l.inFlight[Gauge{}.ID()]; !asked && l.end.stage == running && t.phase != starting {
		l.do(Gauge{})
	}
}

// gauged reports training progress, where it continues.
func (l *Loop) gauged(o Outcome) {
	progress, _ := o.Result.(map[string]Progress)
	before := l.turn.gauged
	l.turn.gauged = progress
	for launched, p := range progress {
		if p.Step != before[launched].Step {
			name := l.book.names.now(l.told.jobs[launched].uid, launched)
			l.tell(func(v View) { v.Progressed(name, p) })
		}
	}
}
