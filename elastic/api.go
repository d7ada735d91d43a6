package elastic

import "github.com/eltrain/eltrain/job"

// The wire types of the service. docs/openapi.yaml describes the same; a test holds the two together.
//
//	POST /v1/jobs/{job}/register   RegisterRequest -> RegisterReply
//	POST /v1/jobs/{job}/sync       SyncRequest     -> SyncReply     (held open up to BeatSeconds)
//	GET  /v1/jobs/{job}/members    -> Membership
//	POST /v1/reconcile             ReconcileRequest -> ReconcileReply
//
// All want "Authorization: Bearer TOKEN": the job's, but for reconcile, which has one of its own. Errors are ErrorReply with a status:
// 400 malformed, 401 token (also for a job that is not known: names are not told to strangers), 404 no such
// slot, or job of that UID, 409 register first, 410 fenced, 413 too large, 503 not ready.

// RegisterRequest makes a member known, at its start and again whenever the service asks (409): a new
// master learns of a running world by it.
type RegisterRequest struct {
	UID         string `json:"uid"`
	Slot        string `json:"slot"` // "worker[3]"
	Incarnation int    `json:"incarnation"`
	Host        string `json:"host"`           // where peers reach it
	Node        string `json:"node,omitempty"` // that it is on
	AgentPID    int    `json:"agent_pid,omitempty"`
	Report
}

// RegisterReply says how often to speak.
type RegisterReply struct {
	BeatSeconds  float64 `json:"beat_seconds"`  // sync returns at least so often
	LeaseSeconds float64 `json:"lease_seconds"` // unheard for longer, the member is lost
}

// Report is what a member says of itself, whole each time: nothing depends on an earlier one.
type Report struct {
	State      job.MemberState `json:"state"`
	Generation int             `json:"generation,omitempty"`  // of the world that its processes run or last ran in
	Rank       int             `json:"rank,omitempty"`        // its slot's rank in that world
	WorldSlots int             `json:"world_slots,omitempty"` // how many slots that world has
	InPlace    int             `json:"in_place,omitempty"`    // restarts in place it has started
	Port       int             `json:"port,omitempty"`        // free on its host, for MASTER_PORT if it gets rank 0; while it has rank 0 and runs, that of its world
	PIDs       []int           `json:"pids,omitempty"`
	Exit       *job.Exit       `json:"exit,omitempty"`
	Step       int64           `json:"step,omitempty"`
	FirstStep  int64           `json:"first_step,omitempty"` // the first one of its generation
	Loss       *float64        `json:"loss,omitempty"`       // nil if it is not known; 0 is a loss
	StepRate   float64         `json:"step_rate,omitempty"`
	Saved      job.Saved       `json:"saved,omitzero"`   // the newest checkpoint read from its output
	CPU        job.CPU         `json:"cpu,omitempty"`    // thousandths of a core
	Memory     job.Bytes       `json:"memory,omitempty"` // with its unit: "512MiB", "1234567B"
}

// SyncRequest is heartbeat, report and the asking for orders in one.
type SyncRequest struct {
	UID         string `json:"uid"`
	Slot        string `json:"slot"`
	Incarnation int    `json:"incarnation"`
	// Seen is the Version of the newest order that the member knows; 0 after each register, since versions
	// count again with each master. The reply comes at once if another one holds, else when one comes, or the
	// beat is due, or the same incarnation sends another request.
	Seen uint64 `json:"seen"`
	// Seq numbers the requests of an incarnation since it registered, from 1. Two that are under way at the
	// same time can overtake each other; the report of an overtaken one is ignored. 0 is no number.
	Seq uint64 `json:"seq,omitempty"`
	Report
}

// SyncReply is the current order, whole each time: a lost reply costs nothing. A member does nothing
// about an order whose Version it has seen. One that succeeded stays so, whatever it is told, until it is
// told to leave. One that was told to stop reports waiting once its processes have ended, however they did.
type SyncReply struct {
	Version uint64 `json:"version"`
	Order   Order  `json:"order"`
}

// Order is what a member is to do.
type Order struct {
	Do Do `json:"do"`
	// Checkpoint: before the processes are stopped they are asked for one (a planned stop).
	Checkpoint bool `json:"checkpoint,omitempty"`
	// InPlace: a failed member whose own count is lower becomes waiting and takes this count.
	InPlace int `json:"in_place,omitempty"`
	// World is set with Run. A member that runs another generation stops that first.
	World *Place `json:"world,omitempty"`
}

// Do is one of three.
type Do string

const (
	Wait  Do = "wait"  // no processes: stop them if they run, and be ready
	Run   Do = "run"   // processes of World
	Leave Do = "leave" // stop the processes and end
)

// Place is one member's place in a world, as its processes see it.
type Place struct {
	Generation    int    `json:"generation"`
	GroupRank     int    `json:"group_rank"`       // the slot's
	GroupSize     int    `json:"group_world_size"` // slots
	RankBase      int    `json:"rank_base"`        // RANK of its first process
	WorldSize     int    `json:"world_size"`       // processes
	RoleRankBase  int    `json:"role_rank_base"`
	RoleWorldSize int    `json:"role_world_size"`
	MasterAddr    string `json:"master_addr"`
	MasterPort    int    `json:"master_port"`
	RestartCount  int    `json:"restart_count"` // job-wide: Generation-1
}

// Membership is how members find each other: every slot that is up, with its host.
type Membership struct {
	Generation int              `json:"generation"`
	Members    []MembershipItem `json:"members"`
}

// MembershipItem is one member. Rank is -1 outside the world.
type MembershipItem struct {
	Slot        string          `json:"slot"`
	Incarnation int             `json:"incarnation"`
	Host        string          `json:"host"`
	Rank        int             `json:"rank"`
	State       job.MemberState `json:"state"`
}

// ErrorReply is the body of every error.
type ErrorReply struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// ReconcileRequest asks a watching master to read the files and to plan at once. The body may be empty.
type ReconcileRequest struct {
	// MaxDestroy confirms, for this once, that a change of the files has so many slots removed or replaced.
	MaxDestroy *int `json:"max_destroy,omitempty"`
}

// What a master says that was asked to reconcile.
const (
	ReconcilePlanned = "planned" // the reply has what it does
	ReconcileQueued  = "queued"  // it is busy, and looks as soon as it can
)

// ReconcileReply says what is done about a ReconcileRequest.
type ReconcileReply struct {
	Status   string            `json:"status"`
	Commit   string            `json:"commit,omitempty"` // that is in effect, where the files are in a repository
	Changes  *ReconcileChanges `json:"changes,omitempty"`
	Error    string            `json:"error,omitempty"` // why the files were not applied
	Withheld []Withheld        `json:"withheld,omitempty"`
}

// ReconcileChanges counts what is left to do, as a plan does.
type ReconcileChanges struct {
	Add    int `json:"add"`
	Change int `json:"change"`
	Remove int `json:"remove"`
}

// Withheld is a job that continues as it was, though the files say otherwise or cannot be read.
type Withheld struct {
	Job    string     `json:"job"`
	Reason string     `json:"reason"`
	Code   job.Reason `json:"reason_code,omitzero"`
}
