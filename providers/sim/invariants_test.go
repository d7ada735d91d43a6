package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
)

// check holds what must hold after every step of a loop.
func (w *world) check(m *master) {
	if m.dead || m != w.leader() {
		return
	}
	w.records(m.l.Records())
	w.once()
	w.saidToTake(m)
}

// records holds what must hold of what is stored.
func (w *world) records(records job.Records) {
	held := map[string]job.Resources{}
	for name, rec := range records {
		if g := rec.World.Generation; g < w.facts.generations[rec.UID] {
			w.fail("job.%s went back from generation %d to %d", name, w.facts.generations[rec.UID], g)
		}
		w.facts.generations[rec.UID] = rec.World.Generation
		_, destroyed := w.dropped[name] // its record stays as it was until it is forgotten, and others have its place by then
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if !destroyed && s.Phase.Live() && s.Node != "" {
				held[s.Node] = held[s.Node].Add(s.Reserved)
			}
		}
		w.sizes(name, rec)
	}
	for _, n := range w.cluster.Nodes() {
		if !held[n.Name].Fits(n.Capacity) {
			w.fail("node %s holds %v of %v", n.Name, held[n.Name], n.Capacity)
		}
	}
}

// sizes holds the numbers of slots and ranks of a job.
func (w *world) sizes(name string, rec *job.Record) {
	for i, m := range rec.World.Members {
		if m.Rank != i {
			w.fail("job.%s generation %d has ranks %v", name, rec.World.Generation, rec.World.Members)
		}
	}
	for i := range rec.Spec.Roles {
		r := &rec.Spec.Roles[i]
		_, most := r.Bounds()
		reserved := 0
		for _, s := range rec.Slots {
			if s.Address.Role == r.Name && s.Node != "" && s.Phase.Live() && s.Phase != job.Canceling {
				reserved++
			}
		}
		if reserved > most {
			w.fail("job.%s.%s has %d slots of at most %d", name, r.Name, reserved, most)
		}
	}
}

// once holds that no slot's processes run twice, in agents that can act and that their provider has always seen, and that nothing trains
// that a fenced master has launched and the newest does not know.
func (w *world) once() {
	running := map[job.Address]int{}
	for _, a := range w.cluster.Agents() {
		generation, runs := a.Running()
		if !runs || a.Silent() || a.GivenUp() || a.Missed() {
			continue
		}
		if other, twice := running[a.Slot()]; twice {
			w.fail("%s runs twice, in generations %d and %d", a.Slot(), other, generation)
		}
		running[a.Slot()] = generation
		if w.facts.stale[incarnation{a.UID(), a.Slot(), a.Incarnation()}] {
			w.fail("%s incarnation %d trains, and a fenced master has launched it", a.Slot(), a.Incarnation())
		}
	}
}

// stillBound is how long a change may take until it is said that it does: ten seconds, and the beat in which that is looked at.
const stillBound = 15 * time.Second

// saidToTake holds that what is told to leave, or to be launched, does so or is said to take long.
func (w *world) saidToTake(m *master) {
	for about, x := range m.told.open {
		if m.resumed.After(x.since) {
			x.since = m.resumed
		}
		if w.cluster.Now().Sub(x.since) > stillBound {
			w.fail("nothing is said of %s %s for %s", x.action, about.slot, w.cluster.Now().Sub(x.since))
		}
	}
}

// arrives has the cluster do what a master asks for. What one asks for whose lock is another's by now must not undo what that
// has done since: its launches and stops are named by incarnations, of which each is launched once.
func (w *world) arrives(m *master, e apply.Effect, do func() (any, error)) (any, error) {
	if !m.fenced() {
		return do()
	}
	before := w.cluster.Agents()
	result, err := do()
	stored, failed := w.store.Read(w.t.Context())
	if failed != nil {
		w.fail("read the state: %v", failed)
	}
	switch e := e.(type) {
	case apply.Launch:
		named := incarnation{e.Launch.UID, e.Launch.Slot, e.Launch.Incarnation}
		if len(w.cluster.Agents()) > len(before) && !isNewest(stored.Jobs, named) {
			w.facts.stale[named] = true
		}
	case apply.Stop:
		named := incarnation{e.UID, e.Slot, e.Incarnation}
		if len(w.cluster.Agents()) < len(before) && isNewest(stored.Jobs, named) {
			w.fail("%s is stopped by a fenced master", e.Slot)
		}
	}
	return result, err
}

