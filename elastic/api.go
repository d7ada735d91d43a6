package elastic

import (
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

// The wire types of the service. docs/openapi.yaml describes the same; a test compares them.
//
//	POST /v1/jobs/{job}/register   RegisterRequest -> RegisterReply
//	POST /v1/jobs/{job}/sync       SyncRequest     -> SyncReply     (held open up to BeatSeconds)
//	GET  /v1/jobs/{job}/members    -> Membership
//	POST /v1/reconcile             ReconcileRequest -> ReconcileReply
//
// All require "Authorization: Bearer TOKEN": the job's token; reconcile has its own. Errors are ErrorReply with a status: 400
// malformed, 401 token (also for an unknown job, so that names are not disclosed), 404 no such slot, or no job with that UID,
// 409 register first, 410 fenced, 413 too large, 503 not ready.

// RegisterRequest registers a member, at its start and whenever the service requires it (409): this is how a new master learns
// about a running world.
type RegisterRequest struct {
	UID         string `json:"uid"`
	Slot        string `json:"slot"` // "worker[3]"
	Incarnation int    `json:"incarnation"`
	Host        string `json:"host"`           // where peers reach it
	Node        string `json:"node,omitempty"` // its node
	AgentPID    int    `json:"agent_pid,omitempty"`
	// Can are the acts that it knows, and "check_node" if it checks its node when it is told to; none if left out, as by agents of
	// versions without acts.
	Can []job.ActKind `json:"can,omitempty"`
	// Seq numbers an incarnation's requests, registrations included, from 1. Requests can overtake each other, also one that was
	// sent before the last registration; the report of an overtaken one is ignored. 0 is no number.
	Seq uint64 `json:"seq,omitempty"`
	// Recent is, by local rank, what the member remembers of its reports of the last minutes, for a service that does not: a new
	// master.
	Recent []*history.Recent `json:"recent,omitempty"`
	Report
}

// RegisterReply says how often the member must send a request.
type RegisterReply struct {
	BeatSeconds  float64 `json:"beat_seconds"`  // sync returns at least this often
	LeaseSeconds float64 `json:"lease_seconds"` // a member silent for longer is lost
}

// Report is a member's state, always complete: it does not depend on earlier ones.
type Report struct {
	State      job.MemberState `json:"state"`
	Generation int             `json:"generation,omitempty"`  // of the world that its processes run or last ran in
	Rank       int             `json:"rank,omitempty"`        // its slot's rank in that world
	WorldSlots int             `json:"world_slots,omitempty"` // how many slots that world has
	InPlace    int             `json:"in_place,omitempty"`    // restarts in place it has started
	Port       int             `json:"port,omitempty"`        // free port on its host, for MASTER_PORT if it gets rank 0 or is unranked; while it runs as such, that port
	PIDs       []int           `json:"pids,omitempty"`
	Exit       *job.Exit       `json:"exit,omitempty"`
	Step       int64           `json:"step,omitempty"`
	FirstStep  int64           `json:"first_step,omitempty"` // first step of its generation
	Loss       *job.Loss       `json:"loss,omitempty"`       // nil if unknown; 0 is a valid loss
	StepRate   float64         `json:"step_rate,omitempty"`
	Saved      job.Saved       `json:"saved,omitzero"`   // the newest checkpoint read from its output, or else seen in its checkpoint directory
	CPU        job.CPU         `json:"cpu,omitempty"`    // thousandths of a core
	Memory     job.Bytes       `json:"memory,omitempty"` // with its unit: "512MiB", "1234567B"
	Acts       []job.ActResult `json:"acts,omitempty"`   // of the acts in its newest order, those that have ended

	// Evidence is what the newest order asks for, once it is there, as long as the order asks for it.
	Evidence *job.Evidence `json:"evidence,omitempty"`

	Ranks   []job.RankReport `json:"ranks,omitempty"`   // by local rank
	Figures *job.SlotFigures `json:"figures,omitempty"` // nil if none were read

	Checkpoint *job.CheckpointSight `json:"checkpoint,omitempty"` // nil if its checkpoint directory is not known, or not read yet
	Saving     bool                 `json:"saving,omitempty"`     // a checkpoint is being written there

	Check *job.Checked `json:"check,omitempty"` // of the newest check of its node that has ended
}

// SyncRequest is heartbeat, report and request for the current order in one.
type SyncRequest struct {
	UID         string `json:"uid"`
	Slot        string `json:"slot"`
	Incarnation int    `json:"incarnation"`
	// Seen is the Version of the newest order that the member knows; 0 after each register, because each master counts versions
	// from the start. The reply comes at once if another order holds; otherwise when one does, when the beat is due, or when
	// the same incarnation sends another request.
	Seen uint64 `json:"seen"`
	Seq  uint64 `json:"seq,omitempty"` // as in RegisterRequest
	Report
}

// SyncReply is the current order, always complete: a lost reply does no harm. A member ignores an order whose Version it has
// seen. A member that succeeded stays so, whatever the order, until it is ordered to leave. A member that was ordered to stop
// reports waiting once its processes have exited, however they did.
type SyncReply struct {
	Version uint64 `json:"version"`
	Order   Order  `json:"order"`
	// Members comes with a Version that the member has not seen, if it is to start; to a member of an unranked role also whenever
	// the list changes while it runs.
	Members *Peers `json:"members,omitempty"`
}

// Order is what a member is to do.
type Order struct {
	Do Do `json:"do"`
	// Checkpoint: ask the processes for one before they are stopped (a planned stop).
	Checkpoint bool `json:"checkpoint,omitempty"`
	// Force: kill the processes, without a signal that they could handle. It is never set with Run.
	Force bool `json:"force,omitempty"`
	// InPlace: a failed member with a lower count becomes waiting and adopts this count.
	InPlace int `json:"in_place,omitempty"`
	// World is set with Run. A member that runs another generation stops that first.
	World *Place `json:"world,omitempty"`
	// Progress is how the member reads the progress of its processes, also of those that run; nil for what is known of frameworks. It
	// comes with a Version that the member has not seen.
	Progress *Progress `json:"progress,omitempty"`
	// Evidence asks for evidence about the processes of World: its number is to be in the report. 0 asks for none.
	Evidence int `json:"evidence,omitempty"`
	// Acts are to be done, in order and each once: an act whose ID is not greater than that of one before is not done. Their outcomes
	// are in the reports as long as they are listed here.
	Acts []job.Act `json:"acts,omitempty"`
	// Check is what the member is to check of its node while it waits. Without it a check that runs is to end.
	Check *Check `json:"check,omitempty"`
}

// Progress says how progress is read from output lines, by one of its fields, as a job declares it.
type Progress struct {
	Pattern     string `json:"pattern,omitempty"`     // a regular expression (RE2) with the group step, for all lines that show progress
	Recognizers string `json:"recognizers,omitempty"` // JSON of recognizers that come before those of known frameworks
}

// Check is a check of a node.
type Check struct {
	Number  int      `json:"number"`            // each is done once; a later one has a greater number
	Seconds float64  `json:"seconds"`           // the bound of what the member does alone
	Command []string `json:"command,omitempty"` // a program in place of the agent's own patterns
	Pair    *Pair    `json:"pair,omitempty"`    // an exchange with a partner, once the rest is done
}

// Pair is one exchange of data between the nodes of two members.
type Pair struct {
	Set     int64   `json:"set,omitempty"`     // of members that exchange data; another master's is another
	Round   int     `json:"round"`             // each of a set is done once; a later one has a greater number
	Peer    string  `json:"peer"`              // the partner's slot
	Address string  `json:"address,omitempty"` // where to reach it; left out, it comes to this member's port
	Seconds float64 `json:"seconds"`           // the bound of the exchange
}

// Do is what a member is to do.
type Do string

const (
	Wait  Do = "wait"  // no processes: stop them if they run, and wait
	Run   Do = "run"   // run the processes of World
	Leave Do = "leave" // stop the processes and exit
)

// Place is one member's place in a world, as its processes see it.
type Place struct {
	Generation    int    `json:"generation"`
	GroupRank     int    `json:"group_rank"`       // rank of the slot
	GroupSize     int    `json:"group_world_size"` // in slots
	RankBase      int    `json:"rank_base"`        // RANK of its first process
	WorldSize     int    `json:"world_size"`       // in processes
	RoleRankBase  int    `json:"role_rank_base"`
	RoleWorldSize int    `json:"role_world_size"`
	MasterAddr    string `json:"master_addr"`
	MasterPort    int    `json:"master_port"`
	RestartCount  int    `json:"restart_count"`         // of the job: Generation-1
	ResumeStep    int64  `json:"resume_step,omitempty"` // step of the checkpoint to resume from; 0 is the newest
}

// Peers is how members find each other, as in the file of ELTRAIN_MEMBERS_FILE: every slot with a registered member. In a job with
// more than maxPeers of them it has only those with a port, rank 0 first, and at most so many.
type Peers struct {
	Generation int    `json:"generation"`
	Total      int    `json:"total"` // how many are registered
	Members    []Peer `json:"members"`
}

// Peer is one member.
type Peer struct {
	Slot        string `json:"slot"`
	Incarnation int    `json:"incarnation"`
	Host        string `json:"host"`
	Port        int    `json:"port,omitempty"` // its MASTER_PORT, of rank 0 and of unranked members that have started
	Rank        int    `json:"rank"`           // of its slot in the world that trains; -1 outside
}

// Membership is the whole list, with states.
type Membership struct {
	Generation int              `json:"generation"`
	Members    []MembershipItem `json:"members"`
}

// MembershipItem is one member.
type MembershipItem struct {
	Peer
	State job.MemberState `json:"state"`
}

// ErrorReply is the body of every error.
type ErrorReply struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// ReconcileRequest asks a watching master to read the files and to plan now. The body may be empty.
type ReconcileRequest struct {
	// MaxDestroy confirms, once, that a change of the files may remove or replace this many slots.
	MaxDestroy *int `json:"max_destroy,omitempty"`
}

// The values of ReconcileReply.Status.
const (
	ReconcilePlanned = "planned" // the reply says what is done
	ReconcileQueued  = "queued"  // the master is busy, and will plan as soon as it can
)

// ReconcileReply answers a ReconcileRequest.
type ReconcileReply struct {
	Status   string            `json:"status"`
	Commit   string            `json:"commit,omitempty"` // the commit in effect, if the files are in a repository
	Changes  *ReconcileChanges `json:"changes,omitempty"`
	Error    string            `json:"error,omitempty"` // why the files were not applied
	Withheld []Withheld        `json:"withheld,omitempty"`
}

// ReconcileChanges counts the pending changes, as a plan's summary does.
type ReconcileChanges struct {
	Add    int `json:"add"`
	Change int `json:"change"`
	Remove int `json:"remove"`
}

// Withheld is a job that continues as it was, although the files say otherwise or cannot be read.
type Withheld struct {
	Job    string     `json:"job"`
	Reason string     `json:"reason"`
	Code   job.Reason `json:"reason_code,omitzero"`
}
