package sim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
)

// Bounds of effects, as the Driver has them.
const (
	storeBound = 30 * time.Second
	callBound  = time.Minute
	stopMargin = 15 * time.Second
)

// master is one eltrain process: its loop, service, clock and lock, all of which are lost when it crashes.
type master struct {
	w       *world
	name    string
	intent  apply.Intent
	skew    time.Duration // of its clock
	paused  bool          // suspended: calls to it are kept in stood
	stood   []func()
	resumed time.Time // when it was last resumed
	dead    bool

	silence state.Silence[int] // of the lock's holder, while it waits
	lock    state.Lock         // nil while it waits
	journal *state.Journal
	expires time.Time // when its lease expires

	l       *apply.Loop // nil while it waits
	client  *sim.Client
	events  []apply.Event
	waiting map[apply.ID]bool // queued effects that were not dropped
	steps   bool              // step is running
	due     time.Time         // when the loop's next Tick is due
	over    *apply.Over
	told    *told
	granted bool         // a run that does not watch may begin
	address string       // of the service
	asked   map[int]bool // requests to reconcile that have no answer yet

	reading  bool // operators' requests are being read
	outdated bool // and have to be read again
	service
}

// start starts a watching process, which leads as soon as it gets the lock.
func (w *world) start(name string) { w.startFor(name, apply.Intent{Watch: true}) }

// startFor starts a process with an intent.
func (w *world) startFor(name string, intent apply.Intent) {
	if w.masters[name] != nil {
		return
	}
	m := &master{w: w, name: name, intent: intent, skew: w.skews[name], waiting: map[apply.ID]bool{}, granted: intent.Watch, address: name, asked: map[int]bool{}}
	w.masters[name] = m
	m.standBy()
	w.settle()
}

// now returns the process's time. A change of the clock affects only later processes: within one, time is monotonic.
func (m *master) now() time.Time { return m.w.cluster.Now().Add(m.skew) }

// do runs f in the process, after it is resumed if it is paused.
func (m *master) do(f func()) {
	switch {
	case m.dead || m.w.stuck:
	case m.paused:
		m.stood = append(m.stood, f)
	default:
		f()
	}
}

func (m *master) after(d time.Duration, f func()) { m.w.cluster.After(max(d, 0), func() { m.do(f) }) }

// heard wraps a callback so that it runs in the process.
func heard[T any](m *master, done func(T, error)) func(T, error) {
	return func(result T, err error) { m.do(func() { done(result, err) }) }
}

// pause suspends the process, for a while or until it is resumed.
func (m *master) pause(d time.Duration) {
	m.paused = true
	if d > 0 {
		m.w.cluster.After(d, m.resume)
	}
}

// resume resumes it. Calls that were kept are made at once.
func (m *master) resume() {
	if !m.paused || m.dead {
		return
	}
	m.paused, m.resumed = false, m.w.cluster.Now()
	stood := m.stood
	m.stood = nil
	for _, f := range stood {
		m.do(f)
	}
}

// lead starts the loop over the stored state, unless another process has led since.
func (m *master) lead(stored state.State) {
	journal, err := m.w.journal.open(m.lock.Info().Epoch)
	if err != nil {
		if busy := (*state.JournalBusyError)(nil); !errors.As(err, &busy) || !m.fenced() {
			m.w.fail("open the journal under epoch %d: %v", m.lock.Info().Epoch, err)
		}
		m.end(err)
		return
	}
	m.journal = journal
	m.client = m.w.cluster.Open()
	m.service = newService(m)
	m.told = m.w.facts.handOver()
	jobs := m.w.jobs
	if m.intent.Destroy {
		jobs = nil
	}
	m.l = apply.New(m.now(), apply.Setup{
		Intent: m.intent, Files: apply.Files{Jobs: jobs, Notify: notifies}, Providers: []string{"local"},
		State: stored, Epoch: m.lock.Info().Epoch, NewUID: m.w.newUID, Check: m.w.checks,
		Approve: !m.intent.Watch, Requests: true,
	})
	if m.tag() != "" {
		m.w.say("%s leads", m.name)
	}
	m.w.cluster.Serve(m.address, m)
	m.tick()
	m.readRequests(0)
	m.step(apply.Served{Service: providers.Service{URL: m.address}}, apply.FilesChanged{}) // the files may have changed after they were read
}

