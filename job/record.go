package job

import (
	"cmp"
	"slices"
	"time"
)

// Record is what is remembered of one job. It is what a state store keeps; beats and progress never enter it.
type Record struct {
	UID     string    `json:"uid"` // from its first apply; another job of the same name has another
	Created time.Time `json:"created"`
	Spec    Job       `json:"spec"`           // as last applied
	Site    string    `json:"site,omitempty"` // its provider's, when it was first launched; see Capabilities
	// Launched is the name under which its infrastructure and its agents know it, where that is not the one that it has
	// now: it was moved or imported since its first launch, or its name was in use there. It never changes: what runs is
	// found by it.
	Launched string   `json:"launched_as,omitempty"`
	Phase    JobPhase `json:"phase"`
	Slots    []Slot   `json:"slots"` // by address
	// Counts is how many slots each role is to have now, as the plan last decided.
	Counts map[string]int `json:"counts"`
	World  World          `json:"world,omitzero"` // the newest formed
	// Charges are the restarts that count against the budget, oldest first, pruned to its window.
	Charges   []time.Time `json:"charges,omitempty"`
	Incidents []Incident  `json:"incidents,omitempty"` // the newest, MaxIncidents at most; the journal has all
	Goodput   Goodput     `json:"goodput,omitzero"`
	// Ended is when it succeeded, failed or was canceled.
	Ended time.Time `json:"ended,omitzero"`
}

// LaunchedAs is the name by which its infrastructure and its agents know the job that is called name now.
func (r *Record) LaunchedAs(name string) string { return cmp.Or(r.Launched, name) }

// Renamed is the record of a job that was called from, under another name. What runs continues under the name that it was
// launched under. As what it is declared now is not known from its name.
func (r *Record) Renamed(from, to string) *Record {
	moved := *r
	if moved.Launched = r.LaunchedAs(from); moved.Launched == to {
		moved.Launched = ""
	}
	moved.Spec.Name, moved.Spec.Address = to, ""
	moved.Slots = slices.Clone(r.Slots)
	for i := range moved.Slots {
		moved.Slots[i].Address.Job = to
	}
	moved.World = r.World.Of(to)
	moved.Incidents = slices.Clone(r.Incidents)
	for i := range moved.Incidents {
		moved.Incidents[i].Culprits = slices.Clone(moved.Incidents[i].Culprits)
		for k := range moved.Incidents[i].Culprits {
			moved.Incidents[i].Culprits[k].Job = to
		}
	}
	return &moved
}

// Of is the same world with its slots under the job's name as given.
func (w World) Of(name string) World {
	w.Members = slices.Clone(w.Members)
	for i := range w.Members {
		w.Members[i].Slot.Job = name
	}
	return w
}

// Released is what is remembered of a job that eltrain forgot while it ran, until nothing of it is running: it is
// for nobody to stop, and no other job's to take over.
type Released struct {
	Name     string `json:"name"` // under which it was launched
	Provider string `json:"provider"`
}

// MaxIncidents bounds a record: what `status` shows without reading the journal.
const MaxIncidents = 20

// JobPhase is a job's state as a whole.
type JobPhase string

const (
	JobPending   JobPhase = "Pending"  // nothing of it has capacity
	JobStarting  JobPhase = "Starting" // admitted; its first world has not formed
	JobRunning   JobPhase = "Running"
	JobDegraded  JobPhase = "Degraded" // it was running and does not run as asked for: healing, or below its count
	JobSucceeded JobPhase = "Succeeded"
	JobFailed    JobPhase = "Failed"
	JobCanceled  JobPhase = "Canceled"
)

// Ended reports whether the job is over.
func (p JobPhase) Ended() bool { return p == JobSucceeded || p == JobFailed || p == JobCanceled }

// Cause is why something failed.
type Cause string

const (
	ProcessFailed     Cause = "process_failed"     // exit code other than 0
	ProcessKilled     Cause = "process_killed"     // by a signal that nobody of ours sent
	OutOfMemory       Cause = "oom"                // killed by the kernel for memory
	StartFailed       Cause = "start_failed"       // the command could not be started: missing, not executable, no such directory
	AgentGone         Cause = "agent_gone"         // the agent ended, and its processes with it
	AgentLeft         Cause = "agent_left"         // the agent was told to stop (SIGTERM)
	NodeGone          Cause = "node_gone"          // its node was removed
	LeaseLost         Cause = "lease_lost"         // silent for the whole lease
	NodeFailed        Cause = "node_failed"        // its node could not start its agent; another may
	LaunchFailed      Cause = "launch_failed"      // its agent was started and did not register in time
	RendezvousTimeout Cause = "rendezvous_timeout" // no world formed in time
	Preemption        Cause = "preempted"          // it had to make room for what has a higher priority
	Eviction          Cause = "evicted"            // its node or an administrator evicted it: pressure, a drain, a taint
	Deletion          Cause = "deleted"            // somebody removed it on its infrastructure
)

