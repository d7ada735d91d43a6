package plan

import (
	"math"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// A world that went on from step 60 though 100 had been reached, at 20 steps a second, did two seconds of
// work again. What is moved is never more than was spent, and the ledger still sums.
func TestStepsDoneAgainAreLost(t *testing.T) {
	at := job.Address{Job: "a", Role: "worker"}
	for _, test := range []struct {
		what                  string
		reached, first, last  int64
		rate, spent, wantLost float64
	}{
		{"no step before", 0, 1, 100, 20, 5, 0},
		{"some again", 100, 60, 140, 20, 5, 2},
		{"ended before it came as far again", 100, 60, 80, 20, 1.5, 1},
		{"never more than was spent", 100, 0, 100, 1, 3, 3},
		{"from where it was", 100, 101, 140, 20, 5, 0},
		{"no rate known", 100, 60, 140, 0, 5, 0},
	} {
		w := &work{world: job.World{Generation: 2}, slots: []*job.Slot{{Address: at}},
			seen: map[job.Address][]*job.Incarnation{at: {{Member: &job.Member{
				Generation: 2, FirstStep: test.first, Step: test.last, StepRate: test.rate}}}}}
		g := job.Goodput{Wall: test.spent, Productive: test.spent, Reached: test.reached}
		w.redo(&g, test.spent)
		if math.Abs(g.Lost.RedoneSteps-test.wantLost) > 1e-9 || math.Abs(g.Productive+g.Lost.RedoneSteps-g.Wall) > 1e-9 {
			t.Errorf("%s: %+v", test.what, g)
		}
		if want := max(test.reached, test.last); g.Reached != want {
			t.Errorf("%s: reached %d, want %d", test.what, g.Reached, want)
		}
	}
}
