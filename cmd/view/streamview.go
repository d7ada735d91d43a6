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

// StreamProgress reports to programs what apply does, as lines of a Stream. It is an apply.View: calls come from one
// goroutine at a time.
type StreamProgress struct {
	stream   *Stream
	redactor *Redactor
	open     map[deed]bool // what the loop set out to do and has not done, or is under way
	flying   map[deed]bool // of those, what is under way
	done     map[deed]bool // what is done, while plans still ask for it: it is seen a little later
	begun    bool          // a reconcile_start was written, and neither its reconcile_complete nor its reconcile_overtaken
	count    int           // of reconcile_start lines so far: the id of the newest
	planned  plan.Summary  // of the newest plan
}

// NewStreamProgress writes to s.
func NewStreamProgress(s *Stream, r *Redactor) *StreamProgress {
	return &StreamProgress{stream: s, redactor: r, open: map[deed]bool{}, flying: map[deed]bool{}, done: map[deed]bool{}}
}

// deed is a change as what is done once. At one address it may be one to the job of now, and one to what is left of an
// earlier job of its name.
type deed struct {
	uid         string
	address     string
	action      plan.Action
	incarnation int
}

func deedOf(c *plan.Change) deed { return deed{c.UID, ChangeAddress(c), c.Action, c.Incarnation} }

// streamActions are Terraform's words for actions.
var streamActions = map[plan.Action]string{
	plan.Create: "create", plan.Update: "update", plan.Restart: "update", plan.Replace: "replace", plan.Delete: "delete",
	plan.Forget: "remove", plan.NoOp: "noop",
}

// hook is what a line on a change has in it.
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

// Planned reports what the loop sets out to do if that is more or other than before, what is decided about sizes, and what
// waits. What of an earlier plan is not under way and is not in this one anymore is not waited for.
func (p *StreamProgress) Planned(next *plan.Plan) {
	open, still, more := maps.Clone(p.flying), map[deed]bool{}, false
	for i := range next.Changes {
		c := &next.Changes[i]
		d := deedOf(c)
		switch {
		case p.done[d]:
			still[d] = true
			if p.open[d] {
				open[d] = true // a stop: what starts there is still to come
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
	p.stream.waits(planWaits(next.Waits, p.redactor))
	p.complete()
}

// begin reports that the loop sets out to do what its newest plan has. What it had set out to do and is not done yet is part
// of that.
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

// complete reports that all that the loop set out to do is done, if it is.
func (p *StreamProgress) complete() {
	if p.begun && len(p.open) == 0 {
		p.begun = false
		p.stream.line("info", "Reconciled", "reconcile_complete", map[string]any{"id": p.count})
	}
}

// Started reports that a change was started.
func (p *StreamProgress) Started(c *plan.Change) {
	if !p.begun { // a restart in place is the same deed as the one before
		p.begin()
	}
	d := deedOf(c)
	p.open[d], p.flying[d] = true, true
	delete(p.done, d)
	p.stream.line("info", ChangeAddress(c)+": "+words(c).doing+"...", "apply_start",
		hook(c, map[string]any{"reasons": p.redactor.Sentences(c.Reasons), "reason_codes": p.redactor.Reasons(c.Reasons)}))
}

// Still reports that a change takes its time.
func (p *StreamProgress) Still(c *plan.Change, elapsed time.Duration) {
	p.stream.line("info", ChangeAddress(c)+": Still "+lower(words(c).doing)+"... ["+short(elapsed)+" elapsed]", "apply_progress", hook(c, elapsedSeconds(elapsed)))
}

// Finished reports how a change ended. One that failed is retried, as long as it is asked for: so it is no error yet, and
// why it failed is beside it.
func (p *StreamProgress) Finished(c *plan.Change, elapsed time.Duration, err error) {
	d := deedOf(c)
	delete(p.flying, d)
	in := elapsedSeconds(elapsed)
	if err != nil {
		in["error"] = p.redactor.Text(err.Error())
		p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" errored after "+short(elapsed), "apply_errored", hook(c, in))
		return
	}
	p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" complete after "+short(elapsed), "apply_complete", hook(c, in))
	if !stops(c) { // else what starts there comes by a later plan, which may also give it up
		delete(p.open, d)
	}
	p.done[d] = true
	p.complete()
}

// Withdrawn ends a change that is no longer asked for: to a program it has failed permanently.
func (p *StreamProgress) Withdrawn(c *plan.Change, elapsed time.Duration) {
	delete(p.flying, deedOf(c))
	delete(p.open, deedOf(c))
	in := elapsedSeconds(elapsed)
	in["error"] = "No longer needed."
	p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" canceled after "+short(elapsed), "apply_errored", hook(c, in))
	p.complete()
}

// Noticed reports what happened: an incident under its own type, with its evidence, else a notice. What the lines on changes
// tell has none.
func (p *StreamProgress) Noticed(n job.Notice) {
	if toldByChanges(n) {
		return
	}
	kind := "notice"
	if n.Incident != nil {
		kind = "incident"
	}
	p.stream.line("info", Screen{}.notice(n, p.redactor), kind, map[string]any{"event": eventOf(n, p.redactor)})
}

// Condition tells what holds and somebody should know, and that it is over. What is an event of its own is a notice.
func (p *StreamProgress) Condition(c conditions.Change) {
	of := map[string]any{"change": c.Type, "about": p.redactor.Text(c.About), "code": c.Reason.Code, "since": c.Since, "reason_code": c.Reason.Map(p.redactor.Text)}
	if _, line := conditionLine(&c); line || toldElsewhere(&c.Condition) {
		n := apply.NoticeOf(p.stream.now(), &c)
		p.stream.line("info", Screen{}.notice(n, p.redactor), "notice", map[string]any{"event": eventOf(n, p.redactor), "condition": of})
		return
	}
	summary, detail := conditionText(&c.Condition)
	p.stream.condition(&c, of, Caution(p.redactor.Text(summary), p.redactor.Text(detail)))
}

// Progressed reports training progress.
func (p *StreamProgress) Progressed(jobName string, far apply.Progress) {
	told := map[string]any{"job": "job." + jobName, "step": far.Step, "steps_per_second": far.StepRate}
	if far.Loss != nil {
		told["loss"] = *far.Loss
	}
	p.stream.line("info", "job."+jobName+": "+training(far.Step, far.Loss, far.StepRate), "training_progress", told)
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
