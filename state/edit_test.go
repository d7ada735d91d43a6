package state

import (
	"maps"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// edited is a state of two jobs and conditions of both and of neither.
func edited() State {
	slot := func(name string, i int) job.Slot {
		return job.Slot{Address: job.Address{Job: name, Role: "w", Index: i}}
	}
	s := State{}.Next(job.Records{
		"a": {Spec: job.Job{Name: "a"}, UID: "1", Slots: []job.Slot{slot("a", 0), slot("a", 1)}},
		"b": {Spec: job.Job{Name: "b"}, UID: "2", Slots: []job.Slot{slot("b", 0)}},
	})
	s.Conditions = []conditions.Condition{{About: "job.a"}, {About: "job.a.w[1]"}, {About: "job.b"}, {About: "provider.local"}}
	s.Released = map[string]job.Released{"0": {}}
	return s
}

func about(s State) (all []string) {
	for _, c := range s.Conditions {
		all = append(all, c.About)
	}
	return all
}

// Conditions follow a renamed job.
func TestMove(t *testing.T) {
	s := edited()
	next, err := s.Move("a", "c")
	if err != nil || next.Serial != s.Serial+1 || next.Jobs["a"] != nil || next.Jobs["c"].UID != "1" {
		t.Errorf("%v: the jobs are %v at serial %d", err, next.Jobs, next.Serial)
	}
	if got := about(next); !slices.Equal(got, []string{"job.c", "job.c.w[1]", "job.b", "provider.local"}) {
		t.Errorf("conditions are about %q", got)
	}
	if same, err := s.Move("a", "b"); err == nil || same.Serial != s.Serial {
		t.Errorf("a job replaces another: %v", err)
	}
	if got := about(s); got[0] != "job.a" {
		t.Errorf("the state before has conditions about %q", got)
	}
}

// With a job its conditions go, and that it was released is added to what was; with a slot neither.
func TestForget(t *testing.T) {
	for address, want := range map[string]struct{ jobs, conditions, released []string }{
		"job.a":      {[]string{"b"}, []string{"job.b", "provider.local"}, []string{"0", "1"}},
		"job.a.w[1]": {[]string{"a", "b"}, []string{"job.a", "job.a.w[1]", "job.b", "provider.local"}, []string{"0"}},
	} {
		sel, err := job.ParseSelector(address)
		if err != nil {
			t.Fatal(err)
		}
		s := edited()
		next, gone := s.Forget([]job.Selector{sel})
		jobs, released := slices.Sorted(maps.Keys(next.Jobs)), slices.Sorted(maps.Keys(next.Released))
		if next.Serial != s.Serial+1 || !slices.Equal(jobs, want.jobs) || !slices.Equal(about(next), want.conditions) || !slices.Equal(released, want.released) || len(gone.Slots) == 0 {
			t.Errorf("without %s the jobs are %q, conditions about %q, released %q; gone is %+v", address, jobs, about(next), released, gone)
		}
		if len(s.Released) != 1 || len(s.Conditions) != 4 || len(s.Jobs) != 2 {
			t.Errorf("the state before is %+v", s)
		}
	}
}
