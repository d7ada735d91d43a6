package sim_test

import (
	"fmt"
	"slices"
	"strings"
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
type operators struct {
	asked []state.Asked
	acted map[string]int // how often the processes of a slot got the signal of a request
}

// acts checks that no request reaches the processes of a slot twice, and none that nobody accepted.
func (w *world) acts(a *sim.Agent, act job.Act) {
	key := act.ID + " " + a.Slot().String()
	w.operators.acted[key]++
	if n := w.operators.acted[key]; n > 1 {
		w.fail("the processes of %s get %s of %s %d times", a.Slot(), act.Kind, act.ID, n)
	}
	for _, r := range w.operators.asked {
		if r.ID == act.ID && r.Reply.State.Final() && r.Reply.State != job.Unknown {
			w.fail("%s is %s, and then done at %s", act.ID, r.Reply.State, a.Slot())
		}
	}
}

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

// request makes a request, which all masters find soon: VERB [-MODE] ADDRESS[=VALUE]...
func (w *world) request(args []string) error {
	r := job.Request{ID: fmt.Sprintf("r%03d", len(w.operators.asked)+1), Verb: job.Verb(args[0]), By: "ann", At: w.cluster.Now()}
	var values []string
	for _, arg := range args[1:] {
		if mode, is := strings.CutPrefix(arg, "-"); is {
			r.Mode = mode
			continue
		}
		address, value, has := strings.Cut(arg, "=")
		if node, is := strings.CutPrefix(address, job.NodePrefix); is {
			r.Nodes = append(r.Nodes, node)
			continue
		}
		sel, err := job.ParseSelector("job." + address)
		if err != nil {
			return err
		}
		r.On = append(r.On, sel)
		if has {
			values = append(values, value)
		}
	}
	r.Value = strings.Join(values, ",")
	if r.Verb == job.AskSignal && r.Value == "" {
		r.Value = "SIGUSR2"
	}
	if r.Verb == job.AskApply {
		r.Files = (&apply.Files{Jobs: w.jobs}).Digest()
	}
	w.operators.asked = append(w.operators.asked, state.Asked{Request: r})
	for _, m := range w.all() {
		m.readRequests(readDelay)
	}
	return nil
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

// readRequests reads the requests after a while, and passes them to the loop. As the driver does, it reads them once at a time: an older
// reading never comes after a newer one.
func (m *master) readRequests(after time.Duration) {
	m.after(after, func() {
		if !m.leads() {
			return
		}
		if m.reading {
			m.outdated = true
			return
		}
		m.reading, m.outdated = true, false
		sim.Call(m.w.cluster.Net, m.name, "store", callBound, func(answer func([]job.Request, error)) {
			answer(m.w.operators.pending(), m.w.trouble("read"))
		}, heard(m, func(pending []job.Request, err error) {
			m.reading = false
			if err != nil {
				m.readRequests(retryRead)
				return
			}
			if m.outdated {
				m.readRequests(readDelay)
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

// askedAbout lists the addresses of nodes that requests are about.
func (o *operators) askedAbout() (nodes []string) {
	for _, a := range o.asked {
		for _, name := range a.Nodes {
			nodes = append(nodes, job.NodeAddress(name))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// toSuspend reports whether a job is to be suspended: as the last of its requests says that is in effect, or else the files.
func toSuspend(j *job.Job, rec *job.Record) bool {
	if o := rec.Override("suspend"); o != nil {
		return o.Value != "false"
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
		case job.Refused, job.Undone, job.Unknown:
		case job.Accepted:
			if !w.waitsForRoom(a.Request, records) {
				w.fail("request %s is accepted at rest, and the job has the size", a.ID)
			}
		default:
			w.fail("request %s is %q at rest", a.ID, a.Reply.State)
		}
	}
	for name, rec := range records {
		if o := rec.Override("suspend"); o != nil && (o.Value != "false") != (last[name] == job.AskSuspend) {
			w.fail("job.%s has the override suspend = %s, and the last request done is %q", name, o.Value, last[name])
		}
	}
}

// waitsForRoom reports whether a request is to scale a role that has fewer slots than it asks for, or to restart slots on other
// nodes, which may all be full.
func (w *world) waitsForRoom(r job.Request, records job.Records) bool {
	if r.Mode == job.Elsewhere {
		return true
	}
	if r.Verb != job.AskScale || records[r.On[0].Job] == nil {
		return false
	}
	rec, role := records[r.On[0].Job], r.On[0].Role
	o := rec.Override("role." + role + ".replicas")
	return o != nil && o.Value == r.ValueOf(0) && short(rec, role)
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
		if (a.Verb == job.AskDestroy || a.Verb == job.AskRestart) && a.On[0].Job == name && a.Reply.State == job.Done {
			is = a.Verb == job.AskDestroy
		}
	}
	return is
}

// overridden reports whether a condition is that of an override in effect, which holds at rest too, what policies would do meanwhile, or
// that there is no room for the size that an operator asked for.
func (w *world) overridden(records job.Records, key conditions.Key) bool {
	name, _ := conditions.Job(key.About)
	rec := records[name]
	switch {
	case key.Code == plan.NoOtherNode:
		return true
	case key.Code == plan.Overridden:
		return rec != nil && len(rec.Overrides) > 0 || rec == nil && w.destroyed(name)
	case key.Code == plan.WouldScale && rec != nil: // while its scaling is paused
		return slices.ContainsFunc(rec.Overrides, func(o job.Override) bool { return o.Value == job.PausedSize })
	case key.Code != plan.NoRoom || rec == nil:
		return false
	}
	return slices.ContainsFunc(rec.Spec.Roles, func(r job.Role) bool { return key.About == "job."+name+"."+r.Name && short(rec, r.Name) })
}

// short reports whether a role has fewer slots than an operator asked for.
func short(rec *job.Record, role string) bool {
	o := rec.Override("role." + role + ".replicas")
	return o != nil && o.Slots() > rec.Counts[role]
}
