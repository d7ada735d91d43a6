package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// heed enters the requests into the records, each once: an ID that a record has is in effect already, whoever led then. It does so
// in their order, so that of two that contradict each other the later one wins.
func (p *pass) heed() {
	for _, w := range p.jobs {
		p.endOverrides(w)
		p.prune(w)
	}
	for i := range p.in.Requests {
		r := &p.in.Requests[i]
		if !p.refusal(r).IsZero() {
			continue
		}
		for _, w := range p.askedOf(r) {
			p.override(w, r)
		}
	}
}

// askedOf lists the jobs that a request is about.
func (p *pass) askedOf(r *job.Request) (jobs []*work) {
	for _, sel := range r.On {
		if w := p.byName[sel.Job]; w != nil && !slices.Contains(jobs, w) {
			jobs = append(jobs, w)
		}
	}
	return jobs
}

// heeded reports whether a request is in effect: it is for all of its jobs, or for none.
func (p *pass) heeded(r *job.Request) bool {
	return slices.ContainsFunc(p.askedOf(r), func(w *work) bool { return w.heeded(r.ID) != nil })
}

// heeded is what has become of a request in effect for this job; nil if it is not in effect.
func (w *work) heeded(id string) *job.Reply {
	if i := slices.IndexFunc(w.rec.Heeded, func(r job.Reply) bool { return r.ID == id }); i >= 0 {
		return &w.rec.Heeded[i]
	}
	return nil
}

// refusal is why a request cannot take effect; zero if it can, or already has.
func (p *pass) refusal(r *job.Request) job.Reason {
	if p.heeded(r) {
		return job.Reason{}
	}
	if _, known := wantsSuspended[r.Verb]; !known {
		return job.Because(VerbUnknown, "verb", string(r.Verb))
	}
	if !r.Expires.IsZero() && !p.in.Now.Before(r.Expires) {
		return job.Because(RequestExpired)
	}
	for _, sel := range r.On {
		w := p.byName[sel.Job]
		switch {
		case sel.Role != "":
			return job.Because(WholeJobOnly, "verb", string(r.Verb), "address", sel.String())
		case w == nil || !w.declared:
			return job.Because(NoSuchJob, "address", sel.String())
		case w.rec.Phase.Ended():
			return job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
		}
	}
	return job.Reason{}
}

// suspendPath is the attribute that suspend and resume override.
const suspendPath = "suspend"

// wantsSuspended is the value that a verb gives to the attribute.
var wantsSuspended = map[job.Verb]bool{job.Suspend: true, job.Resume: false}

// override makes a request the override of its attribute. One that asks for what the files say ends the override instead.
func (p *pass) override(w *work, r *job.Request) {
	if w.heeded(r.ID) != nil {
		return
	}
	p.out.Dirty = true
	w.rec.Heeded = append(w.rec.Heeded, job.Reply{ID: r.ID, State: job.Accepted})
	p.note("job."+w.name, "request", job.Because(RequestAccepted, "verb", string(r.Verb), "by", r.By, "why", r.Why, "request", r.ID))
	value := wantsSuspended[r.Verb]
	w.rec.Overrides = slices.DeleteFunc(w.rec.Overrides, func(o job.Override) bool { return o.Path == suspendPath })
	if value != w.spec.Suspend {
		w.rec.Overrides = job.Overridden(w.rec.Overrides, job.Override{
			Path: suspendPath, Value: strconv.FormatBool(value), Declared: strconv.FormatBool(w.spec.Suspend),
			Request: r.ID, By: r.By, At: r.At, Why: r.Why, Until: r.Until,
		})
	}
}

// endOverrides ends those whose time is over, or whose attribute was edited in the files.
func (p *pass) endOverrides(w *work) {
	if w.frozen || !w.declared {
		return
	}
	declared := strconv.FormatBool(w.spec.Suspend)
	w.rec.Overrides = slices.DeleteFunc(w.rec.Overrides, func(o job.Override) bool {
		var why job.Reason
		switch {
		case o.Declared != declared:
			why = job.Because(OverrideEdited, "path", o.Path, "by", o.By, "value", o.Value)
		case !o.Until.IsZero() && !p.in.Now.Before(o.Until):
			why = job.Because(OverrideExpired, "path", o.Path, "by", o.By, "value", o.Value)
		default:
			if !o.Until.IsZero() {
				p.wakeAt(o.Until)
			}
			return false
		}
		p.note("job."+w.name, "override", why)
		p.out.Dirty = true
		return true
	})
}

