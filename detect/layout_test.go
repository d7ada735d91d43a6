package detect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// world is one of a layout, of slots of one process each, whose ranks all report once a second.
type world struct {
	d     *Detector
	slots []Slot
	now   time.Time
}

func worldOf(size int, layout job.Layout) *world {
	w := &world{d: New(), now: began}
	for i := range size {
		w.slots = append(w.slots, Slot{job.Address{Job: "a", Role: "worker", Index: i}, 1})
	}
	w.d.Step(w.now, Limited{Limits{Floor: 10 * time.Second, Ceiling: 20 * time.Minute}})
	w.d.Step(w.now, Formed{Generation: 1, Slots: w.slots, Layout: layout})
	return w
}

// pass reports for a while what ranks do, by their number and the second.
func (w *world) pass(seconds int64, does func(rank int, second int64) Rank) {
	for second := range seconds {
		w.now = w.now.Add(time.Second)
		for i, s := range w.slots {
			w.d.Step(w.now, Reported{Slot: s.Address, Ranks: []Rank{does(i, second)}})
		}
		for next := w.d.Next(); !next.IsZero() && !next.After(w.now); next = w.d.Next() {
			w.d.Step(w.now, Tick{})
		}
	}
}

// steps is a rank that shows a step each second, and then none.
func steps(second, last int64) Rank {
	step := min(second, last)
	return Rank{Step: &step, StepAge: time.Duration(second-step) * time.Second, Interval: time.Second, State: job.ThreadRuns, Busy: new(0.01), Idle: new(10 * time.Second)}
}

// hangs lets a world that has shown steps stand still, with what its ranks have recorded of their collectives.
func (w *world) hangs(recorded [][]job.Collective) {
	w.pass(60, func(rank int, second int64) Rank {
		r := steps(second, 20)
		r.Evidence = &job.RankEvidence{Frames: []string{"all_reduce (c10d.py:1)"}, Collectives: recorded[rank]}
		return r
	})
}

// suspected are the ranks and the groups that suspicions name.
func (w *world) suspected() (out []string) {
	for _, s := range w.d.Suspicions() {
		text := fmt.Sprint(s.Cause, " ", s.Ranks)
		for _, why := range s.Evidence {
			if why.Code == RankGroup {
				text += fmt.Sprintf(" of %s %s (%s)", why.Args["group"], why.Args["index"], why.Args["members"])
			}
		}
		out = append(out, text)
	}
	return out
}

// A rank is odd among those that are at the same place in the parallel layout, and suspects' common group is named.
func TestRanksAreComparedWithinTheLayout(t *testing.T) {
	tensor, pipeline := job.Layout{{Name: "tensor", Size: 2}}, job.Layout{{Name: "data"}, {Name: "pipeline", Size: 2}}
	says := func(rank int, second int64, m job.Mark) Rank {
		r := steps(second, second)
		m.Step = second
		r.Mark = &m
		return r
	}
	works := func(r Rank) Rank { r.Busy, r.Idle = new(1.0), new(time.Duration(0)); return r }
	in := func(r Rank, frame string) Rank {
		r.Evidence = &job.RankEvidence{Frames: []string{frame + " (train.py:1)"}}
		return r
	}
	for _, c := range []struct {
		name   string
		layout job.Layout
		does   func(rank int, second int64) Rank
		want   []string
	}{
		{"a state that is sharded", tensor, func(rank int, second int64) Rank {
			return says(rank, second, job.Mark{StateHash: fmt.Sprint(rank % 2)})
		}, nil},
		{"of which one copy is wrong", tensor, func(rank int, second int64) Rank {
			hash := fmt.Sprint(rank % 2)
			if rank == 3 && second > 20 {
				hash = "wrong"
			}
			return says(rank, second, job.Mark{StateHash: hash})
		}, []string{"diverged [3]"}},
		{"a loss that only the last stage has", pipeline, func(rank int, second int64) Rank {
			if rank < 3 {
				return steps(second, second)
			}
			loss := job.Loss(1.5)
			if rank == 4 && second > 20 {
				loss = 2
			}
			return says(rank, second, job.Mark{Loss: &loss})
		}, []string{"diverged [4]"}},
		{"a stage that spins while the other waits, and a rank that does not", pipeline, func(rank int, second int64) Rank {
			r := steps(second, 20)
			if rank == 3 || rank == 5 {
				return works(r)
			}
			return r
		}, []string{"hang [4]"}},
		{"the same with all compared", nil, func(rank int, second int64) Rank {
			r := steps(second, 20)
			if rank == 3 || rank == 5 {
				return works(r)
			}
			return r
		}, []string{"hang [3 5]"}},
		{"stages that are a step apart", pipeline, func(rank int, second int64) Rank {
			r := steps(second, 20-int64(rank/3))
			if rank == 1 {
				return in(r, "load")
			}
			return in(r, []string{"recv", "all_reduce"}[rank/3])
		}, []string{"hang [1]"}},
		{"a tensor group that is behind", tensor, func(rank int, second int64) Rank {
			if rank == 2 || rank == 3 {
				return steps(second, 19)
			}
			return steps(second, 20)
		}, []string{"hang [2 3] of tensor 1 (2-3)"}},
		{"ranks of no common group", tensor, func(rank int, second int64) Rank {
			if rank == 2 || rank == 5 {
				return steps(second, 19)
			}
			return steps(second, 20)
		}, []string{"hang [2 5]"}},
	} {
		w := worldOf(6, c.layout)
		w.pass(60, c.does)
		if got := w.suspected(); !slices.Equal(got, c.want) {
			t.Errorf("%s: suspected are %v, want %v", c.name, got, c.want)
		}
	}
}
