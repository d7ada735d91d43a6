package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// What an apply writes to the stream: each kind of line once, and no secret in any.
func TestStreamProgress(t *testing.T) {
	const secret = "hunter2hunter2"
	var out bytes.Buffer
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	s := NewStream(&out, "0.1.0", func() time.Time { return at })
	known := &job.Record{UID: "u1", Spec: job.Job{Name: "j", Provider: "local"}}
	s.Refreshing("j", known)
	s.Refreshed("j", known)
	p := Both{Quiet{}, NewStreamProgress(s, NewRedactor([]job.Job{{Secrets: []string{secret}}}))}
	start := plan.Change{Action: plan.Create, Job: "j", Provider: "local", Slot: job.Address{Job: "j", Role: "worker", Index: 3}, Node: "n1", Incarnation: 1, Reasons: said("new, with " + secret)}
	forget := plan.Change{Action: plan.Delete, Job: "gone", UID: "u9"}
	p.Planned(&plan.Plan{Changes: []plan.Change{start, forget}, Sizes: []plan.Size{
		{Job: "j", Role: "worker", Replicas: 2, Before: 3, Now: 4, Min: 2, Max: 8},
		{Job: "k", Role: "worker", Replicas: 2, Before: 4, Now: 2, Min: 2, Max: 8, Reasons: said("job.j waits, with " + secret)},
		{Job: "l", Role: "worker", Replicas: 2, Before: 5, Now: 5, Min: 2, Max: 8}, // nothing was decided
	}})
	queued := waiting(conditions.Raised, "job.j.ps", plan.QueuedLong, "no node is free, "+secret)
	p.Condition(queued)
	p.Started(&start)
	p.Started(&forget)
	p.Still(&start, 10*time.Second)
	p.Finished(&start, 11*time.Second, errors.New("launch: no "+secret))
	p.Finished(&forget, 200*time.Millisecond, nil)
	p.Finished(&start, 12*time.Second, nil)
	p.Noticed(job.Notice{Time: at, Type: "world_formed", Address: "job.j", Message: "generation 1"})
	p.Noticed(job.Notice{Time: at, Type: "incident", Address: "job.j", Message: "it failed", Incident: &job.Incident{Time: at, Told: true,
		Cause: job.ProcessFailed, Culprits: []job.Address{start.Slot}, Action: job.RestartInPlace, Evidence: said("exit 1: " + secret)}})
	unstored := conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{About: "store", Reason: job.Because(apply.NotStored, "message", "disk full, "+secret)}}
	p.Condition(unstored)
	unstored.Type = conditions.Cleared
	p.Condition(unstored)
	refused := conditions.Change{Type: conditions.Held, Condition: conditions.Condition{About: "job.j.worker", Reason: job.Because(apply.LaunchRefused, "slots", "worker[3]", "message", "no "+secret), Since: at}}
	p.Condition(refused)
	refused.Type, refused.Why = conditions.Cleared, job.Because(apply.ConditionOver).With(refused.Reason)
	p.Condition(refused)
	queued.Type = conditions.Cleared
	p.Condition(queued)
	half, nan := job.Loss(0.5), job.Loss(math.NaN())
	p.Progressed("j", apply.Progress{Step: 120, Loss: &half, StepRate: 41.2})
	p.Progressed("j", apply.Progress{Step: 121, Loss: &nan, StepRate: 41.2})
	s.Applied(plan.Summary{Add: 1})
	if bytes.Contains(out.Bytes(), []byte(secret)) {
		t.Errorf("a line shows the secret:\n%s", out.String())
	}
	golden(t, "stream.jsonl", out.String())
}

// Each reconcile_start has one end: complete, or overtaken by the next, which includes what was left. The same plan again does
// not overtake it.
func TestStreamSaysWhatWasOvertaken(t *testing.T) {
	var out bytes.Buffer
	p := NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
	slot := func(i int) plan.Change { return change(plan.Create, "worker", i) }
	a, b, again := slot(0), slot(1), slot(0)
	again.Incarnation++
	p.Planned(&plan.Plan{Changes: []plan.Change{a}})
	p.Planned(&plan.Plan{Changes: []plan.Change{a}, Waits: []plan.Wait{{Job: "j", Reasons: said("No room.")}}})
	p.Started(&a)
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b}})
	p.Started(&b)
	p.Finished(&b, 0, nil)
	p.Planned(&plan.Plan{Changes: []plan.Change{again}}) // another start is wanted there while the first is made
	p.Finished(&a, 0, nil)
	p.Started(&again)
	p.Finished(&again, 0, nil)
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var l struct {
			Type   string
			ID, By int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if kind, is := strings.CutPrefix(l.Type, "reconcile_"); is {
			got = append(got, fmt.Sprintf("%s %d %d", kind, l.ID, l.By))
		}
	}
	if want := "start 1 0, overtaken 1 2, start 2 0, overtaken 2 3, start 3 0, complete 3 0"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, ", "), want)
	}
}

