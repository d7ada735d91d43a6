package apply

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

const (
	// mostUnsent bounds the messages of a notify block that wait to be delivered. While there are as many, no more are made: what
	// still holds when there is room is told then.
	mostUnsent = 100
	// mostEvidence bounds the evidence in a message.
	mostEvidence = 20
	// A message is delivered again after pauses that double from the first to the most, until it is keepSending old. The condition is
	// raised with the failure number tellUnsent.
	firstUnsent = time.Second
	mostPause   = 5 * time.Minute
	keepSending = time.Hour
	tellUnsent  = 3
)

// alerts are what notify blocks tell others. What holds since when, what was told, and what is to be delivered is in the state. A
// message is delivered once it is stored there, at least once: after a crash the next master may deliver it again, with the same ID.
type alerts struct {
	next  job.Notifications // to be stored with the decision
	due   time.Time         // when an event will have held for long enough; zero if none
	posts map[string]*post  // by notify block
	sent  map[string]bool   // IDs of messages that are delivered or given up, and still in the state
}

// post is the delivery of one block's messages, in order and one at a time.
type post struct {
	busy     bool
	failures int // in a row
	until    time.Time
}

func newAlerts() alerts { return alerts{posts: map[string]*post{}, sent: map[string]bool{}} }

// event is something that holds for a job.
type event struct {
	what  job.NotifyEvent
	at    string // see job.Alert
	since time.Time
	why   job.Reason
	code  job.Code
}

