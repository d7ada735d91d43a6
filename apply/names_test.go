package apply

import (
	"reflect"
	"testing"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// A plan uses the current names of jobs. The provider's observation stays unchanged, and a rename does not make it news.
func TestWhatAProviderSawIsNotRenamed(t *testing.T) {
	seen := &providers.Observation{Places: providers.Anywhere, Incarnations: job.Incarnations{
		{{UID: "u", Slot: job.Address{Job: "before", Role: "worker"}, Number: 1, State: job.Up}}}}
	l := loopOf(job.Job{})
	l.sight.see("local", Sight{Observation: seen}, nil)
	for _, now := range []string{"before", "now", "now", "later"} {
		l.book.set(state.State{Jobs: job.Records{now: {UID: "u", Launched: "before", Spec: job.Job{Name: now, Provider: "local"}}}})
		l.sight.fresh = false
		l.sight.see("local", Sight{Observation: seen}, nil)
		in := l.input()
		l.sight.keep(in.Snapshot)
		if got := in.Snapshot.Incarnations[0][0].Slot.Job; got != now || seen.Incarnations[0][0].Slot.Job != "before" || l.sight.fresh {
			t.Errorf("the plan calls it %s, want %s; the observation calls it %s, fresh %v", got, now, seen.Incarnations[0][0].Slot.Job, l.sight.fresh)
		}
		if l.sight.at(&plan.Change{UID: "u", Slot: job.Address{Job: now, Role: "worker"}, Incarnation: 1}) == nil {
			t.Errorf("a change of %s does not find its incarnation", now)
		}
	}
	other := *seen
	if l.sight.see("local", Sight{Observation: &other}, nil); !l.sight.fresh {
		t.Error("another observation is no news")
	}
}

// The service knows a job by its name at launch; its facts are translated to the current name.
func TestTheServiceKnowsAJobByTheNameOfItsAgents(t *testing.T) {
	slot := func(name string) job.Address { return job.Address{Job: name, Role: "worker"} }
	world := func(name string) job.World {
		return job.World{Generation: 1, Members: []job.WorldMember{{Slot: slot(name), Incarnation: 1}}}
	}
	desired := func(name string) elastic.Desired {
		return elastic.Desired{UID: "u", World: world(name), Want: job.Want{Unranked: []job.Address{slot(name)}}, Slots: []elastic.DesiredSlot{{Address: slot(name)}}}
	}
	facts := func(name string) map[string]elastic.Facts {
		return map[string]elastic.Facts{name: {UID: "u", World: world(name), Members: []elastic.MemberFacts{{Slot: slot(name)}}}}
	}
	n := namesOf(job.Records{"now": {UID: "u", Launched: "before"}})
	given, known := desired("now"), facts("before")
	if name, d := n.toService("now", given); name != "before" || !reflect.DeepEqual(d, desired("before")) {
		t.Errorf("the service is told of %s: %+v", name, d)
	}
	if got := n.fromService(known); !reflect.DeepEqual(got, facts("now")) {
		t.Errorf("facts %+v", got)
	}
	if !reflect.DeepEqual(given, desired("now")) || !reflect.DeepEqual(known, facts("before")) {
		t.Error("the argument was modified")
	}
	if got := n.now("u", "before"); got != "now" || n.launched("u", "now") != "before" || n.now("v", "other") != "other" || n.launched("v", "other") != "other" {
		t.Errorf("the job is called %s", got)
	}
}
