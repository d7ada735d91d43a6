package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
)

// able is a provider with a parallelism of n.
type able struct {
	*sim.Cluster
	n int
}

func (a *able) Capabilities() job.Capabilities { return job.Capabilities{Parallelism: a.n} }

func newAble(n int) *able { return &able{sim.New("local", jobtest.Epoch, nil), n} }

func launchOf(name string, i int, mends bool) Launch {
	return Launch{"local", job.Launch{UID: "u" + name, Slot: job.Address{Job: name, Role: "worker", Index: i}, Incarnation: 1}, mends}
}

// atWork runs effects in lanes, each of which takes a second.
type atWork struct {
	lanes *lanes
	work  sync.WaitGroup

	mu        sync.Mutex
	now, peak int
	begun     []string
	dropped   []string
}

func newAtWork(p Parts) *atWork { return &atWork{lanes: newLanes(p)} }

func (a *atWork) add(effects ...Effect) {
	for _, e := range effects {
		a.lanes.add(&a.work, e, func(begin bool) {
			a.mu.Lock()
			if !begin {
				a.dropped = append(a.dropped, e.ID().String())
				a.mu.Unlock()
				return
			}
			a.begun = append(a.begun, e.ID().String())
			a.now++
			a.peak = max(a.peak, a.now)
			a.mu.Unlock()
			time.Sleep(time.Second) // so that all workers get busy
			a.mu.Lock()
			defer a.mu.Unlock()
			a.now--
		})
	}
}

// atOnce returns how many effects are running now.
func (a *atWork) atOnce() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

// workers returns the number of a lane's workers.
func (a *atWork) workers(l *lane) int {
	a.lanes.mu.Lock()
	defer a.lanes.mu.Unlock()
	return l.workers
}

func TestManyChangesHaveAsManyWorkersAsMayBeAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, most = 50, 3
		a := newAtWork(Parts{Parallelism: most, Providers: map[string]providers.Provider{"local": newAble(100)}})
		for i := range slots {
			a.add(launchOf("a", i, false))
		}
		begun, lane := time.Now(), a.lanes.lane(launchOf("a", 0, false))
		synctest.Wait()
		if n := a.workers(lane); n != most || !a.lanes.queued() {
			t.Errorf("%d workers, want %d; queued: %v", n, most, a.lanes.queued())
		}
		a.work.Wait()
		if len(a.begun) != slots || a.peak != most {
			t.Errorf("%d of %d were carried out, %d at once, want %d", len(a.begun), slots, a.peak, most)
		}
		if took, want := time.Since(begun), (slots+most-1)/most*time.Second; took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
		if n := a.workers(lane); n != 0 || a.lanes.queued() {
			t.Errorf("%d workers are left; queued: %v", n, a.lanes.queued())
		}
	})
}

// Launches that heal and the forgetting of jobs precede launches of new work, each kind in FIFO order, and none waits for a stop.
func TestHealingGoesAheadOfWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtWork(Parts{Parallelism: 1, Providers: map[string]providers.Provider{"local": newAble(100)}})
		begun := time.Now()
		for i := range 10 {
			a.add(Stop{Provider: "local", UID: "uz", Slot: job.Address{Job: "z", Role: "worker", Index: i}, Incarnation: 1})
		}
		synctest.Wait()
		a.add(launchOf("a", 0, false), launchOf("a", 1, false), launchOf("a", 2, false))
		synctest.Wait()
		a.add(launchOf("z", 0, true), Forget{"local", "ub", "b"}, launchOf("z", 1, true))
		a.work.Wait()
		launched := slices.DeleteFunc(a.begun, func(id string) bool { return strings.HasPrefix(id, "stop ") })
		want := []string{"launch job.a.worker[0] #1", "launch job.z.worker[0] #1", "forget ub", "launch job.z.worker[1] #1", "launch job.a.worker[1] #1", "launch job.a.worker[2] #1"}
		if !slices.Equal(launched, want) {
			t.Errorf("launched were %q, want %q", launched, want)
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Only queued effects are dropped.
func TestWhatWaitsIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtWork(Parts{Parallelism: 1, Providers: map[string]providers.Provider{"local": newAble(100)}})
		begun, waits, heals := launchOf("a", 0, false), launchOf("a", 1, false), launchOf("z", 0, true)
		a.add(begun)
		synctest.Wait()
		a.add(waits, heals, launchOf("a", 2, false))
		for _, c := range []struct {
			of   Effect
			want bool
		}{{begun, false}, {waits, true}, {heals, true}, {waits, false}, {launchOf("b", 0, false), false}} {
			if got := a.lanes.drop(c.of.ID()); got != c.want {
				t.Errorf("%s was dropped: %v, want %v", c.of.ID(), got, c.want)
			}
		}
		a.work.Wait()
		if want := []string{"launch job.a.worker[0] #1", "launch job.a.worker[2] #1"}; !slices.Equal(a.begun, want) {
			t.Errorf("carried out were %q, want %q", a.begun, want)
		}
	})
}

