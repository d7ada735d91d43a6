package plan

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

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
			rec: &job.Record{Phase: test.phase, Goodput: job.Goodput{Mode: goodput.Training, At: start, Open: job.WorldSpent{Generation: 1, Shown: true, FirstStep: start, Passed: start}}}, seen: map[job.Address][]*job.Incarnation{}}
		for i, exit := range test.exits {
			w.seen[test.slots[i].Address] = []*job.Incarnation{{Member: &job.Member{Exit: exit}}}
		}
		for _, exit := range test.faults {
			w.faults = append(w.faults, incident.Fault{SlotFault: incident.FaultOf(job.Address{}, job.ProcessFailed, exit)})
		}
		p := &pass{in: Input{Now: now}}
		p.account(w)
		if g := goodput.Until(w.rec.Goodput, now, w.standing(nil)); g.Productive != test.productive || g.Lost.Restart != test.lost || g.Wall != test.productive+test.lost {
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
		rec: &job.Record{Phase: job.JobRunning, Goodput: job.Goodput{Mode: goodput.Training, At: time.Unix(1000, 0), Open: job.WorldSpent{Generation: 1}}}}
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
		p := &pass{in: Input{Now: time.Unix(1000, 0)}}
		p.account(w)
		if g := w.rec.Goodput; g.Saved != test.want || p.out.Dirty != test.wantDirty {
			t.Errorf("%s: recorded is %+v, dirty %v", test.what, g.Saved, p.out.Dirty)
		}
	}
}

// Where the time of a job goes that trains, or is about to, depends on its world and on what still runs of it.
func TestWhatAJobDoesAsAWhole(t *testing.T) {
	at := job.Address{Job: "a", Role: "worker"}
	ordered := time.Unix(1000, 0)
	for _, test := range []struct {
		what   string
		phase  job.JobPhase
		slot   job.Phase
		member job.MemberState
		world  job.World
		want   string
	}{
		{"no place", job.JobPending, job.Pending, "", job.World{}, goodput.Scheduling},
		{"its slot starts", job.JobStarting, job.Scheduling, "", job.World{}, goodput.Scheduling},
		{"its slot waits", job.JobStarting, job.Registered, job.MemberWaiting, job.World{}, goodput.Rendezvous},
		{"no first step", job.JobStarting, job.Running, job.MemberRunning, job.World{Generation: 1}, goodput.Training},
		{"it trains", job.JobRunning, job.Running, job.MemberRunning, job.World{Generation: 1}, goodput.Training},
		{"with fewer slots", job.JobDegraded, job.Running, job.MemberRunning, job.World{Generation: 1}, goodput.Training},
		{"a planned stop", job.JobRunning, job.Running, job.MemberRunning, job.World{Generation: 1, Broken: true, Ordered: ordered}, goodput.Checkpoint},
		{"it has stopped", job.JobRunning, job.Running, job.MemberWaiting, job.World{Generation: 1, Broken: true, Ordered: ordered}, goodput.Restart},
		{"a fault, and no checkpoint", job.JobDegraded, job.Running, job.MemberRunning, job.World{Generation: 1, Broken: true}, goodput.Restart},
		{"no place for a slot that was lost", job.JobDegraded, job.Pending, "", job.World{Generation: 1, Broken: true}, goodput.Scheduling},
		{"suspended", job.JobSuspended, job.Canceled, "", job.World{Generation: 1, Broken: true}, goodput.Suspended},
		{"over", job.JobSucceeded, job.Succeeded, "", job.World{Generation: 1}, goodput.Over},
	} {
		inc := &job.Incarnation{Slot: at, Number: 1}
		if test.member != "" {
			inc.Member = &job.Member{State: test.member, Generation: 1}
		}
		if test.world.Generation > 0 {
			test.world.Members = []job.WorldMember{{Slot: at, Incarnation: 1}}
		}
		w := &work{spec: &job.Job{Roles: []job.Role{{Name: "worker", Ranked: true, Replicas: 1}}, Checkpoint: &job.Checkpoint{Signal: "SIGUSR1"}}, rec: &job.Record{Phase: test.phase},
			slots: []*job.Slot{{Address: at, Phase: test.slot, Incarnation: 1, Recover: true}}, world: test.world, seen: map[job.Address][]*job.Incarnation{at: {inc}}}
		if got := w.mode(); got != test.want {
			t.Errorf("%s: it is %q, want %q", test.what, got, test.want)
		}
	}
}
