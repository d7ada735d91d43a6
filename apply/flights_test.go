package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
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
	now := time.Unix(0, 0)
	var r rest
	take := func(took, stored time.Duration, queued bool) time.Duration {
		now = now.Add(took + stored)
		pause := r.after(now, took, stored, queued)
		now = now.Add(pause)
		return pause
	}
	alone := func() {
		t.Helper()
		for n := range int(restFree / turn) {
			if pause := take(turn, 0, false); pause != turn {
				t.Fatalf("the rest after %d turns in a row is %v", n+1, pause)
			}
		}
	}
	share := func(took, stored time.Duration, queued bool) time.Duration {
		began := now
		for range 1000 {
			take(took, stored, queued)
		}
		return now.Sub(began) / 1000 / turn
	}
	alone()
	if is := share(turn, 0, false); is < restShare-1 || is > restShare {
		t.Errorf("while news did not end, one part in %d of the time went to turns", is)
	}
	if is := share(0, restStored*turn, false); is < restShare-1 || is > restShare+restStored {
		t.Errorf("while news did not end, one part in %d of the time went to a third of storing", is)
	}
	now = now.Add(restShare * (restFree + restCap))
	alone()
	now = now.Add(restShare * (restFree + restCap))
	if is := share(turn, 0, true); is < restQueued || is > restQueued+1 {
		t.Errorf("while changes waited, one part in %d of the time went to turns", is)
	}
	now = now.Add(restShare * (restFree + restCap))
	if pause := take(restFree/2, 0, true); pause != restWhileQueued {
		t.Errorf("while changes waited, the rest after a long turn is %v", pause)
	}
	for _, queued := range []bool{false, true} {
		for range 10 {
			if pause := take(restCap/2, 0, queued); pause > restCap {
				t.Errorf("a rest is %v", pause)
			}
		}
	}
	now = now.Add(restShare*restFree + restCap)
	if pause := take(turn, restFree, false); pause != turn {
		t.Errorf("the rest after a turn that comes alone after longer ones is %v", pause)
	}
}

// forgetful is a provider of which a test sees what it forgets, and for how long.
type forgetful struct {
	providers.Provider
	forget func(uid string)
}

func (f forgetful) Forget(ctx context.Context, uid, name string) error {
	f.forget(uid)
	return f.Provider.Forget(ctx, uid, name)
}

// calls are those of a provider that matter here, in their order.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) add(what, of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, what+" "+of)
}

// since takes what was called since the last time.
func (c *calls) since() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.Join(c.made, ", ")
	c.made = nil
	return text
}

// overheard is a view of which a test sees what is told of forgetting and of launches, and how often a plan is.
type overheard struct {
	View
	seen  *calls
	plans *int
}

func (v overheard) Finished(c *plan.Change, took time.Duration, err error) {
	if isForget(c) {
		v.seen.add("told", c.UID)
	}
	v.View.Finished(c, took, err)
}

func (v overheard) Withdrawn(c *plan.Change, took time.Duration) {
	v.seen.add("withdrawn", cmp.Or(c.Slot.Short(), c.UID))
	v.View.Withdrawn(c, took)
}

func (v overheard) Planned(p *plan.Plan) {
	*v.plans++
	v.View.Planned(p)
}

// busyBench has one worker for all changes, and tells what is called. Its rounds are turns with all that they begin, but for
// what a test holds up.
func busyBench(t *testing.T, seen *calls, forget func(uid string), jobs ...job.Job) *bench {
	b := newBench(t, func(o *Options) {
		o.Spawn, o.Parallelism, o.Jobs = nil, 1, jobs
		o.NewUID = func(name string) string { return "u" + name }
		o.View = overheard{o.View, seen, new(int)}
		o.Providers["local"] = forgetful{o.Providers["local"], func(uid string) {
			seen.add("forget", uid)
			forget(uid)
		}}
	})
	b.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(200)))
	b.cluster.prepare = func(g job.Group) error { seen.add("prepare", g.UID); return nil }
	b.cluster.launch = func(_ context.Context, l job.Launch) error {
		seen.add("launch", fmt.Sprintf("%s#%d", l.Slot, l.Incarnation))
		return nil
	}
	return b
}

func (b *bench) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		b.turn(t)
		synctest.Wait()
		b.now = b.now.Add(Rescan)
		b.cluster.Advance(b.now, func() {})
	}
}

func TestHealingGoesAheadOfWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		hurt := jobtest.Job("z", jobtest.Role("worker", 1))
		b := busyBench(t, &seen, func(string) {}, hurt)
		b.rounds(t, 3)
		launch := b.cluster.launch
		b.cluster.launch = func(ctx context.Context, l job.Launch) error {
			time.Sleep(time.Second)
			return launch(ctx, l)
		}
		b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", 20)), hurt})
		for range 2 { // it is prepared, and its launches begin
			b.turn(t)
			synctest.Wait()
		}
		seen.since()
		for _, agent := range b.cluster.Agents() {
			if agent.Slot().Job == "z" {
				b.cluster.PutOut(agent, job.Preemption)
			}
		}
		for range 5 { // each while the worker is at its first launch
			b.now = b.now.Add(2 * time.Second)
			b.turn(t)
			time.Sleep(time.Millisecond)
		}
		b.flights.wait()
		order := strings.Split(seen.since(), ", ")
		if at := slices.Index(order, "launch job.z.worker[0]#2"); at != 1 {
			t.Errorf("the next of job z is launched at %d of %q", at, order)
		}
	})
}

func TestAJobThatIsWantedAgainIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		free := make(chan struct{})
		a, other := jobtest.Job("a", jobtest.Role("worker", 1)), jobtest.Job("b", jobtest.Role("worker", 3))
		b := busyBench(t, &seen, func(string) {}, a)
		b.rounds(t, 3)
		launch := b.cluster.launch
		b.cluster.launch = func(ctx context.Context, l job.Launch) error {
			if l.UID == "ub" {
				<-free
			}
			return launch(ctx, l)
		}
		b.Declare([]job.Job{a, other})
		b.rounds(t, 2) // b's first launch has the only worker
		b.Declare([]job.Job{other})
		b.rounds(t, 1)
		must(t, b.cluster.Stop(t.Context(), "ua", job.Address{Job: "a", Role: "worker"}, 1, 0))
		b.rounds(t, 2) // now its forgetting waits for the worker
		b.Declare([]job.Job{a, other})
		b.rounds(t, 2)
		close(free)
		b.rounds(t, 4)
		b.flights.wait()
		if made := seen.since(); strings.Contains(made, "forget") || strings.Contains(made, "told") || !strings.Contains(made, "launch job.a.worker[0]#2") {
			t.Errorf("calls: %s", made)
		}
	})
}

// Who else was at fault comes a little later; the next run is to tell of its own faults.
func TestARunDoesNotEndBeforeAllCulpritsAreTold(t *testing.T) {
	b := newBench(t, func(*Options) {})
	p := b.turn(t)
	b.now = b.now.Add(time.Hour)
	p.Changes = nil
	rec := p.Records["a"]
	rec.Phase = job.JobSucceeded
	rec.Incidents = []job.Incident{{Time: b.now, Cause: job.AgentGone, Action: job.Replace, Told: true}}
	if !b.settled(&p) {
		t.Fatal("it is not settled")
	}
	rec.Incidents[0].Added = b.now
	if b.settled(&p) {
		t.Error("it is settled with a culprit that is yet to be told of")
	}
}

// What would be launched into a job that is forgotten would have nobody to end it.
func TestAJobIsNotForgottenWhileItIsLaunched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		free := make(chan struct{})
		b := busyBench(t, &seen, func(string) {}, jobtest.Job("a", jobtest.Role("worker", 1)))
		b.flights.queueOf("local").most = 2 // forgetting would not have to wait for a worker
		launch := b.cluster.launch
		b.cluster.launch = func(ctx context.Context, l job.Launch) error {
			<-free
			return launch(ctx, l)
		}
		b.rounds(t, 2)
		b.Declare(nil)
		b.rounds(t, 3)
		if made := seen.since(); strings.Contains(made, "forget") {
			t.Errorf("while a slot is launched: %s", made)
		}
		close(free)
		for range 4 {
			b.rounds(t, 1)
			for _, agent := range b.cluster.Agents() {
				agent.Kill()
			}
		}
		b.flights.wait()
		if made := seen.since(); !strings.HasPrefix(made, "launch job.a.worker[0]#1") || !strings.HasSuffix(made, "forget ua, told ua") {
			t.Errorf("afterwards: %s", made)
		}
	})
}

