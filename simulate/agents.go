package simulate

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// running is a job with its agents.
type running struct {
	e        *engine
	name     string // that its agents know
	uid      string
	arrival  *Arrival
	training Training
	agents   []*agent               // by slot and incarnation
	newest   map[job.Address]*agent // by slot
	part     []job.Incarnation      // as last shown; nil if something has changed since
	first    *agent                 // of rank 0 in the newest world that it ran in: it shows the steps of all

	run     run
	saved   work // the newest checkpoint
	savedBy int  // the generation of the world that wrote it; 0 if there is none
	// shown is what rank 0 has shown last.
	shown     showing
	suspicion *job.Suspicion
}

// agent is one incarnation: an agent with its processes.
type agent struct {
	j           *running
	slot        job.Address
	short       string
	number      int
	node        string
	ranked      bool
	processes   int
	fingerprint string
	reserved    job.Resources
	started     time.Time

	silent bool // its node is lost: it does nothing anymore
	gone   bool
	exit   *job.Exit
	reason job.EndReason

	state   job.MemberState // "" before it has registered
	place   elastic.Place   // in the world that its processes run or last ran in
	inPlace int
	seen    uint64 // the newest order's version
	acts    int    // counts what it was told; what was scheduled before does nothing
	hung    bool
}

func (a *agent) lives() bool { return !a.gone && !a.silent }

// launch starts an incarnation.
func (e *engine) launch(l *job.Launch) error {
	j := e.jobs[l.UID]
	if j == nil {
		arrival := e.arrivals[l.Slot.Job]
		if arrival == nil {
			return errors.New("the job has not arrived")
		}
		j = &running{e: e, name: l.Slot.Job, uid: l.UID, arrival: arrival, training: arrival.Training, newest: map[job.Address]*agent{}}
		e.jobs[l.UID] = j
		e.cluster.add(j)
	}
	before := j.newest[l.Slot]
	if before != nil && before.number >= l.Incarnation {
		return nil
	}
	a := &agent{j: j, slot: l.Slot, short: l.Slot.Short(), number: l.Incarnation, node: l.Node, ranked: l.Ranked, processes: max(1, l.Processes),
		fingerprint: l.Fingerprint, reserved: l.Reserved, started: e.clock.Now()}
	if before != nil {
		if before.gone {
			j.drop(before)
		}
		if before.node != a.node {
			e.books.moved(j)
		}
	}
	at, _ := slices.BinarySearchFunc(j.agents, a, compareAgents)
	j.agents = slices.Insert(j.agents, at, a)
	j.newest[a.slot], j.part = a, nil
	node := e.cluster.at[a.node]
	e.cluster.on[node] = append(e.cluster.on[node], a)
	e.books.occupies(e, a, 1)
	a.silent = e.cluster.lost[node] > 0 // it was lost after the decision
	e.cluster.changed()
	e.together(e.setup.Delays.Register, "register", a)
	return nil
}

func compareAgents(a, b *agent) int {
	return cmp.Or(a.slot.Compare(b.slot), cmp.Compare(a.number, b.number))
}

// drop removes an incarnation from what is shown.
func (j *running) drop(a *agent) {
	if at, found := slices.BinarySearchFunc(j.agents, a, compareAgents); found {
		j.agents = slices.Delete(j.agents, at, at+1)
		j.part = nil
	}
}

// batch are agents of a job that do the same at the same time.
type batch struct {
	at     time.Time
	j      *running
	what   string
	agents []*agent
	acts   []int // of each, when it was told
}

// together has an agent do something after a while, with those of its job that do the same at the same time.
func (e *engine) together(d time.Duration, what string, a *agent) {
	at := e.clock.Now().Add(d)
	for _, b := range e.batches {
		if b.j == a.j && b.what == what && b.at.Equal(at) {
			b.agents, b.acts = append(b.agents, a), append(b.acts, a.acts)
			return
		}
	}
	b := &batch{at: at, j: a.j, what: what, agents: []*agent{a}, acts: []int{a.acts}}
	e.batches = append(e.batches, b)
	e.clock.At(at, func() {
		e.batches = slices.DeleteFunc(e.batches, func(o *batch) bool { return o == b })
		b.do(e)
	})
}

// do has the agents do what they were told, unless they were told something else since.
func (b *batch) do(e *engine) {
	for i, a := range b.agents {
		if a.acts != b.acts[i] || !a.lives() {
			continue
		}
		switch b.what {
		case "register":
			a.register()
		case "run":
			a.becomes(job.MemberRunning)
		case "wait":
			a.becomes(job.MemberWaiting)
		case "leave":
			reason := job.EndOrdered
			if a.state == job.MemberSucceeded {
				reason = job.EndFinished
			}
			e.end(a, nil, reason)
		}
	}
	e.service.Follow()
	b.j.follow()
}

// told passes orders on to members, those of a job together.
func (e *engine) told(all []elastic.Told) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Job == all[0].Job {
			n++
		}
		some := all[:n]
		all = all[n:]
		e.clock.After(e.setup.Delays.Reply, func() {
			for _, t := range some {
				if j := e.byName(t.Job); j != nil {
					if a := j.newest[t.Slot]; a != nil && a.state != "" && a.lives() {
						a.handleOrder()
					}
				}
			}
		})
	}
}

// byName is the newest job of a name that the service may know; nil if there is none.
func (e *engine) byName(name string) (found *running) {
	for _, j := range e.cluster.jobs {
		if j.name == name {
			found = j
		}
	}
	return found
}

