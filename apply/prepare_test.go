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

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

// cluster is a simulated one, for many goroutines, whose Prepare and Launch are the test's.
type cluster struct {
	*sim.Cluster
	prepare func(g job.Group) error
	launch  func(ctx context.Context, l job.Launch) error
	stop    func() error
	observe func()
	held    map[string]string
	delayed map[string]string
	unseen  error // why it cannot be observed
	fit     job.Fit
	can     job.Capabilities
	barred  int // times that it was asked for bars

	mu     sync.Mutex
	groups []job.Group // that it was prepared with
}

func (c *cluster) Prepare(ctx context.Context, g job.Group) (string, error) {
	if err := c.prepare(g); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups = append(c.groups, g)
	return c.Cluster.Prepare(ctx, g)
}

func (c *cluster) Capabilities() job.Capabilities { return c.can }

func (c *cluster) Fit(*job.Role) job.Fit { c.barred++; return c.fit }

func (c *cluster) Launch(ctx context.Context, l job.Launch) error {
	if err := c.launch(ctx, l); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Cluster.Launch(ctx, l)
}

func (c *cluster) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	if err := c.stop(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Cluster.Stop(ctx, uid, slot, incarnation, grace)
}

// running is how many agents there are.
func (c *cluster) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.Agents())
}

func (c *cluster) Observe(ctx context.Context) (providers.Observation, error) {
	c.observe()
	if c.unseen != nil {
		return providers.Observation{}, c.unseen
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.Cluster.Observe(ctx)
	o.Held, o.Delayed = c.held, c.delayed
	return o, err
}

// listener is a service without agents, and a view. It keeps what it is told.
type listener struct {
	tokens map[string]string
	leave  []string // slots that were told to leave when a job was set last
	ready  int      // times that it was said to be
	warned []string
}

func (l *listener) Set(name string, d elastic.Desired) {
	l.tokens[name], l.leave = d.Token, nil
	for _, s := range d.Slots {
		if s.Leave {
			l.leave = append(l.leave, s.Address.Short())
		}
	}
}
func (l *listener) SetReady()                                   { l.ready++ }
func (l *listener) Remove(name string)                          { delete(l.tokens, name) }
func (l *listener) Gone(job.Address, int)                       {}
func (l *listener) Observe() map[string]elastic.Facts           { return nil }
func (l *listener) Wake() <-chan struct{}                       { return nil }
func (l *listener) Append(...state.Entry) error                 { return nil }
func (l *listener) Planned(*plan.Plan)                          {}
func (l *listener) Started(*plan.Change)                        {}
func (l *listener) Still(*plan.Change, time.Duration)           {}
func (l *listener) Finished(*plan.Change, time.Duration, error) {}
func (l *listener) Withdrawn(*plan.Change, time.Duration)       {}
func (l *listener) Noticed(job.Notice)                          {}
func (l *listener) Warned(summary, detail string)               { l.warned = append(l.warned, summary+": "+detail) }
func (l *listener) Recovered(summary string) {
	if summary != storeTrouble { // it is told of every turn that stored
		l.warned = append(l.warned, "recovered: "+summary)
	}
}
func (l *listener) Progressed(string, int64, *float64, float64) {}

// bench is a reconciler of one job of two workers on a cluster whose scheduler places, with a clock of its own.
type bench struct {
	*Reconciler
	*listener
	cluster *cluster
	now     time.Time
}

func newCluster(provider string) *cluster {
	c := &cluster{Cluster: sim.New(provider, jobtest.Epoch, nil), prepare: func(job.Group) error { return nil },
		launch: func(context.Context, job.Launch) error { return nil }, stop: func() error { return nil }, observe: func() {}}
	c.Schedules = true
	c.SetNode(jobtest.Node("n1", jobtest.Cores(8)))
	return c
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	b := &bench{listener: &listener{tokens: map[string]string{}}, now: jobtest.Epoch}
	b.cluster = newCluster("local")
	store := memory.New()
	lock, err := store.Lock(t.Context(), state.LockInfo{}, 0)
	must(t, err)
	o := Options{
		Jobs:  []job.Job{jobtest.Job("a", jobtest.Role("worker", 2))},
		Store: store, Lock: lock, Journal: b.listener, Service: b.listener, View: b.listener,
		Providers: map[string]providers.Provider{"local": b.cluster},
		NewUID:    func(string) string { return "u" }, Clock: func() time.Time { return b.now }, Spawn: func(f func()) { f() },
	}
	change(&o)
	b.Reconciler, err = New(t.Context(), o)
	must(t, err)
	return b
}

func (b *bench) turn(t *testing.T) plan.Plan {
	t.Helper()
	p, _, err := b.Turn(t.Context())
	must(t, err)
	return p
}

func TestAnInfrastructureThatDoesNotPrepareHoldsUpNoTurn(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Spawn = nil })
	answer := make(chan struct{})
	b.cluster.prepare = func(job.Group) error { <-answer; return nil }
	for range 3 { // each would hang
		b.turn(t)
	}
	if n := len(b.cluster.Agents()); n > 0 || len(b.tokens) > 0 {
		t.Errorf("%d agents of a job that is not prepared, tokens %v", n, b.tokens)
	}
	close(answer)
	b.flights.wait()
	b.turn(t)
	b.flights.wait()
	if n := len(b.cluster.Agents()); n != 2 || b.tokens["a"] != "token-1" {
		t.Errorf("%d agents once it was prepared, tokens %v", n, b.tokens)
	}
	if n := len(b.cluster.groups); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}

