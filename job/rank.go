package job

import "time"

// RankReport is what an agent reports of one training process: the one that the role's command starts for that local rank.
type RankReport struct {
	Progress *RankProgress   `json:"progress,omitempty"` // nil if nothing was read of it
	Process  *ProcessFigures `json:"process,omitempty"`  // nil if none runs, or nothing could be read
}

// RankStatus is what a snapshot has of one training process. Figures of the process are not part of it: nothing is planned from them,
// and they change all the time.
type RankStatus struct {
	Progress *RankProgress `json:"progress,omitempty"` // nil if nothing was read of it
}

// RankProgress is how far one training process is in the world that it runs or last ran in.
type RankProgress struct {
	By string `json:"by"` // what was recognized: a recognizer's name
	Reading
	FirstStep *int64  `json:"first_step,omitempty"` // the first that it showed
	StepRate  float64 `json:"step_rate,omitempty"`  // recent steps per second
	// StepInterval is the usual time between steps that it shows, in seconds: nine of ten come sooner.
	StepInterval *float64 `json:"step_interval_seconds,omitempty"`
	// StepAge is how long ago its step changed, in seconds, by the agent's clock when it reported.
	StepAge *float64 `json:"step_age_seconds,omitempty"`
	Mark    *Mark    `json:"mark,omitempty"` // the newest
}

// Mark is what a process said at one step. Marks of processes of the same pace are of the same steps: multiples of a power of two that
// come every few seconds.
type Mark struct {
	Step      int64    `json:"step"`
	Loss      *Loss    `json:"loss,omitempty"`
	GradNorm  *float64 `json:"grad_norm,omitempty"`
	StateHash string   `json:"state_hash,omitempty"`
}

// OwnPattern is the name in RankProgress.By of the pattern that a job declares.
const OwnPattern = "pattern"

// ProcessFigures are those of a training process and all that it started, from the kernel's counters. What could not be read is nil
// or "", never 0. Counters only grow; they start again with each process.
type ProcessFigures struct {
	// PID is the process that State and WaitChannel are of: the training process, or what it waits for if it is a shell or another
	// wrapper.
	PID         int         `json:"pid"`
	State       ThreadState `json:"state"`                  // of its main thread
	WaitChannel string      `json:"wait_channel,omitempty"` // kernel function in which the main thread waits

	// Age is for how long the agent has had the process run.
	Age *float64 `json:"age_seconds,omitempty"`
	// From looks at PID twice a second. StateAge is for how long State has held it (see ThreadState.Held), or has not; a blocked thread
	// counts as held only as long as the process does nothing. Busy is the recent use of a processor, as share of one. IdleAge is since
	// it last used more than a little of one, read, wrote or printed, or since the slot's accelerators last did more than a little.
	StateAge *float64 `json:"state_age_seconds,omitempty"`
	Busy     *float64 `json:"busy,omitempty"`
	IdleAge  *float64 `json:"idle_age_seconds,omitempty"`
	Looks    *Looks   `json:"looks,omitempty"`

	Processes    int            `json:"processes"` // that run
	Threads      int            `json:"threads"`
	ThreadStates *ThreadsByKind `json:"thread_states,omitempty"`
	OpenFiles    *int64         `json:"open_files,omitempty"`

	CPUSeconds *float64 `json:"cpu_seconds,omitempty"` // counter
	RSS        *int64   `json:"rss_bytes,omitempty"`   // shared pages count for each process
	PSS        *int64   `json:"pss_bytes,omitempty"`   // shared pages count in parts; read less often
	PeakRSS    *int64   `json:"peak_rss_bytes,omitempty"`

	// Read and Written are bytes of system calls, whatever they go to; the others, those that storage had to serve. Counters.
	Read             *int64 `json:"read_bytes,omitempty"`
	Written          *int64 `json:"written_bytes,omitempty"`
	ReadFromStorage  *int64 `json:"storage_read_bytes,omitempty"`
	WrittenToStorage *int64 `json:"storage_written_bytes,omitempty"`
}