// settle finds out what holds according to a decision, and makes the messages that are due. What concerns jobs that the decision
// leaves out stays as it is.
func (a *alerts) settle(l *Loop, d *Decision) {
	was := l.book.state.Notifications
	a.next, a.due = job.Notifications{Alerts: was.Alerts}, time.Time{}
	for _, m := range was.Unsent {
		if !a.sent[m.ID] && (l.files.Notify == nil || a.block(l, m.Notify) != nil) {
			a.next.Unsent = append(a.next.Unsent, m)
		}
	}
	inState := func(id string) bool {
		return slices.ContainsFunc(was.Unsent, func(m job.Message) bool { return m.ID == id })
	}
	maps.DeleteFunc(a.sent, func(id string, _ bool) bool { return !inState(id) })
	if l.files.Notify == nil || len(l.files.Notify)+len(was.Alerts) == 0 {
		return
	}
	a.next.Alerts = nil
	before := make(map[job.AlertKey]job.Alert, len(was.Alerts))
	of := map[string]string{} // names of the jobs that are left out, by UID
	for name, rec := range l.book.state.Jobs {
		if l.leftOut(&d.Input, name) {
			of[rec.UID] = name
		}
	}
	for _, alert := range was.Alerts {
		before[alert.Key()] = alert
		if n := a.block(l, alert.Notify); n != nil && of[alert.UID] != "" {
			a.next.Alerts = append(a.next.Alerts, alert)
		}
	}
	waits := map[string][]event{} // by job
	for _, c := range l.holds.All() {
		if name, ofJob := conditions.Job(c.About); ofJob && lasts(&c) && c.Reason.Code != plan.Overridden { // an operator's choice is no wait
			if kind := EventType(&c); kind == "waiting" || kind == "refused" {
				waits[name] = append(waits[name], event{job.NotifyWaiting, strings.TrimPrefix(c.About, "job."+name), c.Since, c.Reason, c.Reason.Code})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Plan.Records)) {
		if rec := d.Plan.Records[name]; of[rec.UID] == "" {
			for i := range l.files.Notify {
				if n := &l.files.Notify[i]; n.Covers(name) {
					a.follow(l, n, name, rec, waits[name], before)
				}
			}
		}
	}
	slices.SortFunc(a.next.Alerts, job.Alert.Compare)
}

// follow settles what one block knows of one job.
func (a *alerts) follow(l *Loop, n *job.Notify, name string, rec *job.Record, waits []event, before map[job.AlertKey]job.Alert) {
	told, recovers := false, false // others were notified of something: that holds, or that is over since the last decision
	for _, e := range append(ends(rec), waits...) {
		if !n.Wants(e.what) {
			continue
		}
		alert := job.Alert{Notify: n.Name, UID: rec.UID, Event: e.what, At: e.at, Code: e.code, Since: e.since}
		if known, is := before[alert.Key()]; is && known.Since.Equal(e.since) {
			alert = known
		}
		a.tell(l, n, name, &alert, e.why)
		told = told || alert.Told && e.what != job.NotifySucceeded
		a.next.Alerts = append(a.next.Alerts, alert)
	}
	if n.Wants(job.NotifyIncident) && len(rec.Incidents) > 0 {
		alert, open := a.incident(l, n, name, rec, before)
		told, recovers = told || alert.Told && !alert.Over, alert.Told && open
		a.next.Alerts = append(a.next.Alerts, alert)
	}
	if n.Wants(job.NotifyRecovered) {
		a.recover(l, n, name, rec, told, told || recovers, before)
	}
}

// ends returns that a job has ended, if it has.
func ends(rec *job.Record) []event {
	switch rec.Phase {
	case job.JobFailed:
		why := job.Because(plan.PhaseEntered, "phase", string(rec.Phase))
		if n := len(rec.Incidents); n > 0 {
			why = job.Because(plan.JobFailed).With(incidentReason(&rec.Incidents[n-1]))
		}
		return []event{{what: job.NotifyFailed, since: rec.Ended, why: why}}
	case job.JobSucceeded:
		return []event{{what: job.NotifySucceeded, since: rec.Ended, why: job.Because(plan.PhaseEntered, "phase", string(rec.Phase))}}
	}
	return nil
}

// incidentReason returns an incident with its culprits and the first of its evidence.
func incidentReason(i *job.Incident) job.Reason {
	var culprits []string
	for _, c := range i.Culprits {
		culprits = append(culprits, c.Short())
	}
	why := job.Because(plan.Incident, "cause", string(i.Cause), "action", string(i.Action), "slots", strings.Join(culprits, ", "))
	return why.With(i.Evidence[:min(len(i.Evidence), mostEvidence)]...)
}

// incident returns the alert of a job's incidents: it begins with the first and is over once the job runs as before. Then it
// remembers the newest, so that this one does not begin it again. open reports whether it was not over before this decision.
func (a *alerts) incident(l *Loop, n *job.Notify, name string, rec *job.Record, before map[job.AlertKey]job.Alert) (alert job.Alert, open bool) {
	newest := &rec.Incidents[len(rec.Incidents)-1]
	fresh := job.Alert{Notify: n.Name, UID: rec.UID, Event: job.NotifyIncident, Since: newest.Time, Newest: newest.Time}
	heals := healing(rec, newest)
	alert, known := before[fresh.Key()]
	switch {
	case !known:
		alert = fresh
		alert.Over = !heals
	case newest.Time.After(alert.Newest) && alert.Over:
		alert = fresh
	case newest.Time.After(alert.Newest):
		alert.Newest = newest.Time
	}
	if open = !alert.Over; open {
		a.tell(l, n, name, &alert, incidentReason(newest))
		alert.Over = !heals
	}
	return alert, open
}

// healing reports whether a job does not run yet as it did before an incident.
func healing(rec *job.Record, i *job.Incident) bool {
	if rec.Phase.Idle() {
		return false
	}
	return rec.Phase != job.JobRunning || slices.ContainsFunc(i.Culprits, func(c job.Address) bool {
		s := rec.Slot(c.Role, c.Index)
		return s != nil && s.Phase != job.Running && s.Phase != job.Succeeded
	})
}

// recover settles whether a job has recovered from what others were notified of. told reports whether some of it still holds.
func (a *alerts) recover(l *Loop, n *job.Notify, name string, rec *job.Record, told, ever bool, before map[job.AlertKey]job.Alert) {
	alert := job.Alert{Notify: n.Name, UID: rec.UID, Event: job.NotifyRecovered}
	known, is := before[alert.Key()]
	if !is && !ever || rec.Phase == job.JobCanceled {
		return
	}
	if !told && (rec.Phase == job.JobRunning || rec.Phase == job.JobSucceeded) {
		if alert.Since = known.Since; alert.Since.IsZero() {
			alert.Since = l.now
		}
		a.tell(l, n, name, &alert, job.Because(plan.PhaseEntered, "phase", string(rec.Phase)))
	}
	if !alert.Told {
		a.next.Alerts = append(a.next.Alerts, alert)
	}
}

// tell makes an alert's message if it is due.
func (a *alerts) tell(l *Loop, n *job.Notify, name string, alert *job.Alert, why job.Reason) {
	if alert.Told {
		return
	}
	if at := alert.Since.Add(n.For.Std()); l.now.Before(at) {
		a.due = earliest(a.due, at)
		return
	}
	if waiting := a.unsent(n.Name); waiting >= mostUnsent {
		return
	}
	alert.Told = true
	id := []string{n.Name, alert.UID, string(alert.Event)}
	for _, part := range []string{strings.TrimPrefix(alert.At, "."), string(alert.Code)} {
		if part != "" {
			id = append(id, part)
		}
	}
	a.next.Unsent = append(a.next.Unsent, job.Message{
		ID: strings.Join(append(id, strconv.FormatInt(alert.Since.UnixNano(), 10)), "/"), Notify: n.Name, Event: alert.Event, Job: name, UID: alert.UID,
		Address: "job." + name + alert.At, Since: alert.Since, Time: l.now, Reason: why.Map(l.book.seal.Text),
	})
}

// unsent counts a block's messages that are to be delivered.
func (a *alerts) unsent(block string) (n int) {
	for i := range a.next.Unsent {
		if a.next.Unsent[i].Notify == block {
			n++
		}
	}
	return n
}

// block returns a declared notify block; nil if there is none of the name.
func (a *alerts) block(l *Loop, name string) *job.Notify {
	i := slices.IndexFunc(l.files.Notify, func(n job.Notify) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &l.files.Notify[i]
}

// stored reports whether the state has what holds and what is to be delivered.
func (a *alerts) stored(b *book) bool { return a.next.Equal(b.state.Notifications) }

// eachReady calls do with the next message of each declared block, of those that are stored.
func (a *alerts) eachReady(l *Loop, do func(*job.Message, *post)) {
	seen := map[string]bool{}
	unsent := l.book.state.Notifications.Unsent
	for i := range unsent {
		m := &unsent[i]
		if a.sent[m.ID] || seen[m.Notify] || a.block(l, m.Notify) == nil {
			continue
		}
		seen[m.Notify] = true
		p := a.posts[m.Notify]
		if p == nil {
			p = new(post)
			a.posts[m.Notify] = p
		}
		do(m, p)
	}
}

// deliver starts the deliveries that are due.
func (a *alerts) deliver(l *Loop) {
	if l.end.stopped() {
		return
	}
	a.eachReady(l, func(m *job.Message, p *post) {
		if !p.busy && !l.now.Before(p.until) {
			p.busy = true
			l.do(Notify{*m})
		}
	})
}

// retry is when a delivery that has failed is tried again; zero if none has.
func (a *alerts) retry(l *Loop) (at time.Time) {
	a.eachReady(l, func(_ *job.Message, p *post) {
		if !p.busy {
			at = earliest(at, p.until)
		}
	})
	return at
}

// busy reports whether the end of a run has to wait for the first attempt of a delivery.
func (a *alerts) busy(l *Loop) (busy bool) {
	if l.files.Notify == nil {
		return false
	}
	a.eachReady(l, func(_ *job.Message, p *post) { busy = busy || p.failures == 0 })
	return busy
}

// ended handles the outcome of a delivery. A message that cannot be delivered is given up after a while.
func (a *alerts) ended(l *Loop, e Notify, err error) {
	m, p := &e.Message, a.posts[e.Message.Notify]
	p.busy = false
	about := aboutNotify + m.Notify
	done := func(reason job.Reason) {
		a.sent[m.ID] = true
		l.book.note(job.Notice{Time: l.now, Type: "notify", Address: m.Address, Reason: reason})
	}
	switch {
	case errors.Is(err, ErrDropped):
		return
	case err == nil:
		p.failures, p.until = 0, time.Time{}
		l.holds.Clear(about, NotNotified)
		done(job.Because(Notified, "notify", m.Notify, "event", string(m.Event), "code", string(m.Reason.Code), "id", m.ID))
	default:
		p.until = l.now.Add(pauseAfter(p.failures, firstUnsent, mostPause, l.setup.Jitter()))
		if p.failures++; p.failures >= tellUnsent {
			l.holds.raiseIf(l, err, about, NotNotified)
		}
		if l.now.Sub(m.Time) >= keepSending {
			done(job.Because(NotifyGivenUp, "notify", m.Notify, "event", string(m.Event), "code", string(m.Reason.Code), "id", m.ID, "message", err.Error()))
		}
	}
	l.turn.dirty = true
}
