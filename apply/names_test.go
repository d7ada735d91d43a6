package apply

import (
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// A plan knows what runs by the name that its job has now. What a provider saw stays as it is, and is no news as long as it
// is the same, whatever jobs are called.
func TestWhatAProviderSawIsNotRenamed(t *testing.T) {
	seen := &providers.Observation{Places: providers.Anywhere, Incarnations: []job.Incarnation{
		{UID: "u", Slot: job.Address{Job: "before", Role: "worker"}, Number: 1, State: job.Up}}}
	l := loopOf(job.Job{})
	l.sight.see("local", Sight{Observation: seen}, nil)
	for _, now := range []string{"before", "now", "now", "later"} {
		l.book.set(state.State{Jobs: job.Records{now: {UID: "u", Launched: "before", Spec: job.Job{Name: now, Provider: "local"}}}})
		l.sight.fresh = false
		l.sight.see("local", Sight{Observation: seen}, nil)
		in := l.input()
		if got := in.Snapshot.Incarnations[0].Slot.Job; got != now || seen.Incarnations[0].Slot.Job != "before" || l.sight.fresh {
			t.Errorf("it is called %s, and is to be %s; what was seen is called %s, and news is %v", got, now, seen.Incarnations[0].Slot.Job, l.sight.fresh)
		}
		if l.sight.at(&plan.Change{UID: "u", Slot: job.Address{Job: now, Role: "worker"}, Incarnation: 1}) == nil {
			t.Errorf("a change of %s does not find it", now)
		}
	}
	other := *seen
	if l.sight.see("local", Sight{Observation: &other}, nil); !l.sight.fresh {
		t.Error("another observation is no news")
	}
}
