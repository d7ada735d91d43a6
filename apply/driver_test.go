package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/progress"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

// Driver tests run in a testing/synctest bubble: time passes only while every goroutine is blocked, and a deadlock fails the
// test.

// simulated is a goroutine-safe simulated provider with calls that a test can replace. Its clock stands still, so agents do
// nothing by themselves.
type simulated struct {
	launch  func(context.Context, job.Launch) error
	observe func(context.Context, *providers.Observation) (*providers.Observation, error)
	stop    func() error

	mu      sync.Mutex
	cluster *sim.Cluster
}

func newSimulated() *simulated {
	s := &simulated{cluster: sim.New("local", time.Now(), nil), launch: func(context.Context, job.Launch) error { return nil },
		observe: func(_ context.Context, seen *providers.Observation) (*providers.Observation, error) { return seen, nil },
		stop:    func() error { return nil }}
	s.cluster.SetNode(jobtest.Node("n1", jobtest.Cores(8)))
	return s
}

func (s *simulated) Capabilities() job.Capabilities                   { return job.Capabilities{Places: true} }
func (s *simulated) Changes() <-chan struct{}                         { return s.cluster.Changes() }
func (s *simulated) Publish(context.Context, providers.Service) error { return nil }
func (s *simulated) Close() error                                     { return nil }

func (s *simulated) Logs(context.Context, string, job.Address, providers.LogOptions) (io.ReadCloser, error) {
	return nil, errors.New("simulated processes say nothing")
}

func (s *simulated) Observe(ctx context.Context) (*providers.Observation, error) {
	s.mu.Lock()
	seen, err := s.cluster.Observe(ctx)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.observe(ctx, seen)
}

func (s *simulated) Prepare(ctx context.Context, g job.Group) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.Prepare(ctx, g)
}

func (s *simulated) Launch(ctx context.Context, l job.Launch) error {
	if err := s.launch(ctx, l); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.Launch(ctx, l)
}

func (s *simulated) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	if err := s.stop(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.Stop(ctx, uid, slot, incarnation, grace)
}

func (s *simulated) Forget(ctx context.Context, uid, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.Forget(ctx, uid, name)
}

// running returns the number of agents.
func (s *simulated) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cluster.Agents())
}

// kill ends an agent without an event.
func (s *simulated) kill(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster.Agents()[index].Kill()
}

// quiet is a service without agents.
type quiet struct {
	wake    chan struct{}
	observe func() map[string]elastic.Facts // nil: no facts
}

func (quiet) SetReady()                   {}
func (quiet) Set(string, elastic.Desired) {}
func (quiet) Remove(string)               {}
func (quiet) Gone(job.Address, int, bool) {}
func (quiet) Changes() uint64             { return 1 }

func (q quiet) Wake() <-chan struct{} { return q.wake }

func (quiet) Usage() map[string]elastic.Usage                { return nil }
func (quiet) Points(history.Rank, time.Time) []history.Point { return nil }

func (q quiet) Observe() map[string]elastic.Facts {
	if q.observe == nil {
		return nil
	}
	return q.observe()
}

// recorder is a view that records its calls.
type recorder struct {
	mu         sync.Mutex
	plans      []plan.Plan
	finished   []string // slots, with the error if there was one
	errs       []error
	conditions []string
	text       strings.Builder // of all calls
}

func (r *recorder) Planned(p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plans = append(r.plans, *p)
	fmt.Fprintf(&r.text, "%+v\n", p.Waits)
}
func (r *recorder) Started(*plan.Change)                  {}
func (r *recorder) Still(*plan.Change, time.Duration)     {}
func (r *recorder) Withdrawn(*plan.Change, time.Duration) {}
func (r *recorder) Progressed(string, Progress)           {}

func (r *recorder) Finished(c *plan.Change, _ time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := c.Slot.Short()
	if err != nil {
		what += ": " + err.Error()
		r.errs = append(r.errs, err)
	}
	r.finished = append(r.finished, what)
	fmt.Fprintln(&r.text, what)
}

func (r *recorder) Noticed(n job.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.text, n.Message)
}