// move gives the service another address, under which alone it is reached from now on.
func (m *master) move() {
	m.w.cluster.Serve(m.address, nil)
	m.w.moves++
	m.address = fmt.Sprintf("%s/%d", m.name, m.w.moves)
	m.w.cluster.Serve(m.address, m)
	m.step(apply.Served{Service: providers.Service{URL: m.address}})
}

// request requests to reconcile. Each request has one answer if the master lives on.
func (m *master) request() {
	m.w.requests++
	m.asked[m.w.requests] = true
	m.step(apply.Triggered{Request: m.w.requests})
}

// leads reports whether the process leads, as far as it knows.
func (m *master) leads() bool { return m != nil && m.l != nil && !m.dead }

// fenced reports whether another process has held the lock since.
func (m *master) fenced() bool { return m.lock.Info().Epoch < m.w.store.epoch }

// lost tells the loop that the lock is lost.
func (m *master) lost(err error) {
	if m.l == nil {
		m.end(err)
		return
	}
	m.step(apply.LockLost{Err: err})
}

// end exits the process, and releases the lock. After an error the supervisor of a watching one starts another.
func (m *master) end(err error) {
	m.gone()
	if err != nil && m.intent.Watch {
		m.w.cluster.After(time.Second, func() { m.w.start(m.name) })
	}
	if m.lock != nil {
		m.w.cluster.Net.Send(m.name, "store", func() { m.w.store.unlock(m.lock) })
	}
}

// crash ends it like kill -9.
func (m *master) crash() { m.gone() }

func (m *master) gone() {
	m.dead = true
	delete(m.w.masters, m.name)
	if m.l != nil {
		m.w.cluster.Serve(m.address, nil)
		m.client.Close()
		m.journal.Close()
	}
}

// step passes events to the loop and carries out its effects, until no more follow.
func (m *master) step(events ...apply.Event) {
	m.events = append(m.events, events...)
	if m.steps {
		return
	}
	m.steps = true
	defer func() { m.steps = false }()
	for events := 0; len(m.events) > 0 && !m.dead && !m.paused; events++ {
		if events > 10000 {
			m.w.fail("the loop of %s does not come to rest", m.name)
			m.w.stuck = true
			return
		}
		e := m.events[0]
		m.events = m.events[1:]
		if o, is := e.(apply.Outcome); is && o.Of.Kind == "approve" {
			m.granted = o.Err == nil
		}
		m.l.Step(m.now(), e)
		ready := m.l.Ready()
		for _, tell := range ready.Tell {
			tell(logView{m})
		}
		for _, effect := range ready.Effects {
			m.do(func() { m.begin(effect) })
		}
		if ready.Over != nil {
			m.over = ready.Over
			if ready.Over.Err != nil {
				m.w.say("%sover: %v", m.tag(), ready.Over.Err)
			}
			m.end(ready.Over.Err)
			return
		}
		if !m.due.Equal(ready.Next) {
			m.due = ready.Next
			m.after(m.due.Sub(m.now()), func() {})
		}
	}
	if m.paused && len(m.events) > 0 {
		m.do(func() { m.step() })
		return
	}
	m.w.check(m)
}

// tag names the process in the log, if there are several.
func (m *master) tag() string {
	if len(m.w.skews) == 0 {
		return ""
	}
	return m.name + ": "
}

// settle wakes the loop if there is anything new.
func (m *master) settle() (looked bool) {
	if !m.leads() || m.paused {
		return false
	}
	woken := m.c.Changes() != m.seen
	select {
	case <-m.client.Changes():
		woken = true
	default:
	}
	switch {
	case woken:
		m.seen = m.c.Changes()
		m.step(apply.Woken{})
	case !m.due.IsZero() && !m.now().Before(m.due):
		m.step(apply.Tick{})
		return true
	}
	return woken
}

