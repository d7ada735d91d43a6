package simulate

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/faults"
	"github.com/eltrain/eltrain/job"
)

// schedule schedules what happens from outside: arrivals, faults, and samples for charts.
func (e *engine) schedule() {
	for i := 0; i < len(e.setup.Arrivals); {
		from, at := i, e.setup.Arrivals[i].At
		for i < len(e.setup.Arrivals) && e.setup.Arrivals[i].At == at {
			i++
		}
		some := e.setup.Arrivals[from:i]
		e.clock.After(at, func() { e.arrive(some) })
	}
	for i := range e.setup.Faults {
		f := &e.setup.Faults[i]
		e.clock.After(f.At, func() { e.fault(f) })
	}
	if n := e.setup.Samples; n > 0 {
		every := e.setup.For / time.Duration(n)
		for i := range n {
			e.clock.After(time.Duration(i+1)*every, func() { e.books.sample(e) })
		}
	}
}

// arrive declares jobs.
func (e *engine) arrive(some []Arrival) {
	for i := range some {
		e.declared = append(e.declared, some[i].Job)
	}
	e.step(apply.FilesChanged{})
}

// keepEnded is how long jobs that are over stay declared.
const keepEnded = time.Minute

// retire takes a job that is over out of the files: a month of them would make each plan longer.
func (e *engine) retire(name string) {
	e.clock.After(keepEnded, func() {
		e.declared = slices.DeleteFunc(e.declared, func(j job.Job) bool { return j.Name == name })
		e.step(apply.FilesChanged{})
	})
}

// fault does what a fault does. One that hits nothing does nothing.
func (e *engine) fault(f *faults.Event) {
	m := &e.setup.Models[f.Model]
	hit := false
	switch m.Kind {
	case faults.Process:
		if a := e.slotAt(f); a != nil {
			hit = true
			e.fail(a, m.Code)
		}
	case faults.Hang:
		if a := e.slotAt(f); a != nil && a.ranked && a.j.trains() && a.j.run.stands.IsZero() {
			hit = true
			e.hang(a)
		}
	case faults.Node:
		hit = len(e.cluster.on[f.Node]) > 0
		e.lose(f.Node, f.Away)
	case faults.Reclaim:
		hit = len(e.cluster.on[f.Node]) > 0
		e.cluster.change(f.Node, func(n *job.Node) { n.Closed, n.Drained = reclaimed, reclaimed })
		e.clock.After(f.Notice, func() { e.reclaim(f.Node, f.Away) })
	}
	if hit {
		e.books.faults++
	}
}

// Why nodes are closed.
const (
	reclaimed = "reclaimed"
	notReady  = "not ready"
)

// slotAt is the agent in the place that a fault hits; nil if nothing runs there.
func (e *engine) slotAt(f *faults.Event) *agent {
	place := max(f.Device, 0)
	for _, a := range e.cluster.on[f.Node] {
		if place -= width(&a.reserved); place < 0 {
			if a.state == job.MemberRunning && a.lives() {
				return a
			}
			return nil
		}
	}
	return nil
}

// width is how many places a slot takes.
func width(r *job.Resources) int {
	n := 0
	for _, devices := range r.Devices {
		n = max(n, devices)
	}
	return max(n, 1)
}

// fail ends a training process of a slot.
func (e *engine) fail(a *agent, code int) {
	a.acts++
	exit := &job.Exit{Code: code, At: e.clock.Now()}
	if code == 0 {
		exit.Code, exit.Signal = 137, "killed"
	}
	a.j.leaves(a)
	a.exit = exit
	a.becomes(job.MemberFailed)
	e.service.Follow()
}

// hang has the processes of a slot stop, and so its world. Detection is certain of it after a while.
func (e *engine) hang(a *agent) {
	j := a.j
	a.hung, j.run.stands = true, e.clock.Now()
	generation, rank := j.run.generation, a.place.RankBase
	s := &job.Suspicion{Cause: job.Hang, Generation: generation, Slots: []job.Address{a.slot}, Ranks: []int{rank}, Since: j.run.stands, Certain: true,
		Evidence: []job.Reason{job.Because("simulated", "slot", a.short)}}
	limits := j.arrival.Job.Detect.Limits()
	e.clock.After(limits.Floor.Std()+e.setup.Delays.Suspect, func() {
		if j.run.generation == generation && !j.run.over {
			j.suspicion = s
			e.hangs++
		}
	})
}

// lose has a node fall silent. That is known once the leases of its members have expired.
func (e *engine) lose(node int, away time.Duration) {
	e.cluster.lost[node]++
	lease := DefaultLease
	for _, a := range e.cluster.on[node] {
		if !a.silent {
			a.silent = true
			if r := &a.j.run; a.ranked && r.generation == a.place.Generation && r.stands.IsZero() {
				r.stands = e.clock.Now()
			}
			lease := a.j.arrival.Job.Detect.Lease.Std()
			e.clock.After(lease, func() {
				if !a.gone {
					a.j.leaves(a)
					e.service.Lost(e.clock.Now(), a.slot, a.number)
					e.service.Follow()
				}
			})
		}
	}
	e.clock.After(lease, func() {
		if e.cluster.lost[node] > 0 {
			e.cluster.change(node, func(n *job.Node) { n.Closed = notReady })
		}
	})
	e.restoreAfter(node, max(away, lease+time.Second), away > 0)
}

// DefaultLease is how long a node is silent until it is known to be lost.
const DefaultLease = 15 * time.Second

// reclaim takes a node away, and ends what runs there.
func (e *engine) reclaim(node int, away time.Duration) {
	e.cluster.lost[node]++
	for _, a := range slices.Clone(e.cluster.on[node]) {
		e.end(a, &job.Exit{Code: 137, Signal: "killed", At: e.clock.Now()}, "")
	}
	e.cluster.change(node, func(n *job.Node) { n.Closed, n.Drained = reclaimed, reclaimed })
	e.restoreAfter(node, away, away > 0)
}

// restoreAfter brings a node back. What ran there has ended.
func (e *engine) restoreAfter(node int, d time.Duration, returns bool) {
	if !returns {
		return
	}
	e.clock.After(d, func() {
		if e.cluster.lost[node]--; e.cluster.lost[node] > 0 {
			return
		}
		for _, a := range slices.Clone(e.cluster.on[node]) {
			if a.silent {
				e.end(a, nil, "")
			}
		}
		e.cluster.change(node, func(n *job.Node) { n.Closed, n.Drained = e.setup.Nodes[node].Closed, e.setup.Nodes[node].Drained })
	})
}
