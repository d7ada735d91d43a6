package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
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
	stored  state.Store // what the master is given instead of store, if set
	jobs    []job.Job
	master  *master // nil while none runs
	uids    int
	log     []string
	told    []job.Incident // of which events tell
	journal journal
	check   func(p *plan.Plan) // of each turn; nil checks nothing
}

// journal counts what is written to it.
type journal struct{ entries int }

func (j *journal) Append(e ...state.Entry) error { j.entries += len(e); return nil }

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
	r      *apply.Reconciler
	lock   state.Lock
	wake   chan struct{}
	seen   uint64
	ticked time.Time // when the next Tick is scheduled for
	due    time.Time // when the next turn is scheduled for
	dead   bool
}

// start begins a master, which takes over whatever is there.
func (w *world) start() {
	w.t.Helper()
	ctx := context.Background()
	lock, err := w.store.Lock(ctx, state.LockInfo{Operation: "apply -watch", Created: w.cluster.Now()}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	stored := w.stored
	if stored == nil {
		stored = w.store
	}
	m := &master{w: w, c: elastic.NewCoordinator(), lock: lock, wake: make(chan struct{}, 1)}
	m.r, err = apply.New(ctx, apply.Options{
		Jobs: w.jobs, Store: stored, Lock: lock, Journal: &w.journal, Service: m, View: teller{w},
		Providers: map[string]providers.Provider{"local": w.cluster}, NewUID: w.newUID, Parallelism: 4,
		Spawn: func(f func()) { f() }, Clock: w.cluster.Now,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.master = m
	w.cluster.Serve(m)
	m.tick()
	m.turn()
	w.settle()
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
		w.master.r.Declare(jobs)
		w.master.turn()
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
		m.turn()
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
	return woken
}

// turn is one turn of the production loop.
func (m *master) turn() {
	m.seen = m.c.Changes()
	m.due = time.Time{}
	p, due, err := m.r.Turn(context.Background())
	if err != nil {
		m.w.say("turn: %v", err)
		due = m.w.cluster.Now().Add(time.Second)
	}
	if m.w.check != nil {
		m.w.check(&p)
	}
	if rescan := m.w.cluster.Now().Add(apply.Rescan); due.IsZero() || due.After(rescan) {
		due = rescan
	}
	m.due = due
	m.w.cluster.After(due.Sub(m.w.cluster.Now()), func() {})
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
			err := m.r.Form(f.Job, f.UID, f.World)
			m.c.Formed(m.w.cluster.Now(), f, err)
			m.ready()
		})
	}
	if work.Sooner {
		m.schedule(m.w.cluster.Now())
	}
}

// The service, as agents and the reconciler see it.

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

func (m *master) Set(jobName string, d elastic.Desired) {
	m.c.Set(m.w.cluster.Now(), jobName, d)
	m.ready()
}

func (m *master) SetReady() {}

func (m *master) Remove(jobName string) { m.c.Remove(jobName); m.ready() }

func (m *master) Gone(slot job.Address, incarnation int) {
	m.c.Gone(m.w.cluster.Now(), slot, incarnation)
	m.ready()
}

func (m *master) Observe() map[string]elastic.Facts { return m.c.Observe() }
func (m *master) Wake() <-chan struct{}             { return m.wake }

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
func (v teller) Warned(summary, detail string)             { v.w.say("warning: %s: %s", summary, detail) }
func (teller) Recovered(string)                            {}
func (teller) Progressed(string, int64, *float64, float64) {}
