package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a simulated cluster with a master on it: the same loop, planner and service as in production, on
// one virtual clock.
type world struct {
	t       testing.TB
	cluster *sim.Cluster
	store   *memory.Store
	broken  error                    // why nothing can be stored
	faults  func(apply.Effect) fault // what goes wrong about each effect; nil is nothing
	jobs    []job.Job
	master  *master // nil while none runs
	uids    int
	log     []string
	told    []job.Incident // of which events tell
	journal struct{ entries int }
	check   func(job.Records) // of what is stored, whenever the loop has come to rest; nil checks nothing
}

// stored is the store as masters reach it.
func (w *world) stored() state.Store { return brokenStore{w.store, w.broken} }

// brokenStore fails writes for as long as it is broken.
type brokenStore struct {
	state.Store
	broken error
}

func (s brokenStore) Write(ctx context.Context, next state.State, l state.Lock) error {
	if s.broken != nil {
		return s.broken
	}
	return s.Store.Write(ctx, next, l)
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: memory.New()}
	w.cluster = sim.New("local", epoch, w.say)
	return w
}

func (w *world) say(format string, args ...any) {
	at := w.cluster.Now().Sub(epoch).Round(time.Millisecond)
	w.log = append(w.log, fmt.Sprintf("%8s  %s", at, fmt.Sprintf(format, args...)))
}

// take empties the log.
func (w *world) take() string {
	out := strings.Join(w.log, "\n")
	w.log = nil
	if out != "" {
		out += "\n"
	}
	return out
}

// master is one process's worth of eltrain: when it crashes, all of it is gone.
type master struct {
	w      *world
	c      *elastic.Coordinator
	l      *apply.Loop
	lock   state.Lock
	seen   uint64 // of the coordinator's changes
	events []apply.Event
	// waiting are effects that wait for their turn, and were not taken back.
	waiting  map[apply.ID]bool
	stepping bool
	forms    []elastic.Forming // by the number of their apply.Forming, less one
	ticked   time.Time         // when the coordinator's next Tick is scheduled for
	due      time.Time         // when the loop's next Tick is scheduled for
	dead     bool
}