// slowReady is a service that has a preparation end just after it was told what to form.
type slowReady struct {
	*listener
	end func()
}

func (s *slowReady) SetReady() { s.end() }

// What the plan shows, what the service knows and what is launched are of one mind about a preparation that ends amid a turn.
func TestAPreparationThatEndsAmidATurnIsTakenUpByTheNextOne(t *testing.T) {
	service, view := &slowReady{listener: &listener{tokens: map[string]string{}}}, &planned{}
	b := newBench(t, func(o *Options) { o.Spawn, o.Service, o.View = nil, service, view })
	answer := make(chan struct{})
	b.cluster.prepare = func(job.Group) error { <-answer; return nil }
	service.end = func() {
		close(answer)
		b.flights.wait()
	}
	b.turn(t)
	b.flights.wait()
	if n := b.cluster.running(); n > 0 || len(service.tokens) > 0 || view.plans > 0 {
		t.Errorf("%d agents of a job that the service knows as %v, after %d plans were shown", n, service.tokens, view.plans)
	}
	service.end = func() {}
	b.turn(t)
	b.flights.wait()
	if n := b.cluster.running(); n != 2 || service.tokens["a"] != "token-1" || view.plans != 1 {
		t.Errorf("%d agents, the service knows %v, %d plans were shown", n, service.tokens, view.plans)
	}
}

// planned counts the plans that it is shown.
type planned struct {
	listener
	plans int
}

func (p *planned) Planned(*plan.Plan) { p.plans++ }

func TestAFailedPreparationIsToldOnceAndTriedAgain(t *testing.T) {
	b := newBench(t, func(*Options) {})
	tries := 0
	b.cluster.prepare = func(job.Group) error { tries++; return errors.New("the API server is down") }
	var p plan.Plan
	for range 3 * hopeless {
		p = b.turn(t)
		if tries < hopeless && b.settled(&p) {
			t.Fatalf("settled after %d tries", tries)
		}
		b.now = b.now.Add(pauseMost)
	}
	if len(b.warned) != 1 || !strings.Contains(b.warned[0], "Job a cannot be prepared: the API server is down") {
		t.Errorf("told %q", b.warned)
	}
	if !b.settled(&p) {
		t.Errorf("a run that does not watch would never end, after %d tries", tries)
	}
	b.cluster.prepare = func(job.Group) error { return nil }
	b.now = b.now.Add(2 * pauseMost)
	b.turn(t)
	if len(b.warned) != 2 || b.warned[1] != "recovered: Job a cannot be prepared" || len(b.cluster.Agents()) != 2 {
		t.Errorf("told %q, %d agents", b.warned, len(b.cluster.Agents()))
	}
}

func TestAJobIsPreparedAgainWhenItsGroupChanged(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	b.turn(t)
	if n := len(b.cluster.groups); n != 1 {
		t.Fatalf("prepared %d times though nothing changed", n)
	}
	changed := jobtest.Job("a", jobtest.Role("worker", 3))
	b.Declare([]job.Job{changed})
	b.turn(t)
	if n := len(b.cluster.groups); n != 2 || b.cluster.groups[1].Roles[0].Min != 3 {
		t.Errorf("prepared with %v", b.cluster.groups)
	}
}

