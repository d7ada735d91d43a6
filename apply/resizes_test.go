package apply

import (
	"errors"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// sized is a view that keeps how many changes each plan has that it is told.
type sized struct {
	listener
	changes []int
}

func (v *sized) Planned(p *plan.Plan) { v.changes = append(v.changes, len(p.Changes)) }

// A program that follows the loop has to hear that what it set out for is at its end, also if it was given up. A plan that is
// empty because nothing is seen is no end.
func TestThePlanThatEndsTheChangesIsTold(t *testing.T) {
	v := new(sized)
	b := newBench(t, func(o *Options) { o.View = v })
	b.turn(t)
	b.cluster.unseen = errors.New("the API server is down")
	b.turn(t)
	if want := []int{2}; !slices.Equal(v.changes, want) {
		t.Errorf("told are plans of %v changes, want %v", v.changes, want)
	}
	b.cluster.unseen = nil
	for range 3 {
		b.turn(t)
	}
	if want := []int{2, 0}; !slices.Equal(v.changes, want) {
		t.Errorf("told are plans of %v changes, want %v", v.changes, want)
	}
}

// trained is a service whose only job trains on two slots, and a view that keeps the sizes that it is told.
type trained struct {
	*listener
	sizes []plan.Size
}

func (*trained) Observe() map[string]elastic.Facts {
	f := elastic.Facts{UID: "u", World: job.World{Generation: 1}}
	for i := range 2 {
		slot := job.Address{Job: "a", Role: "worker", Index: i}
		f.World.Members = append(f.World.Members, job.WorldMember{Slot: slot, Incarnation: 1, Rank: i, Processes: 1})
		f.Members = append(f.Members, elastic.MemberFacts{Slot: slot, Incarnation: 1, Member: job.Member{State: job.MemberRunning, Generation: 1, Registered: jobtest.Epoch}})
	}
	return map[string]elastic.Facts{"a": f}
}

func (v *trained) Planned(p *plan.Plan) { v.sizes = append(v.sizes, p.Sizes...) }

// A node that dies takes slots of an elastic role with it: nothing is to be done, and the decision is told once.
func TestASizeThatChangesByItselfIsTold(t *testing.T) {
	v := &trained{}
	b := newBench(t, func(o *Options) {
		role := jobtest.Role("worker", 2)
		role.Scaling = &job.Scaling{Min: 1, Max: 2}
		o.Jobs = []job.Job{jobtest.Job("a", role)}
		v.listener = o.View.(*listener)
		o.Service, o.View = v, v
	})
	b.cluster.Schedules, b.cluster.can = false, job.Capabilities{Places: true}
	b.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(1)))
	b.cluster.SetNode(jobtest.Node("n2", jobtest.Cores(1)))
	for range 3 {
		b.turn(t)
	}
	b.cluster.CrashNode("n2")
	v.sizes = nil
	p := b.turn(t)
	if len(p.Changes) > 0 {
		t.Errorf("something is to be done: %+v", p.Changes)
	}
	b.turn(t)
	if len(v.sizes) != 1 || v.sizes[0].Before != 2 || v.sizes[0].Now != 1 {
		t.Errorf("told are %+v", v.sizes)
	}
}
