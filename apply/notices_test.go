package apply

import (
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// What a plan found out is told before a world that has formed since it was made.
func TestNoticesComeInTheOrderOfWhatHappened(t *testing.T) {
	b := newBench(t, func(*Options) {})
	at := jobtest.Epoch
	b.unwritten = []job.Notice{worldNotice("job.a", &job.World{Generation: 2, Formed: at})}
	p := plan.Plan{Notices: []job.Notice{{Time: at.Add(-time.Millisecond), Type: "incident"}, {Time: at, Type: "job_phase"}}}
	must(t, b.commit(t.Context(), plan.Input{}, &p))
	var kinds []string
	for _, n := range p.Notices {
		kinds = append(kinds, n.Type)
	}
	if want := []string{"incident", "world_formed", "job_phase"}; !slices.Equal(kinds, want) {
		t.Errorf("told are %q, want %q", kinds, want)
	}
}

// Whoever reads the events sees that a world is larger because its role was scaled, and within what.
func TestAWorldsNoticeTellsWhichRolesWereScaled(t *testing.T) {
	role := jobtest.Role("worker", 2)
	role.Scaling = &job.Scaling{Min: 1, Max: 4}
	spec := jobtest.Job("a", jobtest.Role("ps", 1), role)
	world := func(workers int) *job.World {
		w := &job.World{Members: []job.WorldMember{{Slot: job.Address{Job: "a", Role: "ps"}}}}
		for i := range workers {
			w.Members = append(w.Members, job.WorldMember{Slot: job.Address{Job: "a", Role: "worker", Index: i}})
		}
		return w
	}
	for _, c := range []struct {
		before, now int
		want        string
	}{
		{2, 3, ", worker 2 -> 3 slots within 1..4"},
		{2, 1, ", worker 2 -> 1 slot within 1..4"},
		{2, 2, ""},
	} {
		if got := resized(&spec, world(c.before), world(c.now)); got != c.want {
			t.Errorf("from %d to %d: %q", c.before, c.now, got)
		}
	}
}
