package apply

import (
	"reflect"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Whoever asks while no master runs reads from the records what was refused last, of what is not there by now.
func TestRecordedRefusals(t *testing.T) {
	const quota = "create its pod: exceeded quota: tight"
	slot := func(role string, i int, refused string) job.Slot {
		return job.Slot{Address: job.Address{Job: "a", Role: role, Index: i}, Incarnation: 2, Refused: refused}
	}
	records := job.Records{"a": {UID: "u", Slots: []job.Slot{
		slot("ps", 0, ""), slot("worker", 0, quota), slot("worker", 1, quota), slot("worker", 2, "no such image"), slot("worker", 3, quota),
	}}}
	there := func(uid string, number int) job.Incarnation {
		return job.Incarnation{UID: uid, Slot: job.Address{Job: "a", Role: "worker", Index: 3}, Number: number}
	}
	wait := func(slots string) []plan.Wait {
		return []plan.Wait{{Job: "a", Role: "worker", Reasons: []job.Reason{
			job.Because(LaunchRefused, "slots", slots, "message", quota), job.Because(LaunchRefused, "slots", "worker[2]", "message", "no such image"),
		}}}
	}
	for what, c := range map[string]struct {
		seen job.Snapshot
		want []plan.Wait
	}{
		"nothing is there": {job.Snapshot{}, wait("worker[0-1,3]")},
		"one is there": {job.Snapshot{Incarnations: []job.Incarnation{there("u", 2)}},
			wait("worker[0-1]")},
		"one before it is, and one of another job": {job.Snapshot{Incarnations: []job.Incarnation{there("u", 1), there("another's", 2)}},
			wait("worker[0-1,3]")},
	} {
		if got := recordedRefusals(records, &c.seen); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: it waits for %+v, want %+v", what, got, c.want)
		}
	}
}

// A run does not end for the first failure of what is other than what has failed before.
func TestTheFirstFailureOfAnotherChangeIsNotHopeless(t *testing.T) {
	s := newScenario(t)
	stuck := func() bool { return s.loop.exec.stuck(&s.loop.groups) }
	s.do("provider local")
	s.do("fail launch", "no such image")
	s.do("run watch", "a worker=2")
	if s.do("pass 5s"); stuck() {
		t.Error("four failures are taken for hopeless")
	}
	if s.do("pass 5s"); !stuck() {
		t.Error("five failures are not taken for hopeless")
	}
	if s.do("files", "a worker=2 command=other"); stuck() {
		t.Error("the first failure of what is other is taken for hopeless")
	}
}