// handleOrder carries out the order that holds for the agent.
func (a *agent) handleOrder() {
	e := a.j.e
	reply, err := e.service.Order(a.j.name, a.j.uid, a.slot, a.number)
	if err != nil {
		a.refused(err)
		return
	}
	if reply.Version == a.seen {
		return
	}
	a.seen = reply.Version
	d := &e.setup.Delays
	o := &reply.Order
	stops := func() time.Duration {
		switch {
		case a.state != job.MemberRunning:
			return 0
		case a.hung && !o.Force:
			return d.Kill
		case o.Checkpoint && a.ranked && a.j.asksForCheckpoints():
			return a.j.training.Save + d.Stop
		}
		return d.Stop
	}
	switch {
	case o.Do == elastic.Leave:
		a.acts++
		a.planned(o)
		e.together(stops(), "leave", a)
	case a.state == job.MemberSucceeded:
	case o.Do == elastic.Wait && a.state == job.MemberFailed && o.InPlace > a.inPlace:
		a.acts++
		a.inPlace, a.exit = o.InPlace, nil
		e.together(0, "wait", a)
	case o.Do == elastic.Wait && a.state == job.MemberRunning:
		a.acts++
		a.planned(o)
		e.together(stops(), "wait", a)
	case o.Do == elastic.Wait:
		a.acts++ // a start that was scheduled
	case o.Do == elastic.Run && o.World != nil && o.World.Generation > a.place.Generation && a.state != job.MemberFailed:
		a.acts++
		after := stops() + d.Spawn
		if a.state == job.MemberRunning {
			a.j.leaves(a)
		}
		a.place, a.hung = *o.World, false
		e.together(after, "run", a)
	}
}

// planned has the world write a checkpoint before it stops, if it is asked for one.
func (a *agent) planned(o *elastic.Order) {
	if o.Checkpoint && a.state == job.MemberRunning && a.j.asksForCheckpoints() {
		a.j.saves(a)
	}
}

func (a *agent) refused(err error) {
	switch {
	case errors.Is(err, elastic.ErrFenced):
		a.j.e.end(a, nil, job.EndFenced)
	case errors.Is(err, elastic.ErrNoSuchSlot), errors.Is(err, elastic.ErrNoSuchJob):
		a.j.e.end(a, nil, job.EndOrdered)
	default: // the service does not know it yet
		a.acts++
		a.j.e.together(a.j.e.setup.Delays.Register, "register", a)
	}
}

func (a *agent) register() {
	_, err := a.j.e.service.Register(a.j.e.clock.Now(), a.j.name, elastic.RegisterRequest{UID: a.j.uid, Slot: a.short, Incarnation: a.number,
		Host: a.node, Node: a.node, AgentPID: 1, Report: a.report(job.MemberWaiting)})
	if err != nil {
		a.refused(err)
		return
	}
	a.state = job.MemberWaiting
	a.handleOrder()
}

// becomes reports another state.
func (a *agent) becomes(s job.MemberState) {
	if a.state == job.MemberRunning {
		a.j.leaves(a)
	}
	a.state, a.hung = s, false
	if s == job.MemberRunning {
		a.j.joins(a)
	}
	a.sync()
}

// sync reports.
func (a *agent) sync() {
	if a.state == "" {
		return
	}
	if _, err := a.j.e.service.Sync(a.j.e.clock.Now(), a.j.name, elastic.SyncRequest{UID: a.j.uid, Slot: a.short, Incarnation: a.number, Seen: a.seen, Report: a.report(a.state)}); err != nil {
		a.refused(err)
	}
}

// report is what the agent says. Of a world that trains rank 0 shows the steps, as in most trainings.
func (a *agent) report(s job.MemberState) elastic.Report {
	r := elastic.Report{State: s, Generation: a.place.Generation, Rank: a.place.GroupRank, WorldSlots: a.place.GroupSize, InPlace: a.inPlace,
		Port: 29500 + a.slot.Index, Exit: a.exit}
	if a == a.j.first {
		a.j.show(a, &r)
	}
	return r
}

// end ends an agent. Its provider shows that after a while.
func (e *engine) end(a *agent, exit *job.Exit, reason job.EndReason) {
	if a.gone {
		return
	}
	if a.state == job.MemberRunning {
		a.j.leaves(a)
	}
	a.gone, a.silent, a.exit, a.reason = true, false, exit, reason
	a.acts++
	e.leavesNode(a)
	e.clock.After(e.setup.Delays.Notice, func() {
		a.j.part = nil
		e.cluster.changed()
	})
}

func (e *engine) leavesNode(a *agent) {
	node := e.cluster.at[a.node]
	e.cluster.on[node] = slices.DeleteFunc(e.cluster.on[node], func(o *agent) bool { return o == a })
	e.books.occupies(e, a, -1)
}

// stop ends an incarnation for its provider.
func (e *engine) stop(uid string, slot job.Address, incarnation int) {
	j := e.jobs[uid]
	if j == nil {
		return
	}
	for _, a := range j.agents {
		if a.slot == slot && a.number == incarnation {
			e.end(a, nil, job.EndLeft)
		}
	}
}

// forget removes a job.
func (e *engine) forget(uid string) {
	if j := e.jobs[uid]; j != nil {
		for _, a := range slices.Clone(j.agents) {
			e.end(a, nil, job.EndLeft)
		}
		delete(e.jobs, uid)
		e.cluster.remove(j)
	}
}
