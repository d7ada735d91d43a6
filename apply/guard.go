package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Files is one reading of the configuration.
type Files struct {
	Jobs    []job.Job
	Blocks  plan.Blocks
	Outputs map[string]state.Output
	// Commit names what the files are of, for a person; "" if that is not known. It is there with an error, too.
	Commit string
}

// UnusableError is why the files cannot be taken up. Brief is one sentence of Text, which has all that is wrong.
type UnusableError struct{ Brief, Text string }

func (e *UnusableError) Error() string { return e.Text }

// filesTrouble is the summary of a warning.
const filesTrouble = "The configuration has errors; the last good one stays in force"

// reload takes up changed files, or says why not: then the jobs go on, and are Degraded.
func (r *Reconciler) reload(w *Watch) {
	files, err := w.Reload()
	if err != nil {
		brief := err.Error()
		if unusable := (*UnusableError)(nil); errors.As(err, &unusable) {
			brief = unusable.Brief
		}
		r.stale = "The configuration has errors" + since(files.Commit) + "; the last good one stays in force" + since(r.revision) + ". " + brief
		r.view(func(v View) { v.Warned(filesTrouble, err.Error()) })
		return
	}
	r.Declare(files.Jobs)
	r.o.Blocks, r.o.Outputs, r.unmet, r.stale = files.Blocks, files.Outputs, nil, ""
	if files.Commit != r.revision && files.Commit != "" {
		r.note(job.Notice{Time: r.o.Clock(), Type: "configuration", Message: "commit " + files.Commit + " was taken up"})
	}
	r.revision = files.Commit
	r.view(func(v View) { v.Recovered(filesTrouble) })
}

// since names a commit in a sentence; nothing if there is none.
func since(commit string) string {
	if commit == "" {
		return ""
	}
	return " (commit " + commit + ")"
}

// note has a notice journalled and told with the next turn.
func (r *Reconciler) note(n job.Notice) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.unwritten = append(r.unwritten, n)
}

// decide plans. Jobs go on as they were last applied if a change of the files would stop more slots of them than is
// allowed; in is then what was planned from.
func (r *Reconciler) decide(in plan.Input) (plan.Input, plan.Plan) {
	if r.stale != "" {
		in.Withheld = map[string]string{}
		for _, j := range in.Jobs {
			in.Withheld[j.Name] = r.stale
		}
	}
	p := plan.Make(in)
	most := r.o.MaxDestroy
	if most == nil || in.Destroy {
		return in, p
	}
	if r.confirmed != nil && *r.confirmed > *most {
		most = r.confirmed
	}
	removals := plan.Removals(&in, &p)
	all := 0
	for _, n := range removals {
		all += n
	}
	if all <= *most {
		return in, p
	}
	why := map[string]string{}
	for name, n := range removals {
		why[name] = fmt.Sprintf("The files%s would have %s of it removed or replaced, %d in all, and -max-destroy=%d allows no more than that: it goes on as it was last applied. "+
			"If that is meant, apply by hand without -max-destroy, or raise it.", since(r.revision), count(n, "slot"), all, *most)
	}
	in = plan.Withhold(in, why)
	return in, plan.Make(in)
}

// tellWithheld enters what is held back now, and was not before, or the other way round, among the plan's notices.
func (r *Reconciler) tellWithheld(in *plan.Input, p *plan.Plan) {
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		if why := in.Withheld[name]; r.withheld[name] != why {
			p.Notices = append(p.Notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Message: why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.withheld)) {
		if in.Withheld[name] == "" {
			p.Notices = append(p.Notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Message: "over: it is what the files say again"})
		}
	}
}

// tellRefusals warns of what the files ask for and must not be done, and of what they hold to be true of the jobs and
// is not, as long as that is so.
func (r *Reconciler) tellRefusals(p *plan.Plan) {
	now := map[string]bool{}
	for _, refusal := range p.Refusals {
		summary := refusal.Summary + ": job." + refusal.Job
		now[summary] = true
		r.view(func(v View) { v.Warned(summary, refusal.Detail) })
	}
	if r.o.Conditions != nil && (p.Dirty || r.unmet == nil) {
		r.unmet = r.o.Conditions(p.Records)
	}
	for summary, detail := range r.unmet {
		now[summary] = true
		r.view(func(v View) { v.Warned(summary, detail) })
	}
	for summary := range r.refused {
		if !now[summary] {
			r.view(func(v View) { v.Recovered(summary) })
		}
	}
	r.refused = now
}

// replyMost is how long a request to reconcile waits for the plan. Whoever asks is told without it then.
const replyMost = 10 * time.Second

// request asks for a look at the files and a plan at once.
type request struct {
	maxDestroy *int
	answer     chan elastic.ReconcileReply // of capacity 1
}

// Reconcile has a watching run read the files and plan at once, and says what it does about them. Many requests at a
// time are one look. It serves the service's POST /v1/reconcile.
func (r *Reconciler) Reconcile(ctx context.Context, asked elastic.ReconcileRequest) elastic.ReconcileReply {
	one := request{maxDestroy: asked.MaxDestroy, answer: make(chan elastic.ReconcileReply, 1)}
	r.mu.Lock()
	r.requests = append(r.requests, one)
	r.mu.Unlock()
	select {
	case r.requested <- struct{}{}:
	default:
	}
	timer := time.NewTimer(replyMost)
	defer timer.Stop()
	select {
	case reply := <-one.answer:
		return reply
	case <-timer.C:
	case <-ctx.Done():
	}
	return elastic.ReconcileReply{Status: elastic.ReconcileQueued}
}

// heed takes up the requests that are there. The next turn answers them; until it has, what they confirm holds.
func (r *Reconciler) heed(w *Watch) {
	r.mu.Lock()
	fresh := r.requests
	r.requests = nil
	r.mu.Unlock()
	for _, one := range fresh {
		if n := one.maxDestroy; n != nil && (r.confirmed == nil || *n > *r.confirmed) {
			r.confirmed = n
		}
	}
	r.heeded = append(r.heeded, fresh...)
	r.reload(w)
}

// answer tells those who asked for it what the turn does.
func (r *Reconciler) answer(in *plan.Input, p *plan.Plan, err error) {
	reply := elastic.ReconcileReply{Status: elastic.ReconcilePlanned, Commit: r.revision, Error: r.stale}
	if err != nil {
		reply.Error = err.Error()
	} else {
		n := p.Summary()
		reply.Changes = &elastic.ReconcileChanges{Add: n.Add, Change: n.Change, Remove: n.Remove}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		reply.Withheld = append(reply.Withheld, elastic.Withheld{Job: "job." + name, Reason: in.Withheld[name]})
	}
	for _, one := range r.heeded {
		one.answer <- reply
	}
	r.heeded, r.confirmed = nil, nil
}
