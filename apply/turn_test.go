package apply

import (
	"fmt"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// BenchmarkTurnOfOneFault runs the turns about one failed process in 200 jobs of 500 slots, until its world has formed again. The
// service is real; the agents and the provider answer at once. Half of the time is that of the job's own 500 agents.
func BenchmarkTurnOfOneFault(b *testing.B) {
	for _, c := range []struct{ jobs, slots int }{{2, 500}, {200, 500}} {
		b.Run(fmt.Sprintf("%dx%d", c.jobs, c.slots), func(b *testing.B) {
			l := newTraining(b, c.jobs, c.slots)
			b.ReportAllocs()
			turns, rounds := l.loop.turn.number, 0
			for b.Loop() {
				l.fail(rounds % c.jobs)
				rounds++
			}
			b.ReportMetric(float64(l.loop.turn.number-turns)/float64(rounds), "turns/op")
		})
	}
}

// A turn about one job looks at no slot of the others: it allocates hardly more with 20 of them than with 2.
func TestATurnCostsWhatHasChanged(t *testing.T) {
	cost := func(jobs int) float64 {
		l := newTraining(t, jobs, 100)
		return testing.AllocsPerRun(3, func() { l.fail(1) })
	}
	few, many := cost(2), cost(20)
	if perJob := (many - few) / 18; perJob > 300 { // in 4 turns: one for each slot and turn would be 400
		t.Errorf("a fault in one of 2 jobs takes %.0f allocations, in one of 20 jobs %.0f: %.0f for each of the others", few, many, perJob)
	}
}

// training is a Loop over jobs that train, with the service. Agents do at once what they are told.
type training struct {
	t     testing.TB
	loop  *Loop
	now   time.Time
	c     *elastic.Coordinator
	known uint64
	due   time.Time // when the service's next Tick is
	seen  *providers.Observation
	stale bool
	new   []job.Address                // launched, and not registered
	parts map[string][]job.Incarnation // by UID
	order []string
	forms []elastic.Forming
	ran   map[job.Address]*member
}

// member is one agent.
type member struct {
	uid     string
	number  int
	seen    uint64
	report  elastic.Report
	joined  bool
	inPlace int
}

func newTraining(t testing.TB, jobs, slots int) *training {
	l := &training{t: t, now: jobtest.Epoch, c: elastic.NewCoordinator(), parts: map[string][]job.Incarnation{}, ran: map[job.Address]*member{}}
	var specs []job.Job
	for i := range jobs {
		j := jobtest.Job(fmt.Sprintf("job%03d", i), jobtest.Role("worker", slots, jobtest.Needs(jobtest.GPUs(1))))
		j.Heal.Budget.Restarts = 1 << 30
		j.Detect.Lease = job.Duration(10000 * time.Hour) // they do not beat, nor show steps
		j.Detect.Hang = &job.HangLimits{Floor: j.Detect.Lease, Ceiling: j.Detect.Lease}
		specs = append(specs, j)
	}
	l.seen = &providers.Observation{Places: providers.Anywhere}
	for i := range (jobs*slots + 7) / 8 {
		l.seen.Nodes = append(l.seen.Nodes, jobtest.Node(fmt.Sprintf("n%05d", i), jobtest.GPUs(8)))
	}
	l.loop = New(l.now, Setup{Intent: Intent{Watch: true}, Files: Files{Jobs: specs}, Providers: []string{"local"}, State: state.State{},
		NewUID: func(name string) string { return "uid-" + name }})
	l.step(Served{})
	l.settle(slotOf(jobs-1), 0)
	return l
}

// settle goes on until a member trains in a generation after the given one, and nothing is new.
func (l *training) settle(slot job.Address, after int) {
	for range 2000 {
		l.now = l.now.Add(50 * time.Millisecond)
		l.tick()
		acted := l.agents()
		if l.c.Changes() != l.known || acted || l.stale {
			l.step(Woken{})
			continue
		}
		l.step(Tick{})
		if m := l.ran[slot]; m != nil && m.report.State == job.MemberRunning && m.report.Generation > after && !l.loop.turn.dirty {
			return
		}
	}
	l.t.Fatalf("%s does not train again", slot)
}

// tick passes the time to the service when it is due.
func (l *training) tick() {
	if !l.now.Before(l.due) {
		l.due = l.c.Tick(l.now)
	}
}

// agents lets all agents of changed jobs do what they are told.
func (l *training) agents() (busy bool) {
	l.register()
	work := l.c.Ready()
	for _, f := range work.Form {
		l.forms = append(l.forms, f)
		l.step(Forming{Number: len(l.forms), Job: f.Job, UID: f.UID, World: f.World})
		busy = true
	}
	for _, told := range work.Told {
		if m := l.ran[told.Slot]; m != nil && m.joined {
			l.sync(told.Slot, m)
			busy = true
		}
	}
	return busy
}

func (l *training) sync(slot job.Address, m *member) {
	for range 3 {
		reply, err := l.c.Sync(l.now, slot.Job, elastic.SyncRequest{UID: m.uid, Slot: slot.Short(), Incarnation: m.number, Seen: m.seen, Report: m.report})
		if err != nil {
			l.t.Fatal(err)
		}
		if reply.Version == m.seen {
			return
		}
		m.seen = reply.Version
		switch o := reply.Order; {
		case o.Do == elastic.Wait && o.InPlace > m.inPlace:
			m.inPlace = o.InPlace
			m.report = elastic.Report{State: job.MemberWaiting, InPlace: m.inPlace, Generation: m.report.Generation}
		case o.Do == elastic.Wait && m.report.State == job.MemberRunning:
			m.report.State = job.MemberWaiting
		case o.Do == elastic.Run && o.World != nil && o.World.Generation > m.report.Generation && m.report.State == job.MemberWaiting:
			m.report.State, m.report.Generation = job.MemberRunning, o.World.Generation
			m.report.Rank, m.report.WorldSlots = o.World.GroupRank, o.World.GroupSize
		}
	}
}

// fail fails a process of a job, and goes on until the job trains again.
func (l *training) fail(i int) {
	slot := slotOf(i)
	m := l.ran[slot]
	before := m.report.Generation
	m.report.State, m.report.Exit = job.MemberFailed, &job.Exit{Code: 1, At: l.now}
	l.sync(slot, m)
	l.settle(slot, before)
}

func slotOf(i int) job.Address {
	return job.Address{Job: fmt.Sprintf("job%03d", i), Role: "worker", Index: 3}
}

func (l *training) step(events ...Event) {
	for len(events) > 0 {
		l.loop.Step(l.now, events[0])
		events = events[1:]
		for _, e := range l.loop.Ready().Effects {
			o := Outcome{Of: e.ID()}
			switch e := e.(type) {
			case Hear:
				l.known = l.c.Changes()
				f := Facts{Version: l.known + 1}
				if e.Known != f.Version {
					f.Jobs = l.c.Observe()
				}
				o.Result = f
			case Observe:
				l.observe()
				o.Result = Sight{job.Capabilities{Places: true}, l.seen}
			case Prepare:
				o.Result = "token"
			case Launch:
				l.launch(&e.Launch)
			case Tell:
				switch n := e.News.(type) {
				case Wanted:
					l.c.Set(l.now, n.Job, n.Desired)
				case Recorded:
					l.c.Formed(l.now, l.forms[n.Forming-1], n.Err)
				}
			}
			events = append(events, o)
		}
	}
}

func (l *training) launch(launch *job.Launch) {
	if l.parts[launch.UID] == nil {
		l.order = append(l.order, launch.UID)
	}
	l.parts[launch.UID] = append(l.parts[launch.UID], job.Incarnation{Slot: launch.Slot, UID: launch.UID, Number: launch.Incarnation, Node: launch.Node,
		Fingerprint: launch.Fingerprint, Reserved: launch.Reserved, State: job.Up, Started: l.now})
	l.ran[launch.Slot] = &member{uid: launch.UID, number: launch.Incarnation, report: elastic.Report{State: job.MemberWaiting}}
	l.stale, l.new = true, append(l.new, launch.Slot)
}

// observe makes another observation if anything was launched, and registers what was.
func (l *training) observe() {
	if !l.stale {
		return
	}
	l.stale, l.seen = false, &providers.Observation{Places: providers.Anywhere, Nodes: l.seen.Nodes}
	for _, uid := range l.order {
		part := l.parts[uid]
		l.seen.Incarnations = append(l.seen.Incarnations, part[:len(part):len(part)])
	}
}

// register registers the agents that were launched, once their job is known.
func (l *training) register() {
	if len(l.new) == 0 || l.loop.service.jobs[l.new[0].Job].uid == "" {
		return
	}
	for _, slot := range l.new {
		m := l.ran[slot]
		m.joined = true
		if _, err := l.c.Register(l.now, slot.Job, elastic.RegisterRequest{UID: m.uid, Slot: slot.Short(), Incarnation: m.number, Host: "h", Report: m.report}); err != nil {
			l.t.Fatal(err)
		}
	}
	l.new = nil
}
