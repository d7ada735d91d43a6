package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
)

// A Degraded job is Running once its next world has formed, not when the slots for it exist: "Running" is reported after the
// world. A running job stays so during a planned world change.
func TestADegradedJobRunsAgainWithItsNextWorld(t *testing.T) {
	for _, test := range []struct {
		was    job.JobPhase
		broken bool
		want   job.JobPhase
	}{
		{job.JobDegraded, true, job.JobDegraded},
		{job.JobDegraded, false, job.JobRunning},
		{job.JobRunning, true, job.JobRunning},
	} {
		worker := &job.Slot{Address: job.Address{Job: "a", Role: "worker"}, Phase: job.Registered}
		w := &work{declared: true, spec: &job.Job{Roles: []job.Role{{Name: "worker", Ranked: true, Replicas: 1}}},
			rec: &job.Record{Phase: test.was}, slots: []*job.Slot{worker}, world: job.World{Generation: 1, Broken: test.broken}}
		if got := w.phase(); got != test.want {
			t.Errorf("%s, world broken %v: it is %s, want %s", test.was, test.broken, got, test.want)
		}
	}
}

// A plan names slots whose processes ended while no master ran, until their agents have reported how.
func TestWhatEndedUnseenIsNamed(t *testing.T) {
	w := &work{name: "a", declared: true, spec: &job.Job{Roles: []job.Role{{Name: "worker"}, {Name: "ps"}}}, rec: &job.Record{}, seen: map[job.Address][]*job.Incarnation{}}
	add := func(role string, index int, phase job.Phase, inc job.Incarnation) {
		at := job.Address{Job: "a", Role: role, Index: index}
		w.slots = append(w.slots, &job.Slot{Address: at, Phase: phase})
		w.seen[at] = []*job.Incarnation{&inc}
	}
	add("worker", 0, job.Running, job.Incarnation{Idle: true})
	add("worker", 1, job.Running, job.Incarnation{Idle: true, Member: &job.Member{}}) // it has reported
	add("worker", 2, job.Running, job.Incarnation{})
	add("worker", 3, job.Running, job.Incarnation{Idle: true})
	add("ps", 0, job.Registered, job.Incarnation{Idle: true}) // it waited for a world
	p := &pass{}
	p.reportIdle(w)
	if n := len(p.out.Waits); n != 1 {
		t.Fatalf("%d waits", n)
	}
	wait := p.out.Waits[0]
	if wait.Role != "worker" || !wait.Passing || !wait.Unheard || !slices.ContainsFunc(wait.Reasons, job.Because(EndedUnheard, "slots", "worker[0,3]").Equal) {
		t.Errorf("it waits: %+v", wait)
	}
	w.declared = false
	p = &pass{}
	if p.reportIdle(w); len(p.out.Waits) > 0 {
		t.Errorf("the job is to be destroyed, but has waits: %+v", p.out.Waits)
	}
}

// A program for one slot is an edit of that slot, even if all slots shared one before.
func TestASlotThatGetsAProgramOfItsOwnIsEdited(t *testing.T) {
	applied := jobtest.Job("a", jobtest.Role("worker", 2))
	own := applied.Roles[0].Program
	own.Command = append(slices.Clone(own.Command), "--index=1")
	next := applied
	next.Roles = slices.Clone(applied.Roles)
	next.Roles[0].PerSlot = []job.Program{applied.Roles[0].Program, own}
	w := &work{spec: &next}
	for index, want := range []bool{false, true} {
		s := job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: index}, Phase: job.Canceled}
		if got := w.editedSince(&applied, &s); got != want {
			t.Errorf("slot %d was edited: %v", index, got)
		}
	}
}

// A failure in a broken world belongs to its incident, even if it is reported after the others have formed the next world: an
// echo is left out, anything else is a culprit too. A failure in a world that nothing broke is an incident of its own.
func TestALateFailureIsNoIncidentOfItsOwn(t *testing.T) {
	for _, test := range []struct {
		what       string
		generation int // of the member's processes
		exit       job.Exit
		incidents  int
		culprits   int // of the newest
		charges    int
	}{
		{"an echo", 1, job.Exit{Code: 17}, 1, 1, 0},
		{"of the world before", 3, job.Exit{Code: 17}, 2, 1, 1},
		{"killed", 1, job.Exit{Signal: "killed"}, 1, 2, 0},
	} {
		at := job.Address{Job: "a", Role: "worker", Index: 2}
		late := &job.Slot{Address: at, Phase: job.Running, Incarnation: 1}
		member := &job.Member{Generation: test.generation, State: job.MemberFailed, Exit: &test.exit}
		lost := job.Incident{Cause: job.Deletion, Action: job.Replace, Culprits: []job.Address{{Job: "a", Role: "worker"}}, Generation: 1}
		w := &work{name: "a", declared: true, spec: &job.Job{Heal: job.Heal{Budget: job.Budget{Restarts: 10, Window: job.Duration(time.Hour)}}},
			rec: &job.Record{Incidents: []job.Incident{lost}}, slots: []*job.Slot{late}, world: job.World{Generation: 4},
			seen: map[job.Address][]*job.Incarnation{at: {{Slot: at, Number: 1, Member: member}}}}
		p := &pass{in: Input{Now: time.Unix(1000, 0)}}
		p.fault(w, late, test.exit.Cause(), &test.exit)
		p.recordFaults(w)
		newest := w.rec.Incidents[len(w.rec.Incidents)-1]
		if len(w.rec.Incidents) != test.incidents || len(newest.Culprits) != test.culprits || len(w.rec.Charges) != test.charges || late.Phase != job.Lost && late.Phase != job.Failing {
			t.Errorf("%s: %d incidents, the newest is %+v; %d charges, the slot is %s", test.what, len(w.rec.Incidents), newest, len(w.rec.Charges), late.Phase)
		}
	}
}