// start begins a master, which takes over whatever is there.
func (w *world) start() {
	w.t.Helper()
	ctx := context.Background()
	lock, err := w.store.Lock(ctx, state.LockInfo{Operation: "apply -watch", Created: w.cluster.Now()}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	stored, err := w.store.Read(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &master{w: w, c: elastic.NewCoordinator(), lock: lock, waiting: map[apply.ID]bool{}}
	m.l = apply.New(w.cluster.Now(), apply.Setup{
		Intent: apply.Intent{Watch: true}, Files: apply.Files{Jobs: w.jobs}, Providers: []string{"local"},
		State: stored, Epoch: lock.Info().Epoch, NewUID: w.newUID,
	})
	w.master = m
	w.cluster.Serve(m)
	m.tick()
	m.step(apply.Served{})
	w.settle()
}

// step lets the loop take in events, and carries out what it asks for, until nothing more follows.
func (m *master) step(events ...apply.Event) {
	m.events = append(m.events, events...)
	if m.stepping {
		return // it is at it
	}
	m.stepping = true
	defer func() { m.stepping = false }()
	for len(m.events) > 0 && !m.dead {
		e := m.events[0]
		m.events = m.events[1:]
		m.l.Step(m.w.cluster.Now(), e)
		ready := m.l.Ready()
		for _, tell := range ready.Tell {
			tell(teller{m.w})
		}
		for _, effect := range ready.Effects {
			if !m.dead {
				m.begin(effect)
			}
		}
		if ready.Over != nil {
			m.w.say("over: %v", ready.Over.Err)
			m.w.crash() // its process ends, and whoever supervises it starts another
			return
		}
		m.wakeAt(ready.Next)
	}
	if m.w.check != nil {
		m.w.check(m.l.Records())
	}
}

// wakeAt has the loop ticked at a time.
func (m *master) wakeAt(at time.Time) {
	m.due = at
	m.w.cluster.After(at.Sub(m.w.cluster.Now()), func() {})
}

// fault is what goes wrong about one effect. The zero fault is nothing.
type fault struct {
	crashBefore, crashAfter bool          // of the master
	before, after           time.Duration // it waits for its turn, its outcome comes late
	fails                   error         // it is not carried out
	lost                    error         // it is, and its outcome says that it is not
}

// begin carries an effect out, with what goes wrong about it.
func (m *master) begin(e apply.Effect) {
	var f fault
	switch effect := e.(type) {
	case apply.Drop:
		if m.waiting[e.ID()] {
			delete(m.waiting, e.ID())
			m.step(apply.Outcome{Of: e.ID(), Err: apply.ErrDropped})
		}
		return
	case apply.Again:
		e, f.before = effect.Effect, effect.At.Sub(m.w.cluster.Now())
	default:
		if m.w.faults != nil {
			f = m.w.faults(e)
		}
	}
	if f.crashBefore {
		m.w.say("the master crashes before %s", e.ID())
		m.w.crash()
		return
	}
	if f.before <= 0 {
		m.end(e, f)
		return
	}
	m.waiting[e.ID()] = true
	m.w.cluster.After(f.before, func() {
		if m.waiting[e.ID()] && !m.dead {
			delete(m.waiting, e.ID())
			m.end(e, f)
		}
	})
}

// end carries an effect out and gives the loop its outcome.
func (m *master) end(e apply.Effect, f fault) {
	o := apply.Outcome{Of: e.ID(), Err: f.fails}
	if f.fails == nil {
		o.Result, o.Err = m.carryOut(e)
	}
	if o.Err == nil && f.lost != nil {
		o.Result, o.Err = nil, f.lost
	}
	if f.crashAfter {
		m.w.say("the master crashes after %s", e.ID())
		m.w.crash()
		return
	}
	if f.after == 0 {
		m.step(o)
		return
	}
	m.w.cluster.After(f.after, func() {
		if !m.dead {
			m.step(o)
		}
	})
}

// carryOut does what the Driver does, at once.
func (m *master) carryOut(e apply.Effect) (any, error) {
	ctx := context.Background()
	switch e := e.(type) {
	case apply.Hear:
		return apply.Facts{Version: m.c.Changes(), Jobs: m.c.Observe()}, nil
	case apply.Observe:
		seen, err := m.w.cluster.Observe(ctx)
		return apply.Sight{Capabilities: m.w.cluster.Capabilities(), Observation: seen}, err
	case apply.Store:
		return nil, m.w.stored().Write(ctx, e.State, m.lock)
	case apply.Reread:
		return m.w.stored().Read(ctx)
	case apply.Journal:
		m.w.journal.entries += len(e.Notices)
	case apply.Chronicle:
		m.w.journal.entries++
	case apply.Publish:
		return nil, m.w.cluster.Publish(ctx, e.Service)
	case apply.Prepare:
		return m.w.cluster.Prepare(ctx, e.Group)
	case apply.Launch:
		return nil, m.w.cluster.Launch(ctx, e.Launch)
	case apply.Stop:
		return nil, m.w.cluster.Stop(ctx, e.UID, e.Slot, e.Incarnation, e.Grace)
	case apply.Forget:
		return nil, m.w.cluster.Forget(ctx, e.UID, e.Name)
	case apply.ReadFiles:
		return apply.Files{Jobs: m.w.jobs}, nil
	case apply.Tell:
		m.inform(e.News)
	}
	return nil, nil
}

// inform tells the coordinator something.
func (m *master) inform(n apply.News) {
	switch n := n.(type) {
	case apply.Wanted:
		m.c.Set(m.w.cluster.Now(), n.Job, n.Desired)
	case apply.Unwanted:
		m.c.Remove(n.Job)
	case apply.Ended:
		m.c.Gone(m.w.cluster.Now(), n.Slot, n.Incarnation)
	case apply.Recorded:
		m.c.Formed(m.w.cluster.Now(), m.forms[n.Forming-1], n.Err)
	}
	m.ready()
}

func (w *world) newUID(name string) string {
	w.uids++
	return fmt.Sprintf("uid-%s-%d", name, w.uids)
}

// crash ends the master as kill -9 would.
func (w *world) crash() {
	w.master.dead = true
	w.master = nil
	w.cluster.Serve(nil)
	w.store.Silence()
}

// declare replaces the configuration.
func (w *world) declare(jobs []job.Job) {
	w.jobs = jobs
	if w.master != nil {
		w.master.step(apply.FilesChanged{})
		w.settle()
	}
}

// run lets d go by.
func (w *world) run(d time.Duration) {
	w.cluster.Advance(w.cluster.Now().Add(d), w.settle)
	w.settle()
}

// settle lets the master look at what has happened, until nothing is new.
func (w *world) settle() {
	for range 1000 {
		m := w.master
		if m == nil || !m.woken() {
			return
		}
		m.seen = m.c.Changes()
		m.step(apply.Woken{})
	}
	w.t.Fatalf("the loop does not come to rest:\n%s", w.take())
}

func (m *master) woken() bool {
	woken := m.c.Changes() != m.seen || !m.due.IsZero() && !m.w.cluster.Now().Before(m.due)
	select {
	case <-m.w.cluster.Changes():
		woken = true
	default:
	}
	return woken && !m.dead
}

// tick gives the coordinator the time, as the server does.
func (m *master) tick() {
	if m.dead {
		return
	}
	next := m.c.Tick(m.w.cluster.Now())
	m.ready()
	m.schedule(next)
}

func (m *master) schedule(next time.Time) {
	m.ticked = next
	m.w.cluster.After(next.Sub(m.w.cluster.Now()), func() {
		if !m.dead && m.ticked.Equal(next) {
			m.tick()
		}
	})
}

// ready does what the coordinator asks for, as the server does.
func (m *master) ready() {
	work := m.c.Ready()
	for _, told := range work.Told {
		m.w.cluster.After(sim.ReplyTime, func() {
			if a := m.w.cluster.Agent(told.Slot); a != nil && !m.dead {
				a.Sync()
			}
		})
	}
	for _, f := range work.Form {
		m.w.cluster.After(0, func() {
			if m.dead {
				return
			}
			m.forms = append(m.forms, f)
			m.step(apply.Forming{Number: len(m.forms), Job: f.Job, UID: f.UID, World: f.World})
		})
	}
	if work.Sooner {
		m.schedule(m.w.cluster.Now())
	}
}

// The service, as agents see it.

func (m *master) Register(jobName string, r elastic.RegisterRequest) (elastic.RegisterReply, error) {
	reply, err := m.c.Register(m.w.cluster.Now(), jobName, r)
	m.ready()
	return reply, err
}

func (m *master) Sync(jobName string, r elastic.SyncRequest) (elastic.SyncReply, error) {
	reply, err := m.c.Sync(m.w.cluster.Now(), jobName, r)
	m.ready()
	return reply, err
}

// teller writes what the loop tells into the world's log.
type teller struct{ w *world }

func (v teller) Planned(p *plan.Plan) {
	for _, x := range p.Waits {
		v.w.say("job.%s waits: %s", x.Job, join(x.Reasons, " "))
	}
}

func join(reasons []job.Reason, between string) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, between)
}

func (v teller) Started(c *plan.Change) {
	name := "job." + c.Job
	if c.Slot != (job.Address{}) {
		name = c.Slot.String()
	}
	why := ""
	if len(c.Reasons) > 0 {
		why = " (" + join(c.Reasons, "; ") + ")"
	}
	v.w.say("plan: %s %s%s", c.Action, name, why)
}
func (teller) Still(*plan.Change, time.Duration) {}
func (v teller) Finished(c *plan.Change, _ time.Duration, err error) {
	if err != nil {
		v.w.say("%s %s: %v", c.Action, c.Slot, err)
	}
}
func (v teller) Withdrawn(c *plan.Change, _ time.Duration) {
	v.w.say("%s %s is not asked for any more", c.Action, c.Slot)
}
func (v teller) Noticed(n job.Notice) {
	v.w.say("%s %s: %s", n.Address, n.Type, n.Message)
	if n.Incident != nil {
		v.w.told = append(v.w.told, *n.Incident)
	}
}
func (v teller) Condition(c conditions.Change)   { v.w.say("%s: %s %s", c.Type, c.About, c.Reason) }
func (teller) Progressed(string, apply.Progress) {}
