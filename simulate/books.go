package simulate

import (
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/outcome"
)

// books account for what becomes of jobs. Where their time went is in their ledgers, which the planner keeps as it does in production.
type books struct {
	seed     uint64
	capacity int // places for slots
	jobs     []*account
	byName   map[string]*account
	actions  map[string]int
	faults   int
	samples  []outcome.Sample
	slots    int // that live now
}

// account is that of one job.
type account struct {
	outcome.Job
	arrived                                time.Time
	record                                 *job.Record // as last stored; nil before it was admitted
	over                                   bool
	since                                  time.Time // until when the following are counted
	slots                                  int
	places                                 int
	nodes                                  map[string]int // slots by node
	slotSeconds, nodeSeconds, placeSeconds float64
}

func newBooks(s *Setup) books {
	b := books{seed: s.Seed, byName: map[string]*account{}, actions: map[string]int{}}
	for _, p := range s.Places {
		b.capacity += p.Devices
	}
	return b
}

// arrives opens the account of a job.
func (b *books) arrives(a *Arrival) {
	one := &account{Job: outcome.Job{Name: a.Job.Name, Arrived: a.At.Seconds()}, arrived: Epoch.Add(a.At), since: Epoch.Add(a.At), nodes: map[string]int{}}
	b.jobs = append(b.jobs, one)
	b.byName[a.Job.Name] = one
}

// until counts what the job holds until now.
func (a *account) until(now time.Time) {
	if seconds := now.Sub(a.since).Seconds(); seconds > 0 {
		a.slotSeconds += seconds * float64(a.slots)
		a.placeSeconds += seconds * float64(a.places)
		a.nodeSeconds += seconds * float64(len(a.nodes))
		a.since = now
	}
}

// occupies counts a slot that begins (1) or ends (-1) to live on its node.
func (b *books) occupies(e *engine, a *agent, n int) {
	one := b.byName[a.j.name]
	one.until(e.clock.Now())
	b.slots += n
	one.slots += n
	one.places += n * width(&a.reserved)
	if one.nodes[a.node] += n; one.nodes[a.node] == 0 {
		delete(one.nodes, a.node)
	}
}

func (b *books) moved(j *running) { b.byName[j.name].Moves++ }

// stored looks for jobs that are over.
func (b *books) stored(e *engine, records job.Records) {
	for _, one := range b.jobs {
		rec := records[one.Name]
		if rec == nil || rec == one.record || one.over {
			continue
		}
		one.record = rec
		if one.over = rec.Phase.Ended(); one.over {
			one.Phase = rec.Phase
			if rec.Phase == job.JobSucceeded {
				one.Completion = rec.Ended.Sub(one.arrived).Seconds()
			}
			one.spent(&rec.Goodput)
			e.retire(one.Name)
		}
	}
}

// spent takes over a ledger.
func (a *account) spent(g *job.Goodput) {
	a.Wall, a.Productive, a.Lost = g.Wall, g.Productive, g.Lost
	a.Waiting = g.Lost.Scheduling
}

// noticed counts what was decided.
func (b *books) noticed(notices []job.Notice) {
	for i := range notices {
		n := &notices[i]
		switch {
		case n.Incident != nil:
			b.actions[n.Type+" "+string(n.Incident.Action)]++
		case n.Condition == "" && n.Type != "destroyed": // jobs that are over are taken out of the files
			b.actions[n.Type]++
		}
	}
}

// sample takes a sample for the charts.
func (b *books) sample(e *engine) {
	now := e.clock.Now()
	s := outcome.Sample{At: now.Sub(Epoch).Seconds(), Slots: b.slots}
	for _, one := range b.jobs {
		switch {
		case one.over || now.Before(one.arrived):
		case one.slots > 0:
			s.Running++
		default:
			s.Waiting++
		}
	}
	b.samples = append(b.samples, s)
}

// close is the result.
func (b *books) close(e *engine) outcome.Run {
	now := e.clock.Now()
	for _, j := range e.jobsInOrder() {
		e.report(j)
	}
	live := e.loop.Live(now, e.facts()).Records
	run := outcome.Run{Seed: b.seed, Simulated: now.Sub(Epoch).Seconds(), Actions: b.actions, Faults: b.faults, Samples: b.samples, Jobs: make([]outcome.Job, 0, len(b.jobs))}
	used := 0.0
	for _, one := range b.jobs {
		if one.arrived.After(now) {
			continue // it has not arrived
		}
		one.until(now)
		if rec := live[one.Name]; rec != nil && !one.over {
			one.Phase = rec.Phase
			one.spent(&rec.Goodput)
		}
		if !one.over && one.record == nil {
			one.Waiting = now.Sub(one.arrived).Seconds()
			one.Wall, one.Lost.Scheduling = one.Waiting, one.Waiting
		}
		if one.record != nil {
			one.Restarts = max(0, one.record.World.Generation-1)
		}
		one.SlotHours, one.NodeHours = one.slotSeconds/3600, one.nodeSeconds/3600
		one.Samples = e.done(one.Name)
		used += one.placeSeconds
		run.Jobs = append(run.Jobs, one.Job)
	}
	run.Sum(used, float64(b.capacity)*run.Simulated)
	return run
}

// done is how much of its work a job has done.
func (e *engine) done(name string) float64 {
	if one := e.books.byName[name]; one.over && one.Phase == job.JobSucceeded {
		return e.arrivals[name].Training.Samples
	}
	for _, j := range e.jobs {
		if j.name == name {
			if j.trains() {
				at, _, _ := j.run.reached(&j.training, e.clock.Now())
				return at.samples
			}
			return j.saved.samples
		}
	}
	return 0
}