func (r *recorder) Condition(c conditions.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conditions = append(r.conditions, fmt.Sprintf("%s %s %s", c.Type, c.About, c.Reason))
	fmt.Fprintln(&r.text, c.Reason)
}

// planned returns the plans reported since the last call.
func (r *recorder) planned() []plan.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	plans := r.plans
	r.plans = nil
	return plans
}

// kept is an in-memory journal.
type kept struct {
	mu      sync.Mutex
	entries []state.Entry
}

func (k *kept) Append(entries ...state.Entry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries = append(k.entries, entries...)
	return nil
}

// driven is a Driver of one job with two workers, and its parts.
type driven struct {
	*Driver
	provider *simulated
	view     *recorder
	journal  *kept
	store    state.Store

	interrupt context.CancelFunc
	over      chan error
}

// newDriven makes a Driver in a bubble; change may modify its setup and parts.
func newDriven(t *testing.T, change func(*Setup, *Parts)) *driven {
	t.Helper()
	d := &driven{provider: newSimulated(), view: &recorder{}, journal: &kept{}, over: make(chan error, 1)}
	store := memory.New()
	lock, err := store.Lock(t.Context(), state.LockInfo{}, 0)
	must(t, err)
	s := Setup{Files: Files{Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 2))}}, NewUID: func(name string) string { return "u" + name }}
	p := Parts{Store: store, Lock: lock, Journal: d.journal, Service: quiet{wake: make(chan struct{}, 1)}, View: d.view,
		Providers: map[string]providers.Provider{"local": d.provider}}
	change(&s, &p)
	d.store = p.Store
	d.Driver, err = NewDriver(t.Context(), s, p)
	must(t, err)
	return d
}

// begin starts the run.
func (d *driven) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d.interrupt = cancel
	t.Cleanup(cancel)
	go func() {
		_, err := d.Run(ctx)
		d.over <- err
	}()
}

// end interrupts the run and returns its error.
func (d *driven) end() error {
	d.interrupt()
	return <-d.over
}

// pass lets time pass.
func pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
}

// losable is a lock that a test can take away.
type losable struct {
	state.Lock
	lost chan struct{}
	why  error
}

func (l *losable) Lost() <-chan struct{} { return l.lost }
func (l *losable) Why() error            { return l.why }

// A lost lock cancels what is in flight at once and starts nothing, even while the loop is busy.
func TestALostLockGroundsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, inFlight, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		looking, look := make(chan struct{}), make(chan struct{})
		d := newDriven(t, func(_ *Setup, p *Parts) {
			p.Parallelism = 1
			p.Lock = &losable{p.Lock, lost, errors.New("it could not be renewed: the token may have expired")}
			p.Service = quiet{observe: func() map[string]elastic.Facts {
				select {
				case <-inFlight:
					looking <- struct{}{}
					<-look
				default:
				}
				return nil
			}}
		})
		var launches atomic.Int32
		d.provider.launch = func(ctx context.Context, _ job.Launch) error {
			if launches.Add(1) == 1 {
				close(inFlight)
				<-ctx.Done()
				close(done)
			}
			return nil
		}
		d.begin(t)
		<-inFlight
		<-looking // the next turn, or training progress
		begun := time.Now()
		close(lost)
		<-done
		if took := time.Since(begun); took > 0 {
			t.Errorf("the launch was canceled after %v", took)
		}
		synctest.Wait()
		close(look)
		if err := <-d.over; !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "the token may have expired") {
			t.Errorf("the run ended with %v", err)
		}
		if n := launches.Load(); n != 1 {
			t.Errorf("%d launches were started", n)
		}
	})
}

// mute is a view that blocks until it is freed, and records what was finished and dropped.
type mute struct {
	recorder
	begun, free chan struct{}
	once        sync.Once
}

func newMute() *mute { return &mute{begun: make(chan struct{}), free: make(chan struct{})} }

func (m *mute) Planned(*plan.Plan) {
	m.once.Do(func() { close(m.begun) })
	<-m.free
}

