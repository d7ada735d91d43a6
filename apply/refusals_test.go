package apply

import (
	"reflect"
	"testing"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Without a master, status shows the last refusals in the state, except of slots that exist by now.
func TestRecordedRefusals(t *testing.T) {
	const quota = "create its pod: exceeded quota: tight"
	why := func(slots, message string) job.Reason {
		return job.Because(LaunchRefused, "slots", slots, "message", message)
	}
	held := func(of ...job.Reason) conditions.Condition {
		return conditions.Condition{About: "job.a.worker", Reason: job.Reason{Code: LaunchRefused}.With(of...), Since: jobtest.Epoch}
	}
	other := conditions.Condition{About: "provider.west", Reason: job.Because(ProviderUnobserved, "message", "down")}
	stored := state.State{Conditions: []conditions.Condition{held(why("worker[0-1,3]", quota), why("worker[2]", "no such image")), other}, Jobs: job.Records{"a": {UID: "u"}}}
	for i := range 4 {
		stored.Jobs["a"].Slots = append(stored.Jobs["a"].Slots, job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Incarnation: 2})
	}
	there := func(uid string, number int) job.Incarnation {
		return job.Incarnation{UID: uid, Slot: job.Address{Job: "a", Role: "worker", Index: 3}, Number: number}
	}
	for what, c := range map[string]struct {
		seen job.Snapshot
		want string
	}{
		"nothing is there": {job.Snapshot{}, "worker[0-1,3]"},
		"one is there": {job.Snapshot{Incarnations: job.Incarnations{{there("u", 2)}}},
			"worker[0-1]"},
		"one before it is, and one of another job": {job.Snapshot{Incarnations: job.Incarnations{{there("u", 1)}, {there("another's", 2)}}},
			"worker[0-1,3]"},
	} {
		of := []job.Reason{why(c.want, quota), why("worker[2]", "no such image")}
		got, waits := recordedRefusals(&stored, &c.seen)
		if want := []plan.Wait{{Job: "a", Role: "worker", Reasons: of}}; !reflect.DeepEqual(waits, want) {
			t.Errorf("%s: waits %+v, want %+v", what, waits, want)
		}
		if want := []conditions.Condition{held(of...), other}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: conditions %+v, want %+v", what, got, want)
		}
	}
}

// The first failure of a changed job does not end a run, even if the previous version has failed often.
func TestTheFirstFailureOfAnotherChangeIsNotHopeless(t *testing.T) {
	s := newScenario(t)
	stuck := func() bool { return s.loop.exec.stuck(&s.loop.groups) }
	s.do("provider local")
	s.do("fail launch", "no such image")
	s.do("run watch", "a worker=2")
	if s.do("pass 5s"); stuck() {
		t.Error("four failures are considered final")
	}
	if s.do("pass 5s"); !stuck() {
		t.Error("five failures are not considered final")
	}
	if s.do("files", "a worker=2 command=other"); stuck() {
		t.Error("the first failure of the changed job is considered final")
	}
}