// Whoever corrects a job need not wait for as long as the one before had failed, nor reads why that did.
func TestAChangedGroupIsPreparedAtOnceAfterFailures(t *testing.T) {
	b := newBench(t, func(*Options) {})
	refuse := func(g job.Group) error { return fmt.Errorf("%d slots are too many", g.Roles[0].Min) }
	b.cluster.prepare = refuse
	for range 9 {
		b.turn(t)
		b.now = b.now.Add(2 * pauseMost)
	}
	b.turn(t)
	for _, n := range []int{4, 3} {
		b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", n))})
		b.turn(t)
		want := job.Because(PreparationRefused, "job", "a", "message", fmt.Sprintf("%d slots are too many", n))
		if got := b.Live().Waits; len(got) != 1 || !got[0].Reasons[0].Equal(want) {
			t.Errorf("it waits for %+v, want %q", got, want)
		}
	}
	b.cluster.prepare = func(job.Group) error { return nil }
	b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", 1))})
	b.turn(t)
	if n := b.cluster.running(); n != 1 || b.warned[len(b.warned)-1] != "recovered: Job a cannot be prepared" {
		t.Errorf("%d agents, told %q", n, b.warned)
	}
}

// A failure that lands after the job was corrected is not the corrected one's.
func TestAFailureOfTheGroupBeforeHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(o *Options) { o.Spawn = nil })
		answer := make(chan error)
		b.cluster.prepare = func(job.Group) error { return <-answer }
		b.turn(t)
		b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", 3))})
		b.turn(t)
		answer <- errors.New("2 slots are too few")
		b.flights.wait()
		b.cluster.prepare = func(job.Group) error { return nil }
		b.turn(t)
		b.flights.wait()
		if n := len(b.cluster.groups); n != 1 || b.cluster.groups[0].Roles[0].Min != 3 {
			t.Errorf("prepared with %+v, and it waits for %+v", b.cluster.groups, b.Live().Waits)
		}
	})
}

// Whoever has mended the first reason has to hear of the second.
func TestEachReasonOfATroubleIsWarnedOf(t *testing.T) {
	b := newBench(t, func(*Options) {})
	for _, why := range []string{"timeout", "timeout", "forbidden"} {
		b.cluster.prepare = func(job.Group) error { return errors.New(why) }
		b.now = b.now.Add(2 * pauseMost)
		b.turn(t)
	}
	for _, why := range []string{"timeout", "timeout", "forbidden"} {
		b.cluster.unseen = errors.New(why)
		b.turn(t)
	}
	b.cluster.unseen = nil
	b.cluster.prepare = func(job.Group) error { return nil }
	b.now = b.now.Add(2 * pauseMost)
	b.turn(t)
	b.turn(t)
	want := []string{
		"Job a cannot be prepared: timeout", "Job a cannot be prepared: forbidden",
		"Provider local cannot be observed: timeout", "Provider local cannot be observed: forbidden",
		"recovered: Provider local cannot be observed", "recovered: Job a cannot be prepared",
	}
	if !slices.Equal(b.warned, want) {
		t.Errorf("told %q, want %q", b.warned, want)
	}
}

// A scheduler that knows gangs hears of a smaller one before its slots go, and of a larger one before they come.
func TestSlotsWaitForWhatTheirGangIsToBe(t *testing.T) {
	for name, replicas := range map[string]int{"smaller": 1, "larger": 3} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(*Options) {})
			b.turn(t)
			b.cluster.prepare = func(job.Group) error { return errors.New("the API server is down") }
			b.Declare([]job.Job{jobtest.Job("a", jobtest.Role("worker", replicas))})
			for range 3 {
				b.now = b.now.Add(time.Minute)
				b.turn(t)
			}
			if n := len(b.cluster.Agents()); n != 2 {
				t.Fatalf("%d slots while their provider knows of 2", n)
			}
			if len(b.leave) > 0 {
				t.Errorf("%v are told to leave while their provider knows of 2", b.leave)
			}
			b.cluster.prepare = func(job.Group) error { return nil }
			for range 3 {
				b.now = b.now.Add(time.Minute)
				b.turn(t)
			}
			if n := len(b.cluster.Agents()); n != replicas {
				t.Errorf("%d slots, not %d", n, replicas)
			}
		})
	}
}

