package detect

import (
	"fmt"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// large is a world of single processes that show steps.
func large(n int) (*Detector, []job.Address, func(rank int, step int64, at time.Time)) {
	d := New()
	f := Formed{Generation: 1}
	slots := make([]job.Address, n)
	for i := range slots {
		slots[i] = job.Address{Job: "a", Role: "worker", Index: i}
		f.Slots = append(f.Slots, Slot{slots[i], 1})
	}
	d.Step(began, Limited{Limits{Floor: 30 * time.Second, Ceiling: 30 * time.Minute}})
	d.Step(began, f)
	return d, slots, func(rank int, step int64, at time.Time) {
		r := Rank{Step: &step, Interval: time.Second, State: job.ThreadSleeps, Channel: "ep_poll", Busy: new(0.01), Idle: new(time.Second),
			Looks: job.Looks{All: step, Waits: map[string]int64{"ep_poll": step / 2}}}
		d.Step(at, Reported{Slot: slots[rank], Ranks: []Rank{r}})
	}
}

// BenchmarkReport is one report of a process in a world that moves.
func BenchmarkReport(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%d_ranks", n), func(b *testing.B) {
			d, slots, report := large(n)
			now, i := began, 0
			for b.Loop() {
				now = now.Add(5 * time.Second / time.Duration(n)) // each reports every 5 s
				report(i%len(slots), int64(i/len(slots)+1), now)
				if next := d.Next(); !next.IsZero() && !next.After(now) {
					d.Step(now, Tick{})
				}
				i++
			}
		})
	}
}

// BenchmarkLook is one look at a world that stands still.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%d_ranks", n), func(b *testing.B) {
			d, slots, report := large(n)
			now := began.Add(time.Minute)
			for i := range slots {
				report(i, 1, now)
			}
			now = now.Add(time.Minute)
			for i := range slots {
				report(i, 1, now)
			}
			b.ResetTimer()
			for b.Loop() {
				now = now.Add(lookAgain)
				d.Step(now, Tick{})
			}
			if len(d.Suspicions()) == 0 {
				b.Fatal("no suspicion")
			}
		})
	}
}
