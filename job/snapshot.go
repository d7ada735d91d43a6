package job

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot is the state observed at one moment. It has facts only.
type Snapshot struct {
	At           time.Time        `json:"at"`
	Nodes        []Node           `json:"nodes"`
	Incarnations Incarnations     `json:"incarnations"`
	Worlds       map[string]World `json:"worlds,omitempty"` // by job name
	// Suspicions are what detection says of the newest worlds, by job name.
	Suspicions map[string][]Suspicion `json:"suspicions,omitempty"`
	// Surveys are what the sources of scaling policies said, by job and role.
	Surveys []Survey `json:"surveys,omitempty"`
	// Held has the jobs that must not be launched yet, by UID, with the reason in their infrastructure's words.
	Held map[string]string `json:"held,omitempty"`
}

// Node is a node that slots are placed on.
type Node struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"` // the name of its provider
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity Resources         `json:"capacity"` // available to eltrain's slots
	Foreign  Resources         `json:"foreign"`  // part of Capacity used by others
	// Slots is the maximum number of our slots on it, whatever they reserve; 0 means unlimited.
	Slots int `json:"slots,omitempty"`
	// AnyDevice: it has any devices requested, since it represents nodes that may not be listed.
	AnyDevice bool `json:"any_device,omitempty"`
	// Closed says why nothing new may be placed here ("cordoned", "not ready"); "" if it may.
	Closed string `json:"closed,omitempty"`
	// Drained says why running slots are to leave if they can ("cordoned"); "" if they may stay. Nothing new is
	// placed on such a node either, and a scheduler must not use it.
	Drained string `json:"drained,omitempty"`
	// Problems are what monitoring on the node reports of it, by name. Each provider bounds their number and size.
	Problems []NodeProblem `json:"problems,omitempty"`
}

// NodeProblem is a lasting problem of a node, such as KernelDeadlock.
type NodeProblem struct {
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
}

