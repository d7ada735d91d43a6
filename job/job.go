// Package job defines eltrain's data types as plain values: what a user declares (Job, Role), what is observed
// (Snapshot, Node, Incarnation, Member, World), and what is recorded (Record, Slot, Incident).
//
// It imports nothing else of eltrain, does no I/O and uses no clock. It must not know HCL, HTTP or any provider.
//
// The tags of the declared types are the language's schema: `hcl` names the argument or block, `default` and `doc`
// describe it, `change` says how an edit affects running slots. Fields reads them; decoding, validation,
// reference docs and the plan's diff all use that schema.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Job is one training job as declared.
type Job struct {
	Name        string      `hcl:"name,label" doc:"The job's name, unique in the directory."`
	Provider    string      `hcl:"provider,optional" default:"local" change:"replace" doc:"Where the job runs: the name of a provider."`
	Priority    int         `hcl:"priority,optional" change:"update" doc:"Higher goes first when capacity is short. Equal priorities are ordered by age."`
	Preempt     bool        `hcl:"preempt,optional" change:"update" json:",omitempty" doc:"Whether the job, if there is no room for its min, takes the places of preemptible jobs of a lower priority: they are asked for a checkpoint, stopped, and queue again."`
	Preemptible bool        `hcl:"preemptible,optional" change:"update" json:",omitempty" doc:"Whether a job of a higher priority that has preempt = true may take all places of this one. Without it every job keeps its min."`
	Suspend     bool        `hcl:"suspend,optional" change:"update" json:",omitempty" doc:"Whether the job is suspended: its slots are asked for a checkpoint and stopped, and its places are given back. Once it is false again the job queues at its priority."`
	Limits      *Limits     `hcl:"limits,block" change:"update" doc:"The maximum that all slots of the job may hold together. What is not set is not limited."`
	Roles       []Role      `hcl:"role,block" doc:"A group of identical members. At least one."`
	Progress    *Progress   `hcl:"progress,block" change:"update" doc:"How progress is read from the output of the training processes. Without it, what known frameworks print is recognized."`
	Checkpoint  *Checkpoint `hcl:"checkpoint,block" change:"replace" doc:"Where checkpoints are, how to request one, and how to find completed ones in the output. An empty block says that the job needs none, or finds them itself."`
	Rendezvous  Rendezvous  `hcl:"rendezvous,block" change:"update" doc:"How a world forms."`
	Topology    Topology    `hcl:"topology,block" change:"update" doc:"How ranks follow the network, and how they divide the work."`
	Detect      Detect      `hcl:"detect,block" change:"update" doc:"When a member is considered lost, when a world hangs, and when nodes are checked."`
	Heal        Heal        `hcl:"heal,block" change:"update" doc:"How failures are healed, and how often."`
	Deadline    string      `hcl:"deadline,optional" change:"update" json:",omitempty" doc:"When the training has to be over, as \"2026-12-01T08:00:00Z\": its elastic roles get the smallest size that meets it, as far as how many steps there are in all is known."`
	StopWhen    *StopWhen   `hcl:"stop_when,block" change:"update" json:",omitempty" doc:"A figure of the training that ends the job once it is reached."`

	Lifecycle Lifecycle `hcl:"lifecycle,block" change:"update" json:",omitzero" doc:"Protection of the job, and attributes that others may change."`

	// Address is the declared address: job.gpt, module.eval["de"].job.gpt. In a record it is "" if the record is older than
	// addresses, or if the job was renamed and not declared under its new name yet.
	Address string `hcl:"-" json:",omitempty"`
	// Source is where the job was declared.
	Source Source `hcl:"-"`
	// Secrets are the sensitive values that occur in the job's strings; views redact them wherever they occur.
	Secrets []string `hcl:"-" json:"-"`
	// Places locate sensitive numbers and booleans in its roles, which cannot be redacted by value.
	Places []Place `hcl:"-" json:"-"`
}