func TestALaunchThatNeverSucceededIsNotToldAsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		b := busyBench(t, &seen, func(string) {}, jobtest.Job("a", jobtest.Role("worker", 2)))
		b.cluster.launch = func(context.Context, job.Launch) error { return errors.New("quota exceeded") }
		b.rounds(t, 3)
		seen.since()
		b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", 1))})
		b.rounds(t, 2)
		if made := seen.since(); !strings.Contains(made, "withdrawn worker[1]") || strings.Contains(made, "withdrawn worker[0]") {
			t.Errorf("after a slot less is wanted: %s", made)
		}
		b.Declare(nil)
		b.rounds(t, 3)
		if made := seen.since(); !strings.Contains(made, "withdrawn worker[0]") || !strings.Contains(made, "told ua") {
			t.Errorf("after none is: %s", made)
		}
	})
}

func TestWhatIsBeingForgottenIsMadeAnewAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		held := make(chan struct{})
		a := jobtest.Job("a", jobtest.Role("worker", 1))
		b := busyBench(t, &seen, func(string) { <-held }, a)
		b.rounds(t, 3)
		b.Declare(nil)
		b.rounds(t, 1)
		must(t, b.cluster.Stop(t.Context(), "ua", job.Address{Job: "a", Role: "worker"}, 1, 0))
		b.rounds(t, 2)
		if made := seen.since(); !strings.HasSuffix(made, "forget ua") {
			t.Fatalf("calls: %s", made)
		}
		b.Declare([]job.Job{a})
		b.rounds(t, 1)
		plans := b.o.View.(overheard).plans
		before := *plans
		b.rounds(t, 3)
		if made := seen.since(); made != "" || *plans != before {
			t.Errorf("while it is being forgotten: %s, and %d plans are told", made, *plans-before)
		}
		close(held)
		b.flights.wait()
		b.rounds(t, 4)
		b.flights.wait()
		if made := seen.since(); !strings.HasPrefix(made, "told ua, prepare ua") || !strings.Contains(made, "launch job.a.worker[0]#2") || strings.Contains(made, "forget") {
			t.Errorf("afterwards: %s", made)
		}
	})
}

// What is held back when a turn decides on it begins with a later one, whatever lands in between: it would neither be shown
// nor journalled.
func TestWhatATurnBeginsIsDecidedOnce(t *testing.T) {
	b := newBench(t, func(*Options) {})
	launch := plan.Change{Action: plan.Create, Job: "a", UID: "u", Incarnation: 1, Slot: job.Address{Job: "a", Role: "worker"}, Launch: &job.Launch{}}
	forget := plan.Change{Action: plan.Delete, Job: "a", UID: "u"}
	launching := &begun{change: launch, flying: true}
	b.flights.begun[targetOf(&launch)] = launching
	p := &plan.Plan{Changes: []plan.Change{forget}}

	off := b.flights.take(t.Context(), b.now, p)
	launching.flying = false // it lands
	b.flights.follow(t.Context(), b.now, off)
	if begun := b.flights.begun[targetOf(&forget)]; begun != nil || off.fresh {
		t.Errorf("forgetting was begun: %v, and shown: %t", begun, off.fresh)
	}
	off = b.flights.take(t.Context(), b.now, p)
	b.flights.follow(t.Context(), b.now, off)
	if begun := b.flights.begun[targetOf(&forget)]; begun == nil || !off.fresh {
		t.Errorf("forgetting was begun: %v, and shown: %t, with the turn after the launch", begun, off.fresh)
	}
}

// A stop that succeeded may have to be done again, when what it stopped is still seen, and may fail then.
func TestARepeatedChangeThatFailsIsToldToSucceedLater(t *testing.T) {
	view := &stops{begun: make(chan struct{}, 1)}
	b := newBench(t, func(o *Options) { o.View = view })
	stop := plan.Change{Action: plan.Delete, Job: "a", UID: "u", Incarnation: 1, Provider: "local", Stop: []int{1}, Slot: job.Address{Job: "a", Role: "worker"}}
	p := &plan.Plan{Changes: []plan.Change{stop}}
	for _, err := range []error{nil, errors.New("no route to host"), nil} {
		b.cluster.stop = func() error { return err }
		b.flights.look()
		b.flights.follow(t.Context(), b.now, b.flights.take(t.Context(), b.now, p))
		if err != nil && b.flights.stuck() {
			t.Error("one failure is taken for hopeless")
		}
		b.now = b.now.Add(pauseMost)
	}
	if want := []string{"worker[0]", "worker[0] failed", "worker[0]"}; !slices.Equal(view.ends, want) {
		t.Errorf("told of %q", view.ends)
	}
}