// What a provider holds is not launched, and what it waits for is told.
func TestWhatAProviderHoldsIsNotLaunched(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.held = map[string]string{"u": "queue q is full"}
	b.cluster.prepare = func(job.Group) error { return errors.New("not yet") }
	b.turn(t)
	b.cluster.prepare = func(job.Group) error { return nil }
	b.now = b.now.Add(time.Minute)
	b.turn(t)
	p := b.turn(t)
	if n := len(b.cluster.Agents()); n != 0 || len(p.Waits) != 1 || !strings.Contains(p.Waits[0].Reasons[0].Args["message"], "queue q is full") {
		t.Errorf("%d slots run, and it waits for %+v", n, p.Waits)
	}
	b.cluster.held = nil
	b.turn(t)
	if n := len(b.cluster.Agents()); n != 2 {
		t.Errorf("%d slots once it was let in", n)
	}
}

// What does not come about is a warning as long as it is so, and status has it.
func TestWhatIsHeldUpIsToldOnce(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.delayed = map[string]string{"u": "create pods of worker: no answer", "another's": "no answer"}
	for range 3 {
		b.turn(t)
	}
	if live := b.Live(); len(live.Waits) != 1 || live.Waits[0].Job != "a" || live.Waits[0].Reasons[0].Args["message"] != "create pods of worker: no answer" {
		t.Errorf("status has %+v", live.Waits)
	}
	b.cluster.delayed = nil
	b.turn(t)
	b.turn(t)
	b.cluster.delayed = map[string]string{"u": "its PodGroup: no answer"}
	b.turn(t)
	b.cluster.delayed = map[string]string{"u": "its PodGroup: refused"}
	b.turn(t)
	b.cluster.delayed = nil
	b.turn(t)
	want := []string{
		"Job a is held up: create pods of worker: no answer", "recovered: Job a is held up",
		"Job a is held up: its PodGroup: no answer", "Job a is held up: its PodGroup: refused", "recovered: Job a is held up",
	}
	if !slices.Equal(b.warned, want) {
		t.Errorf("told %q, not %q", b.warned, want)
	}
	if live := b.Live(); len(live.Waits) > 0 {
		t.Errorf("it is over, and status has %+v", live.Waits)
	}
}

// A job that cannot be started as things are, and was not begun, has nothing made for it.
func TestARefusedJobIsNotPrepared(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.can.Refused = "No job is let in."
	b.turn(t)
	b.turn(t)
	if n := len(b.cluster.groups); n > 0 {
		t.Errorf("it was prepared %d times", n)
	}
	b.cluster.can.Refused = ""
	b.turn(t)
	b.cluster.can.Refused = "No job is let in."
	urgent := jobtest.Job("a", jobtest.Role("worker", 2))
	urgent.Priority = 1
	b.Declare([]job.Job{urgent})
	b.turn(t) // it was begun: what it lacks is made
	if n := len(b.cluster.groups); n != 2 || b.cluster.groups[1].Priority != 1 || len(b.cluster.Agents()) != 2 {
		t.Errorf("it was prepared with %+v, and %d agents run", b.cluster.groups, len(b.cluster.Agents()))
	}
}

// A job that could not be prepared, and by now is not to be, is due no more: the loop rests, and a run ends. When it is let
// in again it is prepared at once.
func TestARefusedJobThatCouldNotBePreparedIsNotDue(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.Schedules, b.cluster.can.Places = false, true
	b.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(1))) // there is no room for it, so it is not begun
	b.cluster.prepare = func(job.Group) error { return errors.New("the API server is down") }
	_, due, err := b.Turn(t.Context())
	must(t, err)
	if !due.After(b.now) {
		t.Fatalf("what failed is due at %v", due)
	}
	b.cluster.can.Refused = "No job is let in."
	b.now = b.now.Add(time.Hour)
	p, due, err := b.Turn(t.Context())
	must(t, err)
	if !due.IsZero() && !due.After(b.now) {
		t.Errorf("at %v it is due since %v: the loop never rests", b.now, due)
	}
	if !b.settled(&p) || len(p.Waits) != 1 || p.Waits[0].Reasons[0].Args["message"] != "No job is let in." {
		t.Errorf("settled: %t, and it waits for %+v", b.settled(&p), p.Waits)
	}
	if want := []string{"Job a cannot be prepared: the API server is down", "recovered: Job a cannot be prepared"}; !slices.Equal(b.warned, want) {
		t.Errorf("told %q, not %q", b.warned, want)
	}
	b.cluster.can.Refused = ""
	b.cluster.prepare = func(job.Group) error { return nil }
	b.turn(t)
	if n := len(b.cluster.groups); n != 1 {
		t.Errorf("it was prepared %d times", n)
	}
}

