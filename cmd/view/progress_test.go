package view

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// clockwork is a Progress on a clock that the test sets.
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

// waiting is a wait that begins, or a change of one, with a reason for each text.
func waiting(become conditions.Type, about string, code job.Code, texts ...string) conditions.Change {
	var reasons []job.Reason
	for _, text := range texts {
		reasons = append(reasons, job.Because(code, "slots", "worker[1]", "message", text))
	}
	return conditions.Change{Type: become, Condition: conditions.Condition{About: about, Reason: conditions.Combined(reasons)}}
}

func TestProgressOfEachAction(t *testing.T) {
	c := newClockwork("s3cret")
	p := &plan.Plan{
		Changes: []plan.Change{
			change(plan.Create, "worker", 0), change(plan.Replace, "worker", 1), change(plan.Restart, "worker", 2),
			change(plan.Delete, "worker", 3), {Action: plan.Update, Job: "mnist"}, {Action: plan.Delete, Job: "gone"},
			change(plan.Replace, "worker", 4), // a planned one: it only stops, a Create follows
		},
	}
	p.Changes[1].Launch = &job.Launch{}
	p.Changes[1].Reasons = said("node n3 is gone, s3cret.", "and more")
	c.Planned(p)
	for i := range p.Changes {
		c.Started(&p.Changes[i])
		c.Still(&p.Changes[i], 10*time.Second)
		c.Finished(&p.Changes[i], 12345*time.Millisecond, nil)
	}
	failing := change(plan.Create, "ps", 0)
	c.Started(&failing)
	c.Finished(&failing, 1234*time.Millisecond, errors.New("launch: no such directory s3cret"))
	c.Withdrawn(&failing, 2*time.Second)
	c.at = c.at.Add(stillEvery)
	c.Planned(&plan.Plan{})
	c.Applied()
	golden(t, "progress/each_action.txt", c.out.String())
	if got, want := c.Done(), (plan.Summary{Add: 2, Change: 1, Remove: 3}); got != want {
		t.Errorf("done is %+v, want %+v: what failed does not count, nor what only heals", got, want)
	}
}

// How often a program is restarted while apply waits is chance: only restarts that a plan announced count.
func TestRestartsThatHealDoNotCount(t *testing.T) {
	c := newClockwork()
	restarts := []plan.Change{change(plan.Restart, "worker", 0), change(plan.Restart, "worker", 1)}
	c.Shown(&plan.Plan{Changes: restarts[:1]})
	for range 3 {
		for i := range restarts {
			c.Started(&restarts[i])
			c.Finished(&restarts[i], time.Second, nil)
		}
	}
	if got, want := c.Done(), (plan.Summary{Change: 1}); got != want {
		t.Errorf("done is %+v, want %+v", got, want)
	}
}

