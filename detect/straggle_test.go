package detect

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// worked steps a world whose ranks work for these shares of their time, looked at twice a second, and returns when a straggler was first
// suspected, if any.
func worked(t *testing.T, shares []float64, lasts time.Duration) (d *Detector, after time.Duration) {
	t.Helper()
	d = New()
	rng := rand.New(rand.NewPCG(1, 2))
	d.Step(began, Limited{Limits{Floor: 30 * time.Second, Ceiling: time.Hour}})
	f := Formed{Generation: 3}
	for i := range shares {
		f.Slots = append(f.Slots, Slot{job.Address{Job: "a", Role: "worker", Index: i}, 1})
	}
	d.Step(began, f)
	looks := make([]job.Looks, len(shares))
	for i := range looks {
		looks[i].Waits = map[string]int64{"ep_poll": 0, "futex": 0}
	}
	for at, step := time.Duration(0), int64(0); at < lasts; at += 500 * time.Millisecond {
		now := began.Add(at)
		step++
		for i, share := range shares {
			looks[i].All++
			waits := looks[i].Waits
			switch draw := rng.Float64(); {
			case draw >= share:
				waits["ep_poll"]++
			case draw < share/10: // something else that it does
				waits["futex"]++
			}
			if step%4 == 0 {
				told := Rank{Step: &step, State: job.ThreadRuns, Looks: job.Looks{All: looks[i].All, Waits: map[string]int64{"ep_poll": waits["ep_poll"], "futex": waits["futex"]}}}
				told.Step = new(step)
				d.Step(now, Reported{Slot: f.Slots[i].Address, Ranks: []Rank{told}})
			}
		}
		for next := d.Next(); !next.IsZero() && !next.After(now); next = d.Next() {
			d.Step(now, Tick{})
		}
		if len(d.Suspicions()) > 0 && after == 0 {
			after = at
		}
	}
	return d, after
}

func TestStraggler(t *testing.T) {
	for _, c := range []struct {
		name   string
		shares []float64
		ranks  []int
	}{
		{"one works twice as long", []float64{0.4, 0.4, 0.85, 0.4}, []int{2}},
		{"of two", []float64{0.95, 0.45}, []int{0}},
		{"all alike", []float64{0.9, 0.9, 0.9, 0.9}, nil},
		{"a little slower", []float64{0.6, 0.6, 0.72, 0.6}, nil},
		{"two are slow", []float64{0.9, 0.3, 0.9, 0.3, 0.3, 0.3}, []int{0}},
		{"nobody works", []float64{0.02, 0.02, 0.02}, nil},
	} {
		d, after := worked(t, c.shares, 30*time.Minute)
		var ranks []int
		for _, s := range d.Suspicions() {
			if s.Cause != job.Straggler || !s.Certain {
				t.Errorf("%s: %+v", c.name, s)
			}
			ranks = append(ranks, s.Ranks...)
		}
		if len(ranks) != len(c.ranks) || len(ranks) > 0 && c.shares[ranks[0]] != slices.Max(c.shares) {
			t.Errorf("%s: suspected are %v, after %s", c.name, ranks, after)
		}
	}
}

// TestNoStragglerByChance is of a day in which all ranks work alike.
func TestNoStragglerByChance(t *testing.T) {
	if d, after := worked(t, []float64{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, 24*time.Hour); after > 0 {
		t.Errorf("after %s: %+v", after, d.Suspicions())
	}
}
