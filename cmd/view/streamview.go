package view

import (
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

var _ apply.View = (*StreamProgress)(nil)

// StreamProgress tells programs what apply does, as lines of a Stream. It is an apply.View: calls come from one
// goroutine at a time.
type StreamProgress struct {
	stream   *Stream
	redactor *Redactor
	open     map[string]bool // addresses of what is under way or to be tried again
}

// NewStreamProgress tells on s.
func NewStreamProgress(s *Stream, r *Redactor) *StreamProgress {
	return &StreamProgress{stream: s, redactor: r, open: map[string]bool{}}
}

// streamActions are Terraform's words for actions.
var streamActions = map[plan.Action]string{
	plan.Create: "create", plan.Update: "update", plan.Restart: "update", plan.Replace: "replace", plan.Delete: "delete",
	plan.Forget: "remove", plan.NoOp: "noop",
}

// hook is what a line on a change has in it.
func hook(c *plan.Change, more map[string]any) map[string]any {
	r := StreamResource{Addr: ChangeAddress(c), Resource: ChangeAddress(c), Provider: c.Provider, Type: jobType, Name: c.Job}
	if !ofJob(c) {
		index := c.Slot.Index
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

// Planned tells what the loop sets out to do.
func (p *StreamProgress) Planned(next *plan.Plan) {
	n := next.Summary()
	p.stream.line("info", "Reconciling", "reconcile_start", map[string]any{
		"changes": map[string]any{"add": n.Add, "change": n.Change, "remove": n.Remove},
	})
	for _, w := range next.Waits {
		shown := PlanWait{waitAddress(w), p.redactor.Texts(w.Reasons), w.Never, w.Held}
		p.stream.line("info", shown.Address+": Waits: "+strings.Join(shown.Reasons, " "), "planned_wait", map[string]any{"wait": shown})
	}
}

// Started tells that a change was begun.
func (p *StreamProgress) Started(c *plan.Change) {
	p.open[ChangeAddress(c)] = true
	p.stream.line("info", ChangeAddress(c)+": "+words(c).doing+"...", "apply_start",
		hook(c, map[string]any{"reasons": p.redactor.Texts(c.Reasons)}))
}

// Still tells that a change takes its time.
func (p *StreamProgress) Still(c *plan.Change, elapsed time.Duration) {
	p.stream.line("info", ChangeAddress(c)+": Still "+lower(words(c).doing)+"... ["+short(elapsed)+" elapsed]", "apply_progress", hook(c, elapsedSeconds(elapsed)))
}

// Finished tells how a change ended. One that failed is tried again, as long as it is asked for.
func (p *StreamProgress) Finished(c *plan.Change, elapsed time.Duration, err error) {
	if err != nil {
		text := p.redactor.Text(err.Error())
		p.stream.line("error", ChangeAddress(c)+": "+words(c).done+" failed after "+short(elapsed)+": "+text, "apply_errored", hook(c, elapsedSeconds(elapsed)))
		return
	}
	p.stream.line("info", ChangeAddress(c)+": "+words(c).done+" complete after "+short(elapsed), "apply_complete", hook(c, elapsedSeconds(elapsed)))
	delete(p.open, ChangeAddress(c))
	if len(p.open) == 0 {
		p.stream.line("info", "Reconciled", "reconcile_complete", nil)
	}
}

// Noticed tells what happened: an incident under its own type, with its evidence, else a notice.
func (p *StreamProgress) Noticed(n job.Notice) {
	kind := "notice"
	if n.Incident != nil {
		kind = "incident"
	}
	p.stream.line("info", Screen{}.notice(n, p.redactor), kind, map[string]any{"event": eventOf(n, p.redactor)})
}

// Warned tells what is wrong and does not end the run.
func (p *StreamProgress) Warned(summary, detail string) {
	p.stream.Diagnostics([]Diagnostic{Caution(p.redactor.Text(summary), p.redactor.Text(detail))})
}

// Recovered tells that what was warned of is over, if it was.
func (p *StreamProgress) Recovered(string) {}

// Progressed tells how training goes.
func (p *StreamProgress) Progressed(jobName string, step int64, loss, stepsPerSecond float64) {
	p.stream.line("info", "job."+jobName+": "+training(step, loss, stepsPerSecond), "training_progress", map[string]any{
		"job": "job." + jobName, "step": step, "loss": loss, "steps_per_second": stepsPerSecond,
	})
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
func (b Both) Noticed(n job.Notice) { b.each(func(v apply.View) { v.Noticed(n) }) }
func (b Both) Warned(summary, detail string) {
	b.each(func(v apply.View) { v.Warned(summary, detail) })
}
func (b Both) Recovered(summary string) { b.each(func(v apply.View) { v.Recovered(summary) }) }
func (b Both) Progressed(name string, step int64, loss, rate float64) {
	b.each(func(v apply.View) { v.Progressed(name, step, loss, rate) })
}

func (b Both) each(tell func(apply.View)) {
	for _, v := range b {
		tell(v)
	}
}
