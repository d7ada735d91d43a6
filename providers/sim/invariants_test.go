package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
)

// check checks what must hold after every step of a loop.
func (w *world) check(m *master) {
	if m.dead || m != w.leader() {
		return
	}
	w.records(m.l.Records())
	w.once()
	w.reportsLongChanges(m)
}

// records checks the stored state.
func (w *world) records(records job.Records) {
	held := map[string]job.Resources{}
	for name, rec := range records {
		if g := rec.World.Generation; g < w.facts.generations[rec.UID] {
			w.fail("job.%s went back from generation %d to %d", name, w.facts.generations[rec.UID], g)
		}
		w.facts.generations[rec.UID] = rec.World.Generation
		_, destroyed := w.dropped[name] // its record stays until it is forgotten, when others may have its places already
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

// sizes checks the numbers of slots and ranks of a job.
func (w *world) sizes(name string, rec *job.Record) {
	for i, m := range rec.World.Members {
		if m.Rank != i {
			w.fail("job.%s generation %d has ranks %v", name, rec.World.Generation, rec.World.Members)
		}
	}
	for i := range rec.Spec.Roles {
		r := &rec.Spec.Roles[i]
		_, most := r.Bounds()
		if o := rec.Override("role." + r.Name + ".replicas"); o != nil {
			most = o.Slots()
		}
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

// once checks that no slot's processes run twice, among agents that can act and are not missed, and that no incarnation
// trains that a fenced master has launched and the newest master does not know.
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

// found ends the exemption of agents that were hidden: the leader sees them again, and has not replaced them.
func (w *world) found(m *master, seen *providers.Observation) {
	if m != w.leader() {
		return
	}
	for _, a := range w.cluster.Agents() {
		named := incarnation{a.UID(), a.Slot(), a.Incarnation()}
		if a.Missed() && isNewest(w.facts.records, named) && seen.Incarnations.Any(func(i *job.Incarnation) bool {
			return incarnation{i.UID, i.Slot, i.Number} == named && i.State != job.Gone
		}) {
			a.Found()
		}
	}
}

// blames checks that checks find no fault in a node that is sound.
func (w *world) blames(i *job.Incident) {
	for _, r := range i.Evidence {
		if r.Code == plan.NodeCheckFailed && !w.facts.suspects[r.Args["node"]] {
			w.fail("node %s is sound, and it is said that %s", r.Args["node"], r)
		}
	}
}

// checked checks that an agent does not train on a node that could not pass the check that its job asks for.
func (w *world) checked(a *sim.Agent, spec *job.Job) {
	since, spoilt := w.facts.spoilt[a.Node()]
	if spoilt && a.Started().After(since) && spec.Detect.NodeCheck().When == job.CheckAlways {
		w.fail("%s incarnation %d trains on node %s, which is faulty since %s", a.Slot(), a.Incarnation(), a.Node(), since.Sub(epoch))
	}
}

// announced checks that members train only in worlds that are stored, and in the places that are stored.
func (w *world) announced() {
	for _, a := range w.cluster.Agents() {
		generation, runs := a.Running()
		rec := w.facts.records[a.Slot().Job]
		if !runs || rec == nil || rec.UID != a.UID() || !ranked(&rec.Spec, a.Slot().Role) {
			continue
		}
		w.checked(a, &rec.Spec)
		if generation > rec.World.Generation {
			w.fail("%s trains in generation %d, and %d is stored", a.Slot(), generation, rec.World.Generation)
		}
		place := job.WorldMember{Slot: a.Slot(), Incarnation: a.Incarnation(), Rank: a.Place().GroupRank, Processes: 1}
		members := rec.World.Members
		if generation == rec.World.Generation && (a.Place().GroupSize != len(members) || !slices.Contains(members, place)) {
			w.fail("%s trains with rank %d of %d in generation %d, which is stored as %v", a.Slot(), place.Rank, a.Place().GroupSize, generation, members)
		}
	}
}

func ranked(spec *job.Job, role string) bool {
	r := spec.Role(role)
	return r != nil && r.Ranked
}

// forms checks that a world that a service asks to record has a legal size, as that service was told it, unless the world was
// found training.
func (w *world) forms(f *elastic.Forming, want *job.Want) {
	w.facts.formed[formed{f.UID, f.World.Generation, len(f.World.Members)}] = true
	if f.World.Adopted {
		return
	}
	for _, r := range want.Roles {
		has := 0
		for _, m := range f.World.Members {
			if m.Slot.Role == r.Role {
				has++
			}
		}
		if r.Sizes.Floor(has) != has {
			w.fail("job.%s generation %d has %d slots of role %s, which is not legal", f.Job, f.World.Generation, has, r.Role)
		}
	}
}

// worlds checks that each world that is being stored was formed by a service.
func (w *world) worlds(records job.Records) {
	for name, rec := range records {
		if g := rec.World.Generation; g > 0 && !w.facts.formed[formed{rec.UID, g, len(rec.World.Members)}] {
			w.fail("job.%s generation %d with %d members is stored, and was not formed", name, g, len(rec.World.Members))
		}
	}
}

// stillBound is when a change must have been reported to take long: after ten seconds and the interval of that check.
const stillBound = 15 * time.Second

// reportsLongChanges checks that each change ends or is reported to take long.
func (w *world) reportsLongChanges(m *master) {
	for about, x := range m.told.open {
		if !x.done {
			m.inTime(about, x)
		}
	}
}

// inTime checks that a change was reported a short while ago, or since its master was resumed.
func (m *master) inTime(about changed, x *attempt) {
	if m.resumed.After(x.since) {
		x.since = m.resumed
	}
	if silent := m.w.cluster.Now().Sub(x.since); silent > stillBound {
		m.w.fail("nothing is said of %s %s for %s", x.action, about.slot, silent)
	}
}

// arrives carries out a master's call on the cluster. Calls of a fenced master must not undo what its successor has done:
// launches and stops name incarnations, each of which is launched once. What one forgets is prepared again (see healed).
func (w *world) arrives(m *master, e apply.Effect, do func() (any, error)) (any, error) {
	if !m.fenced() {
		return do()
	}
	lived := func(named incarnation) bool {
		return slices.ContainsFunc(w.cluster.Agents(), func(a *sim.Agent) bool {
			return incarnation{a.UID(), a.Slot(), a.Incarnation()} == named && !a.GivenUp()
		})
	}
	var named incarnation
	switch e := e.(type) {
	case apply.Launch:
		named = incarnation{e.Launch.UID, e.Launch.Slot, e.Launch.Incarnation}
	case apply.Stop:
		named = incarnation{e.UID, e.Slot, e.Incarnation}
	}
	before := lived(named)
	result, err := do()
	stored, failed := w.store.Read(w.t.Context())
	if failed != nil {
		w.fail("read the state: %v", failed)
	}
	switch e := e.(type) {
	case apply.Launch:
		if !before && lived(named) && !isNewest(stored.Jobs, named) {
			w.facts.stale[named] = true
		}
	case apply.Stop:
		if before && !lived(named) && isNewest(stored.Jobs, named) {
			w.fail("%s is stopped by a fenced master", e.Slot)
		}
	}
	return result, err
}

// isNewest reports whether an incarnation is the one in the records.
func isNewest(records job.Records, named incarnation) bool {
	rec := records[named.slot.Job]
	if rec == nil || rec.UID != named.uid {
		return false
	}
	s := rec.Slot(named.slot.Role, named.slot.Index)
	return s != nil && s.Incarnation == named.number && s.Phase.Live() && s.Phase != job.Canceling
}

// notifies tell of everything, at once and after a while.
var notifies = []job.Notify{
	{Name: "once", On: job.NotifyEvents, All: true},
	{Name: "later", On: job.NotifyEvents, All: true, For: job.Duration(5 * time.Second)},
}

// deliver delivers a message of a notify block. It was stored before, and while a master leads, no delivery is recorded.
func (w *world) deliver(m *master, message job.Message) {
	if !w.facts.owed[message.ID] {
		w.fail("%s is delivered and was never stored", message.ID)
	}
	w.facts.delivered[message.ID] = true
	if m.fenced() {
		return
	}
	stored, err := w.store.Read(w.t.Context())
	if err != nil {
		w.fail("read the state: %v", err)
	}
	if !slices.ContainsFunc(stored.Notifications.Unsent, func(one job.Message) bool { return one.ID == message.ID }) {
		w.fail("%s is delivered again after its delivery was recorded", message.ID)
	}
}

// restTime bounds how long the loop may take to come to rest after all faults have ended: the leases of the lock and of the
// agents, the longest retry pause and a rendezvous.
const restTime = 3 * time.Minute

// repair ends all faults.
func (w *world) repair() {
	for node := range w.facts.suspects {
		w.cluster.SetFault(node, "")
		w.facts.faulty(node, "", w.cluster.Now())
	}
	w.say("repair everything")
	w.armed, w.repaired = nil, true
	clear(w.troubles)
	w.quota = 0
	w.cluster.Net.Heal()
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
	for _, name := range w.operators.askedAbout() {
		w.request([]string{"uncordon", name}) // each for itself: a master that has not seen one yet refuses that
	}
	w.start("d") // because all others may be about to end
	for _, m := range w.all() {
		if m.leads() {
			m.step(apply.FilesChanged{}) // as the file watcher rescans
		}
	}
	w.settle()
}

// passing are the conditions that time alone clears, later than a walk ends.
var passing = map[job.Code]bool{plan.NodeMarked: true, plan.TooManyToMark: true}

// rest ends all faults, and checks that the loop comes to rest in bounded time: the jobs train, no obsolete condition holds,
// everything that was to leave has left, nothing more is written, and nothing is planned.
func (w *world) rest() {
	w.repair()
	for _, m := range w.all() {
		if !m.intent.Watch {
			w.run(restTime) // one after the other
		}
	}
	w.run(restTime)
	if len(w.finished) > 0 {
		w.finish(func(a *sim.Agent) bool { return w.finished[a.UID()] }) // members that stood still or started since
		w.run(restTime)
	}
	if w.queues() {
		for i := range 6 {
			n, _ := parseNode(fmt.Sprintf("more%d cpu=1", i))
			w.cluster.SetNode(n)
		}
		w.run(restTime)
	}
	m := w.leader()
	switch {
	case m == nil:
		w.fail("nobody leads")
		return
	case !m.intent.Watch:
		w.fail("the run of %s, which does not watch, does not end", m.name)
		return
	}
	w.healed(m)
	for _, a := range w.cluster.Agents() {
		if _, runs := a.Running(); runs && !a.Hung().IsZero() && !a.GivenUp() {
			w.fail("%s incarnation %d hangs", a.Slot(), a.Incarnation())
		}
	}
	for key, holds := range m.told.raised {
		if holds && !w.overridden(m.l.Records(), key) && !passing[key.Code] {
			w.fail("%s %s was raised and is not cleared", key.About, key.Code)
		}
	}
	for about, x := range m.told.open {
		if !x.done {
			w.fail("%s of %s %s was told to begin, and not to end", x.action, about.uid, about.slot)
		}
	}
	w.left(m.l.Records())
	w.repliedTo(m.l.Records())
	for name, dropped := range w.dropped {
		if dropped && m.l.Records()[name] != nil {
			w.fail("job.%s is no longer declared, and is recorded", name)
		}
	}
	w.journaledOnce()
	w.replays()
	for id := range w.facts.owed {
		if !w.facts.delivered[id] {
			w.fail("%s is not delivered", id)
		}
	}
	before, entries := w.serial(), w.journal.entries()
	w.run(5 * time.Minute)
	m.request() // makes it plan once more
	w.run(time.Second)
	for n := range m.asked {
		w.fail("request %d is not answered", n)
	}
	if w.serial() != before || w.journal.entries() != entries {
		w.fail("a steady state wrote: serial %d -> %d, journal %d -> %d", before, w.serial(), entries, w.journal.entries())
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

// queues reports whether a job is queued: one with a higher priority may have grown while this one was not admitted.
func (w *world) queues() bool {
	m := w.leader()
	return m != nil && slices.ContainsFunc(w.jobs, func(j job.Job) bool {
		rec := m.l.Records()[j.Name]
		return rec != nil && rec.Phase == job.JobPending
	})
}

// healed checks that all jobs train in full, are suspended or canceled, or have ended after their processes have.
func (w *world) healed(m *master) {
	for _, j := range w.jobs {
		rec := m.l.Records()[j.Name]
		if rec == nil {
			if !w.destroyed(j.Name) {
				w.fail("job.%s is not recorded", j.Name)
			}
			continue
		}
		if rec.Phase.Ended() && w.finished[rec.UID] {
			continue
		}
		if rec.Phase.Idle() {
			for _, a := range w.cluster.Agents() {
				if _, runs := a.Running(); runs && a.UID() == rec.UID {
					w.fail("job.%s is %s and %s runs", j.Name, rec.Phase, a.Slot())
				}
			}
		}
		if rec.Phase == job.JobSuspended && toSuspend(&j, rec) || rec.Phase == job.JobCanceled && w.canceled(j.Name) {
			continue
		}
		if rec.Phase != job.JobRunning {
			w.fail("job.%s is %s", j.Name, rec.Phase)
		}
		if !w.cluster.Prepared(rec.UID) {
			w.fail("job.%s is not prepared", j.Name)
		}
		worker := j.Role("worker")
		if n := len(rec.World.Members); !worker.Legal(n) {
			w.fail("job.%s trains with %d slots, which is not legal", j.Name, n)
		}
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if !s.Phase.Live() || s.Phase == job.Pending { // pending: above what fits
				continue
			}
			if a := w.cluster.Agent(s.Address); a == nil {
				w.fail("%s is %s and has no agent", s.Address, s.Phase)
			} else if _, runs := a.Running(); !runs {
				w.fail("%s is %s and does not run", s.Address, s.Phase)
			}
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

// left checks that everything that was to leave is gone.
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