// ThreadState is the state of a thread, by its letter in /proc/PID/stat (proc_pid_stat(5)).
type ThreadState string

const (
	ThreadRuns    ThreadState = "R" // or could
	ThreadSleeps  ThreadState = "S" // until an event or a signal
	ThreadBlocked ThreadState = "D" // in a system call that no signal ends: a disk, a network file system, a device
	ThreadStopped ThreadState = "T" // by a signal
	ThreadTraced  ThreadState = "t" // by a debugger
	ThreadZombie  ThreadState = "Z" // exited, and not reaped
	ThreadIdles   ThreadState = "I"
)

// ThreadStates are the known states.
var ThreadStates = []ThreadState{ThreadRuns, ThreadSleeps, ThreadBlocked, ThreadStopped, ThreadTraced, ThreadZombie, ThreadIdles}

// ThreadsByKind counts threads by state. Stopped includes those that a debugger stopped; others, such as those that are just
// ending, count as Zombie.
type ThreadsByKind struct {
	Running  int `json:"running"`
	Sleeping int `json:"sleeping"`
	Blocked  int `json:"uninterruptible"`
	Stopped  int `json:"stopped"`
	Zombie   int `json:"zombie"`
}

// Count counts a thread.
func (t *ThreadsByKind) Count(s ThreadState) {
	switch s {
	case ThreadRuns:
		t.Running++
	case ThreadSleeps, ThreadIdles:
		t.Sleeping++
	case ThreadBlocked:
		t.Blocked++
	case ThreadStopped, ThreadTraced:
		t.Stopped++
	default:
		t.Zombie++
	}
}

// SlotFigures are what an agent reads of its slot as a whole, with the time at which it read these and those of its ranks. What could
// not be read is nil.
type SlotFigures struct {
	At time.Time `json:"at"` // by the agent's clock: to be compared only with other figures of the same agent

	// Of the agent's cgroup: the lowest limit that applies to it, and what counts towards it. No limit is nil.
	MemoryLimit *int64 `json:"memory_limit_bytes,omitempty"`
	MemoryUsed  *int64 `json:"memory_used_bytes,omitempty"`
	// Time in which some of the cgroup's threads waited for memory, a processor or I/O (PSI). Counters.
	MemoryStalled *float64 `json:"memory_stalled_seconds,omitempty"`
	CPUStalled    *float64 `json:"cpu_stalled_seconds,omitempty"`
	IOStalled     *float64 `json:"io_stalled_seconds,omitempty"`

	// TCPRetransmits counts segments in the agent's network namespace: a pod's own; without pods, the machine's.
	TCPRetransmits *int64       `json:"tcp_retransmits,omitempty"`
	RDMA           *RDMAFigures `json:"rdma,omitempty"` // nil without a device

	Accelerators []AcceleratorFigures `json:"accelerators,omitempty"` // by Device, at most MaxAccelerators
}

// RDMAFigures are counters of the kernel (/sys/class/infiniband), summed over the ports of all devices. What no device counts is nil.
type RDMAFigures struct {
	Received         *int64 `json:"received_bytes,omitempty"`
	Sent             *int64 `json:"sent_bytes,omitempty"`
	ReceiveErrors    *int64 `json:"receive_errors,omitempty"`
	SendDiscards     *int64 `json:"send_discards,omitempty"`
	SymbolErrors     *int64 `json:"symbol_errors,omitempty"`
	LinkDowned       *int64 `json:"link_downed,omitempty"`
	OutOfSequence    *int64 `json:"out_of_sequence,omitempty"`
	SequenceErrors   *int64 `json:"packet_sequence_errors,omitempty"`
	AckTimeouts      *int64 `json:"ack_timeouts,omitempty"`
	ReceiverNotReady *int64 `json:"receiver_not_ready,omitempty"`
}
