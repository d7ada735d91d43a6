package apply

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// patience bounds every wait of these tests.
const patience = time.Minute

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// losable is a lock that the test takes away.
type losable struct {
	state.Lock
	lost chan struct{}
	why  error
}

func (l *losable) Lost() <-chan struct{} { return l.lost }
func (l *losable) Why() error            { return l.why }

func TestALostLockGroundsAllAtOnce(t *testing.T) {
	lost := make(chan struct{})
	b := newBench(t, func(o *Options) {
		o.Spawn, o.Clock, o.Parallelism = nil, nil, 1
		o.Lock = &losable{o.Lock, lost, errors.New("it could not be renewed: the token may have expired")}
	})
	var launches atomic.Int32
	flying, landed := make(chan struct{}), make(chan struct{})
	b.cluster.launch = func(ctx context.Context, _ job.Launch) error {
		if launches.Add(1) == 1 {
			close(flying)
			<-ctx.Done()
			close(landed)
		}
		return nil
	}
	looking, look := make(chan struct{}), make(chan struct{})
	b.cluster.observe = func() {
		select {
		case <-flying: // the loop is busy for long when the lock goes
			looking <- struct{}{}
			<-look
		default:
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(t.Context(), nil)
		ended <- err
	}()
	within(t, "the first launch", flying)
	b.flights.wake()
	within(t, "the next turn", looking)
	close(lost)
	within(t, "the end of the launch", landed)
	close(look)
	select {
	case err := <-ended:
		if !errors.Is(err, ErrLockLost) || !strings.Contains(err.Error(), "the token may have expired") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on without the lock")
	}
	if n := launches.Load(); n != 1 {
		t.Errorf("%d launches were begun", n)
	}
}

// stopped is a view that takes nothing until it is let go. It keeps what was finished.
type stopped struct {
	listener
	begun, free chan struct{}
	once        sync.Once
	finished    []string
}

func newStopped() *stopped { return &stopped{begun: make(chan struct{}), free: make(chan struct{})} }

func (s *stopped) Planned(*plan.Plan) {
	s.once.Do(func() { close(s.begun) })
	<-s.free
}

func (s *stopped) Finished(c *plan.Change, _ time.Duration, _ error) {
	s.finished = append(s.finished, c.Slot.Short())
}

func TestATerminalThatTakesNothingHoldsUpNoHealing(t *testing.T) {
	view := newStopped()
	b := newBench(t, func(o *Options) { o.Spawn, o.Clock, o.View = nil, nil, view })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Run(ctx, &Watch{})
		ended <- err
	}()
	within(t, "the first plan", view.begun)
	eventually(t, "the launch of both", func() bool { return b.cluster.running() == 2 })
	b.cluster.mu.Lock()
	b.cluster.Agents()[1].Kill()
	b.cluster.mu.Unlock()
	eventually(t, "the launch of another", func() bool { b.flights.wake(); return b.cluster.running() == 2 })
	if len(b.Live().Records) != 1 {
		t.Error("status is not answered")
	}
	close(view.free)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	slices.Sort(view.finished)
	if want := []string{"worker[0]", "worker[1]", "worker[1]"}; !slices.Equal(view.finished, want) {
		t.Errorf("told of %v once it took it, not %v", view.finished, want)
	}
}

func TestWhatATerminalDoesNotTakeIsLeftOutInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newStopped()
		tell := &teller{view: view}
		done := func(v View) { v.Finished(&plan.Change{}, 0, nil) }
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(done)
		time.Sleep(untoldMost + time.Second)
		tell.tell(done)
		tell.tell(done)
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 1 || len(view.warned) != 1 {
			t.Errorf("told %d, warned %q", len(view.finished), view.warned)
		}
		tell.tell(done)
		tell.end()
		tell.tell(done) // at once again
		if len(view.finished) != 3 {
			t.Errorf("told %d in the end", len(view.finished))
		}
	})
}

// A plan of 10,000 slots is some MB. While changes are carried out there is always something that waits to be told.
func TestWhatWasToldIsKeptNoLonger(t *testing.T) {
	view := newStopped()
	tell := &teller{view: view}
	tell.begin()
	defer tell.end()
	defer close(view.free)
	told := make(chan struct{})
	big := &plan.Plan{Changes: make([]plan.Change, 1000)}
	kept := weak.Make(big)
	hold := make(chan struct{})
	tell.tell(func(View) { <-hold })
	tell.tell(func(View) { runtime.KeepAlive(big) })
	tell.tell(func(v View) { close(told); v.Planned(nil) }) // which waits
	tell.tell(func(View) {})
	close(hold)
	<-told
	runtime.GC()
	if kept.Value() != nil {
		t.Error("what was told is kept while something else is being told")
	}
}

func TestARunEndsThoughATerminalTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newStopped()
		tell := &teller{view: view}
		tell.begin()
		tell.tell(func(v View) { v.Planned(nil) })
		tell.tell(func(v View) { v.Finished(&plan.Change{}, 0, nil) })
		begun := time.Now()
		tell.end()
		if took := time.Since(begun); took != flushMost {
			t.Errorf("it ended after %v", took)
		}
		close(view.free)
		synctest.Wait()
		if len(view.finished) != 0 {
			t.Error("it was told after the end")
		}
	})
}

// slow is a store whose writes take until they are let go.
type slow struct {
	state.Store
	writing, free chan struct{}
}

func (s *slow) Write(ctx context.Context, next state.State, l state.Lock) error {
	s.writing <- struct{}{}
	<-s.free
	return s.Store.Write(ctx, next, l)
}

func TestAStoreThatTakesLongHoldsUpNobodyWhoReads(t *testing.T) {
	store := &slow{writing: make(chan struct{}), free: make(chan struct{})}
	b := newBench(t, func(o *Options) { store.Store, o.Store = o.Store, store })
	turned := make(chan error, 1)
	go func() {
		_, _, err := b.Turn(t.Context())
		turned <- err
	}()
	within(t, "the write", store.writing)
	read := make(chan struct{})
	go func() {
		b.Records()
		b.Snapshot()
		b.Live()
		close(read)
	}()
	within(t, "an answer", read)
	close(store.free)
	if err := <-turned; err != nil {
		t.Fatal(err)
	}
}

// unwritable is a store of which some writes fail.
type unwritable struct {
	state.Store
	failing atomic.Int32 // so many writes
	err     error
}

func (u *unwritable) Write(ctx context.Context, s state.State, l state.Lock) error {
	if u.failing.Add(-1) >= 0 {
		return u.err
	}
	return u.Store.Write(ctx, s, l)
}

