package job

import (
	"cmp"
	"time"
)

// Snapshot is what is observed at one moment. Facts only.
type Snapshot struct {
	At           time.Time        `json:"at"`
	Nodes        []Node           `json:"nodes"`
	Incarnations []Incarnation    `json:"incarnations"`
	Worlds       map[string]World `json:"worlds,omitempty"` // by job name
	// Held are the jobs of which nothing may be launched yet, by UID, with the reason in their infrastructure's words.
	Held map[string]string `json:"held,omitempty"`
}

// Node is what slots are placed on.
type Node struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"` // the name of the provider that has it
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity Resources         `json:"capacity"` // what eltrain's slots may use of it
	Foreign  Resources         `json:"foreign"`  // of that, what is in use by others
	// Slots is how many slots of ours it can hold, whatever they reserve; 0 is not limited.
	Slots int `json:"slots,omitempty"`
	// AnyDevice: it has whatever devices are asked for, since it stands for nodes that nobody may list.
	AnyDevice bool `json:"any_device,omitempty"`
	// Closed says why nothing new may be placed here ("cordoned", "not ready"); "" if it may.
	Closed string `json:"closed,omitempty"`
	// Drained says why what runs here is to leave where it can ("cordoned"); "" if it may stay. Nothing new is
	// placed on such a node either, and a scheduler must not.
	Drained string `json:"drained,omitempty"`
}