// prune forgets the requests that have their final reply. A plan without requests does not know which these are.
func (p *pass) prune(w *work) {
	if p.in.Requests == nil || w.frozen || len(w.rec.Heeded) == 0 {
		return
	}
	before := len(w.rec.Heeded)
	w.rec.Heeded = slices.DeleteFunc(w.rec.Heeded, func(h job.Reply) bool {
		return !slices.ContainsFunc(p.in.Requests, func(r job.Request) bool { return r.ID == h.ID })
	})
	p.out.Dirty = p.out.Dirty || len(w.rec.Heeded) != before
}

// overridden says what of the job is not as the files say because an operator asked for it.
func (p *pass) overridden(w *work) {
	if !w.declared || w.rec.Phase.Ended() {
		return
	}
	for i := range w.rec.Overrides {
		o := &w.rec.Overrides[i]
		args := []string{"path", o.Path, "value", o.Value, "by", o.By, "at", o.At.UTC().Format(time.RFC3339), "why", o.Why, "request", o.Request}
		if !o.Until.IsZero() {
			args = append(args, "until", o.Until.UTC().Format(time.RFC3339))
		}
		p.addWait(w, "", job.Because(Overridden, args...))
	}
}

// toSuspend reports whether the job is to be suspended, by the files or an operator.
func (w *work) toSuspend() bool {
	if o := w.rec.Override(suspendPath); o != nil {
		return o.Value == "true"
	}
	return w.spec.Suspend
}

// whySuspended is why the job's slots stop.
func (w *work) whySuspended() job.Reason {
	if o := w.rec.Override(suspendPath); o != nil {
		return job.Because(SuspendAsked, "by", o.By, "why", o.Why)
	}
	return job.Because(SuspendRequested)
}

// reply says what has become of the requests, as the records are now. A final reply stays, whatever comes later.
func (p *pass) reply() {
	for i := range p.in.Requests {
		r := &p.in.Requests[i]
		reply := job.Reply{ID: r.ID, State: job.Done}
		if why := p.refusal(r); !why.IsZero() {
			reply.State, reply.Reason = job.Refused, why
			p.out.Replies = append(p.out.Replies, reply)
			continue
		}
		for _, w := range p.askedOf(r) {
			h := w.heeded(r.ID)
			if state, why := w.outcome(r); !h.State.Final() && h.State != state {
				h.State, h.Reason, p.out.Dirty = state, why, true
				p.noteEnd(w, r, h)
			}
			if h.State != job.Done && reply.State != job.Undone {
				reply = *h
			}
		}
		p.out.Replies = append(p.out.Replies, reply)
	}
}

// outcome is how far a request in effect has come for the job.
func (w *work) outcome(r *job.Request) (job.ReplyState, job.Reason) {
	last := w.rec.Heeded[len(w.rec.Heeded)-1].ID
	switch value := wantsSuspended[r.Verb]; {
	case last != r.ID && w.toSuspend() != value:
		return job.Undone, job.Because(RequestSuperseded, "request", last)
	case !value && w.rec.Phase != job.JobSuspended, value && w.rec.Phase == job.JobSuspended:
		return job.Done, job.Reason{}
	case w.rec.Phase.Ended():
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	}
	return job.Accepted, job.Reason{}
}

// noteEnd notes what has become of a request.
func (p *pass) noteEnd(w *work, r *job.Request, h *job.Reply) {
	code := RequestDone
	if h.State == job.Undone {
		code = RequestFailed
	}
	end := job.Because(code, "verb", string(r.Verb), "by", r.By, "request", r.ID)
	if !h.Reason.IsZero() {
		end = end.With(h.Reason)
	}
	p.note("job."+w.name, "request", end)
}
