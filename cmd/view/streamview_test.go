package view

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// What an apply tells programs, each kind of line once, and no secret in any.
func TestStreamProgress(t *testing.T) {
	const secret = "hunter2hunter2"
	var out bytes.Buffer
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	s := NewStream(&out, "0.1.0", func() time.Time { return at })
	p := Both{Quiet{}, NewStreamProgress(s, NewRedactor([]job.Job{{Secrets: []string{secret}}}))}
	start := plan.Change{Action: plan.Create, Job: "j", Provider: "local", Slot: job.Address{Job: "j", Role: "worker", Index: 3}, Node: "n1", Incarnation: 1, Reasons: []string{"new, with " + secret}}
	forget := plan.Change{Action: plan.Delete, Job: "gone", UID: "u9"}
	p.Planned(&plan.Plan{Changes: []plan.Change{start, forget}, Waits: []plan.Wait{{Job: "j", Role: "ps", Reasons: []string{"2 are wanted and 1 fits."}}}, Sizes: []plan.Size{
		{Job: "j", Role: "worker", Replicas: 2, Before: 3, Now: 4, Min: 2, Max: 8},
		{Job: "k", Role: "worker", Replicas: 2, Before: 4, Now: 2, Min: 2, Max: 8, Reasons: []string{"job.j waits, with " + secret}},
		{Job: "l", Role: "worker", Replicas: 2, Before: 5, Now: 5, Min: 2, Max: 8}, // nothing was decided
	}})
	p.Started(&start)
	p.Started(&forget)
	p.Still(&start, 10*time.Second)
	p.Finished(&start, 11*time.Second, errors.New("launch: no "+secret))
	p.Finished(&forget, 200*time.Millisecond, nil)
	p.Finished(&start, 12*time.Second, nil)
	p.Noticed(job.Notice{Time: at, Type: "world_formed", Address: "job.j", Message: "generation 1"})
	p.Noticed(job.Notice{Time: at, Type: "incident", Address: "job.j", Message: "it failed", Incident: &job.Incident{Time: at, Told: true,
		Cause: job.ProcessFailed, Culprits: []job.Address{start.Slot}, Action: job.RestartInPlace, Evidence: []string{"exit 1: " + secret}}})
	p.Warned("The state cannot be stored", "disk full, "+secret)
	p.Warned("The state cannot be stored", "disk full, "+secret) // is told once
	p.Recovered("The state cannot be stored")
	half := 0.5
	p.Progressed("j", 120, &half, 41.2)
	s.Applied(plan.Summary{Add: 1})
	if bytes.Contains(out.Bytes(), []byte(secret)) {
		t.Errorf("a line shows the secret:\n%s", out.String())
	}
	golden(t, "stream.jsonl", out.String())
}

// What is set out to be done is told to be done once, when all of it is: not between one change and the next, nor for what
// plans still ask for because it is not seen yet, and also if what is left was overtaken.
func TestStreamReconcilesOnce(t *testing.T) {
	var out bytes.Buffer
	p := NewStreamProgress(NewStream(&out, "0.1.0", time.Now), NewRedactor(nil))
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
	p.Planned(&plan.Plan{Waits: []plan.Wait{{Job: "j", Reasons: []string{"No room."}}}})
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
	p = NewStreamProgress(NewStream(&out, "0.1.0", time.Now), NewRedactor(nil))
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b, later}})
	p.Started(&a)
	p.Finished(&a, 0, nil)
	expect("between two changes", 1, 0)
	p.Started(&b)
	p.Finished(&b, 0, errors.New("no room"))
	p.Started(&b)
	p.Finished(&b, 0, nil)
	expect("all of the first wave", 1, 1)
	p.Planned(&plan.Plan{Changes: []plan.Change{a, b, c, d}}) // a and b are done, and not seen
	p.Started(&c)
	p.Finished(&c, 0, nil)
	expect("one of two", 2, 1)
	p.Planned(&plan.Plan{Waits: []plan.Wait{{Job: "j", Reasons: []string{"No room."}}}}) // d is overtaken
	expect("overtaken", 2, 2)
	restart := change(plan.Restart, "worker", 5) // in place: the same incarnation each time
	for n := range 2 {
		p.Planned(&plan.Plan{Changes: []plan.Change{restart}})
		p.Started(&restart)
		p.Finished(&restart, 0, nil)
		expect("a restart in place", 3+n, 3+n)
	}
}