// Incarnation is one agent with its processes, as its provider sees it and, in Member, as it reports itself to the
// service.
type Incarnation struct {
	Slot        Address          `json:"slot"`
	UID         string           `json:"uid"` // of the job
	Number      int              `json:"number"`
	Node        string           `json:"node,omitempty"`
	Provider    string           `json:"provider,omitempty"` // the name of its provider
	Name        string           `json:"name,omitempty"`     // its name in the infrastructure: a pod's name
	Group       string           `json:"group,omitempty"`    // name of the object there that owns all objects of the job
	Owner       string           `json:"owner,omitempty"`    // the state under which it was launched; see Capabilities
	Fingerprint string           `json:"fingerprint,omitempty"`
	Reserved    Resources        `json:"reserved,omitzero"`
	Extra       Resources        `json:"extra,omitzero"` // used on its node in addition to that; see Fit
	State       IncarnationState `json:"state"`
	AgentPID    int              `json:"agent_pid,omitempty"`
	// Started is when its agent began to run, which starts its time limit for registering. While State is Starting, it is
	// when its infrastructure created it.
	Started time.Time `json:"started,omitzero"`
	// Exit is how the agent exited, if State is Gone and the provider knows.
	Exit *Exit `json:"exit,omitempty"`
	// Ended is the agent's own reason for exiting, from its LastWord, if State is Gone and it wrote one.
	Ended EndReason `json:"ended,omitempty"`
	// Waiting is why it is not Up yet, in the infrastructure's own words ("Unschedulable: 0/3 nodes are ...").
	Waiting string `json:"waiting,omitempty"`
	// Cause is why the infrastructure ended it or is ending it ("preempted"), with Evidence in its words. It takes
	// precedence over exit codes, which evicted processes have, too.
	Cause    Cause    `json:"cause,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	// Idle: its own record listed no training process when its provider, started after it, first saw it. Member, which it
	// reports itself, is newer.
	Idle bool `json:"idle,omitempty"`
	// Drift lists what others edited: Before is the current value, After the launched one.
	Drift []FieldChange `json:"drift,omitempty"`
	// Member is nil until the agent has registered with this master.
	Member *Member `json:"member,omitempty"`
}

// EndReason is why an agent ended.
type EndReason string

const (
	EndFinished EndReason = "finished" // all processes ended with 0
	EndFailed   EndReason = "failed"   // its processes failed and it was told to exit
	EndLeft     EndReason = "left"     // asked to exit by somebody else (SIGTERM)
	EndFenced   EndReason = "fenced"   // a newer incarnation took its slot
	EndOrdered  EndReason = "ordered"  // the service told it to exit
)

// IncarnationState is the provider's view.
type IncarnationState string

const (
	Starting IncarnationState = "starting" // requested, not seen running yet
	Up       IncarnationState = "up"
	Gone     IncarnationState = "gone"
)

// Member is an incarnation as it reports itself to the service.
type Member struct {
	State      MemberState `json:"state"`
	Host       string      `json:"host,omitempty"` // address for peers
	Generation int         `json:"generation,omitempty"`
	InPlace    int         `json:"in_place,omitempty"`   // restarts in place that it has started
	PIDs       []int       `json:"pids,omitempty"`       // of the training processes
	Exit       *Exit       `json:"exit,omitempty"`       // if failed: of the first process that failed; if succeeded: when the last exited
	Step       int64       `json:"step,omitempty"`       // the last step read from its output
	FirstStep  int64       `json:"first_step,omitempty"` // the first step read in its generation
	Loss       *Loss       `json:"loss,omitempty"`       // nil if unknown; 0 is a loss
	StepRate   float64     `json:"step_rate,omitempty"`  // recent steps per second
	Saved      Saved       `json:"saved,omitzero"`       // the newest checkpoint read from its output, or else seen in its checkpoint directory
	CPU        CPU         `json:"cpu,omitempty"`        // recent usage of all its processes
	Memory     Bytes       `json:"memory,omitempty"`     // resident, all its processes
	Acts       []ActResult `json:"acts,omitempty"`       // outcomes of acts that it was told
	Can        []ActKind   `json:"can,omitempty"`        // acts that it knows, and CanCheck
	// Check is of the newest check of its node; nil if none was asked for.
	Check *CheckOutcome `json:"check,omitempty"`
	// Checkpoint is what it sees in its checkpoint directory; nil if that is not known, or there is none.
	Checkpoint *CheckpointSight `json:"checkpoint,omitempty"`
	// Ranks are its training processes, by local rank.
	Ranks      []RankStatus `json:"ranks,omitempty"`
	Registered time.Time    `json:"registered,omitzero"`
	// Left is when it first reported MemberLeaving, by the service's clock; zero in every other state.
	Left time.Time `json:"left,omitzero"`
	// Silent is set if it missed a heartbeat, which is due every third of the lease; Expired when the lease ran out.
	Silent  bool `json:"silent,omitempty"`
	Expired bool `json:"expired,omitempty"`
}

// Showed reports whether its processes have shown a step in their generation, and if that is known as the number of a step, the first.
func (m *Member) Showed() (first int64, showed bool) {
	if m.Ranks == nil { // of an agent that says no more
		return m.FirstStep, m.FirstStep > 0 || m.Step > 0
	}
	return m.FirstStep, slices.ContainsFunc(m.Ranks, func(r RankStatus) bool { return r.Progress != nil && r.Progress.FirstStep != nil })
}

// Saved is a checkpoint that training processes have written. The zero value is none.
type Saved struct {
	Step       int64 `json:"step"`
	Generation int   `json:"generation"` // of the world that wrote it, or the last that may have
}

// Newest returns the newer of two checkpoints. A later world's is newer, whatever its step, since that world resumed from
// an earlier checkpoint.
func (s Saved) Newest(other Saved) Saved {
	if cmp.Or(cmp.Compare(s.Generation, other.Generation), cmp.Compare(s.Step, other.Step)) < 0 {
		return other
	}
	return s
}

// MemberState is a member's state as its agent reports it.
type MemberState string

const (
	MemberWaiting   MemberState = "waiting"   // ready for the next world, no process runs
	MemberRunning   MemberState = "running"   // its processes run
	MemberFailed    MemberState = "failed"    // a process failed; it waits for orders
	MemberSucceeded MemberState = "succeeded" // all processes exited with 0
	MemberLeaving   MemberState = "leaving"   // asked to stop by somebody else (SIGTERM), stops its processes
)

// Exit is how a process exited. If a signal killed it, Code is 128 plus its number.
type Exit struct {
	Code   int    `json:"code"`             // as shells report it: 128+n after a signal
	Signal string `json:"signal,omitempty"` // "killed", "segmentation fault" …, as the kernel names it
	// At is when its agent saw it exit, or when it wrote its error file if that was earlier.
	At time.Time `json:"at,omitzero"`
	// LocalRank is the rank of the process in its slot.
	LocalRank int `json:"local_rank,omitempty"`
	// OOM: the kernel's OOM killer killed it.
	OOM bool `json:"oom,omitempty"`
	// NotStarted is the system's error if the command could not be started at all.
	NotStarted string `json:"not_started,omitempty"`
	// Message is from the process's error file (torchelastic's format), Tail its last lines of output.
	Message string   `json:"message,omitempty"`
	Tail    []string `json:"tail,omitempty"`
}

// Cause derives the cause of a failure from the exit. A nil e counts as ProcessFailed.
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

// World is a set of slots that train together.
type World struct {
	Generation int           `json:"generation"` // increases monotonically per job UID
	Formed     time.Time     `json:"formed,omitzero"`
	MasterAddr string        `json:"master_addr,omitempty"`
	MasterPort int           `json:"master_port,omitempty"`
	Members    []WorldMember `json:"members"` // by rank
	// Broken is set when the world no longer trains; the next one has a new generation.
	Broken bool `json:"broken,omitempty"`
	// Ordered is when the service, by its clock, ordered its members to stop because another world is wanted; zero while it
	// trains, and if a member broke it. Members may receive the order later.
	Ordered time.Time `json:"ordered,omitzero"`
	// FirstStep is when, by the service's clock, its members showed their first step; zero until then.
	FirstStep time.Time `json:"first_step_at,omitzero"`
	// ResumeStep is the step of the checkpoint from which its processes are to resume; 0 leaves it to them.
	ResumeStep int64 `json:"resume_step,omitempty"`
	// Adopted: it was already training when this service first saw it. It is not stored.
	Adopted bool `json:"-"`
}

// WorldMember is one slot's place in a world. Rank is the slot's (torchrun's GROUP_RANK), contiguous from 0;
// the ranks of its processes start at the sum of Processes of the members before it.
type WorldMember struct {
	Slot        Address `json:"slot"`
	Incarnation int     `json:"incarnation"`
	Rank        int     `json:"rank"`
	Processes   int     `json:"processes"`
}

// Want is the plan's input to a job's rendezvous. The service forms worlds from it and nothing else.
type Want struct {
	Roles  []WantRole `json:"roles"` // ranked roles, in declaration order
	Settle Duration   `json:"settle"`
	Lease  Duration   `json:"lease"`
	Hang   HangLimits `json:"hang,omitzero"`
	RankBy []string   `json:"rank_by,omitempty"` // node label names, widest first
	Layout Layout     `json:"layout,omitempty"`
	// Progress is how members read the progress of their processes; nil for what is known of frameworks.
	Progress *Progress `json:"progress,omitempty"`
	// Unranked are the slots of unranked roles that may start now.
	Unranked []Address `json:"unranked,omitempty"`
	// Steps: worlds of the job show their steps.
	Steps bool `json:"steps,omitempty"`
	// Hold prevents worlds from forming: the job failed, ended, waits for capacity or is being destroyed.
	Hold bool `json:"hold,omitempty"`
	// Idle ends what trains, with a checkpoint. Members stay, and wait. It comes with Hold.
	Idle bool `json:"idle,omitempty"`
	// Acts are what members are to do, in order.
	Acts []WantAct `json:"acts,omitempty"`
	// Check is which members check their node before they join; nil if none does.
	Check *WantCheck `json:"check,omitempty"`
	// Reload ends worlds.
	Reload Reload `json:"reload,omitzero"`
	// Kill ends the worlds up to this generation at once: their processes are killed.
	Kill int `json:"kill,omitempty"`
}

// WantRole is the desired slots of one ranked role.
type WantRole struct {
	Role      string `json:"role"`
	Slots     []int  `json:"slots"` // indices, ascending
	Sizes     Sizes  `json:"sizes"`
	Processes int    `json:"processes"`
}
