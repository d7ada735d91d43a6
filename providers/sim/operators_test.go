package sim_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
)

// readDelay is how long a master takes to find a request; retryRead is the pause after it could not read them.
const (
	readDelay = 300 * time.Millisecond
	retryRead = time.Second
)

// operators are the requests beside the state.
type operators struct{ asked []state.Asked }

// pending are those without a final reply.
func (o *operators) pending() []job.Request {
	pending := []job.Request{}
	for _, a := range o.asked {
		if !a.Reply.State.Final() {
			pending = append(pending, a.Request)
		}
	}
	return pending
}

// request makes a request, which all masters find soon.
func (w *world) request(verb, name string) {
	id := fmt.Sprintf("r%03d", len(w.operators.asked)+1)
	w.operators.asked = append(w.operators.asked, state.Asked{Request: job.Request{
		ID: id, Verb: job.Verb(verb), On: []job.Selector{{Job: name}}, By: "ann", At: w.cluster.Now(),
	}})
	for _, m := range w.all() {
		m.readRequests(readDelay)
	}
}

// reply stores a reply. A final one stays; no two leaders may come to different ones.
func (w *world) reply(r job.Reply) {
	i := slices.IndexFunc(w.operators.asked, func(a state.Asked) bool { return a.ID == r.ID })
	a := &w.operators.asked[i]
	switch {
	case !a.Reply.State.Final():
		a.Reply = r
	case r.State.Final() && r.State != a.Reply.State:
		w.fail("request %s is %s, and then %s", r.ID, a.Reply.State, r.State)
	}
}

// readRequests reads the requests after a while, and passes them to the loop.
func (m *master) readRequests(after time.Duration) {
	m.after(after, func() {
		if !m.leads() {
			return
		}
		sim.Call(m.w.cluster.Net, m.name, "store", callBound, func(answer func([]job.Request, error)) {
			answer(m.w.operators.pending(), m.w.trouble("read"))
		}, heard(m, func(pending []job.Request, err error) {
			if err != nil {
				m.readRequests(retryRead)
				return
			}
			m.step(apply.Requested{Requests: pending})
		}))
	})
}

// respond stores a reply for the loop.
func (m *master) respond(e apply.Respond, done func(any, error)) {
	sim.Call(m.w.cluster.Net, m.name, "store", storeBound, func(answer func(any, error)) {
		err := m.w.trouble("write")
		if err == nil {
			m.w.reply(e.Reply)
		}
		answer(nil, err)
	}, heard(m, func(result any, err error) {
		done(result, err)
		m.readRequests(readDelay)
	}))
}

// toSuspend reports whether a job is to be suspended: as the last of its requests says that is in effect, or else the files.
func toSuspend(j *job.Job, rec *job.Record) bool {
	if o := rec.Override("suspend"); o != nil {
		return o.Value == "true"
	}
	return j.Suspend
}

// repliedTo checks that every request has its final reply, and that the last in effect for each job was carried out.
func (w *world) repliedTo(records job.Records) {
	last := map[string]job.Verb{}
	for _, a := range w.operators.asked {
		switch a.Reply.State {
		case job.Done:
			if a.Verb == job.AskSuspend || a.Verb == job.AskResume {
				last[a.On[0].Job] = a.Verb
			}
		case job.Refused, job.Undone:
		default:
			w.fail("request %s is %q at rest", a.ID, a.Reply.State)
		}
	}
	for name, rec := range records {
		if o := rec.Override("suspend"); o != nil && (o.Value == "true") != (last[name] == job.AskSuspend) {
			w.fail("job.%s has the override suspend = %s, and the last request done is %q", name, o.Value, last[name])
		}
	}
}

// canceled reports whether somebody canceled a job.
func (w *world) canceled(name string) bool {
	return slices.ContainsFunc(w.operators.asked, func(a state.Asked) bool {
		return a.Verb == job.AskCancel && a.On[0].Job == name && a.Reply.State == job.Done
	})
}

// destroyed reports whether somebody destroyed a job, and nobody restarted it since.
func (w *world) destroyed(name string) (is bool) {
	for _, a := range w.operators.asked {
		if a.On[0].Job == name && a.Reply.State == job.Done && (a.Verb == job.AskDestroy || a.Verb == job.AskRestart) {
			is = a.Verb == job.AskDestroy
		}
	}
	return is
}

// overridden reports whether a condition is that of an override in effect, which holds at rest too.
func (w *world) overridden(records job.Records, key conditions.Key) bool {
	name, _ := conditions.Job(key.About)
	rec := records[name]
	return key.Code == plan.Overridden && (rec != nil && len(rec.Overrides) > 0 || rec == nil && w.destroyed(name))
}
