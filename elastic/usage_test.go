package elastic

import (
	"math"
	"testing"
	"time"

	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

// usageWorld is a coordinator whose world of n slots of two processes each trains.
func usageWorld(t testing.TB, name string, n int, now time.Time) *Coordinator {
	t.Helper()
	c := NewCoordinator()
	d := desiredOf(name, n, 15*time.Second)
	d.Want.Roles[0].Processes = 2
	c.Set(now, name, d)
	for i := range n {
		r := RegisterRequest{UID: "u1", Slot: job.Address{Role: "worker", Index: i}.Short(), Incarnation: 1, Host: "h", Report: Report{State: job.MemberWaiting, Port: 1}}
		if _, err := c.Register(now, name, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range c.Ready().Form {
		c.Formed(now, f, nil)
	}
	return c
}

// figuresOf is a report of a member with figures of so many ranks.
func figuresOf(ranks int, at time.Time, cpu float64) Report {
	r := Report{State: job.MemberRunning, Generation: 1, WorldSlots: 2, Step: 7, Figures: &job.SlotFigures{At: at}}
	for range ranks {
		r.Ranks = append(r.Ranks, job.RankReport{Process: &job.ProcessFigures{PID: 7, State: job.ThreadRuns, CPUSeconds: &cpu}})
	}
	return r
}

func TestUsageHasEachRankOfTheWorld(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := usageWorld(t, "gpt", 2, now)
	report := func(slot string, r Report) {
		t.Helper()
		if _, err := c.Sync(now, "gpt", SyncRequest{UID: "u1", Slot: slot, Incarnation: 1, Report: r}); err != nil {
			t.Fatal(err)
		}
	}
	agents := now.Add(time.Hour) // its clock is another
	report("worker[1]", figuresOf(2, agents, 10))
	now = now.Add(5 * time.Second)
	behind, step := figuresOf(2, agents.Add(5*time.Second), 20), int64(5)
	behind.Ranks[1].Progress = &job.RankProgress{By: "tqdm", Reading: job.Reading{Step: &step}}
	report("worker[1]", behind)
	u := c.Usage()["gpt"]
	if u.Ranks[2].Step != 7 || u.Ranks[3].Step != 5 {
		t.Errorf("the ranks of worker[1] are at steps %d and %d: the slot is at 7, and one of its processes at 5", u.Ranks[2].Step, u.Ranks[3].Step)
	}
	if len(u.Ranks) != 4 || u.UID != "u1" || u.Generation != 1 {
		t.Fatalf("got %+v", u)
	}
	for i, r := range u.Ranks {
		if r.Rank != i || r.Local != i%2 || r.Slot.Index != i/2 || (r.Process != nil) != (i >= 2) {
			t.Errorf("rank %d is %+v", i, r)
		}
	}
	if cpu := u.Ranks[3].CPU; cpu == nil || *cpu != 2 {
		t.Errorf("10 s in 5 s are %v cores", cpu)
	}
	last := history.Rank{Slot: u.Ranks[3].Slot, Local: 1}
	if points := c.history.Points(last, now.Add(-time.Minute)); len(points) != 2 || points[1].Step != 5 {
		t.Errorf("the history is %+v", points)
	}
	c.Remove("gpt")
	if points := c.history.Points(last, now.Add(-time.Minute)); len(points) != 0 || len(c.Usage()) != 0 {
		t.Error("a job that was removed is remembered")
	}
}

// A new master knows the last minutes of a rank from its agent, and of no other slot.
func TestANewMasterKnowsTheLastMinutes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	before := history.New(2)
	for range 12 {
		now = now.Add(history.Fine)
		r := figuresOf(2, now, float64(now.Unix()))
		for local := range 2 {
			before.Add(now, history.Rank{Local: local}, r.Measured(local, 1))
		}
	}
	recent := []*history.Recent{nil, before.Recent(now, history.Rank{Local: 1}, 10), before.Recent(now, history.Rank{}, 10)}
	c := usageWorld(t, "gpt", 2, now)
	req := RegisterRequest{UID: "u1", Slot: "worker[1]", Incarnation: 1, Host: "h", Recent: recent, Report: figuresOf(2, now, float64(now.Unix()))}
	if _, err := c.Register(now, "gpt", req); err != nil {
		t.Fatal(err)
	}
	slot := job.Address{Job: "gpt", Role: "worker", Index: 1}
	for local, want := range []int{1, 10, 0} {
		points := c.history.Points(history.Rank{Slot: slot, Local: local}, now.Add(-time.Hour))
		if len(points) != want {
			t.Errorf("rank %d has %d points", local, len(points))
		}
		if local == 1 && (points[0].CPU == nil || math.Abs(*points[0].CPU-1) > .01 || points[9].Step != 7) {
			t.Errorf("they are %+v to %+v", points[0], points[9])
		}
	}
}

// TestAnAgentClaimsNoMoreRanksThanItsSlotHas: neither in what is shown, nor in the history that all jobs share.
func TestAnAgentClaimsNoMoreRanksThanItsSlotHas(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := usageWorld(t, "gpt", 1, now)
	if _, err := c.Sync(now, "gpt", SyncRequest{UID: "u1", Slot: "worker[0]", Incarnation: 1, Report: figuresOf(1000, now, 1)}); err != nil {
		t.Fatal(err)
	}
	if u := c.Usage()["gpt"]; len(u.Ranks) != 2 {
		t.Errorf("%d ranks are shown", len(u.Ranks))
	}
	for local, points := range map[int]int{1: 1, 2: 0} {
		rank := history.Rank{Slot: job.Address{Job: "gpt", Role: "worker"}, Local: local}
		if got := len(c.history.Points(rank, now.Add(-time.Minute))); got != points {
			t.Errorf("local rank %d has %d points", local, got)
		}
	}
}

// TestACheckpointIsDatedWhenItIsReported: not one that a member of a former master reports when it registers, which may be old.
func TestACheckpointIsDatedWhenItIsReported(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := usageWorld(t, "gpt", 1, now)
	old := figuresOf(1, now, 1)
	old.Saved = job.Saved{Step: 100, Generation: 1}
	if _, err := c.Register(now, "gpt", RegisterRequest{UID: "u1", Slot: "worker[0]", Incarnation: 1, Host: "h", Report: old}); err != nil {
		t.Fatal(err)
	}
	if saved := c.Usage()["gpt"].Saved; !saved.IsZero() {
		t.Errorf("a checkpoint from before is dated %s", saved)
	}
	for _, s := range []struct{ at, step, want int }{{10, 100, -1}, {20, 200, 20}, {30, 200, 20}, {40, 150, 20}, {50, 300, 50}} {
		r := old
		r.Saved.Step = int64(s.step)
		at := now.Add(time.Duration(s.at) * time.Second)
		if _, err := c.Sync(at, "gpt", SyncRequest{UID: "u1", Slot: "worker[0]", Incarnation: 1, Report: r}); err != nil {
			t.Fatal(err)
		}
		got := c.Usage()["gpt"].Saved
		if s.want < 0 && !got.IsZero() || s.want >= 0 && !got.Equal(now.Add(time.Duration(s.want)*time.Second)) {
			t.Errorf("after step %d at %d s the newest is dated %s", s.step, s.at, got)
		}
	}
}

// The files of a checkpoint tell when it was written, also if that was before the master, and if it is replaced in place.
func TestACheckpointIsDatedByItsFiles(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := usageWorld(t, "gpt", 1, now)
	r := figuresOf(1, now, 1)
	saw := func(at time.Duration, saved job.Saved, written time.Duration, want time.Duration) {
		t.Helper()
		r.Saved = saved
		r.Checkpoint = &job.CheckpointSight{Newest: &job.FoundCheckpoint{Path: "ckpt.pt", Layout: "file", Step: saved.Step, Written: now.Add(written)}}
		if _, err := c.Sync(now.Add(at), "gpt", SyncRequest{UID: "u1", Slot: "worker[0]", Incarnation: 1, Report: r}); err != nil {
			t.Fatal(err)
		}
		if got := c.Usage()["gpt"].Saved; !got.Equal(now.Add(want)) {
			t.Errorf("%+v of %v is dated %v", saved, written, got.Sub(now))
		}
	}
	if _, err := c.Register(now, "gpt", RegisterRequest{UID: "u1", Slot: "worker[0]", Incarnation: 1, Host: "h", Report: r}); err != nil {
		t.Fatal(err)
	}
	saw(time.Second, job.Saved{Step: 100}, -time.Hour, -time.Hour)
	saw(10*time.Second, job.Saved{Generation: 1}, 5*time.Second, 10*time.Second) // a step is not known; it is dated as it is reported
	saw(30*time.Second, job.Saved{Generation: 1}, 25*time.Second, 25*time.Second)
	saw(40*time.Second, job.Saved{Generation: 1}, time.Hour, 25*time.Second) // a file server of the future
}