// After close, queued effects of providers are dropped, and writes are still carried out.
func TestClosedLanesRecordAndBeginNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtWork(Parts{Parallelism: 1, Providers: map[string]providers.Provider{"local": newAble(100)}})
		group := Prepare{"local", job.Group{UID: "ub"}}
		a.add(launchOf("a", 0, false), launchOf("a", 1, false), Prepare{"local", job.Group{UID: "ua"}}, group, Journal{Number: 1}, Journal{Number: 2}, Chronicle{Number: 3}, Chronicle{Number: 4})
		synctest.Wait()
		a.lanes.close()
		a.work.Wait()
		slices.Sort(a.begun)
		slices.Sort(a.dropped)
		if want := []string{"chronicle #3", "chronicle #4", "journal #1", "journal #2", "launch job.a.worker[0] #1", "prepare ua"}; !slices.Equal(a.begun, want) {
			t.Errorf("carried out were %q, want %q", a.begun, want)
		}
		if want := []string{"launch job.a.worker[1] #1", "prepare ub"}; !slices.Equal(a.dropped, want) {
			t.Errorf("dropped were %q, want %q", a.dropped, want)
		}
	})
}

// Writes are made one at a time, in order, and wait for no provider; a reading of the files does not wait for them.
func TestWritesWaitOnlyForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtWork(Parts{Parallelism: 1, Providers: map[string]providers.Provider{"local": newAble(100)}})
		a.add(launchOf("a", 0, false), launchOf("a", 1, false), Prepare{"local", job.Group{UID: "ua"}}, ReadFiles{}, Chronicle{Number: 1})
		begun := time.Now()
		a.add(Journal{Number: 2}, Reread{3}, Journal{Number: 4})
		a.work.Wait()
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		writes := slices.DeleteFunc(a.begun, func(id string) bool { return !slices.Contains([]string{"journal #2", "reread #3", "journal #4"}, id) })
		if want := []string{"journal #2", "reread #3", "journal #4"}; !slices.Equal(writes, want) {
			t.Errorf("written were %q, want %q", writes, want)
		}
	})
}

// Jobs are prepared concurrently, up to the parallelism of the provider or the user, and do not wait for launches.
func TestJobsThatComeAtOnceArePreparedAtOnce(t *testing.T) {
	const most, jobs = 12, 20
	for name, c := range map[string]struct{ can, user int }{"the provider's": {can: most}, "the user's": {100, most}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAtWork(Parts{Parallelism: c.user, Providers: map[string]providers.Provider{"local": newAble(c.can)}})
				for i := range jobs {
					a.add(Prepare{"local", job.Group{UID: fmt.Sprintf("u%02d", i)}})
				}
				synctest.Wait()
				if n := a.atOnce(); n != most {
					t.Errorf("%d are prepared at once, want %d", n, most)
				}
				for i := range jobs {
					a.add(launchOf("a", i, false))
				}
				synctest.Wait()
				if n := a.atOnce(); n != 2*most {
					t.Errorf("%d are prepared and launched at once, want %d each", n, most)
				}
				a.work.Wait()
				if len(a.begun) != 2*jobs {
					t.Errorf("%d of %d were carried out", len(a.begun), 2*jobs)
				}
			})
		})
	}
}

