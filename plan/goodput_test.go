package plan

import (
	"math"
	"testing"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

// A world that resumed at step 60 after 100 had been reached, at 20 steps a second, repeated two seconds of work. At most the
// time spent is moved, and the ledger's sum stays the same.
func TestStepsDoneAgainAreLost(t *testing.T) {
	at := job.Address{Job: "a", Role: "worker"}
	for _, test := range []struct {
		what                  string
		reached, first, last  int64
		rate, spent, wantLost float64
	}{
		{"no step before", 0, 1, 100, 20, 5, 0},
		{"some again", 100, 60, 140, 20, 5, 2},
		{"ended before it came as far again", 100, 60, 80, 20, 1.5, 1},
		{"never more than was spent", 100, 0, 100, 1, 3, 3},
		{"from where it was", 100, 101, 140, 20, 5, 0},
		{"no rate known", 100, 60, 140, 0, 5, 0},
	} {
		w := &work{world: job.World{Generation: 2}, slots: []*job.Slot{{Address: at}},
			seen: map[job.Address][]*job.Incarnation{at: {{Member: &job.Member{
				Generation: 2, FirstStep: test.first, Step: test.last, StepRate: test.rate}}}}}
		g := job.Goodput{Wall: test.spent, Productive: test.spent, Reached: test.reached}
		w.redo(&g, test.spent)
		if math.Abs(g.Lost.RedoneSteps-test.wantLost) > 1e-9 || math.Abs(g.Productive+g.Lost.RedoneSteps-g.Wall) > 1e-9 {
			t.Errorf("%s: %+v", test.what, g)
		}
		if want := max(test.reached, test.last); g.Reached != want {
			t.Errorf("%s: reached %d, want %d", test.what, g.Reached, want)
		}
	}
}

// A job may end while no master runs. The ledger's productive time ends at the exits' times, not when the next master starts;
// the time after that is lost, or no longer the job's.
func TestTheLedgerEndsWithTheProcesses(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	now := start.Add(time.Minute)
	after := func(seconds int) *job.Exit { return &job.Exit{At: start.Add(time.Duration(seconds) * time.Second)} }
	slots := func(phase job.Phase) []*job.Slot {
		return []*job.Slot{{Address: job.Address{Job: "a", Role: "worker"}, Phase: phase}, {Address: job.Address{Job: "a", Role: "worker", Index: 1}, Phase: phase}}
	}
	for _, test := range []struct {
		what             string
		phase            job.JobPhase
		slots            []*job.Slot
		exits            [2]*job.Exit // by members
		faults           []*job.Exit
		broken           bool
		productive, lost float64
	}{
		{what: "all ended well", phase: job.JobSucceeded, slots: slots(job.Succeeded), exits: [2]*job.Exit{after(10), after(12)}, productive: 12},
		{what: "one does not know when", phase: job.JobSucceeded, slots: slots(job.Succeeded), exits: [2]*job.Exit{after(10), {}}, productive: 60},
		{what: "one failed, and is started again", phase: job.JobDegraded, slots: slots(job.Scheduling), faults: []*job.Exit{after(20), after(8)}, broken: true, productive: 8, lost: 52},
		{what: "one failed for good", phase: job.JobFailed, slots: slots(job.Failed), faults: []*job.Exit{after(8)}, productive: 8},
		{what: "its end is not known", phase: job.JobDegraded, slots: slots(job.Scheduling), faults: []*job.Exit{nil}, broken: true, productive: 60},
		{what: "by a clock that is ahead", phase: job.JobFailed, slots: slots(job.Failed), faults: []*job.Exit{after(90)}, productive: 60},
		{what: "by a clock that is behind", phase: job.JobFailed, slots: slots(job.Failed), faults: []*job.Exit{after(-5)}, productive: 60},
	} {
		w := &work{declared: true, spec: &job.Job{Roles: []job.Role{{Name: "worker", Ranked: true, Replicas: 2}}}, slots: test.slots, world: job.World{Generation: 1, Broken: test.broken},
			rec: &job.Record{Phase: test.phase, Goodput: job.Goodput{Mode: "productive", At: start}}, seen: map[job.Address][]*job.Incarnation{}}
		for i, exit := range test.exits {
			w.seen[test.slots[i].Address] = []*job.Incarnation{{Member: &job.Member{Exit: exit}}}
		}
		for _, exit := range test.faults {
			w.faults = append(w.faults, incident.Fault{SlotFault: incident.FaultOf(job.Address{}, job.ProcessFailed, exit)})
		}
		p := &pass{in: Input{Now: now}}
		p.account(w)
		if g := w.rec.Goodput; g.Productive != test.productive || g.Lost.Restart != test.lost || g.Wall != test.productive+test.lost || !g.At.Equal(now) {
			t.Errorf("%s: %+v", test.what, g)
		}
	}
}

// The newest checkpoint is recorded once its world has ended: the members that knew it may be gone. A checkpoint of a planned
// stop is written after that. While a world trains nothing is written.
func TestTheNewestCheckpointIsRecordedWhenItsWorldIsOver(t *testing.T) {
	at := job.Address{Job: "a", Role: "worker"}
	early, last, next := job.Saved{Step: 100, Generation: 1}, job.Saved{Step: 110, Generation: 1}, job.Saved{Step: 50, Generation: 2}
	w := &work{declared: true, spec: &job.Job{Roles: []job.Role{{Name: "worker", Ranked: true, Replicas: 1}}},
		rec: &job.Record{Phase: job.JobRunning, Goodput: job.Goodput{Mode: "productive"}}}
	for _, test := range []struct {
		what      string
		broken    bool
		seen      []job.Saved // by members; {} of a member without a checkpoint
		want      job.Saved
		wantDirty bool
	}{
		{"a world that trains", false, []job.Saved{early}, job.Saved{}, false},
		{"it ends", true, []job.Saved{early, {}}, early, true},
		{"what it was asked for", true, []job.Saved{last, early}, last, true},
		{"nothing new", true, []job.Saved{last}, last, false},
		{"who knew of it is gone", true, []job.Saved{{}}, last, false},
		{"the next trains", false, []job.Saved{next}, next, true},
		{"and goes on", false, []job.Saved{{Step: 60, Generation: 2}}, next, false},
	} {
		w.world = job.World{Generation: 1, Broken: test.broken}
		w.seen = map[job.Address][]*job.Incarnation{at: {{}}} // a member that has not reported
		for _, saved := range test.seen {
			w.seen[at] = append(w.seen[at], &job.Incarnation{Member: &job.Member{Saved: saved}})
		}
		p := &pass{}
		p.account(w)
		if g := w.rec.Goodput; g.Saved != test.want || p.out.Dirty != test.wantDirty {
			t.Errorf("%s: recorded is %+v, dirty %v", test.what, g.Saved, p.out.Dirty)
		}
	}
}
