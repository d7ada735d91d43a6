package view

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// clockwork is a Progress on a clock that the test turns.
type clockwork struct {
	*Progress
	at  time.Time
	out bytes.Buffer
}

func newClockwork(secrets ...string) *clockwork {
	c := &clockwork{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.Progress = NewProgress(Screen{Writer: &c.out, Width: 78}, NewRedactor([]job.Job{{Secrets: secrets}}), func() time.Time { return c.at })
	return c
}

func change(a plan.Action, role string, index int) plan.Change {
	return plan.Change{Action: a, Job: "mnist", Slot: job.Address{Job: "mnist", Role: role, Index: index}, Node: "n1", Incarnation: index + 1}
}

func TestProgressOfEachAction(t *testing.T) {
	c := newClockwork("s3cret")
	p := &plan.Plan{
		Changes: []plan.Change{
			change(plan.Create, "worker", 0), change(plan.Replace, "worker", 1), change(plan.Restart, "worker", 2),
			change(plan.Delete, "worker", 3), {Action: plan.Update, Job: "mnist"}, {Action: plan.Delete, Job: "gone"},
			change(plan.Replace, "worker", 4), // a planned one: it only stops, a Create follows
		},
		Waits: []plan.Wait{{Job: "big", Role: "worker", Reasons: []string{"8 gpu are wanted, 6 available"}}},
	}
	p.Changes[1].Launch = &job.Launch{}
	p.Changes[1].Reasons = []string{"node n3 is gone, s3cret.", "and more"}
	c.Planned(p)
	for i := range p.Changes {
		c.Started(&p.Changes[i])
		c.Still(&p.Changes[i], 10*time.Second)
		c.Finished(&p.Changes[i], 12345*time.Millisecond, nil)
	}
	failing := change(plan.Create, "ps", 0)
	c.Started(&failing)
	c.Finished(&failing, 1234*time.Millisecond, errors.New("launch: no such directory s3cret"))
	c.Planned(&plan.Plan{Waits: p.Waits}) // the same wait is no news
	c.Planned(&plan.Plan{})
	c.Planned(&plan.Plan{Waits: p.Waits})
	c.Applied()
	golden(t, "progress/each_action.txt", c.out.String())
	if got, want := c.Done(), (plan.Summary{Add: 2, Change: 2, Remove: 3}); got != want {
		t.Errorf("done is %+v, want %+v: what failed does not count", got, want)
	}
}

func TestProgressFoldsManyLikeChanges(t *testing.T) {
	c := newClockwork()
	p := &plan.Plan{}
	for i := range 1000 {
		p.Changes = append(p.Changes, change(plan.Create, "worker", i))
	}
	later := change(plan.Create, "later", 0)
	later.Wave = 1
	p.Changes = append(p.Changes, later, change(plan.Create, "ps", 0))
	c.Planned(p)
	for i := range 1000 {
		ch := &p.Changes[i]
		c.Started(ch)
		c.at = c.at.Add(25 * time.Millisecond)
		c.Still(ch, 10*time.Second) // as a thousand goroutines would ask for it
		var err error
		if i%50 == 0 {
			err = fmt.Errorf("no room for %d", i)
		}
		c.Finished(ch, time.Second, err)
	}
	for i := 0; i < 1000; i += 50 { // what failed is tried again, in no new plan
		c.Started(&p.Changes[i])
		c.Finished(&p.Changes[i], time.Second, nil)
	}
	c.Started(&p.Changes[1001])
	c.Finished(&p.Changes[1001], time.Second, nil)

	half := &plan.Plan{}
	for i := range 20 {
		half.Changes = append(half.Changes, change(plan.Delete, "worker", i))
	}
	c.Planned(half)
	for i := range 7 {
		c.Started(&half.Changes[i])
	}
	for i := range 6 {
		c.Finished(&half.Changes[i], time.Second, nil)
	}
	c.Planned(&plan.Plan{}) // overtaken, with one under way
	c.Finished(&half.Changes[6], time.Second, nil)
	c.Destroyed()
	golden(t, "progress/folded.txt", c.out.String())
	if lines := strings.Count(c.out.String(), "\n"); lines > 25 {
		t.Errorf("1000 creations told in %d lines", lines)
	}
}

func TestProgressOfWatching(t *testing.T) {
	c := newClockwork("s3cret")
	for _, n := range notices() {
		c.Noticed(n)
	}
	long := notices()[2]
	long.Incident.Evidence = nil
	for i := range 50 {
		long.Incident.Evidence = append(long.Incident.Evidence, fmt.Sprintf("line %d", i))
	}
	c.Noticed(long)
	for range 12 {
		c.Progressed("mnist", 120, 0.12345678, 41.23)
		c.Progressed("other", 7, 0, 0)
		c.at = c.at.Add(time.Second)
	}
	c.Warned("The file has an error", "on main.hcl line 3:\n   3:   cpu = s3cret\n\nThe last good configuration stays in force until it is mended, and nothing is stopped.")
	c.Warned("The file has an error", "on main.hcl line 3:\n   3:   cpu = s3cret\n\nThe last good configuration stays in force until it is mended, and nothing is stopped.")
	c.Recovered("The file has an error")
	c.Recovered("The file has an error")
	golden(t, "progress/watching.txt", c.out.String())
	if strings.Contains(c.out.String(), "s3cret") {
		t.Error("progress shows a secret")
	}
}

func TestProgressColoursOnlyWithColour(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		p := NewProgress(Screen{Writer: &out, Colour: colour}, NewRedactor(nil), time.Now)
		p.Noticed(notices()[3])
		p.Warned("w", "d")
		p.Applied()
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("Colour %t gives %q", colour, out.String())
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 300 * time.Millisecond: "300ms", 1234 * time.Millisecond: "1.2s", 12345 * time.Millisecond: "12s",
		70 * time.Second: "1m10s", 2 * time.Hour: "2h",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) is %q, want %q", d, got, want)
		}
	}
}