func TestATerminalThatTakesNothingHoldsUpNoHealing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newMute()
		d := newDriven(t, func(s *Setup, p *Parts) { s.Watch, p.View = true, view })
		d.begin(t)
		<-view.begun
		pass(time.Second)
		if n := d.provider.running(); n != 2 {
			t.Fatalf("%d agents run", n)
		}
		d.provider.kill(1)
		d.mail.post(Woken{})
		pass(20 * time.Second) // the planner waits in case the agent was stopped on purpose
		if n := d.provider.running(); n != 2 {
			t.Errorf("%d agents run after one was killed", n)
		}
		if len(d.Live().Records) != 1 {
			t.Error("status is not answered")
		}
		close(view.free)
		must(t, d.end())
		slices.Sort(view.finished)
		if want := []string{"worker[0]", "worker[1]", "worker[1]"}; !slices.Equal(view.finished, want) {
			t.Errorf("reported %v once it was freed, want %v", view.finished, want)
		}
	})
}

// slowStore is a store whose writes can be made to block until they are freed.
type slowStore struct {
	state.Store
	slow          atomic.Bool
	writing, free chan struct{}
}

func newSlowStore(s state.Store) *slowStore {
	return &slowStore{Store: s, writing: make(chan struct{}), free: make(chan struct{})}
}

func (s *slowStore) Write(ctx context.Context, next state.State, l state.Lock) error {
	if s.slow.CompareAndSwap(true, false) {
		s.writing <- struct{}{}
		<-s.free
	}
	return s.Store.Write(ctx, next, l)
}

func TestAStoreThatTakesLongHoldsUpNobodyWhoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store *slowStore
		d := newDriven(t, func(s *Setup, p *Parts) {
			store = newSlowStore(p.Store)
			s.Watch, p.Store = true, store
		})
		store.slow.Store(true)
		d.begin(t)
		<-store.writing
		synctest.Wait()
		d.Records()
		d.Outputs()
		if _, whole := d.Observed(); !whole {
			t.Error("the provider counts as unobserved")
		}
		d.Live()
		close(store.free)
		must(t, d.end())
	})
}

// askedLater are requests that cannot be read at first.
type askedLater struct {
	mu      sync.Mutex
	asked   []job.Request
	unread  int // readings that fail
	replies []job.Reply
}

func (a *askedLater) Pending(context.Context) ([]job.Request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread > 0 {
		a.unread--
		return nil, errors.New("no route to host")
	}
	return a.asked, nil
}

func (a *askedLater) Reply(_ context.Context, r job.Reply) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, r)
	a.asked = slices.DeleteFunc(slices.Clone(a.asked), func(q job.Request) bool { return r.State.Final() && q.ID == r.ID })
	return nil
}

// Requests that cannot be read for a while are handled once they can, and what was raised is cleared.
func TestRequestsThatCannotBeReadForAWhileAreHandledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := &askedLater{unread: 2, asked: []job.Request{
			{ID: "r1", Verb: job.AskSuspend, On: []job.Selector{{Job: "b"}}, By: "ann", Expires: time.Now().Add(time.Hour)}}}
		d := newDriven(t, func(s *Setup, p *Parts) { s.Watch, p.Requests = true, requests })
		d.begin(t)
		pass(requestsEvery / 2)
		if d.provider.running() == 0 {
			t.Error("nothing is launched while the requests are unknown")
		}
		pass(10 * time.Second)
		if len(requests.replies) != 1 || requests.replies[0].ID != "r1" || requests.replies[0].State != job.Refused {
			t.Errorf("the replies are %v", requests.replies)
		}
		must(t, d.end())
		told := slices.DeleteFunc(slices.Clone(d.view.conditions), func(c string) bool { return !strings.Contains(c, string(RequestsUnread)) })
		if len(told) != 2 || !strings.HasPrefix(told[0], "raised") || !strings.HasPrefix(told[1], "cleared") {
			t.Errorf("reported %q", told)
		}
	})
}

// An interrupted run does not wait for observations.
func TestAnInterruptedRunWaitsForNoProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriven(t, func(s *Setup, _ *Parts) { s.Watch = true })
		looking := make(chan struct{})
		d.provider.observe = func(ctx context.Context, _ *providers.Observation) (*providers.Observation, error) {
			close(looking)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d.begin(t)
		<-looking
		begun := time.Now()
		if err := d.end(); err != nil || time.Since(begun) > 0 {
			t.Errorf("the run ended after %v with %v", time.Since(begun), err)
		}
		if len(d.view.conditions) > 0 {
			t.Errorf("reported %q", d.view.conditions)
		}
	})
}