// While a provider cannot be observed nothing of its jobs is tried, and what failed of them is not due either.
func TestNothingIsDueOfAProviderThatCannotBeObserved(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.prepare = func(job.Group) error { return errors.New("the API server is down") }
	b.turn(t)
	b.cluster.unseen = errors.New("the API server is down")
	b.now = b.now.Add(time.Hour)
	_, due, err := b.Turn(t.Context())
	must(t, err)
	if want := b.now.Add(retryObserve); !due.Equal(want) {
		t.Errorf("the next turn is due at %v, not %v", due, want)
	}
	b.cluster.unseen = nil
	if _, due, err = b.Turn(t.Context()); err != nil || !due.After(b.now) {
		t.Errorf("due at %v, %v", due, err)
	}
	if want := "Job a cannot be prepared: the API server is down"; b.warned[0] != want || slices.Contains(b.warned[1:], want) {
		t.Errorf("told %q: of the preparation nothing was over", b.warned)
	}
}

func TestARunEndsWhenWhatIsQueuedIsStuck(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	full := jobtest.Node("n1", jobtest.Cores(8))
	full.Closed = "not ready"
	b.cluster.SetNode(full)
	b.cluster.Advance(jobtest.Epoch.Add(time.Second), func() {})
	p := b.turn(t)
	i := slices.IndexFunc(p.Waits, func(w plan.Wait) bool {
		return strings.Contains(w.Reasons[0].Args["message"], "Unschedulable: 0/1 nodes")
	})
	if i < 0 || !p.Waits[i].Passing || p.Waits[i].Reasons[0].Args["slots"] != "worker[0-1]" {
		t.Fatalf("waits: %+v", p.Waits)
	}
	p.Waits = p.Waits[i : i+1]
	if b.settled(&p) {
		t.Error("a run that does not watch gives up what is queued for a second")
	}
	b.now = b.now.Add(time.Hour)
	p = b.turn(t)
	if !b.settled(&p) {
		t.Errorf("it never ends: %+v", p.Waits)
	}
}

func TestAJobIsPreparedAgainEveryWhile(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	b.now = b.now.Add(Rescan - time.Second)
	b.turn(t)
	if n := len(b.cluster.groups); n != 1 {
		t.Fatalf("prepared %d times within %v", n, Rescan)
	}
	b.now = b.now.Add(time.Second)
	b.turn(t)
	b.turn(t)
	if n := len(b.cluster.groups); n != 2 {
		t.Errorf("prepared %d times after %v: what was deleted of it stays away", n, Rescan)
	}
}

// A turn looks at every slot. Of a job at rest one is due every while, and not a second one for what it finds as it was;
// but whoever waits for a preparation to end is woken whatever it finds.
func TestOnlyWhatIsNewsOrAwaitedMakesATurn(t *testing.T) {
	other := jobtest.Job("a", jobtest.Role("worker", 3))
	for _, c := range []struct {
		what  string
		amid  func(*testing.T, *bench) // while the job is prepared again
		ends  error
		woken int
	}{
		{"it is as it was", func(*testing.T, *bench) {}, nil, 0},
		{"it failed", func(*testing.T, *bench) {}, errors.New("the API server is down"), 1},
		{"a run that does not watch waits", func(_ *testing.T, b *bench) { b.settled(&plan.Plan{}) }, nil, 1},
		{"the job is to be forgotten", func(t *testing.T, b *bench) { b.Declare(nil); b.turn(t) }, nil, 1},
		{"the job is another by now", func(t *testing.T, b *bench) { b.Declare([]job.Job{other}); b.turn(t) }, nil, 1},
		{"something of it is missing", func(_ *testing.T, b *bench) { b.preparations.lapse("u") }, nil, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBench(t, func(o *Options) { o.Spawn, o.Jobs = nil, []job.Job{jobtest.Job("a", jobtest.Role("worker", 0))} })
			b.turn(t)
			b.flights.wait()
			b.turn(t)
			answer := make(chan struct{})
			b.cluster.prepare = func(job.Group) error { <-answer; return c.ends }
			b.now = b.now.Add(Rescan)
			b.turn(t)
			c.amid(t, b)
			for len(b.flights.landed) > 0 {
				<-b.flights.landed
			}
			close(answer)
			b.flights.wait()
			if n := len(b.flights.landed); n != c.woken {
				t.Errorf("its end woke %d turns, want %d", n, c.woken)
			}
		})
	}
}