func TestEachProviderTakesWhatItCanUnlessTheUserSays(t *testing.T) {
	p := Parts{Providers: map[string]providers.Provider{"slow": sim.New("slow", jobtest.Epoch, nil), "fast": newAble(100)}}
	for _, c := range []struct{ user, slow, fast int }{{0, DefaultParallelism, 100}, {3, 3, 3}} {
		p.Parallelism = c.user
		of := newLanes(p)
		for kind, effect := range map[string]func(string) Effect{
			"launch":  func(name string) Effect { return Launch{Provider: name} },
			"stop":    func(name string) Effect { return Stop{Provider: name} },
			"forget":  func(name string) Effect { return Forget{Provider: name} },
			"prepare": func(name string) Effect { return Prepare{Provider: name} },
		} {
			slow, fast := of.lane(effect("slow")), of.lane(effect("fast"))
			if slow.most != c.slow || fast.most != c.fast {
				t.Errorf("%s, with %d asked for: %d and %d at once, want %d and %d", kind, c.user, slow.most, fast.most, c.slow, c.fast)
			}
			if shared := slow == fast; shared != (c.user > 0) {
				t.Errorf("%s, with %d asked for: shared is %v", kind, c.user, shared)
			}
		}
	}
}

// hung is a provider whose calls block until their context ends.
type hung struct{ *sim.Cluster }

func blockForever(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (hung) Observe(ctx context.Context) (*providers.Observation, error) {
	return nil, blockForever(ctx)
}
func (hung) Publish(ctx context.Context, _ providers.Service) error   { return blockForever(ctx) }
func (hung) Prepare(ctx context.Context, _ job.Group) (string, error) { return "", blockForever(ctx) }
func (hung) Launch(ctx context.Context, _ job.Launch) error           { return blockForever(ctx) }
func (hung) Forget(ctx context.Context, _, _ string) error            { return blockForever(ctx) }
func (hung) Stop(ctx context.Context, _ string, _ job.Address, _ int, _ time.Duration) error {
	return blockForever(ctx)
}

// Every call of a provider has a timeout: a stop its grace and a margin, all others a minute.
func TestEffectsAreBounded(t *testing.T) {
	for _, c := range []struct {
		effect Effect
		bound  time.Duration
	}{
		{Observe{"local"}, callTimeout},
		{Publish{Provider: "local"}, callTimeout},
		{Prepare{Provider: "local"}, callTimeout},
		{launchOf("a", 0, false), callTimeout},
		{Forget{Provider: "local", UID: "ua"}, callTimeout},
		{Stop{Provider: "local", UID: "ua", Grace: 90 * time.Second}, 90*time.Second + stopMargin},
	} {
		t.Run(c.effect.ID().Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriven(t, func(_ *Setup, p *Parts) { p.Providers["local"] = hung{sim.New("local", time.Now(), nil)} })
				begun := time.Now()
				d.Driver.begin(t.Context(), c.effect)
				<-d.mail.news
				got := d.mail.take()
				if len(got) != 1 {
					t.Fatalf("outcomes: %+v", got)
				}
				o, is := got[0].(Outcome)
				if took := time.Since(begun); !is || o.Of != c.effect.ID() || !errors.Is(o.Err, context.DeadlineExceeded) || took != c.bound {
					t.Errorf("%+v after %v, want an error after %v", got[0], took, c.bound)
				}
			})
		})
	}
}