// Incarnation is one agent with its processes, as its provider sees it (the first fields) and as it
// reported itself to the service (Member).
type Incarnation struct {
	Slot        Address          `json:"slot"`
	UID         string           `json:"uid"` // the job's
	Number      int              `json:"number"`
	Node        string           `json:"node,omitempty"`
	Provider    string           `json:"provider,omitempty"` // the name of the provider that shows it
	Name        string           `json:"name,omitempty"`     // what its infrastructure calls it: a pod's name
	Group       string           `json:"group,omitempty"`    // what it calls the object that owns all of the job's there
	Owner       string           `json:"owner,omitempty"`    // the state under which it was launched; see Capabilities
	Fingerprint string           `json:"fingerprint,omitempty"`
	Reserved    Resources        `json:"reserved,omitzero"`
	Extra       Resources        `json:"extra,omitzero"` // what it takes of its node beside that; see Fit
	State       IncarnationState `json:"state"`
	AgentPID    int              `json:"agent_pid,omitempty"`
	// Started is when its agent began to run, not when it was asked for: from then on it may be late. While it is
	// Starting it is since when its infrastructure has it.
	Started time.Time `json:"started,omitzero"`
	// Exit is how the agent ended, when State is Gone and the provider knows.
	Exit *Exit `json:"exit,omitempty"`
	// Ended is the agent's own last word on why it ended, when State is Gone and it could still say.
	Ended EndReason `json:"ended,omitempty"`
	// Waiting is why it is not Up yet, in the infrastructure's own words ("Unschedulable: 0/3 nodes are ...").
	Waiting string `json:"waiting,omitempty"`
	// Cause is what the infrastructure itself says ended it, or is ending it ("preempted"), and Evidence how it
	// says so. It goes before exit codes: what is evicted exits with some code too.
	Cause    Cause    `json:"cause,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	// Idle: when its provider first saw it, after another had started it, its own record listed no training process. What it
	// says itself, as Member, is newer.
	Idle bool `json:"idle,omitempty"`
	// Drift is what of it was edited by somebody else: Before is as it is now, After as it was launched.
	Drift []FieldChange `json:"drift,omitempty"`
	// Member is nil until the agent has registered with this master.
	Member *Member `json:"member,omitempty"`
}

// EndReason is why an agent ended.
type EndReason string

const (
	EndFinished EndReason = "finished" // all processes ended with 0
	EndFailed   EndReason = "failed"   // its processes failed and it was told to go
	EndLeft     EndReason = "left"     // somebody asked it to go (SIGTERM)
	EndFenced   EndReason = "fenced"   // a newer incarnation took its slot
	EndOrdered  EndReason = "ordered"  // the service told it to leave
)

// IncarnationState is the provider's view.
type IncarnationState string

const (
	Starting IncarnationState = "starting" // asked for, not seen to run yet
	Up       IncarnationState = "up"
	Gone     IncarnationState = "gone"
)

// Member is an incarnation as it reports itself to the service.
type Member struct {
	State      MemberState `json:"state"`
	Host       string      `json:"host,omitempty"` // where peers reach it
	Generation int         `json:"generation,omitempty"`
	InPlace    int         `json:"in_place,omitempty"`   // restarts in place that it has started
	PIDs       []int       `json:"pids,omitempty"`       // of the training processes
	Exit       *Exit       `json:"exit,omitempty"`       // with Failed: the first process that failed; with Succeeded: when the last ended
	Step       int64       `json:"step,omitempty"`       // the last step read from its output
	FirstStep  int64       `json:"first_step,omitempty"` // the first read in its generation
	Loss       *float64    `json:"loss,omitempty"`       // nil if it is not known; 0 is a loss
	StepRate   float64     `json:"step_rate,omitempty"`  // steps per second, lately
	Saved      Saved       `json:"saved,omitzero"`       // the newest checkpoint read from its output
	CPU        CPU         `json:"cpu,omitempty"`        // of all its processes, lately
	Memory     Bytes       `json:"memory,omitempty"`     // resident, all its processes
	Registered time.Time   `json:"registered,omitzero"`
	// Left is when it first said that it is leaving, by the service's clock; zero in every other state.
	Left time.Time `json:"left,omitzero"`
	// Silent is set once no request of it is open and none came for Detect's suspicion time; Expired when
	// the lease ran out.
	Silent  bool `json:"silent,omitempty"`
	Expired bool `json:"expired,omitempty"`
}

// Saved is a checkpoint that the output of training processes told of. The zero value is none.
type Saved struct {
	Step       int64 `json:"step"`
	Generation int   `json:"generation"` // of the world that wrote it
}

// Newest is the newer of two. A later world's is, whatever its step: that world went on from an older one.
func (s Saved) Newest(other Saved) Saved {
	if cmp.Or(cmp.Compare(s.Generation, other.Generation), cmp.Compare(s.Step, other.Step)) < 0 {
		return other
	}
	return s
}

// MemberState is the agent's own word.
type MemberState string

const (
	MemberWaiting   MemberState = "waiting"   // ready for the next world, no process runs
	MemberRunning   MemberState = "running"   // its processes run
	MemberFailed    MemberState = "failed"    // a process failed; waits for the verdict
	MemberSucceeded MemberState = "succeeded" // all processes ended with 0
	MemberLeaving   MemberState = "leaving"   // was told to stop by somebody (SIGTERM) and stops its processes
)

// Exit is how a process ended. Either Code or Signal tells; Code is 128+signal with a signal.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // "killed", "segmentation fault" …, as the kernel names it
	// At is when it ended as its agent saw it, or when it wrote its error file if that was before.
	At time.Time `json:"at,omitzero"`
	// LocalRank is which of the slot's processes it was.
	LocalRank int `json:"local_rank,omitempty"`
	// OOM: the kernel killed it for memory.
	OOM bool `json:"oom,omitempty"`
	// NotStarted is the system's reason when the command could not be started at all.
	NotStarted string `json:"not_started,omitempty"`
	// Message is what the process wrote to its error file (torchelastic's format), Tail its last lines of output.
	Message string   `json:"message,omitempty"`
	Tail    []string `json:"tail,omitempty"`
}

// Cause reads the cause of a process's end from how it ended; an e of nil is not known to have succeeded.
func (e *Exit) Cause() Cause {
	switch {
	case e == nil:
		return ProcessFailed
	case e.NotStarted != "":
		return StartFailed
	case e.OOM:
		return OutOfMemory
	case e.Signal != "":
		return ProcessKilled
	}
	return ProcessFailed
}

// World is the slots that train together.
type World struct {
	Generation int           `json:"generation"` // only ever grows, within a job's UID
	Formed     time.Time     `json:"formed,omitzero"`
	MasterAddr string        `json:"master_addr,omitempty"`
	MasterPort int           `json:"master_port,omitempty"`
	Members    []WorldMember `json:"members"` // by rank
	// Broken is set when the world no longer trains; the next one has another generation.
	Broken bool `json:"broken,omitempty"`
	// Ordered is when its members were told to stop because another world is wanted, by the service's clock; zero while
	// it trains, and if a member was what broke it. Not all have heard of it at that time.
	Ordered time.Time `json:"ordered,omitzero"`
	// Adopted: it trained before this service knew of it. It is reported with the world and not kept.
	Adopted bool `json:"-"`
}

// WorldMember is one slot's place in a world. Rank is the slot's (torchrun's GROUP_RANK), dense from 0;
// Processes have ranks from the sum of those before.
type WorldMember struct {
	Slot        Address `json:"slot"`
	Incarnation int     `json:"incarnation"`
	Rank        int     `json:"rank"`
	Processes   int     `json:"processes"`
}

// Want is what the plan asks of a job's rendezvous. The service forms worlds from it and nothing else.
type Want struct {
	Roles  []WantRole `json:"roles"` // the ranked ones, in declaration order
	Settle Duration   `json:"settle"`
	Lease  Duration   `json:"lease"`
	RankBy []string   `json:"rank_by,omitempty"` // node label names, widest first
	// Unranked are the slots of unranked roles that may start now.
	Unranked []Address `json:"unranked,omitempty"`
	// Hold keeps worlds from forming: the job failed, ended, waits for capacity or is being destroyed.
	Hold bool `json:"hold,omitempty"`
}

// WantRole is the desired slots of one ranked role.
type WantRole struct {
	Role      string `json:"role"`
	Slots     []int  `json:"slots"` // indices, ascending
	Sizes     Sizes  `json:"sizes"`
	Processes int    `json:"processes"`
}
