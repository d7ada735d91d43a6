package apply

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Rescan is how often a turn starts without an event, to find changes that no event reports.
const Rescan = 30 * time.Second

// pulseEvery is how often the view gets training progress, unless the setup says otherwise.
const pulseEvery = 2 * time.Second

// retryStore is the pause after the state could not be stored, retryObserve the one after a provider could not be observed.
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
	journaling              // notices are being journaled
)

// turn is the current turn, or the last one.
type turn struct {
	phase   phase
	number  int          // counts turns
	woken   bool         // something may have changed outside: observe
	dirty   bool         // something has changed inside: plan, even if nothing has changed outside
	must    bool         // this turn plans in any case
	awaits  int          // outstanding observations
	due     time.Time    // when the next turn is due; zero if none is
	rescan  time.Time    // when the next turn begins at the latest
	pulse   time.Time    // when progress is reported next
	decided Decision     // of this turn
	notices []job.Notice // the decision's, and those journaled with them
	newest  plan.Plan    // of the last completed turn
	memory  plan.Memory  // of the newest plan
	storing time.Time    // when storing the decision began
	acted   bool         // the last turn acted, and whether the run may end was not checked since
	failed  int          // consecutive turns that could not be stored

	shownChanges bool                // the plan last reported to the view has changes
	gauged       map[string]Progress // the last reported training progress
}

// at returns when the next turn is to begin, which is not before earliestAt.
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

