package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// destroyedPath is what a request to destroy overrides: that the files declare the job.
const destroyedPath = "destroyed"

// followDestroyed takes the jobs that operators have destroyed out of the declaration: what is left of them stops, as of any job that
// is not declared. One is declared again once what its slots are started from was edited, or somebody restarts it.
func (p *pass) followDestroyed() {
	p.out.Destroyed = map[string]job.Override{}
	for _, name := range slices.Sorted(maps.Keys(p.in.Destroyed)) {
		o := p.in.Destroyed[name]
		if to, moved := p.in.Moved[name]; moved && p.in.Destroyed[to].Request == "" {
			name, p.out.Dirty = to, true
		}
		p.out.Destroyed[name] = o
		w := p.byName[name]
		switch {
		case w == nil && !p.in.Scope.Touches(name):
		case w == nil && p.in.Requests != nil && !p.declares(name) && !p.elsewhere[name] && !p.asks(o.Request):
			p.endDestroyed(name) // nothing is left that it is about
		case w == nil:
			p.overriddenBy(name, o)
		case w.frozen || w.part != nil:
		case w.spec != nil && o.Declared != w.spec.StartedFrom():
			p.note("job."+name, "override", job.Because(OverrideEdited, "path", destroyedPath, "by", o.By, "value", o.Value))
			p.endDestroyed(name)
		case p.restartedSince(name, o.Request):
			p.endDestroyed(name)
		default:
			p.undeclare(w)
		}
	}
}

func (p *pass) endDestroyed(name string) {
	delete(p.out.Destroyed, name)
	p.out.Dirty = true
}

// undeclare lets a job stop and leave, whatever the files say.
func (p *pass) undeclare(w *work) {
	w.declared, w.spec = false, nil
	p.overriddenBy(w.name, p.out.Destroyed[w.name])
	if p.in.Records[w.name] == nil {
		p.jobs = slices.DeleteFunc(p.jobs, func(x *work) bool { return x == w })
		delete(p.byName, w.name)
	}
}

// restartedSince reports whether somebody asked to restart a destroyed job.
func (p *pass) restartedSince(name, destroy string) bool {
	old := p.in.Records[name]
	return slices.ContainsFunc(p.in.Requests, func(r job.Request) bool {
		return r.Verb == job.AskRestart && r.ID > destroy && p.toTakeEffect(&r, name, old)
	})
}

// destroy removes a job. It stays removed although the files declare it.
func destroy(p *pass, w *work, r *job.Request, _ *job.Handled) {
	o := job.Override{Path: destroyedPath, Value: "true", Request: r.ID, By: r.By, At: r.At, Why: r.Why}
	if i := p.in.declared(w.name); i >= 0 {
		o.Declared = p.in.Jobs[i].StartedFrom()
	}
	p.out.Destroyed[w.name] = o
	w.declared = false
	p.overriddenBy(w.name, o)
}

// destroyOutcome is done once the job is destroyed, whoever asked last, and nothing of it runs. Its record leaves after the reply.
func destroyOutcome(p *pass, w *work, r *job.Request, _ *job.Handled) (job.ReplyState, job.Reason) {
	destroyed := p.out.Destroyed[w.name].Request != ""
	switch last := w.rec.Handled[len(w.rec.Handled)-1].ID; {
	case destroyed && !w.runs():
		return job.Done, job.Reason{}
	case destroyed:
		return job.Accepted, job.Reason{}
	case last != r.ID:
		return job.Undone, job.Because(RequestSuperseded, "request", last)
	}
	return job.Undone, job.Because(OverrideEdited, "path", destroyedPath, "by", r.By, "value", "true")
}

// asks reports whether a request is among those without a final reply.
func (p *pass) asks(id string) bool {
	return slices.ContainsFunc(p.in.Requests, func(r job.Request) bool { return r.ID == id })
}

// destroyedBy reports whether a request has destroyed a job.
func (p *pass) destroyedBy(id string) bool {
	for _, o := range p.in.Destroyed {
		if o.Request == id {
			return true
		}
	}
	return false
}

// allDestroyed reports whether a request is to destroy jobs that are destroyed already.
func (p *pass) allDestroyed(r *job.Request) bool {
	return r.Verb == job.AskDestroy && !slices.ContainsFunc(r.On, func(sel job.Selector) bool { return p.out.Destroyed[sel.Job].Request == "" })
}