// An interrupted run stops slots that were asked to leave once their time is over, and not earlier.
func TestAnInterruptedRunStopsWhatDoesNotLeave(t *testing.T) {
	leave := leaveTime(&plan.Change{Stop: []int{1}, Grace: jobtest.Role("worker", 1).StopGrace})
	for name, stop := range map[string]error{"it is stopped": nil, "a stop fails": errors.New("no route to host")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changed, files := make(chan struct{}, 1), Files{Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 2))}}
				d := newDriven(t, func(s *Setup, p *Parts) {
					s.Watch = true
					p.Changed, p.Reload = changed, func(context.Context) (Files, error) { return files, nil }
				})
				d.begin(t)
				pass(time.Second)
				must(t, d.end())
				next, err := NewDriver(t.Context(), Setup{Intent: Intent{Destroy: true}, NewUID: func(string) string { return "u" }}, d.parts)
				must(t, err)
				d.provider.stop = func() error { return stop }
				d.Driver, d.over = next, make(chan error, 1)
				d.begin(t)
				synctest.Wait()
				begun := time.Now()
				must(t, d.end())
				if took := time.Since(begun); took < leave || took > leave+time.Second {
					t.Errorf("the run ended after %v, want %v for the slots to leave", took, leave)
				}
				for _, s := range d.Records()["a"].Slots {
					if (s.Phase == job.Canceled) != (stop == nil) {
						t.Errorf("%s is recorded as %s", s.Address.Short(), s.Phase)
					}
				}
				if left := d.provider.running(); (left > 0) != (stop != nil) {
					t.Errorf("%d agents run", left)
				}
				want := []string{"raised job.a.worker[0] not_stopped(count=2 message=\"no route to host\" slot=job.a.worker[0])",
					"raised job.a.worker stop_refused(message=\"no route to host\" slots=worker[0-1])"}
				if told := d.view.conditions; stop == nil && len(told) > 0 || stop != nil && !slices.Equal(told, want) {
					t.Errorf("reported %q", told)
				}
			})
		})
	}
}

// following is a Driver that watches files, whose content the test sets.
type following struct {
	*driven
	changed chan struct{}

	mu       sync.Mutex
	files    Files
	err      error
	readings int
}

func newFollowing(t *testing.T, change func(*Setup, *Parts)) *following {
	t.Helper()
	f := &following{changed: make(chan struct{}, 1)}
	f.driven = newDriven(t, func(s *Setup, p *Parts) {
		s.Watch = true
		p.Changed, p.Reload = f.changed, func(context.Context) (Files, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.readings++
			return f.files, f.err
		}
		change(s, p)
	})
	return f
}

// say sets what the files say from now on.
func (f *following) say(files Files, err error) {
	f.mu.Lock()
	f.files, f.err = files, err
	f.mu.Unlock()
	f.changed <- struct{}{}
	synctest.Wait()
}

func (f *following) read() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readings
}

// The loop rereads unsteady files by itself, since no event signals that writing has ended.
func TestFilesAreReadAgainWhenTheyAreStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t, func(*Setup, *Parts) {})
		f.begin(t)
		f.say(Files{}, &UnsteadyError{Since: time.Now(), Again: time.Now().Add(filesDebounce)})
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		if n := f.read(); n != 1 {
			t.Errorf("%d readings at once", n)
		}
		pass(filesDebounce)
		if n := f.read(); n != 2 {
			t.Errorf("%d readings, including the scheduled one", n)
		}
		must(t, f.end())
	})
}

