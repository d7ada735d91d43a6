package apply

import (
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// requests are what operators ask of this run. The planner says what becomes of them; a reply is given once the decision that it
// follows from is stored.
type requests struct {
	known   bool                 // they were read
	pending []job.Request        // those without a stored final reply, as last read
	replied map[string]bool      // the last plan replied to them
	noted   map[string]bool      // their refusal was noted
	failed  int                  // replies in a row that could not be stored
	given   map[string]job.Reply // the newest reply that was to be stored
	settled map[string]bool      // their final reply is stored, and pending may still have them
	came    map[string]int       // how often the files had been read when a request to apply came
	failing map[string]bool      // their last reply could not be stored
}

func newRequests() requests {
	return requests{came: map[string]int{}, given: map[string]job.Reply{}, settled: map[string]bool{}, failing: map[string]bool{}, replied: map[string]bool{}, noted: map[string]bool{}}
}

// take handles a reading of the requests.
func (q *requests) take(l *Loop, pending []job.Request) {
	same := q.known && slices.EqualFunc(pending, q.pending, func(a, b job.Request) bool { return a.ID == b.ID })
	q.known, q.pending = true, pending
	gone := func(id string) bool { return q.find(id) == nil }
	maps.DeleteFunc(q.given, func(id string, _ job.Reply) bool { return gone(id) })
	maps.DeleteFunc(q.settled, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(q.came, func(id string, _ int) bool { return gone(id) })
	maps.DeleteFunc(q.noted, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(q.failing, func(id string, _ bool) bool { return gone(id) }) // it was stored all the same
	l.turn.dirty = l.turn.dirty || !same
}

// enter enters the requests without a stored final reply into the input of the next plan. Those about a job that it leaves out,
// because its provider cannot be observed or it is not in scope, wait. There are none as long as they are unknown, and in a plan that is
// to be approved: who approves has not seen what they ask for.
func (q *requests) enter(l *Loop, in *plan.Input) {
	if !q.known || l.setup.Approve {
		return
	}
	inEffect := map[string]bool{}
	for _, rec := range l.book.state.Jobs {
		for _, h := range rec.Handled {
			inEffect[h.ID] = true
		}
	}
	for _, n := range in.Nodes {
		for _, h := range n.Handled {
			inEffect[h.ID] = true
		}
	}
	in.Requests, in.Deferred = make([]job.Request, 0, min(len(q.pending), mostRequests)), map[string]bool{}
	in.Refused = map[string]job.Reason{}
	for _, r := range q.pending {
		if q.settled[r.ID] || len(in.Requests)-len(in.Deferred) >= mostRequests && !inEffect[r.ID] {
			continue
		}
		in.Requests = append(in.Requests, r)
		leftOut := func(sel job.Selector) bool { return l.leftOut(in, sel.Job) }
		if slices.ContainsFunc(r.On, leftOut) || l.sight.incomplete() && !in.KnowsNodes(r.Nodes) {
			in.Deferred[r.ID] = true
		} else if r.Verb == job.AskApply {
			q.apply(l, in, &r)
		}
	}
}

// apply lets a request to apply take effect if the files in effect are those that it is about. It waits until they have been read
// since it came.
func (q *requests) apply(l *Loop, in *plan.Input, r *job.Request) {
	f := &l.files
	came, known := q.came[r.ID]
	if !known {
		came = f.readings
		q.came[r.ID] = came
	}
	switch {
	case r.Files == f.digest && f.stale.IsZero():
	case l.setup.Watch && f.readings == came:
		in.Deferred[r.ID] = true
		f.changed = true
	default:
		in.Refused[r.ID] = job.Because(ConfigDiffers, "commit", f.Commit, "since", f.since.UTC().Format(time.RFC3339), "asked", r.Commit)
	}
}

// awaitReading reports whether a request to apply waits for the files to be read.
func (q *requests) awaitReading(f *files) bool {
	return slices.ContainsFunc(q.pending, func(r job.Request) bool {
		came, known := q.came[r.ID]
		return known && came == f.readings && r.Files != f.digest
	})
}

// confirmed reports whether a request that the plan has accepted asks for a job's change, however many slots it removes.
func (q *requests) confirmed(p *plan.Plan, name string) bool {
	return slices.ContainsFunc(p.Replies, func(reply job.Reply) bool {
		r := q.find(reply.ID)
		return reply.State == job.Accepted && r != nil && r.Verb == job.AskApply && slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == name })
	})
}

// mostRequests bounds how many a plan replies to, the oldest first: the next ones follow as soon as these have their replies. Those in
// effect are always among them, or the plan would forget that they are: a request made on a machine whose clock is behind may come before.
const mostRequests = 100

// respond gives the replies of a stored plan that are new.
func (q *requests) respond(l *Loop, p *plan.Plan) {
	clear(q.replied)
	for _, r := range p.Replies {
		q.replied[r.ID] = true
		if given := q.given[r.ID]; given.State == r.State && given.Reason.Equal(r.Reason) {
			continue
		}
		q.given[r.ID] = r
		if asked := q.find(r.ID); r.State == job.Refused && asked != nil && !q.noted[r.ID] && !handled(p.Records, r.ID) {
			q.noted[r.ID] = true
			why := job.Because(plan.RequestRefused, "verb", string(asked.Verb), "by", asked.By, "request", r.ID).With(r.Reason)
			l.book.note(job.Notice{Time: l.now, Type: "request", Address: aboutRequests, Reason: why})
		}
		l.do(Respond{r})
	}
}

// handled reports whether a request is in the record of a job, whose events have its outcome.
func handled(records job.Records, id string) bool {
	for _, rec := range records {
		if slices.ContainsFunc(rec.Handled, func(h job.Handled) bool { return h.ID == id }) {
			return true
		}
	}
	return false
}

func (q *requests) find(id string) *job.Request {
	if i := slices.IndexFunc(q.pending, func(r job.Request) bool { return r.ID == id }); i >= 0 {
		return &q.pending[i]
	}
	return nil
}

// responded handles the outcome of a Respond. The request stays open until its final reply is stored: only then may the records
// forget it.
func (q *requests) responded(l *Loop, e Respond, err error) {
	delete(q.failing, e.Reply.ID)
	q.failed++
	if err == nil {
		q.failed = 0
	}
	switch {
	case err != nil:
		delete(q.given, e.Reply.ID)
		q.failing[e.Reply.ID] = true
		l.holds.raiseIf(l, err, aboutRequests, NotReplied)
		l.rest.pause(l.now, retryStore)
	case e.Reply.State.Final():
		q.settled[e.Reply.ID] = true
	}
	l.turn.dirty = true
}

// busy reports whether a run that ends has to wait for a reading of the requests, or for replies to be stored. It does not wait for ever.
func (q *requests) busy(l *Loop) bool {
	if _, unread := l.holds.Get(aboutRequests, RequestsUnread); unread || q.failed >= maxFailures {
		return false
	}
	return l.setup.Requests && !q.known || slices.ContainsFunc(q.pending, func(r job.Request) bool {
		return q.replied[r.ID] && (q.given[r.ID].State == "" || q.given[r.ID].State.Final() && !q.settled[r.ID])
	})
}
