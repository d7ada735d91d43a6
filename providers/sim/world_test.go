package sim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a simulated cluster, a store and masters, with the production loop, planner and service, on one virtual clock. It
// records violated invariants.
type world struct {
	t        testing.TB
	cluster  *sim.Cluster
	store    *store
	masters  map[string]*master       // the existing processes
	skews    map[string]time.Duration // clock offsets of processes that start, by name
	armed    []effectFault
	repaired bool                // effects in flight succeed
	troubles map[string]trouble  // by operation
	nodes    map[string]job.Node // without faults
	text     string              // of the files
	set      map[string]string   // values of their variables
	dropped  map[string]bool     // jobs that were removed from them

	suspended map[string]bool // jobs that are declared as suspended
	jobs      []job.Job       // that they declare
	uids      int
	moves     int // of services to other addresses
	requests  int // to reconcile
	operators operators
	hangs     uint64          // found by detection so far
	quota     int             // launches are refused while there are this many agents; 0: no quota
	finished  map[string]bool // UIDs of jobs of which a slot has finished
	journal   journal
	log       []string
	facts     facts
	wrong     []string
	at        time.Time // of the newest event
	events    int       // number of events at that time
	checks    bool      // the files check the jobs
	stuck     bool      // a loop spins without time passing: nothing more happens
}

// trouble is the failure of an operation, for a while.
type trouble struct {
	until time.Time
	busy  bool
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: &store{Store: memory.New()}, masters: map[string]*master{}, skews: map[string]time.Duration{},
		troubles: map[string]trouble{}, dropped: map[string]bool{}, suspended: map[string]bool{}, finished: map[string]bool{}, nodes: map[string]job.Node{}, set: map[string]string{}, facts: newFacts()}
	w.journal = newJournal(w)
	w.cluster = sim.New("local", epoch, w.say)
	w.cluster.Trouble = func(op string, _ job.Address) error {
		if n := len(w.cluster.Agents()); op == "launch" && w.quota > 0 && n >= w.quota {
			return fmt.Errorf("exceeded quota: used %d, limited %d", n, w.quota)
		}
		return w.trouble(op)
	}
	w.operators.acted = map[string]int{}
	w.cluster.Acted = w.acts
	return w
}

// close removes the world's files.
func (w *world) close() {
	for _, m := range w.all() {
		m.crash()
	}
	w.journal.remove()
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

// fail records a violated invariant.
func (w *world) fail(format string, args ...any) {
	const most = 10
	if len(w.wrong) < most {
		w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
		w.say("WRONG: "+format, args...)
	}
}

// The operations of the store and of the cluster that may fail.
var (
	storeOps   = []string{"lock", "read", "write"}
	clusterOps = []string{"observe", "publish", "prepare", "launch", "stop", "forget"}
)

// trouble returns the error of an operation that fails now.
func (w *world) trouble(op string) error {
	t, set := w.troubles[op]
	if !set || !w.cluster.Now().Before(t.until) {
		return nil
	}
	if t.busy {
		return &providers.TransientError{Err: errors.New("too busy"), Busy: true}
	}
	return errors.New(op + " does not work")
}

// write stores a state by the store's rules. Its master knew the records known, and had reported the conditions raised, when it
// decided.
func (w *world) write(ctx context.Context, next state.State, lock state.Lock, known job.Records, raised map[conditions.Key]bool) error {
	if err := w.trouble("write"); err != nil {
		return err
	}
	before, err := w.store.Read(ctx)
	if err != nil {
		return err
	}
	if err := w.store.Write(ctx, next, lock); err != nil {
		return err
	}
	if lock.Info().Epoch < w.store.epoch {
		w.fail("a write under epoch %d was taken, the newest is %d", lock.Info().Epoch, w.store.epoch)
	}
	w.worlds(next.Jobs)
	w.facts.stored(next.Jobs)
	for _, message := range next.Notifications.Unsent {
		w.facts.owed[message.ID] = true
	}
	w.facts.kept(raised, known, before, next)
	maps.DeleteFunc(w.dropped, func(name string, dropped bool) bool { // declared again, and decided on since
		return !dropped && !reflect.DeepEqual(next.Jobs[name], before.Jobs[name])
	})
	return nil
}

// leader returns the master that holds the lock; nil if none does.
func (w *world) leader() *master {
	if m := w.store.holder; m.leads() && m.lock != nil && m.lock.Info().Epoch == w.store.epoch {
		return m
	}
	return nil
}

// all returns the processes, by name.
func (w *world) all() (all []*master) {
	for _, name := range slices.Sorted(maps.Keys(w.masters)) {
		all = append(all, w.masters[name])
	}
	return all
}

func (w *world) newUID(name string) string {
	w.uids++
	return fmt.Sprintf("uid-%s-%d", name, w.uids)
}

// run advances the clock by d.
func (w *world) run(d time.Duration) {
	w.cluster.Advance(w.cluster.Now().Add(d), w.settle)
	w.settle()
}

// settle wakes the masters until nothing is new.
func (w *world) settle() {
	if w.stuck {
		return
	}
	if now := w.cluster.Now(); now.After(w.at) {
		w.at, w.events = now, 0
	}
	w.once()
	w.announced()
	if m := w.leader(); m != nil && !m.paused {
		w.reportsLongChanges(m)
	}
	if w.events++; w.events > 100000 {
		w.fail("the time does not go by")
		w.stuck = true
		return
	}
	for range 1000 {
		looked := false
		for _, m := range w.all() {
			looked = m.settle() || looked
		}
		if !looked {
			return
		}
	}
	w.fail("a loop does not come to rest")
	w.stuck = true
}