func TestALaunchWhoseJobIsNotPreparedHasItPreparedAtOnce(t *testing.T) {
	b := newBench(t, func(*Options) {})
	launches := 0
	b.cluster.launch = func(context.Context, job.Launch) error {
		launches++
		if len(b.cluster.groups) < 2 {
			return fmt.Errorf("its anchor was deleted: %w", providers.ErrNotPrepared)
		}
		return nil
	}
	b.turn(t)
	if launches != 2 {
		t.Fatalf("%d launches", launches)
	}
	b.turn(t)
	if n := len(b.cluster.groups); n != 2 {
		t.Fatalf("prepared %d times", n)
	}
	b.now = b.now.Add(pauseMost)
	b.turn(t)
	if n := b.cluster.running(); n != 2 {
		t.Errorf("%d agents", n)
	}
}

func TestNothingIsLaunchedUntilWhatIsMissingIsThere(t *testing.T) {
	b := newBench(t, func(*Options) {})
	launches := 0
	b.cluster.launch = func(context.Context, job.Launch) error { launches++; return providers.ErrNotPrepared }
	b.turn(t)
	b.cluster.prepare = func(job.Group) error { return errors.New("the API server is down") }
	before := launches
	for range 3 {
		b.now = b.now.Add(pauseMost)
		b.turn(t)
	}
	if before != 2 || launches != before {
		t.Errorf("%d launches, and %d in vain", before, launches-before)
	}
}

func TestADeletedSlotHasItsJobPreparedFirst(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	b.cluster.Advance(jobtest.Epoch.Add(time.Second), func() {})
	b.turn(t)
	prepared, launched := 0, 0
	b.cluster.prepare = func(job.Group) error { prepared++; return nil }
	b.cluster.launch = func(context.Context, job.Launch) error {
		if launched++; prepared != 1 {
			t.Errorf("launched after %d more preparations", prepared)
		}
		return nil
	}
	a, err := job.ParseAddress("job.a.worker[1]")
	must(t, err)
	b.cluster.PutOut(b.cluster.Agent(a), job.Deletion)
	for range 4 {
		b.now = b.now.Add(time.Second)
		b.turn(t)
	}
	if prepared != 1 || launched != 1 {
		t.Errorf("prepared %d times, launched %d", prepared, launched)
	}
}

func TestAJobAtAnotherSiteIsNeitherPreparedNorTold(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.can.Site = "west"
	b.turn(t)
	if site := b.Records()["a"].Site; site != "west" {
		t.Fatalf("it runs at %q", site)
	}
	b.cluster.can.Site = "east"
	clear(b.tokens)
	b.cluster.prepare = func(job.Group) error { t.Error("it was prepared where it does not run"); return nil }
	b.now = b.now.Add(2 * Rescan)
	for range 2 {
		b.turn(t)
	}
	if len(b.tokens) > 0 {
		t.Errorf("the service was told of it: %v", b.tokens)
	}
	b.o.Destroy = true
	b.Declare(nil)
	p, err := b.Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "job.a is not destroyed: at_other_site(") || p.Records["a"] == nil {
		t.Errorf("destroyed: %v", err)
	}
}

func TestBarsAreAskedOncePerRoleInATurn(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	for _, jobs := range [][]job.Job{b.o.Jobs, nil} { // declared and recorded; recorded only
		b.Declare(jobs)
		before := b.cluster.barred
		b.turn(t)
		if n := b.cluster.barred - before; n != 1 {
			t.Errorf("asked %d times with %d jobs declared", n, len(jobs))
		}
	}
}

