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
		turned := make(chan struct{})
		b.cluster.prepare = func(job.Group) error { <-turned; return nil } // else the same turn might launch
		b.turn(t)
		close(turned)
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
	const turn = 10 * time.Millisecond
	var r rest
	after := func(waited time.Duration) time.Duration {
		r.waited(waited)
		return r.after(turn)
	}
	if first := r.after(turn); first != turn {
		t.Errorf("the first rest is %v", first)
	}
	for n := 1; n < restAfter; n++ {
		if next := after(0); next != turn {
			t.Errorf("the rest after %d turns in a row is %v", n, next)
		}
	}
	for _, want := range []time.Duration{2 * turn, 4 * turn, 8 * turn, 8 * turn} {
		if next := after(0); next != want {
			t.Errorf("a later rest is %v, want %v", next, want)
		}
	}
	if next := after(turn + 1); next != turn {
		t.Errorf("the rest once the news have ended is %v", next)
	}
	for range restAfter {
		r.waited(0)
	}
	if long := r.after(restCap); long != restCap {
		t.Errorf("a rest is %v", long)
	}
}
