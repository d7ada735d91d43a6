package detect

import (
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// TestDiverged steps four ranks that say the same until step 40; then rank 2 says something else.
func TestDiverged(t *testing.T) {
	for _, c := range []struct {
		name    string
		says    func(rank int, step int64) job.Mark
		suspect []int
	}{
		{"gradient norms", func(rank int, step int64) job.Mark {
			norm := 1 / float64(step+1)
			if rank == 2 && step >= 40 {
				norm += 1e-9
			}
			return job.Mark{GradNorm: &norm}
		}, []int{2}},
		{"a hash, the first time", func(rank int, step int64) job.Mark {
			if rank == 2 && step == 4 {
				return job.Mark{StateHash: "bad"}
			}
			return job.Mark{StateHash: "good"}
		}, []int{2}},
		{"losses of different data", func(rank int, step int64) job.Mark {
			return job.Mark{Loss: new(job.Loss(float64(rank) + 1/float64(step+1)))}
		}, nil},
		{"once is not enough", func(rank int, step int64) job.Mark {
			norm := 1.0
			if rank == 2 && step%20 == 0 {
				norm = 2
			}
			return job.Mark{GradNorm: &norm}
		}, nil},
		{"all differ at last", func(rank int, step int64) job.Mark {
			norm := 1.0
			if step >= 40 {
				norm += float64(rank)
			}
			return job.Mark{GradNorm: &norm}
		}, nil},
		{"one says nothing", func(rank int, step int64) job.Mark {
			if rank == 2 {
				return job.Mark{}
			}
			return job.Mark{StateHash: "good"}
		}, nil},
	} {
		d := New()
		f := Formed{Generation: 1}
		for i := range 4 {
			f.Slots = append(f.Slots, Slot{job.Address{Job: "a", Role: "worker", Index: i}, 1})
		}
		d.Step(began, Limited{Limits{Floor: 30 * time.Second}})
		d.Step(began, f)
		for step := range int64(80) {
			now := began.Add(time.Duration(step) * time.Second)
			for i, s := range f.Slots {
				mark := c.says(i, step)
				mark.Step = step
				d.Step(now, Reported{Slot: s.Address, Ranks: []Rank{{Step: &mark.Step, State: job.ThreadRuns, Mark: &mark}}})
			}
			for next := d.Next(); !next.IsZero() && !next.After(now); next = d.Next() {
				d.Step(now, Tick{})
			}
		}
		var ranks []int
		for _, s := range d.Suspicions() {
			if s.Cause != job.Diverged || !s.Certain {
				t.Errorf("%s: %+v", c.name, s)
			}
			ranks = append(ranks, s.Ranks...)
		}
		if !slices.Equal(ranks, c.suspect) {
			t.Errorf("%s: suspected are %v, want %v", c.name, ranks, c.suspect)
		}
	}
}
