package view

import (
	"bytes"
	"errors"
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
	p.Planned(&plan.Plan{Changes: []plan.Change{start, forget}, Waits: []plan.Wait{{Job: "j", Role: "ps", Reasons: []string{"2 are wanted and 1 fits."}}}})
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
	p.Recovered("The state cannot be stored")
	p.Progressed("j", 120, 0.5, 41.2)
	s.Concluded(plan.Summary{Add: 1}, "apply")
	if bytes.Contains(out.Bytes(), []byte(secret)) {
		t.Errorf("a line shows the secret:\n%s", out.String())
	}
	golden(t, "stream.jsonl", out.String())
}