// Roles by the thousand have the same caveat. What the provider said stays its own.
func TestACaveatOfManyRolesIsToldOnce(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Jobs = []job.Job{jobtest.Job("a", jobtest.Role("worker", 1), jobtest.Role("data", 1)), jobtest.Job("b", jobtest.Role("worker", 1))}
		o.NewUID = func(name string) string { return name }
	})
	own := append(make([]string, 0, 4), "no gangs")
	b.cluster.can.Caveats = own
	b.cluster.fit.Caveats = []string{"taints are not known", "no gangs", "quotas are not known"}
	b.observe(t.Context())
	in := b.input(b.now)
	if got, want := in.Capabilities["local"].Caveats, []string{"no gangs", "taints are not known", "quotas are not known"}; !slices.Equal(got, want) {
		t.Errorf("the caveats are %q, not %q", got, want)
	}
	if after := own[:2][1]; after != "" {
		t.Errorf("%q was written behind the provider's own", after)
	}
}

func TestWhatEndedIsForgottenOnceNobodyShowsIt(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.turn(t)
	b.turn(t)
	for _, a := range b.cluster.Agents() {
		a.Kill()
	}
	b.turn(t)
	if n := len(b.gone); n != 2 {
		t.Fatalf("%d ended incarnations are known", n)
	}
	for _, a := range b.cluster.Agents() {
		a.Kill() // those that came after them
	}
	must(t, b.cluster.Forget(t.Context(), "u", "a"))
	b.turn(t)
	if n := len(b.gone); n != 0 {
		t.Errorf("%d of them are kept for ever", n)
	}
}

// Jobs that come at once do not wait for each other to be prepared, up to what their provider takes, or the user lets it.
func TestJobsThatComeAtOnceArePreparedAtOnce(t *testing.T) {
	const most, jobs = 12, 20
	for name, c := range map[string]struct{ can, user int }{"the provider's": {can: most}, "the user's": {100, most}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				o.Spawn, o.Parallelism, o.Jobs = nil, c.user, nil
				o.NewUID = func(name string) string { return "u-" + name }
				for i := range jobs {
					o.Jobs = append(o.Jobs, jobtest.Job(fmt.Sprintf("j%02d", i), jobtest.Role("worker", 1)))
				}
				o.Providers["local"].(*cluster).can = job.Capabilities{Parallelism: c.can}
			})
			begun, answer := make(chan struct{}, jobs), make(chan struct{})
			b.cluster.prepare = func(job.Group) error { begun <- struct{}{}; <-answer; return nil }
			b.turn(t)
			for range most {
				select {
				case <-begun:
				case <-time.After(10 * time.Second):
					t.Fatalf("fewer than %d are prepared at once", most)
				}
			}
			select {
			case <-begun:
				t.Errorf("more than %d are prepared at once", most)
			case <-time.After(50 * time.Millisecond):
			}
			close(answer)
			b.flights.wait()
			if n := len(b.cluster.groups); n != jobs {
				t.Errorf("%d of %d were prepared", n, jobs)
			}
		})
	}
}

func TestEachProviderTakesWhatItCanUnlessTheUserSays(t *testing.T) {
	can := &able{Cluster: sim.New("fast", jobtest.Epoch, nil), n: 100}
	o := Options{Providers: map[string]providers.Provider{"slow": sim.New("slow", jobtest.Epoch, nil), "fast": can}}
	for _, c := range []struct{ user, slow, fast int }{{0, DefaultParallelism, 100}, {3, 3, 3}} {
		o.Parallelism = c.user
		of := queues(o)
		if of["slow"].most != c.slow || of["fast"].most != c.fast {
			t.Errorf("with %d asked for: %d and %d at once, want %d and %d", c.user, of["slow"].most, of["fast"].most, c.slow, c.fast)
		}
		if shared := of["slow"] == of["fast"]; shared != (c.user > 0) {
			t.Errorf("with %d asked for: shared is %v", c.user, shared)
		}
	}
}

// able is a provider that takes n changes at once.
type able struct {
	*sim.Cluster
	n int
}

func (a *able) Capabilities() job.Capabilities { return job.Capabilities{Parallelism: a.n} }
