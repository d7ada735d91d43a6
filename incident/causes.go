package incident

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// weight orders causes by how much they explain.
type weight int

const (
	connection weight = iota // a connection broke: of anything else in the world
	exitCode                 // an exit: a peer of a lost member exits by itself
	abort                    // a collective library aborts if it waits for a peer in vain
	scriptError
	suspected // what detection says: a lost member makes its world hang
	signal    // a signal that nobody else's end explains
	definite  // a reason that lies in the slot itself
	lost      // the agent or its node
)

// A fault up to lastEcho may be the echo of another: of several in one world only the first initiated its end. One up to
// lastExplained is a cascade if there is a heavier one.
const (
	lastEcho      = scriptError
	lastExplained = suspected
)

// confidence that the cause is right: an exit code alone may be an echo, a lost agent is a fact.
func (w weight) confidence() float64 {
	return [...]float64{connection: 0.2, exitCode: 0.2, abort: 0.4, scriptError: 0.4, suspected: 0.6, signal: 0.6, definite: 0.8, lost: 1}[w]
}

// Cause is a row of the table of causes.
type Cause struct {
	Code     job.Cause
	Budgeted bool // it is charged to the budget: a fault of the user's program
	weight   weight
	rank     int // in the table: of causes of the same weight the first counts
}

// Causes is the table.
var Causes = []Cause{
	{Code: job.NodeGone, weight: lost},
	{Code: job.NodeFailed, weight: lost},
	{Code: job.Preemption, weight: lost},
	{Code: job.Eviction, weight: lost},
	{Code: job.Deletion, weight: lost},
	{Code: job.LeaseLost, weight: lost},
	{Code: job.AgentGone, weight: lost},
	{Code: job.AgentLeft, weight: lost},
	{Code: job.LaunchFailed, weight: lost},
	{Code: job.OutOfMemory, weight: definite, Budgeted: true},
	{Code: job.StartFailed, weight: definite, Budgeted: true},
	{Code: job.ProcessKilled, weight: signal, Budgeted: true},
	{Code: job.ProcessFailed, weight: exitCode, Budgeted: true},
	{Code: job.RendezvousTimeout, weight: definite},
}

func init() {
	for i := range Causes {
		Causes[i].rank = i
	}
}

// Of returns a cause's row. A cause that is not in the table counts as a failure that is charged.
func Of(c job.Cause) Cause {
	if i := slices.IndexFunc(Causes, func(row Cause) bool { return row.Code == c }); i >= 0 {
		return Causes[i]
	}
	return Cause{Code: c, weight: exitCode, Budgeted: true, rank: len(Causes)}
}

// aborted is the name of the signal with which a process ends itself.
const aborted = "aborted"

func weigh(f job.SlotFault) weight {
	if f.Cause == job.ProcessKilled && f.Signal == aborted {
		return abort
	}
	return Of(f.Cause).weight
}

// MayBeEcho reports whether a fault may be the echo of another one, or of its world's end.
func MayBeEcho(f job.SlotFault) bool { return weigh(f) <= lastEcho }

// FaultOf returns a slot's fault.
func FaultOf(slot job.Address, cause job.Cause, exit *job.Exit) job.SlotFault {
	f := job.SlotFault{Slot: slot, Cause: cause}
	if exit != nil {
		f.Code, f.Signal, f.At = exit.Code, exit.Signal, exit.At
	}
	return f
}