// begin starts an effect.
func (m *master) begin(e apply.Effect) {
	switch effect := e.(type) {
	case apply.Prepare, apply.Launch, apply.Stop, apply.Forget:
		if !m.granted {
			m.w.fail("%s begins before it is approved", e.ID())
		}
	case apply.Drop:
		if m.waiting[e.ID()] {
			delete(m.waiting, e.ID())
			m.step(apply.Outcome{Of: e.ID(), Err: apply.ErrDropped})
		}
		return
	case apply.Store:
		if !m.granted {
			m.w.fail("a state is stored before it is approved")
		}
		m.told.storing = maps.Clone(m.told.raised)
		maps.DeleteFunc(m.told.storing, func(key conditions.Key, raised bool) bool { return !raised || endsWithRun(key) })
	case apply.Again:
		m.delay(e.ID(), effect.At.Sub(m.now()), func() { m.carryOutWithFault(effect.Effect) })
		return
	}
	m.carryOutWithFault(e)
}

// delay queues an effect, which may be dropped meanwhile.
func (m *master) delay(id apply.ID, d time.Duration, begin func()) {
	m.waiting[id] = true
	m.after(d, func() {
		if m.waiting[id] {
			delete(m.waiting, id)
			begin()
		}
	})
}

// carryOutWithFault carries out an effect, with the fault before it if there is one.
func (m *master) carryOutWithFault(e apply.Effect) {
	f := m.w.faultOf(m, e)
	end := func(result any, err error) { m.outcome(e, f, result, err) }
	if f.After {
		m.carryOut(e, end)
		return
	}
	switch f.What {
	case "crash":
		m.w.say("%sthe master crashes before %s", m.tag(), e.ID())
		m.crash()
	case "pause":
		m.w.say("%sthe master stands still before %s", m.tag(), e.ID())
		m.pause(f.For)
		m.do(func() { m.carryOut(e, end) })
	case "delay":
		m.delay(e.ID(), f.For, func() { m.carryOut(e, end) })
	case "":
		m.carryOut(e, end)
	default:
		m.step(apply.Outcome{Of: e.ID(), Err: f.err()})
	}
}

// outcome passes an effect's outcome to the loop, with the fault after it if there is one.
func (m *master) outcome(e apply.Effect, f effectFault, result any, err error) {
	o := apply.Outcome{Of: e.ID(), Result: result, Err: err}
	if !f.After || m.w.repaired {
		m.step(o)
		return
	}
	switch f.What {
	case "crash":
		m.w.say("%sthe master crashes after %s", m.tag(), e.ID())
		m.crash()
	case "pause":
		m.w.say("%sthe master stands still after %s", m.tag(), e.ID())
		m.pause(f.For)
		m.do(func() { m.step(o) })
	case "delay":
		m.after(f.For, func() { m.step(o) })
	default:
		if e, is := e.(apply.Journal); is && err == nil {
			m.w.facts.lostAnswer(e.Notices)
		}
		m.step(apply.Outcome{Of: e.ID(), Err: f.err()})
	}
}