// A right that is missing comes back by nobody's waiting: whoever waits for the end of the command is told which.
func TestAStateThatCannotBeStoredEndsARunThatDoesNotWatch(t *testing.T) {
	run := func(failing int32, watch *Watch) (left int32, err error) {
		synctest.Test(t, func(t *testing.T) {
			store := &unwritable{err: errors.New("the right to list secrets is missing")}
			store.failing.Store(failing)
			b := newBench(t, func(o *Options) {
				o.Spawn, o.Clock = nil, nil
				store.Store = o.Store
				o.Store = store
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = b.Run(ctx, watch)
			left = store.failing.Load()
		})
		return left, err
	}
	if _, err := run(1000, nil); err == nil || !strings.Contains(err.Error(), "the right to list secrets is missing") {
		t.Errorf("it ended with %v", err)
	}
	if _, err := run(hopeless-1, nil); err != nil {
		t.Errorf("with a state that can be stored again it ended with %v", err)
	}
	if left, err := run(2*hopeless, &Watch{}); err != nil || left > 0 {
		t.Errorf("a watch ended with %v and %d tries left", err, left)
	}
}

// "Apply complete" is said of a job that has grown once what it has grown by trains.
func TestAFixedRoleThatGrowsIsWaitedFor(t *testing.T) {
	b := newBench(t, func(*Options) {})
	elastic := jobtest.Role("worker", 2)
	elastic.Scaling = &job.Scaling{Min: 1, Max: 3}
	for name, c := range map[string]struct {
		role  job.Role
		last  job.Phase
		waits []plan.Wait
		want  bool
	}{
		"it starts":                   {jobtest.Role("worker", 3), job.Scheduling, nil, false},
		"it has registered":           {jobtest.Role("worker", 3), job.Registered, nil, false},
		"it trains":                   {jobtest.Role("worker", 3), job.Running, nil, true},
		"it has no room":              {jobtest.Role("worker", 3), job.Pending, []plan.Wait{{Job: "a"}}, true},
		"it is queued for long":       {jobtest.Role("worker", 3), job.Scheduling, []plan.Wait{{Job: "a"}}, true},
		"it is queued":                {jobtest.Role("worker", 3), job.Scheduling, []plan.Wait{{Job: "a", Passing: true}}, false},
		"an elastic one has no place": {elastic, job.Scheduling, nil, true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: jobtest.Job("a", c.role)}
		for i, phase := range []job.Phase{job.Running, job.Running, c.last} {
			rec.Slots = append(rec.Slots, job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Phase: phase})
		}
		if got := b.settled(&plan.Plan{Records: job.Records{"a": rec}, Waits: c.waits}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// An elastic role that was to grow has grown when "Apply complete" is said. What its infrastructure keeps waiting may
// never come, and what comes may never join: neither is waited for without end.
func TestAnElasticRoleThatGrowsIsWaitedForWithBounds(t *testing.T) {
	b := newBench(t, func(*Options) {})
	role := jobtest.Role("worker", 2)
	role.Scaling = &job.Scaling{Min: 1, Max: 3}
	spec := jobtest.Job("a", role)
	settle, grace := spec.Rendezvous.Settle.Std(), role.StopGrace.Std()
	for name, c := range map[string]struct {
		phase   job.Phase
		inc     job.Incarnation
		world   job.World
		elapsed time.Duration // since the phase began
		waits   []plan.Wait
		want    bool // settled
	}{
		"its agent runs":                {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up}},
		"its agent is being started":    {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Starting}},
		"it has registered":             {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + proof - 1},
		"another one waits":             {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, waits: []plan.Wait{{Job: "a"}}},
		"it has joined":                 {phase: job.Running, inc: job.Incarnation{Node: "n1", State: job.Up}, want: true},
		"a scheduler has not placed it": {phase: job.Scheduling, inc: job.Incarnation{State: job.Starting}, want: true},
		"its image cannot be had":       {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Starting, Waiting: "ImagePullBackOff"}, want: true},
		"its agent never registers":     {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + proof, want: true},
		"it never joins":                {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + proof, want: true},
		"the others write a checkpoint": {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: grace,
			world: job.World{Generation: 1, Broken: true, Ordered: jobtest.Epoch}},
		"the others never stop": {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: grace + settle + proof,
			world: job.World{Generation: 1, Broken: true, Ordered: jobtest.Epoch}, want: true},
		"it is another incarnation": {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up, Number: 1}, want: true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: spec, World: c.world}
		for i, phase := range []job.Phase{job.Running, job.Running, c.phase} {
			rec.Slots = append(rec.Slots, job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Phase: phase, Since: jobtest.Epoch})
		}
		last := &rec.Slots[2]
		last.Incarnation = 2
		if c.inc.Number == 0 {
			c.inc.Number = 2
		}
		b.live = map[incarnation]*job.Incarnation{incarnationOf("u", last.Address, c.inc.Number): &c.inc}
		b.now = jobtest.Epoch.Add(c.elapsed)
		if got := b.settled(&plan.Plan{Records: job.Records{"a": rec}, Waits: c.waits}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// A run that does not watch ends though a role never comes up that others depend on. What is not behind that is waited for.
func TestARunEndsThoughARoleThatOthersDependOnNeverComesUp(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Jobs = []job.Job{jobtest.Job("a", jobtest.Role("ps", 1), jobtest.Role("worker", 1, jobtest.After("ps")))}
	})
	var p plan.Plan
	for range 100 {
		p = b.turn(t)
		if b.settled(&p) {
			break
		}
		b.now = b.now.Add(Rescan)
		b.cluster.Advance(b.now, func() {})
	}
	if !b.settled(&p) || b.cluster.running() != 1 {
		t.Errorf("after %v with %d agents it goes on: %+v %+v", b.now.Sub(jobtest.Epoch), b.cluster.running(), p.Changes, p.Waits)
	}
	if b.now.Sub(jobtest.Epoch) < time.Minute {
		t.Errorf("it ended after %v", b.now.Sub(jobtest.Epoch))
	}
}

