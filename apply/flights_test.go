package apply

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
)

func TestManyChangesHaveAsManyWorkersAsMayBeAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, most = 50, 3
		var spawned, working, peak atomic.Int32
		b := newBench(t, func(o *Options) {
			o.Jobs = []job.Job{jobtest.Job("a", jobtest.Role("worker", slots))}
			o.Parallelism = most
			o.Spawn = func(f func()) {
				spawned.Add(1)
				go f()
			}
		})
		b.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(slots)))
		b.cluster.launch = func(context.Context, job.Launch) error {
			if n := working.Add(1); n > peak.Load() {
				peak.Store(n)
			}
			time.Sleep(time.Second) // so that whoever may be at work is
			working.Add(-1)
			return nil
		}
		b.turn(t) // prepares it
		b.flights.wait()
		spawned.Store(0)
		b.turn(t)
		b.flights.wait()
		if n := len(b.cluster.Agents()); n != slots {
			t.Errorf("%d of %d slots were launched", n, slots)
		}
		if peak.Load() != most || spawned.Load() != most {
			t.Errorf("%d at work at once by %d workers, want %d", peak.Load(), spawned.Load(), most)
		}
	})
}

func TestTheLoopRestsLongerWhileNewsDoNotEnd(t *testing.T) {
	const turn = restFrom
	var r rest
	for i, want := range []time.Duration{turn, 2 * turn, 4 * turn, 8 * turn, 8 * turn} {
		if got := r.after(turn); got != want {
			t.Errorf("after turn %d it rests %v, want %v", i, got, want)
		}
		r.waited(0)
	}
	if got := r.after(time.Minute); got != restCap {
		t.Errorf("news wait %v", got)
	}
	r.waited(0)
	for range 3 {
		if got := r.after(restFrom / 5); got > restMost*restFrom/5 {
			t.Errorf("after a short turn it rests %v", got)
		}
		r.waited(0)
	}
	if got := r.after(restFrom / 5); got != restFrom/5 {
		t.Errorf("after short turns it rests %v", got)
	}
	r.waited(2 * time.Minute)
	if got := r.after(turn); got != turn {
		t.Errorf("after a quiet time it rests %v", got)
	}
}
