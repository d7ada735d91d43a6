package detect

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// A world of which the steps are read in another way, by which none is shown, does not stand still since its last step: it works.
func TestStepsThatAreNoLongerShownAreNoHang(t *testing.T) {
	d, now := New(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d.Step(now, Limited{Limits{Floor: 3 * time.Second, Ceiling: 8 * time.Second}})
	slot := job.Address{Job: "j", Role: "worker"}
	d.Step(now, Formed{Generation: 1, Slots: []Slot{{slot, 2}}})
	report := func(shows bool, idle time.Duration) {
		busy := 1.0
		if idle > 0 {
			busy = 0
		}
		var ranks []Rank
		for range 2 {
			r := Rank{Idle: &idle, Busy: &busy, State: job.ThreadRuns, Interval: 100 * time.Millisecond}
			if step := now.Unix(); shows {
				r.Step = &step
			}
			ranks = append(ranks, r)
		}
		d.Step(now, Reported{Slot: slot, Ranks: ranks})
		d.Step(now, Tick{})
		now = now.Add(time.Second)
	}
	for range 60 {
		report(true, 0)
	}
	for range 60 {
		if report(false, 0); len(d.Suspicions()) > 0 {
			t.Fatalf("suspected while it works: %+v", d.Suspicions())
		}
	}
	for idle := range 20 {
		report(false, time.Duration(idle+1)*time.Second)
	}
	if s := d.Suspicions(); len(s) != 1 || !s[0].Certain || now.Sub(s[0].Since) > 22*time.Second {
		t.Errorf("of processes that are idle it is suspected %+v", s)
	}
	report(true, 0)
	report(true, 0)
	if s := d.Suspicions(); len(s) > 0 {
		t.Errorf("suspected once steps are shown again: %+v", s)
	}
}
