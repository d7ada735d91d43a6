package apply

import (
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A plan's notices precede that of a world that has formed since the plan was made.
func TestNoticesComeInTheOrderOfWhatHappened(t *testing.T) {
	at := jobtest.Epoch
	l := New(at, Setup{})
	l.book.note(worldNotice("job.a", &job.World{Generation: 2, Formed: at}))
	l.turn.decided.Plan = plan.Plan{Notices: []job.Notice{{Time: at.Add(-time.Millisecond), Type: "incident"}, {Time: at, Type: "job_phase"}}}
	l.book.journal(l)
	kinds := func(notices []job.Notice) (kinds []string) {
		for _, n := range notices {
			kinds = append(kinds, n.Type)
		}
		return kinds
	}
	want := []string{"incident", "world_formed", "job_phase"}
	if got := kinds(l.turn.notices); !slices.Equal(got, want) {
		t.Errorf("noticed %q, want %q", got, want)
	}
	if journal, is := l.out.Effects[0].(Journal); !is || !slices.Equal(kinds(journal.Notices), want) {
		t.Errorf("journaled %+v, want %q", l.out.Effects[0], want)
	}
}

// The notice of a world names the elastic roles that changed size, with their limits.
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
		{2, 3, "role_resized(from=2 max=4 min=1 role=worker to=3)"},
		{2, 1, "role_resized(from=2 max=4 min=1 role=worker to=1)"},
		{2, 2, ""},
	} {
		if got := reasonsText(resized(&spec, world(c.before), world(c.now))); got != c.want {
			t.Errorf("from %d to %d: %q", c.before, c.now, got)
		}
	}
}

func TestAWorldsNotice(t *testing.T) {
	member := job.WorldMember{Processes: 2}
	for _, c := range []struct {
		world job.World
		want  string
	}{
		{job.World{Generation: 1, Members: []job.WorldMember{{Processes: 1}}}, "world_formed: world_formed(generation=1 processes=1 slots=1)"},
		{job.World{Generation: 3, Members: []job.WorldMember{member, member}, MasterAddr: "n1", MasterPort: 29500},
			"world_formed: world_formed(generation=3 master=n1:29500 processes=4 slots=2)"},
		{job.World{Generation: 3, Members: []job.WorldMember{member}, Adopted: true}, "world_adopted: world_adopted(generation=3 processes=2 slots=1)"},
	} {
		if n := worldNotice("job.a", &c.world); n.Type+": "+n.Reason.String() != c.want || n.Address != "job.a" {
			t.Errorf("noticed %+v, want %q", n, c.want)
		}
	}
}
