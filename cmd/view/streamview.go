package view

import (
	"maps"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

var _ apply.View = (*StreamProgress)(nil)

// StreamProgress writes what apply does as lines of a Stream. It is an apply.View: calls come from one goroutine at a time.
type StreamProgress struct {
	stream   *Stream
	redactor *Redactor
	open     map[changeID]bool // planned changes that are not done
	inFlight map[changeID]bool // open changes in progress
	done     map[changeID]bool // changes that are done but still in plans, until they are observed
	begun    bool              // a reconcile_start was written, and neither its reconcile_complete nor its reconcile_overtaken
	count    int               // number of reconcile_start lines so far: the id of the newest
	planned  plan.Summary      // of the newest plan
}

// NewStreamProgress writes to s.
func NewStreamProgress(s *Stream, r *Redactor) *StreamProgress {
	return &StreamProgress{stream: s, redactor: r, open: map[changeID]bool{}, inFlight: map[changeID]bool{}, done: map[changeID]bool{}}
}

// changeID identifies a change across plans. The UID separates a change of the current job from one of what is left of an earlier
// job of that name.
type changeID struct {
	uid         string
	address     string
	action      plan.Action
	incarnation int
}

func changeIDOf(c *plan.Change) changeID {
	return changeID{c.UID, ChangeAddress(c), c.Action, c.Incarnation}
}

// streamActions are Terraform's words for actions.
var streamActions = map[plan.Action]string{
	plan.Create: "create", plan.Update: "update", plan.Restart: "update", plan.Replace: "replace", plan.Delete: "delete",
	plan.Forget: "remove", plan.NoOp: "noop",
}

// hook returns the fields of a line about a change.
func hook(c *plan.Change, more map[string]any) map[string]any {
	r := jobResource(c.Job, c.Provider)
	if !ofJob(c) {
		index := c.Slot.Index
		r.Addr, r.Resource = ChangeAddress(c), ChangeAddress(c)
		r.Type, r.Name, r.Key = slotType, c.Job+"."+c.Slot.Role, &index
	}
	in := map[string]any{"resource": r, "action": streamActions[c.Action]}
	for key, value := range more {
		in[key] = value
	}
	return map[string]any{"hook": in}
}

func elapsedSeconds(d time.Duration) map[string]any {
	return map[string]any{"elapsed_seconds": tenths(d.Seconds())}
}

// Planned writes what the loop will do, if that is more than or different from before, and decisions about sizes.
// Changes of an earlier plan that have not started and are not in this one are dropped.
func (p *StreamProgress) Planned(next *plan.Plan) {
	open, still, more := maps.Clone(p.inFlight), map[changeID]bool{}, false
	for i := range next.Changes {
		c := &next.Changes[i]
		d := changeIDOf(c)
		switch {
		case p.done[d]:
			still[d] = true
			if p.open[d] {
				open[d] = true // a stop: the slot's start is still to come
			}
		case c.Wave == 0: // later waves come in a later plan
			more = more || !p.open[d]
			open[d] = true
		}
	}
	p.open, p.done, p.planned = open, still, next.Summary()
	if more {
		p.begin()
	}
	for i := range next.Sizes {
		if size := roleSize(&next.Sizes[i], p.redactor); size.decides() {
			p.stream.scaleDecision(&size)
		}
	}
	p.complete()
}

// begin writes that the loop starts to carry out its newest plan, which includes what is left of an earlier one.
func (p *StreamProgress) begin() {
	n := p.planned
	if p.begun {
		p.stream.line("info", "Reconciling continues with a newer plan", "reconcile_overtaken", map[string]any{"id": p.count, "by": p.count + 1})
	}
	p.begun = true
	p.count++
	p.stream.line("info", "Reconciling", "reconcile_start", map[string]any{
		"id":      p.count,
		"changes": map[string]any{"add": n.Add, "change": n.Change, "import": n.Import, "remove": n.Remove},
	})
}

// complete writes that all planned changes are done, if they are.
func (p *StreamProgress) complete() {
	if p.begun && len(p.open) == 0 {
		p.begun = false
		p.stream.line("info", "Reconciled", "reconcile_complete", map[string]any{"id": p.count})
	}
}

// Started writes that a change was started.
func (p *StreamProgress) Started(c *plan.Change) {
	if !p.begun { // a repeated restart in place is the same change, which no plan begins again
		p.begin()
	}
	d := changeIDOf(c)
	p.open[d], p.inFlight[d] = true, true
	delete(p.done, d)
	p.stream.line("info", ChangeAddress(c)+": "+words(c).doing+"...", "apply_start",
		hook(c, map[string]any{"reasons": p.redactor.Sentences(c.Reasons), "reason_codes": p.redactor.Reasons(c.Reasons)}))
}

// Still writes that a change is still in progress.
func (p *StreamProgress) Still(c *plan.Change, elapsed time.Duration) {
	p.stream.line("info", ChangeAddress(c)+": Still "+lower(words(c).doing)+"... ["+short(elapsed)+" elapsed]", "apply_progress", hook(c, elapsedSeconds(elapsed)))
}

// Finished writes how a change ended. A failed change is retried while it is planned, so it is not yet an error; the line has
// the reason.
func (p *StreamProgress) Finished(c *plan.Change, elapsed time.Duration, err error) {
	d := changeIDOf(c)
	delete(p.inFlight, d)
	in := elapsedSeconds(elapsed)
	if err != nil {
		in["error"] = p.redactor.Text(err.Error())
		p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" errored after "+short(elapsed), "apply_errored", hook(c, in))
		return
	}
	p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" complete after "+short(elapsed), "apply_complete", hook(c, in))
	if !stops(c) { // otherwise a later plan starts the slot, or drops the start
		delete(p.open, d)
	}
	p.done[d] = true
	p.complete()
}

