package incident

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

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
	signal    // a signal that no other exit explains
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
	Code job.Cause
	// What it is and where it is seen, for people.
	What, Seen string
	// Actions are what may be done about it, Default what is done. After Limit times for one slot within Window it is Then, if that
	// is more; 0 is no limit.
	Actions []job.Remedy
	Default job.Remedy
	Limit   int
	Window  time.Duration
	Then    job.Remedy
	// Memory is the factor on the memory of a slot that is started again; Limit then bounds how often it grows.
	Memory job.Factor
	// OfNode: it counts against the node. What takes slots off nodes that are sound does not.
	OfNode bool
	// Budgeted: it is charged to the budget, as a fault of the user's program.
	Budgeted bool

	weight weight
	rank   int // in the table: of causes of the same weight the first counts
}

var (
	ofSlots  = []job.Remedy{job.RemedyRestart, job.RemedyCheck, job.RemedyReplace, job.RemedyFail}
	ofWorlds = []job.Remedy{job.RemedyReport, job.RemedyRestart, job.RemedyReplace, job.RemedyFail}
)

// often is the window within which a fault of the same slot counts as its second.
const often = time.Hour

// Causes is the table. Of the causes of one incident the first that it lists counts, among those that explain as much.
var Causes = []Cause{
	{Code: job.NodeGone, weight: lost, What: "its node was removed", Seen: "the nodes that the provider lists",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.NodeFaulty, weight: lost, OfNode: true, What: "its node is faulty", Seen: "a check of the node, or what its infrastructure reports",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.NodeFailed, weight: lost, OfNode: true, What: "its node could not start its agent", Seen: "the container runtime's or the kernel's error",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.Preemption, weight: lost, What: "it had to make room for a higher priority", Seen: "the pod's conditions and deletion",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.Eviction, weight: lost, What: "its node or an administrator evicted it: pressure, a drain, a taint", Seen: "the pod's conditions and status",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.Deletion, weight: lost, What: "it was deleted in its infrastructure, not by eltrain", Seen: "a pod that is deleted and that eltrain did not delete",
		Actions: ofSlots, Default: job.RemedyRestart},
	{Code: job.LeaseLost, weight: lost, OfNode: true, What: "its agent was silent for the whole lease", Seen: "no request of the agent for `detect.lease`",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.AgentGone, weight: lost, What: "its agent exited, and its processes with it", Seen: "the end of the agent's process or pod",
		Actions: ofSlots, Default: job.RemedyRestart},
	{Code: job.AgentLeft, weight: lost, What: "its agent was asked to stop (SIGTERM)", Seen: "the agent's last report",
		Actions: ofSlots, Default: job.RemedyRestart},
	{Code: job.LaunchFailed, weight: lost, OfNode: true, What: "its agent was started and did not register in time", Seen: "no registration for `rendezvous.timeout`",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.OutOfMemory, weight: definite, Budgeted: true, What: "memory ran out: the kernel killed it, or its program got no more", Seen: "the cgroup's events; OOMKilled; a `MemoryError` and the like in what it printed",
		Actions: ofSlots, Default: job.RemedyRestart, Memory: 1.5, Limit: 3},
	{Code: job.StartFailed, weight: definite, Budgeted: true, What: "the command could not be started: missing, not executable, no such directory", Seen: "the system's error",
		Actions: ofSlots, Default: job.RemedyFail},
	{Code: job.Accelerator, weight: definite, OfNode: true, Budgeted: true, What: "an accelerator failed", Seen: "XID, ECC and \"uncorrectable\" errors in what the processes print, and new ones in the figures of their devices",
		Actions: ofSlots, Default: job.RemedyReplace},
	{Code: job.DeviceOutOfMemory, weight: definite, Budgeted: true, What: "an accelerator's memory is full", Seen: "the framework's message in what the processes print",
		Actions: ofSlots, Default: job.RemedyFail},
	{Code: job.RendezvousTimeout, weight: definite, What: "no world formed in time", Seen: "agents that wait for `rendezvous.timeout`"},
	{Code: job.ProcessKilled, weight: signal, Budgeted: true, What: "a signal that eltrain did not send ended a process: a kill, or a crash (SEGV, BUS, ABRT)", Seen: "the process's exit",
		Actions: ofSlots, Default: job.RemedyRestart, Limit: 3, Window: often, Then: job.RemedyReplace},
	{Code: job.Hang, weight: suspected, Budgeted: true, What: "the world makes no progress", Seen: "steps, states and activity of all processes",
		Actions: ofWorlds, Default: job.RemedyRestart, Limit: 1, Window: often, Then: job.RemedyReplace},
	{Code: job.Diverged, weight: suspected, Budgeted: true, What: "it has other results than its data-parallel peers at the same step", Seen: "the loss, gradient norm or hash that ranks report",
		Actions: ofWorlds, Default: job.RemedyReport},
	{Code: job.Straggler, weight: suspected, Budgeted: true, What: "it is slower than its peers, which wait for it", Seen: "the ranks' own work in a step",
		Actions: ofWorlds, Default: job.RemedyReport},
	{Code: job.NaNLoss, weight: suspected, Budgeted: true, What: "the loss is not finite", Seen: "the loss that is reported or printed",
		Actions: []job.Remedy{job.RemedyReport, job.RemedyReload, job.RemedyFail}, Default: job.RemedyReport},
	{Code: job.ScriptError, weight: scriptError, Budgeted: true, What: "an exception, or another error of the program's own", Seen: "the traceback, the error file, the last output",
		Actions: ofSlots, Default: job.RemedyRestart},
	{Code: job.ProcessFailed, weight: exitCode, Budgeted: true, What: "a process exited with a code other than 0", Seen: "the exit code",
		Actions: ofSlots, Default: job.RemedyRestart},
	{Code: job.Network, weight: connection, Budgeted: true, What: "a connection between processes failed", Seen: "errors of NCCL, gloo and sockets in what the processes print",
		Actions: ofSlots, Default: job.RemedyRestart, Limit: 1, Window: often, Then: job.RemedyCheck},
	{Code: job.NoProgress, weight: definite, What: "the job failed at the same step after each of `limit` restarts", Seen: "the steps of its incidents",
		Actions: []job.Remedy{job.RemedyReport, job.RemedyFail}, Default: job.RemedyFail, Limit: 3},
	{Code: job.PendingTimeout, weight: definite, What: "the job waits for places for longer than `after`, which has no default", Seen: "its slots, and what its infrastructure says of those that do not start",
		Actions: []job.Remedy{job.RemedyReport, job.RemedyFail}, Default: job.RemedyFail},
}

// OfJob reports whether the cause lies in what became of the job, not in a slot: nothing is restarted for it.
func (c Cause) OfJob() bool { return c.Code == job.NoProgress || c.Code == job.PendingTimeout }

// OfWorld reports whether the cause is found in a world whose processes run: it ends as a whole.
func (c Cause) OfWorld() bool { return c.weight == suspected }

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

// Digest identifies the line that names an error.
func Digest(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:8])
}
