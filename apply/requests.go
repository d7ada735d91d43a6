package apply

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// requests are what operators ask of this run. The planner says what becomes of them; a reply is given once the decision that it
// follows from is stored.
type requests struct {
	known  bool                // they were read
	open   map[string]*request // those of the last reading, by ID
	order  []*request          // the same, in order
	failed int                 // replies in a row that could not be stored
}

// request is one without a stored final reply when they were last read.
type request struct {
	job.Request
	came    int        // how often the files had been read when this request to apply came
	replied bool       // the last plan replied to it
	given   job.Reply  // the newest reply that was to be stored
	settled bool       // its final reply is stored
	failing bool       // its last reply could not be stored
	early   bool       // it was there before the run, which takes it up only if it is in effect
	refused job.Reason // why, once a plan has refused it: nothing records that until the reply is stored
}

// take handles a reading of the requests.
func (q *requests) take(l *Loop, pending []job.Request) {
	same := q.known && slices.EqualFunc(pending, q.order, func(a job.Request, b *request) bool { return a.ID == b.ID })
	before := q.open
	q.open, q.order = make(map[string]*request, len(pending)), nil
	for _, asked := range pending {
		r := before[asked.ID]
		if r == nil {
			r = &request{came: l.files.readings, early: !q.known && !l.setup.Watch && asked.ID != l.setup.Request}
		}
		r.Request = asked
		q.open[asked.ID], q.order = r, append(q.order, r)
	}
	q.known, l.turn.dirty = true, l.turn.dirty || !same
}

// unstored reports whether the last reply to any could not be stored.
func (q *requests) unstored() bool {
	return slices.ContainsFunc(q.order, func(r *request) bool { return r.failing })
}

// enter enters the requests without a stored final reply into the input of the next plan. Those about a job that it leaves out,
// because its provider cannot be observed or it is not in scope, wait. There are none as long as they are unknown, and in a plan that is
// to be approved: who approves has not seen what they ask for.
func (q *requests) enter(l *Loop, in *plan.Input) {
	if !q.known || l.setup.Approve {
		return
	}
	inEffect := plan.InEffect(l.book.state.Jobs, in.Nodes, in.Destroyed)
	in.Requests, in.Deferred = make([]job.Request, 0, min(len(q.order), mostRequests)), map[string]bool{}
	in.Refused = map[string]job.Reason{}
	fresh := 0
	for _, r := range q.order {
		why := r.refused
		if r.early && !inEffect[r.ID] && why.IsZero() {
			why = q.superseded(r, inEffect)
		}
		if r.settled || (r.early && why.IsZero() || fresh >= mostRequests) && !inEffect[r.ID] {
			continue
		}
		in.Requests = append(in.Requests, r.Request)
		leftOut := func(sel job.Selector) bool { return l.leftOut(in, sel.Job) }
		if !why.IsZero() {
			in.Refused[r.ID] = why
		} else if slices.ContainsFunc(r.On, leftOut) || l.sight.incomplete() && !in.KnowsNodes(r.Nodes) {
			in.Deferred[r.ID] = true
		} else if r.Verb == job.AskApply {
			r.apply(l, in, inEffect[r.ID])
		}
		if !inEffect[r.ID] && !in.Deferred[r.ID] {
			fresh++
		}
	}
}

// superseded is why a request from before the run is refused: a later one about the same is in effect.
func (q *requests) superseded(r *request, inEffect map[string]bool) job.Reason {
	for _, later := range q.order {
		same := func(sel job.Selector) bool {
			return slices.ContainsFunc(r.On, func(of job.Selector) bool { return of.Job == sel.Job })
		}
		sameNode := func(name string) bool { return slices.Contains(r.Nodes, name) }
		if later.ID > r.ID && inEffect[later.ID] && (slices.ContainsFunc(later.On, same) || slices.ContainsFunc(later.Nodes, sameNode)) {
			return job.Because(plan.RequestSuperseded, "request", later.ID)
		}
	}
	return job.Reason{}
}

// apply lets a request to apply take effect if the files in effect are those that it is about. It waits until they have been read
// since it came. One in effect stays so only with those files.
func (r *request) apply(l *Loop, in *plan.Input, inEffect bool) {
	f := &l.files
	switch {
	case r.Files == f.digest && (f.stale.IsZero() || inEffect):
	case l.setup.Watch && f.readings == r.came && !inEffect:
		in.Deferred[r.ID] = true
		f.changed = true
	default:
		in.Refused[r.ID] = job.Because(ConfigDiffers, "commit", f.Commit, "since", f.since.UTC().Format(time.RFC3339), "asked", r.Commit)
	}
}

// awaitReading reports whether a request to apply waits for the files to be read.
func (q *requests) awaitReading(f *files) bool {
	return slices.ContainsFunc(q.order, func(r *request) bool {
		return r.Verb == job.AskApply && r.came == f.readings && r.Files != f.digest
	})
}

// confirmed reports whether a request that the plan has accepted asks for a job's change or end, however many slots that removes.
func (q *requests) confirmed(p *plan.Plan, name string) bool {
	return slices.ContainsFunc(p.Replies, func(reply job.Reply) bool {
		r := q.open[reply.ID]
		approved := r != nil && (r.Verb == job.AskApply || r.Verb == job.AskDestroy)
		return reply.State == job.Accepted && approved && slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == name })
	})
}

// mostRequests bounds how many a plan takes up, the oldest first: the next ones follow as soon as these have their replies. Those in
// effect come besides: they may wait for long, and the plan would forget that they are in effect.
const mostRequests = 100

// respond gives the replies of a stored plan that are new.
func (q *requests) respond(l *Loop, p *plan.Plan) {
	for _, r := range q.order {
		r.replied = false
	}
	inEffect := plan.InEffect(p.Records, p.Nodes, p.Destroyed)
	for _, reply := range p.Replies {
		r := q.open[reply.ID]
		if r == nil {
			continue // it was removed
		}
		r.replied = true
		if r.given.State == reply.State && r.given.Reason.Equal(reply.Reason) {
			continue
		}
		r.given = reply
		if reply.State == job.Refused && r.refused.IsZero() && !inEffect[r.ID] { // else the events of its job have it
			r.refused = reply.Reason
			why := job.Because(plan.RequestRefused, "verb", string(r.Verb), "by", r.By, "request", r.ID).With(reply.Reason)
			l.book.note(job.Notice{Time: l.now, Type: "request", Address: aboutRequests, Reason: why})
		}
		l.do(Respond{reply})
	}
}

// responded handles the outcome of a Respond. The request stays open until its final reply is stored: only then may the records
// forget it.
func (q *requests) responded(l *Loop, e Respond, err error) {
	l.turn.dirty = true
	q.failed++
	if err == nil {
		q.failed = 0
	} else {
		l.holds.raiseIf(l, err, aboutRequests, NotReplied)
		l.rest.pause(l.now, retryStore)
	}
	r := q.open[e.Reply.ID]
	if r == nil {
		return
	}
	if r.failing = err != nil; r.failing {
		r.given = job.Reply{}
	}
	r.settled = r.settled || err == nil && e.Reply.State.Final()
}

// busy reports whether a run that ends has to wait for a reading of the requests, or for replies to be stored. It does not wait for ever.
func (q *requests) busy(l *Loop) bool {
	if _, unread := l.holds.Get(aboutRequests, RequestsUnread); unread || q.failed >= maxFailures {
		return false
	}
	return l.setup.Requests && !q.known || slices.ContainsFunc(q.order, func(r *request) bool {
		return r.replied && (r.given.State == "" || r.given.State.Final() && !r.settled)
	})
}
