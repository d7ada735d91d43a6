package apply

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Waits that differ only in numbers, as a scheduler places pods one by one, are no news.
func TestNewsOfWaits(t *testing.T) {
	wait := func(why ...job.Reason) []plan.Wait { return []plan.Wait{{Job: "a", Role: "worker", Reasons: why}} }
	queued := func(slots, message string) job.Reason {
		return job.Because(plan.Queued, "slots", slots, "message", message)
	}
	before := wait(queued("worker[0-999]", "0/1000 nodes are available"))
	two := []job.Reason{before[0].Reasons[0], queued("worker[3]", "no such image")}
	for what, c := range map[string]struct {
		now  []plan.Wait
		want int
	}{
		"the same":                 {before, 0},
		"fewer slots":              {wait(queued("worker[998]", "0/2 nodes are available")), 0},
		"another reason":           {wait(queued("worker[0-999]", "no such image")), 1},
		"one reason more":          {wait(two...), 1},
		"more than are listed":     {wait(append(two, job.Because(plan.MoreReasons, "count", "2"))...), 1},
		"for longer":               {wait(job.Because(plan.QueuedLong, "slots", "worker[0-999]")), 2},
		"two waits of its":         {append(before, before...), 0},
		"another job's beside its": {append(before, plan.Wait{Job: "b", Role: "worker", Reasons: before[0].Reasons}), 1},
		"nothing any more":         {nil, 1},
	} {
		var s conditions.Set
		settle := func(waits []plan.Wait) int {
			s.Settle(time.Time{}, func(conditions.Key) bool { return true }, conditionsOf(waits))
			return len(s.Changes())
		}
		settle(before)
		if got := settle(c.now); got != c.want {
			t.Errorf("%s: %d changes, want %d", what, got, c.want)
		}
	}
}

// What the user has seen in a plan is reported once it has become something else, or is found again.
func TestWhatAPlanHasShownIsToldOnceItChanges(t *testing.T) {
	room := []plan.Wait{{Job: "a", Reasons: []job.Reason{job.Because(plan.NoRoom)}}}
	raised := conditions.Change{Type: conditions.Raised, Condition: conditionsOf(room)[0]}
	var h holds
	h.show(room)
	if other := raised; !h.wasShown(&raised) || h.wasShown(&other) {
		t.Error("what was shown is not known, or not forgotten")
	}
	h.show(room)
	if cleared := (conditions.Change{Type: conditions.Cleared, Condition: raised.Condition}); h.wasShown(&cleared) {
		t.Error("its end was not shown")
	}
	h.show(room)
	changed := raised
	if changed.Reason = changed.Reason.With(job.Because(plan.Wanted)); h.wasShown(&changed) {
		t.Error("another reason was not shown")
	}
}