func TestARequestIsAnsweredWithThePlanOrThatItIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t, func(*Setup, *Parts) {})
		f.begin(t)
		synctest.Wait()
		f.mu.Lock()
		f.files = Files{Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 3))}, Commit: "6666666"}
		f.mu.Unlock()
		begun := time.Now()
		reply := f.Reconcile(t.Context(), elastic.ReconcileRequest{})
		if reply.Status != elastic.ReconcilePlanned || reply.Commit != "6666666" || *reply.Changes != (elastic.ReconcileChanges{Add: 1, Change: 1}) || time.Since(begun) > 0 {
			t.Errorf("%+v %+v after %v", reply, reply.Changes, time.Since(begun))
		}

		// Each of many concurrent requests is answered.
		var asking sync.WaitGroup
		for range 5 {
			asking.Go(func() {
				if reply := f.Reconcile(t.Context(), elastic.ReconcileRequest{}); reply.Status != elastic.ReconcilePlanned {
					t.Errorf("%+v", reply)
				}
			})
		}
		asking.Wait()

		// A request is handled even if nobody waits for the answer.
		readings := f.read()
		ended, end := context.WithCancel(t.Context())
		end()
		if reply := f.Reconcile(ended, elastic.ReconcileRequest{}); reply.Status != elastic.ReconcileQueued || reply.Changes != nil {
			t.Errorf("%+v", reply)
		}
		synctest.Wait()
		if f.read() == readings {
			t.Error("the request was not handled")
		}
		must(t, f.end())
		if len(f.replies) > 0 {
			t.Errorf("%d answers are left", len(f.replies))
		}

		// There is no answer after the run has ended.
		begun = time.Now()
		if reply := f.Reconcile(t.Context(), elastic.ReconcileRequest{}); reply.Status != elastic.ReconcileQueued || time.Since(begun) > maxReplyWait {
			t.Errorf("after %v: %+v", time.Since(begun), reply)
		}
	})
}

// Form returns only after the world is stored; when the run ends it does not block.
func TestAWorldIsAnsweredOnceItIsStoredOrTheRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store *slowStore
		d := newDriven(t, func(s *Setup, p *Parts) {
			store = newSlowStore(p.Store)
			s.Watch, p.Store = true, store
		})
		d.begin(t)
		synctest.Wait()
		if err := d.Form("a", "another", job.World{Generation: 1}); err == nil || !strings.Contains(err.Error(), "not recorded") {
			t.Errorf("a job that is not recorded: %v", err)
		}
		formed := make(chan error, 1)
		form := func(generation int) {
			go func() { formed <- d.Form("a", "ua", job.World{Generation: generation}) }()
		}
		store.slow.Store(true)
		form(1)
		<-store.writing
		synctest.Wait()
		if len(formed) > 0 {
			t.Error("Form returned before the world was stored")
		}
		store.free <- struct{}{}
		must(t, <-formed)
		stored, err := d.store.Read(t.Context())
		must(t, err)
		if got := stored.Jobs["a"].World.Generation; got != 1 {
			t.Errorf("generation %d is stored", got)
		}

		store.slow.Store(true)
		form(2)
		<-store.writing
		d.interrupt()
		synctest.Wait()
		store.free <- struct{}{}
		must(t, <-d.over)
		err = <-formed
		stored, read := d.store.Read(t.Context())
		must(t, read)
		if got := stored.Jobs["a"].World.Generation; err == nil && got != 2 {
			t.Errorf("Form succeeded at the end of the run, but generation %d is stored", got)
		}
		if err := d.Form("a", "ua", job.World{Generation: 3}); err == nil {
			t.Error("a world was formed after the end of the run")
		}
		if len(d.formed) > 0 {
			t.Errorf("%d answers are left", len(d.formed))
		}
	})
}

func TestGaugeTakesTheBatchFromTheProcessThatSaysIt(t *testing.T) {
	said, err := progress.Parse([]byte(`{"step": 7, "batch_size": 512, "gradient_noise_scale": 4000}`))
	if err != nil {
		t.Fatal(err)
	}
	running := func(step int64, ranks ...job.RankStatus) elastic.MemberFacts {
		return elastic.MemberFacts{Member: job.Member{State: job.MemberRunning, Step: step, StepRate: 2, Ranks: ranks}}
	}
	facts := map[string]elastic.Facts{"j": {Members: []elastic.MemberFacts{
		running(6, job.RankStatus{Progress: &job.RankProgress{Reading: said}}), running(8), running(7),
	}}}
	if got, want := gauge(facts)["j"], (Progress{Step: 8, StepRate: 2, BatchSize: 512, NoiseScale: 4000}); got != want {
		t.Errorf("gauged %+v, want %+v", got, want)
	}
}