// Source is a position in a configuration file. The zero value is unknown.
type Source struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Role is a group of identical members. Its name has no special meaning to eltrain.
type Role struct {
	Name      string   `hcl:"name,label" doc:"The role's name, unique in the job."`
	Replicas  int      `hcl:"replicas,optional" default:"1" change:"update" doc:"Number of slots. With a scaling block it is only where a plain apply starts, by default the smallest legal size: scaling owns it afterwards. Without one it may follow that of a role with one: ceil(role.trainer.replicas / 4)."`
	Scaling   *Scaling `hcl:"scaling,block" change:"update" doc:"Makes the role elastic."`
	Processes int      `hcl:"processes,optional" default:"1" change:"replace" doc:"Training processes per slot (torchrun's nproc_per_node)."`
	Ranked    bool     `hcl:"ranked,optional" default:"true" change:"replace" doc:"Whether members have ranks and count towards WORLD_SIZE."`

	Program `hcl:",inline"`
	// PerSlot holds the program of each slot index, up to Max, if an argument refers to slot.*; otherwise it is nil.
	PerSlot []Program `hcl:"-"`

	Source Files `hcl:"source,patterns" change:"replace" json:",omitempty" doc:"Files that the program consists of, as patterns relative to the directory of the .hcl file: [\"train.py\", \"lib/**\"]. An edit of one replaces the slots. On Kubernetes the pods get these files; elsewhere they are read where they are."`

	// Follows is set if Replicas refers to the replicas of an elastic role: then it is only their number where that role starts.
	Follows *Follows `hcl:"-" json:",omitempty"`

	// SourceRoot is the directory that the paths in Source are relative to, and SourceSize what all these files have together.
	SourceRoot string `hcl:"-" json:",omitempty"`
	SourceSize Bytes  `hcl:"-" json:",omitempty"`

	DependsOn []string  `hcl:"depends_on,references" change:"update" doc:"Roles that must be running before this one starts; on destroy it stops before them. Written role.NAME."`
	Update    *Updating `hcl:"update,block" change:"update" json:",omitempty" doc:"How an edit reaches the slots of an unranked role: some at a time. A ranked role is updated as a whole, since its world needs all."`
	StopGrace Duration  `hcl:"stop_grace,optional" default:"30s" change:"replace" doc:"Time between SIGTERM and SIGKILL on a planned stop."`
	Resources Resources `hcl:"resources,block" change:"replace" doc:"What each slot reserves on its node."`

	Accelerators *Accelerators `hcl:"accelerators,block" change:"replace" json:",omitempty" doc:"Where the figures of a slot's accelerators come from. Without it there are none."`

	Pod map[string]any `hcl:"pod,any" change:"replace" doc:"Overlay on the pod, for Kubernetes settings that eltrain does not have. The local provider does not support it."`
}

// Program is what runs in a slot. Its attributes may refer to slot.index, slot.role, slot.job and slot.address.
type Program struct {
	Image      string            `hcl:"image,optional" late:"slot" change:"replace" doc:"Container image, for providers that run images."`
	Command    []string          `hcl:"command,required" late:"slot" change:"replace" doc:"The training program and its arguments. No shell is involved."`
	WorkingDir string            `hcl:"working_dir,optional" default:"." late:"slot" change:"replace" doc:"Where it runs, relative to the job directory."`
	Env        map[string]string `hcl:"env,optional" late:"slot" change:"replace" doc:"Added to its environment. Variables that eltrain sets itself, such as RANK or MASTER_ADDR, are rejected."`
}

// For returns the program of the slot with the given index.
func (r *Role) For(index int) Program {
	if index < len(r.PerSlot) {
		return r.PerSlot[index]
	}
	return r.Program
}

// Files are the digests of files by path, with slashes.
type Files map[string]string

