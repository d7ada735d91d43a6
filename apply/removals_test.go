package apply

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// journalled keeps the notices on changes that a journal gets, a line each.
type journalled struct{ lines []string }

func (j *journalled) Append(entries ...state.Entry) error {
	for _, e := range entries {
		var n job.Notice
		if e.Kind != state.NoticeEntry {
			continue
		}
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return err
		}
		switch n.Type {
		case "removed", "replaced", "destroyed", "forgotten", "refused":
			j.lines = append(j.lines, n.Type+" "+n.Address+": "+n.Message)
		}
	}
	return nil
}

// expect holds what was journalled since it was asked last against what is wanted.
func (j *journalled) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(j.lines, want) {
		t.Errorf("%s: journalled is %q, want %q", when, j.lines, want)
	}
	j.lines = nil
}

// The journal has what was stopped and why, a line for what goes together, once.
func TestTheJournalTellsWhatIsStopped(t *testing.T) {
	journal := new(journalled)
	b, _ := guarded(t, func(o *Options) { o.Journal = journal })
	journal.expect(t, "they run")

	fewer := two(2)
	fewer[0].Roles[0].Replicas = 1
	b.Declare(fewer)
	b.turns(t)
	journal.expect(t, "fewer", "removed job.a.worker[1]: slots_removed(count=1){above_most(most=1)}")

	fewer[1].Roles[0].Command = []string{"other"}
	b.Declare(fewer)
	b.turns(t)
	journal.expect(t, "edited", "replaced job.b.worker[0-1]: slots_replaced(count=2){declaration_changed(fields=command)}")

	b.Declare(fewer[:1])
	b.turns(t)
	journal.expect(t, "taken out of the files", "removed job.b.worker[0-1]: slots_removed(count=2){not_declared}",
		"destroyed job.b: is destroyed: it is not in the files any more")

	b.o.Blocks = plan.Blocks{Forget: map[string]bool{"a": true}}
	b.Declare(nil)
	b.turns(t)
	journal.expect(t, "let go", "forgotten job.a: is forgotten, as a removed block says: what of it runs, runs on (uid ua)")
}

func TestTheJournalTellsOfADestroy(t *testing.T) {
	journal := new(journalled)
	b, _ := guarded(t, func(o *Options) { o.Journal = journal })
	b.o.Destroy = true
	b.Declare(nil)
	b.turns(t)
	journal.expect(t, "destroyed", "removed job.a.worker[0-1]: slots_removed(count=2){destroy_requested}", "removed job.b.worker[0-1]: slots_removed(count=2){destroy_requested}",
		"destroyed job.a: is destroyed: destroy was asked for", "destroyed job.b: is destroyed: destroy was asked for")
}

// What runs without a record is stopped, and that is told as well.
func TestTheJournalTellsWhichStraysAreStopped(t *testing.T) {
	journal := new(journalled)
	b, _ := guarded(t, func(o *Options) { o.Journal = journal })
	for i := range 2 {
		must(t, b.cluster.Cluster.Launch(t.Context(), job.Launch{UID: "lost", Slot: job.Address{Job: "c", Role: "worker", Index: i}, Incarnation: 1}))
	}
	b.turns(t)
	journal.expect(t, "without a record", "removed job.c.worker[0-1]: slots_removed(count=2){stray}")
}

// A launch that is refused is told once for as long as it is refused for one reason, however often it is tried.
func TestTheJournalTellsWhatIsRefused(t *testing.T) {
	journal := new(journalled)
	b := newBench(t, func(o *Options) { o.Journal = journal })
	refuse := func(err error, from int) {
		b.cluster.launch = func(_ context.Context, l job.Launch) error {
			if l.Slot.Index >= from {
				return err
			}
			return nil
		}
	}
	quota := errors.New("exceeded quota: tight")
	refuse(quota, 1)
	b.turns(t)
	journal.expect(t, "one of two", `refused job.a.worker[1]: launch_refused(message="exceeded quota: tight")`)
	refuse(errors.New("no such image"), 1)
	b.turns(t)
	journal.expect(t, "another reason", `refused job.a.worker[1]: launch_refused(message="no such image")`)
	refuse(nil, 2)
	b.turns(t)
	journal.expect(t, "launched")
	b.cluster.stop = func() error { return errors.New("forbidden") }
	b.Declare(nil)
	b.now = b.now.Add(time.Hour)
	b.turns(t)
	journal.expect(t, "a stop that is refused", "removed job.a.worker[0-1]: slots_removed(count=2){not_declared}", "refused job.a.worker[0-1]: stop_refused(message=forbidden)")
}

// What a run cannot even prepare is told, too.
func TestTheJournalTellsWhatCannotBePrepared(t *testing.T) {
	journal := new(journalled)
	b := newBench(t, func(o *Options) { o.Journal = journal; o.Jobs = []job.Job{jobtest.Job("a", jobtest.Role("worker", 2))} })
	b.cluster.prepare = func(job.Group) error { return errors.New("make its Secret: forbidden") }
	b.turns(t)
	journal.expect(t, "not prepared", `refused job.a: preparation_refused(job=a message="make its Secret: forbidden")`)
}