// begin begins a turn if one is due, by hearing the service.
func (l *Loop) begin() {
	t := &l.turn
	due := !t.due.IsZero() && !l.now.Before(t.due)
	rescan := !l.now.Before(t.rescan)
	if !t.woken && !t.dirty && !due && !rescan || l.end.stage == running && l.now.Before(l.rest.until) || !l.end.turns() {
		return
	}
	l.files.takeUp(l) // before observing, so that observations are sealed as the new files require
	// A run that does not watch always plans, since its end also depends on the time.
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

// looked continues once all providers have answered. If nothing has changed since the last plan, the turn ends here: the cost
// of planning grows with the number of slots.
func (l *Loop) looked() {
	switch l.end.stage {
	case stopping:
		l.rests()
		return
	case leaving:
		l.end.finishStops(l)
		return
	}
	if !l.turn.must && !l.sight.fresh {
		l.groups.refresh(l)
		l.rests()
		return
	}
	l.service.prune(&l.sight)
	l.sight.fresh, l.turn.due = false, time.Time{}
	l.plan()
}

// plan decides, and requests approval of the first decision.
func (l *Loop) plan() {
	in := l.input()
	l.sight.keep(in.Snapshot)
	in, p := l.decide(in)
	l.turn.decided = Decision{in, p}
	if l.setup.Approve {
		l.setup.Approve = false
		l.turn.phase = approving
		l.do(Approve{l.turn.decided})
		return
	}
	l.accept()
}

// approved handles the answer to the first plan.
func (l *Loop) approved(err error) {
	if err != nil {
		l.finish(l.turn.decided.Plan, &RefusedError{err})
		return
	}
	if l.end.stopped() { // interrupted before the answer
		l.finish(l.turn.decided.Plan, nil)
		return
	}
	l.accept()
}

// accept settles the conditions that follow from the decision, and lets it be stored.
func (l *Loop) accept() {
	d := &l.turn.decided
	l.holds.decide(l, &d.Input, &d.Plan)
	l.turn.phase = deciding
}

// failed ends a turn whose decision could not be stored or journaled, and carries out none of it.
func (l *Loop) failed(about string, code job.Code, err error) {
	t := &l.turn
	l.storedTook()
	l.files.answer(l, &t.decided, err)
	t.failed++
	switch {
	case l.end.stage == settling:
		l.end.stage, l.end.err = waiting, cmp.Or(l.end.err, err)
		l.rests()
		return
	case !l.setup.Watch && t.failed >= maxFailures:
		l.rests()
		l.end.leave(l, t.decided.Plan, err)
		return
	}
	l.holds.raiseIf(l, err, about, code)
	t.dirty, t.newest = true, t.decided.Plan
	l.rests()
	l.rest.pause(l.now, retryStore)
}

// storedTook records how long storing took.
func (l *Loop) storedTook() { l.rest.stored(l.now, l.now.Sub(l.turn.storing)) }

// act carries out the stored decision: it tells the service what to form, and starts the changes of the first wave.
func (l *Loop) act() {
	t := &l.turn
	d := &t.decided
	l.storedTook()
	t.failed = 0
	l.holds.Clear(aboutStore, NotStored)
	l.holds.Clear(aboutJournal, NotJournaled)
	if l.end.stage == settling {
		l.end.settled(l, &d.Plan)
		return
	}
	if l.setup.Check && !l.sight.incomplete() && (d.Plan.Dirty || l.check.due) {
		l.check.run(l, d.Plan.Records)
	}
	l.requests.respond(l, &d.Plan)
	l.service.instruct(l, &d.Plan)
	batch := l.exec.take(l, &d.Plan)
	ends := t.shownChanges && len(d.Plan.Changes) == 0 && !l.sight.incomplete() // during an outage plans are partial
	for _, m := range batch.closed {
		l.tell(m)
	}
	// The plan's notices tell what follows from it, such as that a request is done.
	l.tellPlan(&d.Plan, batch.fresh || ends || d.Plan.Resizes())
	l.exec.begin(l, batch)
	if batch.fresh || l.holds.Unseen(conditions.Key{About: aboutJournal, Code: NotChronicled}) {
		l.book.chronicle(l) // the previous one, if it still waits
		l.book.decision = &Decision{d.Input, d.Plan}
	}
	t.due = earliest(earliest(earliest(batch.due, d.Plan.Wake), l.groups.due()), l.alerts.due)
	if l.sight.incomplete() {
		t.due = earliest(t.due, l.now.Add(retryObserve))
	}
	l.files.answer(l, d, nil)
	t.newest, t.acted = d.Plan, true
	l.rests()
}

// rests ends the turn.
func (l *Loop) rests() {
	l.turn.phase = resting
	unkept := len(l.book.unwritten) > 0 || len(l.book.ledger) > 0 || !l.holds.stored(&l.book)
	l.turn.dirty = l.turn.dirty || l.end.stage == running && unkept
	l.turn.rescan = l.now.Add(Rescan)
}

// tellPlan reports a plan's notices to the view, and the plan itself if that is news. The queued notices do not keep the
// whole plan in memory.
func (l *Loop) tellPlan(p *plan.Plan, news bool) {
	if news {
		planned := *p
		l.turn.shownChanges = len(p.Changes) > 0
		l.tell(func(v View) { v.Planned(&planned) })
	}
	l.tellNotices(l.turn.notices)
}

// tellNotices reports notices to the view, except those of conditions, which it has received already.
func (l *Loop) tellNotices(notices []job.Notice) {
	for _, n := range notices {
		if n.Condition == "" {
			l.tell(func(v View) { v.Noticed(n) })
		}
	}
}

// stillEvery is how often a change that takes long is reported, as in Terraform.
const stillEvery = 10 * time.Second

// beat reports training progress and long changes at every pulse.
func (l *Loop) beat() {
	t := &l.turn
	if l.now.Before(t.pulse) {
		return
	}
	l.exec.tellStill(l, t.pulse.Add(-l.setup.Pulse))
	l.book.chronicle(l)
	t.pulse = l.now.Add(l.setup.Pulse)
	if _, asked := l.inFlight[Gauge{}.ID()]; !asked && l.end.stage == running && t.phase != starting {
		l.do(Gauge{})
	}
}

// gauged reports the progress of jobs whose step has changed.
func (l *Loop) gauged(o Outcome) {
	progress, _ := o.Result.(map[string]Progress)
	before := l.turn.gauged
	l.turn.gauged = progress
	for _, launched := range slices.Sorted(maps.Keys(progress)) {
		p := progress[launched]
		if p.Step != before[launched].Step {
			name := l.book.names.now(l.service.jobs[launched].uid, launched)
			l.tell(func(v View) { v.Progressed(name, p) })
		}
	}
}