// Digest identifies all of them; "" if there are none.
func (f Files) Digest() string {
	if len(f) == 0 {
		return ""
	}
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(h, "%q %s\n", path, f[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Updating says how an edit reaches the slots of an unranked role.
type Updating struct {
	MaxUnavailable int `hcl:"max_unavailable,optional" default:"1" change:"update" doc:"How many slots of the role may be down at a time. The next are replaced once their predecessors run."`
}

// Together returns how many slots of an unranked role an edit may replace at a time.
func (r *Role) Together() int {
	if r.Update == nil {
		return 1
	}
	return r.Update.MaxUnavailable
}

// Resources is what a slot reserves, or what a node has.
type Resources struct {
	CPU     CPU            `hcl:"cpu,optional" change:"replace" doc:"Cores, fractions allowed."`
	Memory  Bytes          `hcl:"memory,optional" change:"replace" doc:"Memory, as \"1GiB\"."`
	Devices map[string]int `hcl:"devices,optional" change:"replace" doc:"Whole devices by name, as { \"nvidia.com/gpu\" = 8 }."`
	Shm     Bytes          `hcl:"shm,optional" change:"replace" doc:"Size of /dev/shm, for providers that create one."`
}

// Accelerators says where the figures of a slot's accelerators come from, by one of its fields.
type Accelerators struct {
	Command []string `hcl:"command,optional" change:"replace" json:",omitempty" doc:"Program that prints figures of the slot's devices, as [\"eltrain-nvml\"]: see metrics.md. It runs beside the training processes, in their directory and as their user."`
	DCGM    string   `hcl:"dcgm,optional" change:"replace" json:",omitempty" doc:"URL of a DCGM exporter on the slot's node, as \"http://localhost:9400/metrics\". Not together with command."`
}

// Limits is the maximum that a job may hold. A nil pointer or an absent device is unlimited.
type Limits struct {
	CPU     *CPU           `hcl:"cpu,optional" change:"update" doc:"Cores."`
	Memory  *Bytes         `hcl:"memory,optional" change:"update" doc:"Memory."`
	Devices map[string]int `hcl:"devices,optional" change:"update" doc:"Whole devices by name."`
}

// Progress reads training progress from output lines, by one of its fields.
type Progress struct {
	Pattern string `hcl:"pattern,optional" change:"update" doc:"Regular expression (RE2) with the group step, and optionally total, loss, epoch, learning_rate, tokens_per_second, grad_norm, state_hash, batch_size, gradient_noise_scale, for all lines that show progress: \"step (?P<step>\\\\d+) loss (?P<loss>\\\\S+)\"."`
	// Omitted from the JSON if empty, so that fingerprints of jobs started before this field existed stay the same.
	Recognizers string `hcl:"recognizers,optional" change:"update" json:",omitempty" doc:"JSON with recognizers of what the training program prints, which come before those of known frameworks: file(\"recognizers.json\"). Not together with pattern."`
}

// Checkpoint says where checkpoints are, how to request one, and how to find completed ones in the output.
type Checkpoint struct {
	Dir    string `hcl:"dir,optional" change:"replace" doc:"Directory, relative to the job directory; ELTRAIN_CHECKPOINT_DIR in the processes. Agents look there for checkpoints of known frameworks."`
	Signal string `hcl:"signal,optional" change:"replace" doc:"Signal that requests a checkpoint from the processes before a planned stop, like \"SIGUSR1\"."`
	// Omitted from the JSON if empty, so that fingerprints of jobs started before this field existed stay the same.
	Pattern string `hcl:"pattern,optional" change:"replace" json:",omitempty" doc:"Regular expression (RE2) with the group step, for the line that the training processes print once a checkpoint is written: \"saved step (?P<step>\\\\d+)\"."`
}

// Rendezvous says how a world forms.
type Rendezvous struct {
	Settle  Duration `hcl:"settle,optional" default:"5s" change:"update" doc:"If desired slots are missing, a world forms without them this long after the last join."`
	Timeout Duration `hcl:"timeout,optional" default:"10m" change:"update" doc:"How long started slots may wait for a world before it is an incident."`
}

// Topology says how ranks follow the network, and how they divide the work.
type Topology struct {
	RankBy []string `hcl:"rank_by,optional" change:"update" doc:"Node labels from the widest level to the narrowest, as [\"node.labels.rack\", \"node.labels.switch\"]: slots that share one get contiguous ranks."`
	Groups Layout   `hcl:"group,block" change:"update" json:",omitempty" doc:"A dimension of the program's parallel layout, as in its own settings: from the one in which neighboring ranks differ to the one that changes last."`
}

// Detect says when a member is considered lost, when a world hangs, and when nodes are checked.
type Detect struct {
	Lease Duration    `hcl:"lease,optional" default:"15s" change:"update" doc:"A registered member without a heartbeat for this long is lost."`
	Hang  *HangLimits `hcl:"hang,block" change:"update" json:",omitempty" doc:"When a world without progress is said to hang."`
	Check *NodeCheck  `hcl:"check,block" change:"update" json:",omitempty" doc:"When nodes are checked before slots train on them, and how."`
}

// Limits are those of a hang, with defaults where the job says nothing.
func (d *Detect) Limits() HangLimits {
	if d.Hang == nil {
		return DefaultHang
	}
	return *d.Hang
}

// HangLimits say when a world without progress is said to hang.
type HangLimits struct {
	Floor   Duration `hcl:"floor,optional" default:"30s" change:"update" doc:"Without progress for this long, and for three usual steps more, the processes that stand out are suspected. If they are stopped or blocked, or their agent is silent, they hang. At least 3s."`
	Ceiling Duration `hcl:"ceiling,optional" default:"30m" change:"update" doc:"How long a world may be without progress if nothing else is known. Once it has trained for eight times as long, its own pauses of the same kind say that: the longest of them, times a factor of 3 or more. 0s is without limit."`
}

// DefaultHang has the defaults of HangLimits.
var DefaultHang = HangLimits{Floor: Duration(30 * time.Second), Ceiling: Duration(30 * time.Minute)}

// LeastFloor is the shortest HangLimits.Floor: agents look at processes twice a second, and what lasts shorter is no hang.
const LeastFloor = 3 * time.Second

// Heal says how faults are healed, and how often.
type Heal struct {
	Budget Budget `hcl:"budget,block" change:"update" doc:"How many failures of the user's program are healed. Lost nodes do not count. Restarts of a slot without progress in between are delayed: the second by 1s, doubling to 1m; see backoff."`
	On     []On   `hcl:"on,block" change:"update" doc:"What is done about one cause."`
	// ExitCodes maps exit codes of training processes to a Verdict.
	ExitCodes  map[string]string `hcl:"exit_codes,optional" change:"update" json:",omitempty" doc:"What exit codes of the training processes mean, as { 3 = \"fail\", 75 = \"retry\" }: fail fails the job at once, retry restarts without being charged to the budget. Other codes are restarted and charged."`
	Signatures string            `hcl:"signatures,optional" change:"update" json:",omitempty" doc:"JSON with texts in the output of failed processes and their causes, which come before the known ones: file(\"signatures.json\"). See signatures.md."`
}

// What heal's exit_codes say of an exit code. One that they do not name is restarted and charged to the budget.
const (
	ExitFails   = "fail"  // the job fails at once
	ExitRetries = "retry" // restarted, as often as it takes
)

// Verdict is what the job says of an exit: ExitFails, ExitRetries, or "". Only an exit with a code of the program's own has one.
func (h *Heal) Verdict(c Cause, code int) string {
	if c != ProcessFailed || code == 0 {
		return ""
	}
	return h.ExitCodes[strconv.Itoa(code)]
}

// Budget is a number of restarts in a sliding window.
type Budget struct {
	Restarts int      `hcl:"restarts,optional" default:"10" change:"update" doc:"Restarts within the window; one more fails the job."`
	Window   Duration `hcl:"window,optional" default:"24h" change:"update" doc:"The window's length."`
}

// On adjusts healing for one cause. What is not set is as the table of causes says.
type On struct {
	Cause   string   `hcl:"cause,label" doc:"The cause, like \"oom\" or \"hang\"."`
	Action  Remedy   `hcl:"action,optional" change:"update" json:",omitempty" doc:"What is done: \"report\" (nothing), \"reload\" (the world ends without a checkpoint, and the next resumes from the newest), \"restart\" (in place), \"check\" (the same, after a check of the nodes of its world), \"replace\" (on another node, if there is one), or \"fail\" (the job fails). Which are possible depends on the cause."`
	Memory  Factor   `hcl:"memory,optional" change:"update" doc:"Of \"oom\": factor on the slot's memory at each occurrence, like \"x1.5\"."`
	Limit   int      `hcl:"limit,optional" change:"update" doc:"How often that is done for one slot within window; then more is. Of \"oom\": how often the slot's memory grows."`
	Window  Duration `hcl:"window,optional" change:"update" json:",omitempty" doc:"The window of limit."`
	After   Duration `hcl:"after,optional" change:"update" json:",omitempty" doc:"Of \"pending_timeout\", which needs it: how long the job may wait for places and for its slots to start."`
	Backoff Duration `hcl:"backoff,optional" change:"update" json:",omitempty" doc:"Delay of the second restart of a slot without progress in between, by default 1s. It doubles with each further one, to sixty times that."`
}

// Sizes are the numbers of slots that the role may have as declared: Replicas alone if it is not elastic and follows none that is.
func (r *Role) Sizes() Sizes {
	if r.Follows != nil {
		return r.Follows.Sizes()
	}
	if r.Scaling == nil {
		return Sizes{Min: r.Replicas, Max: r.Replicas}
	}
	return Sizes{Min: r.Scaling.Min, Max: r.Scaling.Max, Step: r.Scaling.Step, List: r.Scaling.Sizes}
}

// Bounds returns the minimum and maximum of Sizes.
func (r *Role) Bounds() (min, max int) {
	sizes := r.Sizes()
	return sizes.Min, sizes.Max
}

// Legal reports whether the role may run with n slots.
func (r *Role) Legal(n int) bool { return r.Floor(n) == n }

// Floor and Ceil are those of Sizes.
func (r *Role) Floor(n int) int { return r.Sizes().Floor(n) }
func (r *Role) Ceil(n int) int  { return r.Sizes().Ceil(n) }

// Sizes are the legal numbers of slots of one role.
type Sizes struct {
	Min  int   `json:"min"`
	Max  int   `json:"max"`
	Step int   `json:"step,omitempty"`
	List []int `json:"list,omitempty"`
}

// Floor returns the largest legal number that is at most n, or 0 if there is none.
func (s Sizes) Floor(n int) int {
	n = min(n, s.Max)
	if len(s.List) > 0 {
		best := 0
		for _, size := range s.List {
			if size <= n && size >= s.Min && size > best {
				best = size
			}
		}
		return best
	}
	if s.Step > 1 {
		n -= n % s.Step
	}
	if n < s.Min {
		return 0
	}
	return n
}

// Ceil returns the smallest legal number that is at least n, or 0 if there is none.
func (s Sizes) Ceil(n int) int {
	for n = max(n, s.Min, 1); n <= s.Max; n++ {
		if s.Floor(n) == n {
			return n
		}
	}
	return 0
}

// Least returns the smallest legal number, or Min if there is none.
func (s Sizes) Least() int { return max(s.Ceil(s.Min), s.Min) }

// All are the legal numbers.
func (s Sizes) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, n := range slices.Compact(slices.Sorted(slices.Values(s.List))) {
			if n >= s.Min && n <= s.Max && !yield(n) {
				return
			}
		}
		if len(s.List) > 0 {
			return
		}
		for n := s.Ceil(s.Min); n > 0 && n <= s.Max; n += max(1, s.Step) {
			if !yield(n) {
				return
			}
		}
	}
}

// Role finds a role by name; nil if there is none.
func (j *Job) Role(name string) *Role {
	for i := range j.Roles {
		if j.Roles[i].Name == name {
			return &j.Roles[i]
		}
	}
	return nil
}