// Users reports whether the cause lies in the user's program: such faults are budgeted, others are not.
func (c Cause) Users() bool {
	switch c {
	case ProcessFailed, ProcessKilled, OutOfMemory, StartFailed:
		return true
	}
	return false
}

// Incident is one diagnosed fault.
type Incident struct {
	Time       time.Time `json:"time"`
	Cause      Cause     `json:"cause"`
	Culprits   []Address `json:"culprits"`
	Action     Action    `json:"action"` // what was decided
	Evidence   []Reason  `json:"evidence"`
	Generation int       `json:"generation,omitempty"` // of the world that it broke, if it did
	Confidence float64   `json:"confidence"`           // 0 to 1
	Told       bool      `json:"told,omitempty"`       // its notice was given
	Added      time.Time `json:"added,omitzero"`       // when a culprit came last that the notice did not name
}

// Action is what healing did, cheap to expensive.
type Action string

const (
	RestartInPlace  Action = "restart_in_place"
	RestartSameNode Action = "restart_same_node"
	Replace         Action = "replace"
	Shrink          Action = "shrink"
	WaitCapacity    Action = "wait_for_capacity"
	FailJob         Action = "fail"
)

// Goodput is where a job's wall time went, in seconds. Productive and the lost parts sum to Wall.
type Goodput struct {
	Wall       float64  `json:"wall_seconds"`
	Productive float64  `json:"productive_seconds"`
	Lost       LostTime `json:"lost"`
	// Reached is the highest step seen: what comes below it after a restart is done again.
	Reached int64 `json:"reached,omitempty"`
	// Saved is the newest checkpoint seen, of whichever world. While a world trains its members know of newer ones.
	Saved Saved `json:"saved,omitzero"`
	// At is until when the ledger has been kept, Mode what the time since then goes to.
	At   time.Time `json:"at,omitzero"`
	Mode string    `json:"mode,omitempty"`
}

// Until is the ledger carried on to t: the time since At is entered under Mode.
func (g Goodput) Until(t time.Time) Goodput {
	spent := t.Sub(g.At).Seconds()
	if g.At.IsZero() || spent < 0 { // a clock that jumped back enters nothing
		spent = 0
	}
	switch g.Mode {
	case "productive":
		g.Productive += spent
	case "scheduling":
		g.Lost.Scheduling += spent
	case "rendezvous":
		g.Lost.Rendezvous += spent
	case "restart":
		g.Lost.Restart += spent
	default:
		spent = 0
	}
	g.Wall += spent
	g.At = t
	return g
}

// LostTime is time in which a job did not make progress, by reason, in seconds.
type LostTime struct {
	Scheduling  float64 `json:"scheduling"`
	Rendezvous  float64 `json:"rendezvous"`
	Restart     float64 `json:"restart"`
	RedoneSteps float64 `json:"redone_steps"`
	Hang        float64 `json:"hang"`
}

// Records is everything that is remembered, by job name.
type Records map[string]*Record

// Slot finds a slot's record; nil if there is none.
func (r *Record) Slot(role string, index int) *Slot {
	i, found := slices.BinarySearchFunc(r.Slots, Address{Role: role, Index: index}, func(s Slot, a Address) int {
		a.Job = s.Address.Job
		return s.Address.Compare(a)
	})
	if !found {
		return nil
	}
	return &r.Slots[i]
}

// Notice is one line of what happened, as `eltrain events` shows and the journal keeps.
type Notice struct {
	Seq     uint64    `json:"seq,omitempty"` // given by the journal
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`              // "world_formed", "world_adopted", "incident", "job_phase", "rejected", "configuration", "withheld", "left", "refused", "condition"; of what changes do "removed", "replaced", "destroyed", "forgotten"
	Address string    `json:"address,omitempty"` // of what it is about
	// Reason is what it says, Message the sentence that was made of it when it was journalled.
	Reason  Reason `json:"reason_code,omitzero"`
	Message string `json:"message"`
	// Condition is "raised", "changed" or "cleared" if the notice is of something that holds for a while.
	Condition string `json:"condition,omitempty"`
	// Incident is set with Type "incident".
	Incident *Incident `json:"incident,omitempty"`
}