// carryOut carries out an effect as the Driver does.
func (m *master) carryOut(e apply.Effect, done func(any, error)) {
	ctx, w := context.Background(), m.w
	switch e := e.(type) {
	case apply.Hear:
		done(apply.Facts{Version: m.c.Changes() + m.w.hangs, Jobs: m.w.suspect(m.c.Observe())}, nil)
	case apply.Store:
		known, raised := m.l.Records(), m.told.storing
		sim.Call(w.cluster.Net, m.name, "store", storeBound, func(answer func(any, error)) {
			answer(nil, w.write(ctx, e.State, m.lock, known, raised))
		}, heard(m, done))
	case apply.Reread:
		m.read(func(s state.State, err error) {
			if err != nil {
				done(nil, err)
				return
			}
			done(s, nil)
		})
	case apply.Journal:
		done(nil, apply.AppendNotices(m.journal, e.Notices, e.Ledger...))
	case apply.Chronicle:
		done(nil, apply.AppendDecision(m.journal, &e.Decision))
	case apply.ReadFiles:
		done(apply.Files{Jobs: w.jobs, Notify: notifies}, nil)
	case apply.Tell:
		m.inform(e.News)
		done(nil, nil)
	case apply.Observe:
		seen := func(result any, err error) {
			if sight, is := result.(apply.Sight); is && err == nil {
				w.found(m, sight.Observation)
			}
			done(result, err)
		}
		m.ask(e, callBound, seen, func() (any, error) {
			seen, err := m.client.Observe(ctx)
			return apply.Sight{Capabilities: m.client.Capabilities(), Observation: seen}, err
		})
	case apply.Publish:
		m.ask(e, callBound, done, func() (any, error) { return nil, m.client.Publish(ctx, e.Service) })
	case apply.Prepare:
		m.ask(e, callBound, done, func() (any, error) { return m.client.Prepare(ctx, e.Group) })
	case apply.Launch:
		m.ask(e, callBound, done, func() (any, error) { return nil, m.client.Launch(ctx, e.Launch) })
	case apply.Stop:
		m.ask(e, e.Grace+stopMargin, done, func() (any, error) {
			return nil, m.client.Stop(ctx, e.UID, e.Slot, e.Incarnation, e.Grace)
		})
	case apply.Check:
		done(unmet(e.Records), nil)
	case apply.Answer:
		if !m.asked[e.Request] {
			w.fail("request %d is answered twice", e.Request)
		}
		delete(m.asked, e.Request)
		done(nil, nil)
	case apply.Respond:
		m.respond(e, done)
	case apply.Sample:
		m.sample(e, done)
	case apply.Notify:
		w.deliver(m, e.Message)
		done(nil, nil)
	case apply.Forget:
		m.ask(e, callBound, done, func() (any, error) { return nil, m.client.Forget(ctx, e.UID, e.Name) })
	default: // Approve is granted, and Gauge has no use here
		done(nil, nil)
	}
}

// unmet evaluates the files' conditions: each job is to run, to have ended, or to be suspended.
func unmet(records job.Records) map[string]string {
	unmet := map[string]string{}
	for name, rec := range records {
		if rec.Phase != job.JobRunning && !rec.Phase.Idle() {
			unmet["job."+name+" is to run"] = "It is " + string(rec.Phase) + "."
		}
	}
	return unmet
}

// ask calls the cluster over the net. A call that is not answered in time is a transient error, as in real providers.
func (m *master) ask(e apply.Effect, bound time.Duration, done func(any, error), do func() (any, error)) {
	sim.Call(m.w.cluster.Net, m.name, "cluster", bound, func(answer func(any, error)) {
		answer(m.w.arrives(m, e, do))
	}, heard(m, func(result any, err error) {
		if errors.Is(err, sim.ErrNoAnswer) {
			err = &providers.TransientError{Err: err}
		}
		done(result, err)
	}))
}

// inform tells the service something.
func (m *master) inform(n apply.News) {
	switch n := n.(type) {
	case apply.Wanted:
		m.wants[n.Job] = n.Desired.Want
		m.c.Set(m.now(), n.Job, n.Desired)
	case apply.Unwanted:
		delete(m.wants, n.Job)
		m.c.Remove(n.Job)
	case apply.Ended:
		m.c.Gone(m.now(), n.Slot, n.Incarnation, n.Succeeded)
	case apply.Open:
		m.open = true
	case apply.Recorded:
		m.c.Formed(m.now(), m.forms[n.Forming-1], n.Err)
	}
	m.ready()
}

// effectFault is a fault of the next effect of a kind, and of a slot if it names one.
type effectFault struct {
	Kind  string
	Slot  job.Address
	What  string // crash, pause, delay; error, busy, conflict: not carried out, or, after it, the answer is lost
	After bool
	For   time.Duration // of a pause or a delay
}

func (f effectFault) err() error {
	switch f.What {
	case "busy":
		return &providers.TransientError{Err: errors.New("too busy")}
	case "conflict":
		return errConflict
	}
	return errors.New("refused")
}

// faultOf takes the pending fault of an effect.
func (w *world) faultOf(m *master, e apply.Effect) effectFault {
	id := e.ID()
	for i, f := range w.armed {
		if f.Kind != id.Kind || f.Slot != (job.Address{}) && f.Slot != id.Slot {
			continue
		}
		w.armed = append(w.armed[:i:i], w.armed[i+1:]...)
		return f
	}
	return effectFault{}
}