// reconcile_complete comes once, when all planned changes are done: not between changes, not again for changes that plans still
// have because they are not observed yet, and also if the rest was overtaken.
func TestStreamReconcilesOnce(t *testing.T) {
	var out bytes.Buffer
	p := NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
	slot := func(i int) plan.Change { return change(plan.Create, "worker", i) }
	a, b, c, d, later := slot(0), slot(1), slot(2), slot(3), slot(4)
	later.Wave = 1
	told := func() (kinds []string) {
		for _, l := range uiLines(t, out.Bytes()) {
			if strings.HasPrefix(l.kind(), "reconcile_") {
				kinds = append(kinds, l.kind())
			}
		}
		return kinds
	}
	expect := func(when string, starts, completes int) {
		t.Helper()
		got := map[string]int{}
		for _, kind := range told() {
			got[kind]++
		}
		if got["reconcile_start"] != starts || got["reconcile_complete"] != completes {
			t.Errorf("%s: %v, want %d and %d", when, got, starts, completes)
		}
	}
	p.Planned(&plan.Plan{Waits: []plan.Wait{{Job: "j", Reasons: said("No room.")}}})
	expect("a plan that only waits", 0, 0)
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b, later}})
	p.Started(&a)
	p.Finished(&a, 0, errors.New("quota exceeded"))
	p.Started(&b)
	p.Withdrawn(&a, 0)
	expect("one is done, one is not asked for any more", 1, 0)
	p.Withdrawn(&b, 0)
	expect("neither is asked for any more", 1, 1)
	out.Reset()
	p = NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b, later}})
	p.Started(&a)
	p.Finished(&a, 0, nil)
	expect("between two changes", 1, 0)
	p.Started(&b)
	p.Finished(&b, 0, errors.New("no room"))
	p.Started(&b)
	p.Finished(&b, 0, nil)
	expect("all of the first wave", 1, 1)
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b, c, d}}) // a and b are done, but not observed yet
	p.Started(&c)
	p.Finished(&c, 0, nil)
	expect("one of two", 2, 1)
	p.Planned(&plan.Plan{Waits: []plan.Wait{{Job: "j", Reasons: said("No room.")}}}) // d is overtaken
	expect("overtaken", 2, 2)
	restart := change(plan.Restart, "worker", 5) // in place: the same incarnation each time
	for n := range 2 {
		p.Planned(&plan.Plan{Changes: []plan.Change{restart}})
		p.Started(&restart)
		p.Finished(&restart, 0, nil)
		expect("a restart in place", 3+n, 3+n)
	}
}

// The remains of an earlier job are removed while the same slot of the current job starts: reconciling is complete when both are
// done.
func TestAnEarlierJobsSlotIsAnother(t *testing.T) {
	var out bytes.Buffer
	p := NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
	stray, start := change(plan.Delete, "worker", 0), change(plan.Create, "worker", 0)
	stray.UID, start.UID = "earlier", "now"
	p.Planned(&plan.Plan{Changes: []plan.Change{stray, start}})
	p.Started(&stray)
	p.Started(&start)
	p.Finished(&start, 0, nil)
	if strings.Contains(out.String(), "reconcile_complete") {
		t.Errorf("it is complete while the earlier job's slot is being stopped:\n%s", &out)
	}
	p.Finished(&stray, 0, nil)
	if n := strings.Count(out.String(), `"type":"reconcile_complete"`); n != 1 {
		t.Errorf("it is complete %d times:\n%s", n, &out)
	}
}

// A slot to be replaced is not done once it is stopped: a run that is interrupted then has not reconciled, and reconciling is not
// complete before the slot starts, whatever else is planned meanwhile. If its start is dropped, it is complete.
func TestAStopIsHalfOfAReplacement(t *testing.T) {
	stop, start, other := change(plan.Replace, "worker", 0), change(plan.Create, "worker", 0), change(plan.Create, "worker", 1)
	start.Incarnation++
	finish := func(p *StreamProgress, c *plan.Change) {
		p.Started(c)
		p.Finished(c, 0, nil)
	}
	for name, c := range map[string]struct {
		then func(p *StreamProgress)
		want string
	}{
		"interrupted":     {func(*StreamProgress) {}, "start"},
		"not seen yet":    {func(p *StreamProgress) { p.Planned(&plan.Plan{Changes: []plan.Change{stop}}) }, "start"},
		"given up":        {func(p *StreamProgress) { p.Planned(&plan.Plan{}) }, "start complete"},
		"seen, and waits": {func(p *StreamProgress) { p.Planned(&plan.Plan{Waits: []plan.Wait{{Job: "mnist"}}}) }, "start complete"},
		"started": {func(p *StreamProgress) {
			p.Planned(&plan.Plan{Changes: []plan.Change{start}})
			finish(p, &start)
		}, "start overtaken start complete"},
		"with another meanwhile": {func(p *StreamProgress) {
			p.Planned(&plan.Plan{Changes: []plan.Change{stop, other}})
			finish(p, &other)
		}, "start overtaken start"},
	} {
		var out bytes.Buffer
		p := NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
		p.Planned(&plan.Plan{Changes: []plan.Change{stop}})
		finish(p, &stop)
		c.then(p)
		var told []string
		for _, l := range uiLines(t, out.Bytes()) {
			if kind, is := strings.CutPrefix(l.kind(), "reconcile_"); is {
				told = append(told, kind)
			}
		}
		if got := strings.Join(told, " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// After output was dropped, perhaps with the end of a change, the next one that ends completes.
func TestStreamCompletesAfterOutputWasLeftOut(t *testing.T) {
	var out bytes.Buffer
	p := NewStreamProgress(NewStream(&out, "0.1.0", still), NewRedactor(nil))
	a, b := change(plan.Create, "worker", 0), change(plan.Create, "worker", 1)
	p.Planned(&plan.Plan{Changes: []plan.Change{a}})
	p.Started(&a)
	p.Condition(conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{About: "output", Reason: job.Because(apply.OutputLeftOut, "count", "1")}})
	p.Started(&b)
	p.Finished(&b, 0, nil)
	if n := strings.Count(out.String(), `"reconcile_complete"`); n != 1 {
		t.Errorf("%d lines say that it is complete, want 1:\n%s", n, out.String())
	}
}