// Withdrawn ends a change that is no longer needed: for the reader of the stream it has failed permanently.
func (p *StreamProgress) Withdrawn(c *plan.Change, elapsed time.Duration) {
	delete(p.inFlight, changeIDOf(c))
	delete(p.open, changeIDOf(c))
	in := elapsedSeconds(elapsed)
	in["error"] = "No longer needed."
	p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" canceled after "+short(elapsed), "apply_errored", hook(c, in))
	p.complete()
}

// Noticed writes an incident with its evidence, or another notice, unless the lines about changes already show it.
func (p *StreamProgress) Noticed(n job.Notice) {
	if shownByChanges(n) {
		return
	}
	kind := "notice"
	if n.Incident != nil {
		kind = "incident"
	}
	p.stream.line("info", Screen{}.notice(n, p.redactor), kind, map[string]any{"event": eventOf(n, p.redactor)})
}

// Condition writes a condition that was raised, changed or cleared. Conditions with an event type of their own are notices.
func (p *StreamProgress) Condition(c conditions.Change) {
	if c.Reason.Code == apply.OutputLeftOut { // perhaps the ends of these
		clear(p.open)
		clear(p.inFlight)
	}
	of := map[string]any{"change": c.Type, "about": p.redactor.Text(c.About), "code": c.Reason.Code, "since": c.Since, "reason_code": c.Reason.Map(p.redactor.Text)}
	if waits(&c.Condition) {
		p.stream.waiting(&c, of, p.redactor)
		return
	}
	if _, line := conditionLine(&c); line || shownElsewhere(&c.Condition) {
		n := apply.NoticeOf(p.stream.now(), &c)
		p.stream.line("info", Screen{}.notice(n, p.redactor), "notice", map[string]any{"event": eventOf(n, p.redactor), "condition": of})
		return
	}
	summary, detail := conditionText(&c.Condition)
	p.stream.condition(&c, of, Caution(p.redactor.Text(summary), p.redactor.Text(detail)))
}

// Progressed writes training progress.
func (p *StreamProgress) Progressed(jobName string, far apply.Progress) {
	fields := map[string]any{"job": "job." + jobName, "step": far.Step, "steps_per_second": far.StepRate}
	switch finite, other := far.Loss.Finite(); {
	case finite != nil:
		fields["loss"] = *finite
	case other != "":
		fields["loss_not_finite"] = other
	}
	p.stream.line("info", "job."+jobName+": "+training(far.Step, far.Loss, far.StepRate), "training_progress", fields)
}

// Both shows what apply does to two views.
type Both [2]apply.View

var _ apply.View = Both{}

func (b Both) Planned(p *plan.Plan)   { b.each(func(v apply.View) { v.Planned(p) }) }
func (b Both) Started(c *plan.Change) { b.each(func(v apply.View) { v.Started(c) }) }
func (b Both) Still(c *plan.Change, d time.Duration) {
	b.each(func(v apply.View) { v.Still(c, d) })
}
func (b Both) Finished(c *plan.Change, d time.Duration, err error) {
	b.each(func(v apply.View) { v.Finished(c, d, err) })
}
func (b Both) Withdrawn(c *plan.Change, d time.Duration) {
	b.each(func(v apply.View) { v.Withdrawn(c, d) })
}
func (b Both) Noticed(n job.Notice)          { b.each(func(v apply.View) { v.Noticed(n) }) }
func (b Both) Condition(c conditions.Change) { b.each(func(v apply.View) { v.Condition(c) }) }
func (b Both) Progressed(name string, far apply.Progress) {
	b.each(func(v apply.View) { v.Progressed(name, far) })
}

func (b Both) each(tell func(apply.View)) {
	for _, v := range b {
		tell(v)
	}
}