// isNewest reports whether an incarnation is the one that a record wants to live.
func isNewest(records job.Records, named incarnation) bool {
	rec := records[named.slot.Job]
	if rec == nil || rec.UID != named.uid {
		return false
	}
	s := rec.Slot(named.slot.Role, named.slot.Index)
	return s != nil && s.Incarnation == named.number && s.Phase.Live() && s.Phase != job.Canceling
}

// restTime bounds how long the loop may take to come to rest once nothing fails any more: a lease of the lock, one of the
// agents, a retry's longest pause and a rendezvous.
const restTime = 3 * time.Minute

// repair ends all faults.
func (w *world) repair() {
	w.say("repair everything")
	w.armed, w.repaired = nil, true
	clear(w.troubles)
	w.cluster.Net.Mend()
	w.cluster.Lag = 0
	for _, m := range w.all() {
		m.resume()
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.cluster.SetNode(w.nodes[name])
	}
	for _, a := range w.cluster.Agents() {
		if a.Missed() {
			a.Hide(false)
		}
		a.Wake()
	}
	w.start("a")
	w.start("b") // one of them may be about to end
	for _, m := range w.all() {
		if m.leads() {
			m.step(apply.FilesChanged{}) // the watch on the files looks again every while
		}
	}
	w.settle()
}

// rest ends all faults, and holds that the loop comes to rest in bounded time: that the jobs train, nothing is told to hold that
// does not, nothing is left that was to leave, nothing is written any more, and nothing is planned.
func (w *world) rest() {
	w.repair()
	w.run(restTime)
	if w.queues() {
		for i := range 6 {
			n, _ := parseNode(fmt.Sprintf("more%d cpu=1", i))
			w.cluster.SetNode(n)
		}
		w.run(restTime)
	}
	m := w.leader()
	if m == nil {
		w.fail("nobody leads")
		return
	}
	w.healed(m)
	for key, holds := range m.told.raised {
		if holds {
			w.fail("%s %s was raised and is not cleared", key.About, key.Code)
		}
	}
	for about, x := range m.told.open {
		w.fail("%s of %s %s was told to begin, and not to end", x.action, about.uid, about.slot)
	}
	w.left(m.l.Records())
	before, entries := w.serial(), w.journal
	w.run(5 * time.Minute)
	m.step(apply.Asked{Request: 1}) // has it plan once more
	w.run(time.Second)
	if w.serial() != before || w.journal != entries {
		w.fail("a steady state wrote: serial %d -> %d, journal %d -> %d", before, w.serial(), entries, w.journal)
	}
	m.step(apply.Interrupted{})
	w.run(time.Second)
	switch {
	case m.over == nil:
		w.fail("an interrupted run does not end")
	case m.over.Err != nil || len(m.over.Plan.Changes) > 0:
		w.fail("at rest it plans %d changes, and ends with error %v", len(m.over.Plan.Changes), m.over.Err)
	}
}

// queues reports whether a job waits for its turn: one of a higher priority may have outgrown it while it was not admitted.
func (w *world) queues() bool {
	m := w.leader()
	return m != nil && slices.ContainsFunc(w.jobs, func(j job.Job) bool {
		rec := m.l.Records()[j.Name]
		return rec != nil && rec.Phase == job.JobPending
	})
}

// healed holds that all jobs train, whole.
func (w *world) healed(m *master) {
	for _, j := range w.jobs {
		rec := m.l.Records()[j.Name]
		if rec == nil {
			w.fail("job.%s is not recorded", j.Name)
			continue
		}
		if rec.Phase != job.JobRunning {
			w.fail("job.%s is %s", j.Name, rec.Phase)
		}
		worker := j.Role("worker")
		if n := len(rec.World.Members); !worker.Legal(n) {
			w.fail("job.%s trains with %d slots, which is not legal", j.Name, n)
		}
		for _, member := range rec.World.Members {
			a := w.cluster.Agent(member.Slot)
			if a == nil {
				w.fail("%s is in the world and does not run", member.Slot)
				continue
			}
			if g, runs := a.Running(); !runs || g != rec.World.Generation {
				w.fail("%s runs=%v in generation %d, the world is %d", member.Slot, runs, g, rec.World.Generation)
			}
		}
	}
}

// left holds that nothing lives that was to leave.
func (w *world) left(records job.Records) {
	for _, a := range w.cluster.Agents() {
		if !isNewest(records, incarnation{a.UID(), a.Slot(), a.Incarnation()}) {
			w.fail("%s incarnation %d lives on", a.Slot(), a.Incarnation())
		}
	}
}

func (w *world) serial() uint64 {
	s, err := w.store.Read(w.t.Context())
	if err != nil {
		w.fail("read the state: %v", err)
	}
	return s.Serial
}