// A replacement counts once, whether its stop and its start are one change or two, and however plans classified it meanwhile.
func TestReplacementsCountOnce(t *testing.T) {
	stop, start := change(plan.Replace, "worker", 0), change(plan.Replace, "worker", 0)
	start.Incarnation, start.Launch = stop.Incarnation+2, &job.Launch{}
	waits, edited, other := stop, start, stop
	waits.Action, edited.Action, other.UID = plan.Delete, plan.Create, "an earlier job's"
	for _, test := range []struct {
		name string
		of   []plan.Change
		want plan.Summary
	}{
		{"to another node", []plan.Change{stop, start}, plan.Summary{Add: 1, Remove: 1}},
		{"edited", []plan.Change{stop, edited}, plan.Summary{Add: 1, Remove: 1}},
		{"without room at first", []plan.Change{waits, stop, start}, plan.Summary{Add: 1, Remove: 1}},
		{"without room from then on", []plan.Change{stop, waits}, plan.Summary{Remove: 1}},
		{"at once", []plan.Change{start}, plan.Summary{Add: 1, Remove: 1}},
		{"twice", []plan.Change{stop, start, start}, plan.Summary{Add: 2, Remove: 2}},
		{"beside an earlier job's of the name", []plan.Change{other, stop, start}, plan.Summary{Add: 1, Remove: 2}},
	} {
		c := newClockwork()
		for i := range test.of {
			c.Started(&test.of[i])
			c.Finished(&test.of[i], time.Second, nil)
		}
		if got := c.Done(); got != test.want {
			t.Errorf("%s: done is %+v, want %+v", test.name, got, test.want)
		}
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
	for i := 0; i < 1000; i += 50 { // failed changes are retried without a new plan
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
	c.Planned(&plan.Plan{}) // overtaken, with one change in progress
	c.Finished(&half.Changes[6], time.Second, nil)
	c.Destroyed()
	golden(t, "progress/folded.txt", c.out.String())
	if lines := strings.Count(c.out.String(), "\n"); lines > 25 {
		t.Errorf("1000 creations took %d lines", lines)
	}
}

// Slots that were stopped for a replacement are not reported as replaced yet, also in a group.
func TestManyReplacementsAreToldByHalves(t *testing.T) {
	c := newClockwork()
	stops, starts := &plan.Plan{}, &plan.Plan{}
	for i := range 10 {
		stops.Changes = append(stops.Changes, change(plan.Replace, "worker", i))
		start := change(plan.Replace, "worker", i)
		start.Launch = &job.Launch{}
		starts.Changes = append(starts.Changes, start)
	}
	for _, half := range []struct {
		plan  *plan.Plan
		words []string
	}{
		{stops, []string{"worker[0-9]: Stopping...", "worker: 10 stopped after"}},
		{starts, []string{"worker[0-9]: Replacing...", "worker: 10 replaced after"}},
	} {
		c.out.Reset()
		c.Planned(half.plan)
		for i := range half.plan.Changes {
			c.Started(&half.plan.Changes[i])
			c.Finished(&half.plan.Changes[i], time.Second, nil)
		}
		for _, text := range half.words {
			if !strings.Contains(c.out.String(), text) {
				t.Errorf("%q is missing in\n%s", text, &c.out)
			}
		}
	}
}

// A quota that refuses 500 changes again and again is one line.
func TestProgressOfManyFailuresIsOneLine(t *testing.T) {
	c := newClockwork("s3cret")
	p := &plan.Plan{}
	for i := range 500 {
		p.Changes = append(p.Changes, change(plan.Create, "worker", i))
	}
	round := func(taken int) {
		for i := range p.Changes {
			ch := &p.Changes[i]
			c.Started(ch)
			c.at = c.at.Add(50 * time.Millisecond)
			c.Still(ch, 10*time.Second)
			var err error
			if i >= taken {
				err = fmt.Errorf("pods \"mnist-s3cret-worker-%d\" is forbidden: exceeded quota: gpus, requested: 8, used: 64, limited: 64", i)
			}
			c.Finished(ch, time.Second, err)
		}
		p.Changes = p.Changes[taken:]
		c.Planned(p)
	}
	c.Planned(p)
	round(8)
	for range 20 {
		round(0) // no news
	}
	round(2)
	round(490)
	golden(t, "progress/failures.txt", c.out.String())
}

// Waits are shown a line for each reason, bounded in number and length. Their end is shown by the changes that follow.
func TestProgressOfWaitsIsBounded(t *testing.T) {
	c := newClockwork("s3cret")
	image := waiting(conditions.Raised, "job.mnist.worker", plan.QueuedLong, "ErrImagePull: no such image s3cret")
	c.Condition(image)
	image.Type, image.Since = conditions.Held, c.at
	c.Condition(image)
	image.Type = conditions.Cleared
	c.Condition(image)
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("reason %c%c", 'a'+i%26, 'a'+i/26))
	}
	many[0] += strings.Repeat(" and one more node", 100)
	c.Condition(waiting(conditions.Changed, "job.mnist.worker", plan.QueuedLong, many...))
	golden(t, "progress/waits.txt", c.out.String())
}

func filesInvalid(why string) conditions.Change {
	return conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{About: "files", Reason: job.Because(apply.FilesUnusable, "message", why)}}
}

func TestProgressOfWatching(t *testing.T) {
	c := newClockwork("s3cret")
	for _, n := range notices() {
		c.Noticed(n)
	}
	long := notices()[2]
	long.Incident.Evidence = nil
	for i := range 50 {
		long.Incident.Evidence = append(long.Incident.Evidence, said(fmt.Sprintf("line %d", i))...)
	}
	c.Noticed(long)
	for range 12 {
		loss := job.Loss(0.12345678)
		c.Progressed("mnist", apply.Progress{Step: 120, Loss: &loss, StepRate: 41.23})
		c.Progressed("other", apply.Progress{Step: 7})
		c.at = c.at.Add(time.Second)
	}
	invalid := filesInvalid("on main.hcl line 3:\n   3:   cpu = s3cret\n\nThe last valid configuration stays in effect until it is fixed, and nothing is stopped.")
	c.Condition(invalid)
	invalid.Type = conditions.Cleared
	c.Condition(invalid)
	golden(t, "progress/watching.txt", c.out.String())
	if strings.Contains(c.out.String(), "s3cret") {
		t.Error("progress shows a secret")
	}
}