func TestAChangeOfALaterWaveIsWaitedForUnlessWhatItDependsOnIsStuck(t *testing.T) {
	b := newBench(t, func(*Options) {})
	spec := jobtest.Job("a", jobtest.Role("data", 1), jobtest.Role("ps", 1, jobtest.After("data")), jobtest.Role("worker", 1, jobtest.After("ps")), jobtest.Role("evaluator", 1))
	later := plan.Change{Action: plan.Create, Job: "a", UID: "u", Slot: job.Address{Job: "a", Role: "worker"}, Wave: 2}
	for name, c := range map[string]struct {
		wait plan.Wait
		wave int
		last job.Cause
		want bool
	}{
		"it comes up":                 {wave: 2},
		"it is queued":                {wave: 2, wait: plan.Wait{Job: "a", Role: "ps", Passing: true}},
		"it is queued for long":       {wave: 2, wait: plan.Wait{Job: "a", Role: "ps"}, want: true},
		"what it depends on is":       {wave: 2, wait: plan.Wait{Job: "a", Role: "data"}, want: true},
		"another role is":             {wave: 2, wait: plan.Wait{Job: "a", Role: "evaluator"}},
		"the files hold the job back": {wave: 2, wait: plan.Wait{Job: "a", Held: true}},
		"another job is":              {wave: 2, wait: plan.Wait{Job: "b", Role: "ps"}},
		"it may be done now":          {wave: 0, wait: plan.Wait{Job: "a", Role: "ps"}},
		"the job did not come up":     {wave: 2, last: job.RendezvousTimeout, want: true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobPending, Spec: spec}
		if c.last != "" {
			rec.Incidents = []job.Incident{{Time: b.now, Cause: c.last}}
		}
		later.Wave = c.wave
		p := plan.Plan{Records: job.Records{"a": rec}, Changes: []plan.Change{later}, Waits: []plan.Wait{c.wait}}
		if got := b.settled(&p); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// A slot that no node starts is tried again for as long as a rendezvous may take, and then is not waited for.
func TestASlotThatNoNodeStartsIsWaitedForAsLongAsARendezvousMayTake(t *testing.T) {
	const timeout = 10 * time.Minute
	for name, c := range map[string]struct {
		failing, elapsed time.Duration // since the run began
		phase            job.Phase
		want             bool
	}{
		"at once":                {elapsed: timeout - time.Second},
		"for long":               {elapsed: timeout, want: true},
		"for long, it is tried":  {elapsed: timeout, phase: job.Scheduling, want: true},
		"late in the run":        {failing: timeout, elapsed: timeout + time.Minute},
		"since before the run":   {failing: -time.Hour, elapsed: time.Minute},
		"since before, for long": {failing: -time.Hour, elapsed: timeout, want: true},
		"it came up":             {elapsed: timeout, phase: job.Registered},
		"it was given up":        {elapsed: timeout, phase: job.Canceled},
	} {
		b := newBench(t, func(*Options) {})
		spec := jobtest.Job("a", jobtest.Role("worker", 2))
		spec.Rendezvous.Timeout = job.Duration(timeout)
		address := job.Address{Job: "a", Role: "worker"}
		slot := job.Slot{Address: address, Phase: cmp.Or(c.phase, job.Failing), Cause: job.NodeFailed, Crashes: 2, CrashesSince: b.since.Add(c.failing)}
		if c.phase == job.Registered {
			slot.Crashes, slot.CrashesSince = 0, time.Time{}
		}
		address.Index = 1
		// Another slot's end is newer: it says nothing of this one.
		rec := &job.Record{UID: "u", Phase: job.JobStarting, Spec: spec, Slots: []job.Slot{slot, {Address: address, Phase: job.Scheduling}},
			Incidents: []job.Incident{{Time: b.since, Cause: job.NodeFailed}, {Time: b.since.Add(c.elapsed), Cause: job.Eviction}}}
		b.o.Jobs = []job.Job{spec}
		b.now = b.since.Add(c.elapsed)
		if got := b.settled(&plan.Plan{Records: job.Records{"a": rec}}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// A probe hears that the service is ready once a turn was stored, also where no job of it can be told: one that cannot
// be prepared, or that runs where its provider does not look.
func TestTheServiceIsReadyAfterTheFirstStoredTurn(t *testing.T) {
	store := &unwritable{err: errors.New("no")}
	store.failing.Store(1)
	b := newBench(t, func(o *Options) {
		store.Store = o.Store
		o.Store = store
	})
	b.cluster.prepare = func(job.Group) error { return errors.New("no") }
	if _, _, err := b.Turn(t.Context()); err == nil || b.listener.ready > 0 {
		t.Errorf("%v; ready %d times before anything was stored", err, b.listener.ready)
	}
	b.now = b.now.Add(time.Minute)
	b.turn(t)
	if b.listener.ready == 0 || len(b.tokens) > 0 {
		t.Errorf("ready %d times after a stored turn, told of %v", b.listener.ready, b.tokens)
	}
}