// A dropped effect has one outcome, and a Drop does not affect an effect that has started.
func TestADropIsAnsweredIfItCameInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriven(t, func(_ *Setup, p *Parts) { p.Parallelism = 1 })
		_, err := d.provider.Prepare(t.Context(), job.Group{UID: "ua"})
		must(t, err)
		free, launched := make(chan struct{}), 0
		d.provider.launch = func(context.Context, job.Launch) error {
			launched++
			<-free
			return nil
		}
		first, second := launchOf("a", 0, false), launchOf("a", 1, false)
		for _, e := range []Effect{first, second, Drop{first.ID()}, Drop{second.ID()}, Drop{second.ID()}} {
			d.Driver.begin(t.Context(), e)
			synctest.Wait()
		}
		if got := d.mail.take(); len(got) != 1 || got[0] != Event(Outcome{second.ID(), nil, ErrDropped}) {
			t.Errorf("outcomes: %+v", got)
		}
		close(free)
		d.work.Wait()
		if got := d.mail.take(); len(got) != 1 || got[0] != Event(Outcome{first.ID(), nil, nil}) || launched != 1 {
			t.Errorf("outcomes: %+v, %d launches", got, launched)
		}
	})
}

// launches are a provider's completed launches, in order.
type launches struct {
	mu   sync.Mutex
	made []string
}

func (l *launches) add(of job.Launch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, fmt.Sprintf("%s#%d", of.Slot, of.Incarnation))
}

// since returns those since the last call.
func (l *launches) since() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := l.made
	l.made = nil
	return made
}

func TestWhatHealsIsLaunchedBeforeAnotherJobsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen launches
		hurt := jobtest.Job("z", jobtest.Role("worker", 1))
		f := newFollowing(t, func(s *Setup, p *Parts) { s.Files.Jobs, p.Parallelism = []job.Job{hurt}, 1 })
		f.provider.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(200)))
		f.provider.launch = func(_ context.Context, l job.Launch) error {
			time.Sleep(time.Second)
			seen.add(l)
			return nil
		}
		f.begin(t)
		pass(5 * time.Second)
		f.say(Files{Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 20)), hurt}}, nil)
		seen.since()
		f.provider.mu.Lock()
		f.provider.cluster.Terminate(f.provider.cluster.Agent(job.Address{Job: "z", Role: "worker"}), job.Preemption)
		f.provider.mu.Unlock()
		f.mail.post(Woken{})
		pass(time.Minute)
		order := seen.since()
		if at := slices.Index(order, "job.z.worker[0]#2"); at != 1 || len(order) != 21 {
			t.Errorf("the next of job z is launched at %d of %q", at, order)
		}
		must(t, f.end())
	})
}

// forgetful is a provider that records its calls of Forget.
type forgetful struct {
	providers.Provider
	forgets *int
}

func (f forgetful) Forget(ctx context.Context, uid, name string) error {
	*f.forgets++
	return f.Provider.Forget(ctx, uid, name)
}

func TestAJobThatIsWantedAgainIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen launches
		forgets, free := 0, make(chan struct{})
		a, other := jobtest.Job("a", jobtest.Role("worker", 1)), jobtest.Job("b", jobtest.Role("worker", 3))
		f := newFollowing(t, func(s *Setup, p *Parts) {
			s.Files.Jobs, p.Parallelism = []job.Job{a}, 1
			p.Providers["local"] = forgetful{p.Providers["local"], &forgets}
		})
		f.provider.launch = func(_ context.Context, l job.Launch) error {
			if l.UID == "ub" {
				<-free
			}
			seen.add(l)
			return nil
		}
		f.begin(t)
		pass(time.Second)
		f.say(Files{Jobs: []job.Job{a, other}}, nil) // b's first launch has the only worker
		f.say(Files{Jobs: []job.Job{other}}, nil)
		must(t, f.provider.Stop(t.Context(), "ua", job.Address{Job: "a", Role: "worker"}, 1, 0))
		f.mail.post(Woken{})
		pass(time.Second) // now its forgetting waits for the worker
		if !f.lanes.queued() {
			t.Error("nothing is queued")
		}
		f.say(Files{Jobs: []job.Job{a, other}}, nil)
		close(free)
		pass(time.Minute)
		if made := seen.since(); forgets > 0 || !slices.Contains(made, "job.a.worker[0]#2") {
			t.Errorf("it was forgotten %d times; launched were %q", forgets, made)
		}
		must(t, f.end())
	})
}
