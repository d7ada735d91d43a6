package job

// StackSource is where the stacks of a process are from, best first.
type StackSource string

// The sources of stacks.
const (
	StacksPySpy        StackSource = "py-spy"       // the tool, if it is installed in the slot and may trace
	StacksFaulthandler StackSource = "faulthandler" // Python's, if the script has registered it with StacksVariable
	StacksKernel       StackSource = "kernel"       // /proc: what each thread waits for, and its kernel stack where that is readable
)

// StacksVariable names, for a training process, the file to which its stacks are to be written upon SIGUSR2. The signal is sent
// only to a process that has the file open and handles the signal.
const StacksVariable = "ELTRAIN_STACKS_FILE"

// ProcessStacks is what the threads of one process do: of a training process, or of one that it started.
type ProcessStacks struct {
	Rank      int           `json:"rank"`       // -1 if the role has no ranks
	LocalRank int           `json:"local_rank"` // of the training process
	PID       int           `json:"pid"`        // as in the slot
	Child     bool          `json:"child,omitempty"`
	Name      string        `json:"name"` // of its program
	Source    StackSource   `json:"source"`
	Failed    []string      `json:"failed,omitempty"` // why better sources were of no use
	Threads   []ThreadStack `json:"threads"`
}

// ThreadStack is one thread.
type ThreadStack struct {
	ID     string   `json:"id"`
	Name   string   `json:"name,omitempty"`
	State  string   `json:"state,omitempty"`  // as sleeping, running; for Python as active, idle
	Waits  string   `json:"waits,omitempty"`  // the system call, or the place in the kernel, in which it waits
	Frames []string `json:"frames,omitempty"` // innermost first
}