// A commit that breaks the files holds every job back, but is one error: one warning shows it.
func TestProgressTellsTheFilesErrorsOnceForAllJobs(t *testing.T) {
	c := newClockwork()
	tell := func(become conditions.Type, why, over job.Reason, names ...string) {
		for _, name := range names {
			c.Condition(conditions.Change{Type: become, Why: over, Condition: conditions.Condition{About: "job." + name, Reason: why, Since: c.at}})
		}
	}
	why, asApplied := job.Because(apply.FilesUnusable, "message", "The configuration has errors; replicas is no number."), job.Because(apply.AsApplied)
	invalid := filesInvalid("replicas is no number.")
	c.Condition(invalid)
	tell(conditions.Raised, why, job.Reason{}, "a", "b", "c")
	invalid.Type = conditions.Cleared
	c.Condition(invalid)
	tell(conditions.Cleared, why, asApplied, "a", "b", "c")
	if n := strings.Count(c.out.String(), "replicas is no number"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, c.out.String())
	}
	if n := strings.Count(strings.ToLower(c.out.String()), "resolved:"); n != 1 {
		t.Errorf("over %d times:\n%s", n, c.out.String())
	}

	// A condition of one job is shown once for that job, and by the next master with its age.
	c.out.Reset()
	held := job.Because(apply.AboveMaxDestroy, "count", "2", "all", "2", "max_destroy", "1")
	tell(conditions.Raised, held, job.Reason{}, "a")
	tell(conditions.Held, held, job.Reason{}, "b")
	tell(conditions.Cleared, held, asApplied, "a")
	for text, want := range map[string]int{"-max-destroy=1": 2, "(since 2026-01-02 03:04:05)": 1, "job.a: resolved: ": 1} {
		if n := strings.Count(c.out.String(), text); n != want {
			t.Errorf("%q is reported %d times:\n%s", text, n, c.out.String())
		}
	}
}

// A refused change is shown only by its own line; a refused preparation has no change, and is shown as a condition.
func TestProgressTellsNoRefusalTwice(t *testing.T) {
	c := newClockwork()
	for _, become := range []conditions.Type{conditions.Raised, conditions.Held, conditions.Changed, conditions.Cleared} {
		for _, code := range []job.Code{apply.LaunchRefused, apply.StopRefused, apply.RepairRefused, apply.RemovalRefused, apply.StraysStopped} {
			c.Condition(conditions.Change{Type: become, Condition: conditions.Condition{About: "job.a.worker", Reason: job.Because(code, "message", "no")}})
		}
	}
	if c.out.Len() > 0 {
		t.Errorf("got:\n%s", &c.out)
	}
	c.Condition(conditions.Change{Type: conditions.Held, Condition: conditions.Condition{About: "job.a", Reason: job.Because(apply.PreparationRefused, "message", "no"), Since: c.at}})
	if want := "Job a cannot be prepared (since 2026-01-02 03:04:05)"; !strings.Contains(c.out.String(), want) {
		t.Errorf("%q is not reported:\n%s", want, &c.out)
	}
}

func TestProgressColoursOnlyWithColour(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		p := NewProgress(Screen{Writer: &out, Colour: colour}, NewRedactor(nil), still)
		p.Noticed(notices()[3])
		p.Condition(filesInvalid("d"))
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

func TestOnlyWhatMayLastIsLoud(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(Screen{Writer: &out, Colour: true}, NewRedactor(nil), still)
	p.Condition(waiting(conditions.Raised, "job.a", plan.Queued, "no node is free"))
	p.Condition(waiting(conditions.Raised, "job.b", plan.QueuedLong, "no node is free"))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], string(yellow)) || !strings.Contains(lines[1], string(yellow)) {
		t.Errorf("got %q", lines)
	}
}

// After output was dropped, perhaps with the ends of a group's changes, the group is not waited for.
func TestNoGroupWaitsForWhatWasLeftOut(t *testing.T) {
	c := newClockwork()
	p := &plan.Plan{}
	for i := range 20 {
		p.Changes = append(p.Changes, change(plan.Create, "worker", i))
	}
	c.Planned(p)
	c.Started(&p.Changes[0])
	c.Condition(conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{About: "output", Reason: job.Because(apply.OutputLeftOut, "count", "20")}})
	again := change(plan.Create, "worker", 0)
	c.Planned(&plan.Plan{Changes: []plan.Change{again}})
	c.Started(&again)
	c.Finished(&again, time.Second, nil)
	if want := "worker[0]: Creation complete after 1s"; !strings.Contains(c.out.String(), want) {
		t.Errorf("got %q, want it to have %q", c.out.String(), want)
	}
}
