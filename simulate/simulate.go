// Package simulate runs jobs on a simulated cluster: the production planner, Loop and Coordinator on a virtual clock, with models of
// trainings and of faults. Agents are not processes with loops of their own: those of a job act together, and while a world trains,
// nothing happens. So a run costs what changes in it, not what there is.
//
// Files: engine (the master: effects and their outcomes), cluster (the provider: nodes and what runs on them), agents (what they do when told), training
// (how jobs train), happen (arrivals and faults), books (what becomes of it).
package simulate

import (
	"context"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/faults"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/outcome"
)

// Provider is the name of the simulated provider. All jobs run there, whatever they declare.
const Provider = "simulated"

// Setup is what is simulated.
type Setup struct {
	Nodes  []job.Node
	Places []faults.Place // of Nodes, in their order
	// Files has what a directory declares besides its jobs.
	Files    apply.Files
	Arrivals []Arrival // by time
	Models   faults.Models
	Faults   []faults.Event // as drawn from Models for Places
	For      time.Duration
	Seed     uint64 // only to be shown
	Delays   Delays
	// Samples is how many samples are taken for charts.
	Samples int
	// Progress, if set, is called now and then with how much has been simulated.
	Progress func(time.Duration)
}

// Arrival is a job that is declared at some time.
type Arrival struct {
	At       time.Duration // since the start
	Job      job.Job
	Training Training
}

// Delays are what things take in a cluster. The zero value is DefaultDelays.
type Delays struct {
	Launch   time.Duration // from the order to launch a slot until its provider has
	Register time.Duration // from then until its agent registers
	Reply    time.Duration // until an agent has a changed order
	Spawn    time.Duration // from an order to run until the processes run
	Stop     time.Duration // until processes have stopped that were asked to
	Kill     time.Duration // until processes have ended that hang
	Notice   time.Duration // until a provider shows what has changed
	Store    time.Duration // a write of the state
	Turn     time.Duration // what a turn takes
	Suspect  time.Duration // from when a world hangs until that is certain, beyond its hang floor
}

// DefaultDelays are those of a cluster of a usual size.
var DefaultDelays = Delays{
	Launch: 200 * time.Millisecond, Register: 3 * time.Second, Reply: 5 * time.Millisecond, Spawn: 200 * time.Millisecond, Stop: time.Second, Kill: 30 * time.Second,
	Notice: 500 * time.Millisecond, Store: 10 * time.Millisecond, Turn: 5 * time.Millisecond, Suspect: 10 * time.Second,
}

// Epoch is when simulations start: a Monday at midnight, in UTC. Schedules of policies follow it.
var Epoch = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// Run simulates. If ctx ends before, the result is of what was simulated by then, with the error of ctx.
func Run(ctx context.Context, s Setup) (outcome.Run, error) {
	if s.Delays == (Delays{}) {
		s.Delays = DefaultDelays
	}
	e := newEngine(s)
	err := e.run(ctx)
	return e.books.close(e), err
}
