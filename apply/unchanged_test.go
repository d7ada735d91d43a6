package apply

import (
	"fmt"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// The cost of a turn in which nothing changed does not depend on the number of slots.
func TestAnUnchangedTurnCostsTheSameAtAnySize(t *testing.T) {
	var allocations []float64
	for _, slots := range []int{1, 100_000} {
		idle := newIdle(t, slots)
		allocations = append(allocations, testing.AllocsPerRun(10, idle.turn))
		if planned := idle.loop.turn.decided.Input.Now; !planned.Equal(jobtest.Epoch) {
			t.Errorf("with %d slots it planned at %v", slots, planned)
		}
	}
	if allocations[1] > allocations[0] {
		t.Errorf("an unchanged turn of one slot allocates %v times, of 100,000 %v times", allocations[0], allocations[1])
	}
}

func BenchmarkUnchangedTurn(b *testing.B) {
	for _, slots := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprint(slots), func(b *testing.B) {
			idle := newIdle(b, slots)
			b.ReportAllocs()
			for b.Loop() {
				idle.turn()
			}
		})
	}
}

// idle is a Loop over a job with many slots, all succeeded, and as many incarnations of other owners.
type idle struct {
	t    testing.TB
	loop *Loop
	now  time.Time
	seen *providers.Observation
}

func newIdle(t testing.TB, slots int) *idle {
	spec := jobtest.Job("a", jobtest.Role("worker", slots))
	rec := &job.Record{UID: "u", Phase: job.JobSucceeded, Spec: spec, Counts: map[string]int{"worker": slots}}
	i := &idle{t: t, now: jobtest.Epoch, seen: &providers.Observation{Places: providers.Anywhere, Nodes: []job.Node{jobtest.Node("n", jobtest.Cores(1))}}}
	prints := job.Fingerprints(&spec, &spec.Roles[0])
	var others []job.Incarnation
	for n := range slots {
		a := job.Address{Job: "a", Role: "worker", Index: n}
		rec.Slots = append(rec.Slots, job.Slot{Address: a, Phase: job.Succeeded, Incarnation: 1, Fingerprint: prints(n)})
		others = append(others, job.Incarnation{UID: "other", Slot: a, Number: 1, State: job.Up, Owner: "other"})
	}
	i.seen.Incarnations = job.InParts(others)
	i.loop = New(i.now, Setup{Intent: Intent{Watch: true}, Files: Files{Jobs: []job.Job{spec}}, Providers: []string{"local"},
		State: state.State{}.Next(job.Records{"a": rec}), NewUID: func(string) string { return "new" }})
	i.step(Served{})
	return i
}

// turn runs a turn that only time has triggered.
func (i *idle) turn() {
	i.now = i.now.Add(Rescan)
	i.step(Tick{})
	if i.loop.turn.phase != resting {
		i.t.Fatalf("the turn is at phase %d", i.loop.turn.phase)
	}
}

func (i *idle) step(events ...Event) {
	for len(events) > 0 {
		i.loop.Step(i.now, events[0])
		events = events[1:]
		for _, e := range i.loop.Ready().Effects {
			o := Outcome{Of: e.ID()}
			switch e := e.(type) {
			case Hear:
				f := Facts{Version: 1}
				if e.Known != 1 {
					f.Jobs = map[string]elastic.Facts{}
				}
				o.Result = f
			case Observe:
				o.Result = Sight{job.Capabilities{Places: true, Shared: true, Owner: "me"}, i.seen}
			case Prepare:
				o.Result = "token"
			}
			events = append(events, o)
		}
	}
}
