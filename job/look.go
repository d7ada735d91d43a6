package job

import "time"

// Agents look at training processes more often than they report. They report at once when one begins to stand still or moves again, when
// it is held or is not any more, and while it stands still when it begins to work or to wait: a service that hears nothing knows that
// nothing of this has changed.

// StillAfter is how long a process that usually shows a step each interval may show none before it is said to stand still; an interval
// of 0 is unknown.
func StillAfter(interval time.Duration) time.Duration { return max(time.Second, 2*interval) }

// Works is the share of a processor from which on a process is said to work rather than to wait.
const Works = 0.3

// Held returns the state if the thread cannot continue on its own: stopped, traced or blocked. Otherwise it returns "".
func (s ThreadState) Held() ThreadState {
	switch s {
	case ThreadStopped, ThreadTraced, ThreadBlocked:
		return s
	}
	return ""
}

// Looks count how often an agent has looked at a process, and how often its main thread slept then, by the kernel function that it
// waited in. Counters.
type Looks struct {
	All   int64            `json:"all"`
	Waits map[string]int64 `json:"waits,omitempty"` // of the first MaxWaits functions
}

// MaxWaits bounds Looks.Waits.
const MaxWaits = 8

// Evidence is what an agent found out about its training processes when it was asked to.
type Evidence struct {
	Request int            `json:"request"` // as in the order
	Ranks   []RankEvidence `json:"ranks"`   // by local rank
}

// RankEvidence is that of one process. What could not be read is "" or nil.
type RankEvidence struct {
	State       ThreadState    `json:"state,omitempty"` // of its main thread
	WaitChannel string         `json:"wait_channel,omitempty"`
	Waits       string         `json:"waits,omitempty"` // the system call and the place in the kernel in which its main thread waits
	Threads     *ThreadsByKind `json:"threads,omitempty"`
	Source      StackSource    `json:"source,omitempty"` // of Frames
	Frames      []string       `json:"frames,omitempty"` // of its main thread, innermost first
	Output      []string       `json:"output,omitempty"` // its last lines
	// Collectives are where it is in the collectives of its process groups, those that it waits in first; none without a recorder.
	Collectives []Collective `json:"collectives,omitempty"`
}

// Collective is where a process is in the collectives of one process group, as PyTorch's flight recorder has it. The group numbers its
// collectives from 1 on, in the same order in all of its processes.
type Collective struct {
	Group   string `json:"group"`             // its name, the same in all of its processes
	Title   string `json:"title,omitempty"`   // what the program calls it
	Entered int64  `json:"entered,omitempty"` // the newest that the process has entered; 0 if none
	Waits   int64  `json:"waits,omitempty"`   // the oldest that is not complete; 0 if all are
	Op      string `json:"op,omitempty"`      // of that, or else of the newest
	Sizes   string `json:"sizes,omitempty"`   // of its input
	Peer    string `json:"peer,omitempty"`    // the oldest operation with one peer that is not complete; "" if all are
}

// Waiting reports whether the process waits for others.
func (c *Collective) Waiting() bool { return c.Waits > 0 || c.Peer != "" }

// MaxCollectives bounds RankEvidence.Collectives.
const MaxCollectives = 16
