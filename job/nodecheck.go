package job

import "time"

// NodeCheck says when a node is checked before a slot trains on it, and how.
type NodeCheck struct {
	When    CheckWhen `hcl:"when,optional" default:"suspected" change:"update" doc:"When a slot's node is checked before the slot joins a world: \"always\" (once for each start of its agent), \"suspected\" (after two incidents of the node in any job, and where heal says \"check\"), or \"never\"."`
	Timeout Duration  `hcl:"timeout,optional" default:"1m" change:"update" doc:"The bound of a whole check. Half of it is for what each node does alone, or for command. At least 4s, and less than rendezvous.timeout."`
	Command []string  `hcl:"command,optional" change:"update" doc:"A program that checks the node in place of eltrain's own patterns, run in the slot without ranks. It exits with 0 if the node is good and 1 if it is faulty; with any other code it could not tell, and the slot joins. No end in time is a fault too. Its first line of output is the evidence. No shell is involved."`
}

// CheckWhen is when a node is checked.
type CheckWhen string

// When nodes are checked.
const (
	CheckAlways    CheckWhen = "always"
	CheckSuspected CheckWhen = "suspected"
	CheckNever     CheckWhen = "never"
)

// CheckTimes are all of them.
var CheckTimes = []CheckWhen{CheckAlways, CheckSuspected, CheckNever}

// DefaultCheck has the defaults of NodeCheck.
var DefaultCheck = NodeCheck{When: CheckSuspected, Timeout: Duration(time.Minute)}

// LeastCheck is the shortest NodeCheck.Timeout: on a busy host the patterns take a second or two.
const LeastCheck = 4 * time.Second

// NodeCheck is the check's configuration, with defaults where the job says nothing.
func (d *Detect) NodeCheck() NodeCheck {
	if d.Check == nil {
		return DefaultCheck
	}
	return *d.Check
}

// WantCheck says which members check their node before they join a world.
type WantCheck struct {
	Timeout Duration `json:"timeout"`
	Command []string `json:"command,omitempty"`
	// All members have to pass a check once. Slots, by short address, have to pass the one of this number or a later one: 1, or the
	// generation of the world before which it is.
	All   bool           `json:"all,omitempty"`
	Slots map[string]int `json:"slots,omitempty"`
	// ExcludeSlow: a member whose node is slow does not join.
	ExcludeSlow bool `json:"exclude_slow,omitempty"`
}

// Admits reports whether a member with this outcome may join; nil if its node was not checked.
func (w *WantCheck) Admits(o *CheckOutcome) bool {
	switch {
	case o == nil || o.Verdict == CheckPassed || o.Verdict == CheckUnknown:
		return true
	case o.Verdict == CheckStraggler:
		return w == nil || !w.ExcludeSlow
	}
	return false
}

// CheckPart is a part of a node check.
type CheckPart string

// The parts of a node check.
const (
	CheckMatmul   CheckPart = "matmul"   // products of matrices
	CheckMemory   CheckPart = "memory"   // patterns that are written and read
	CheckGPU      CheckPart = "gpu"      // what the driver of the GPUs says
	CheckCommand  CheckPart = "command"  // the user's program
	CheckExchange CheckPart = "exchange" // data sent to a partner and back
	CheckTime     CheckPart = "time"     // it did not end in time
)

// MaxCheckMessage bounds what a check says of a fault, in bytes.
const MaxCheckMessage = 1 << 10

// Checked is what an agent has found out about its node.
type Checked struct {
	Number  int       `json:"number"` // of the check
	Failed  CheckPart `json:"failed,omitempty"`
	Unknown bool      `json:"unknown,omitempty"` // no part failed, but the user's program could not tell
	Message string    `json:"message,omitempty"` // why
	Seconds float64   `json:"seconds,omitempty"` // that the parts took which a node does alone
	Port    int       `json:"port,omitempty"`    // where a partner reaches it for an exchange; 0 if none does
	// Exchanges are those of the newest set of members, by round.
	Exchanges []Exchanged `json:"exchanges,omitempty"`
}

// Exchanged is how an exchange with a partner went.
type Exchanged struct {
	Set     int64   `json:"set,omitempty"` // of which set of members
	Round   int     `json:"round"`
	Failed  string  `json:"failed,omitempty"` // why it failed
	Seconds float64 `json:"seconds,omitempty"`
}

// CheckVerdict is what follows from a check.
type CheckVerdict string

// The verdicts.
const (
	CheckRuns      CheckVerdict = "runs" // none yet
	CheckPassed    CheckVerdict = "passed"
	CheckUnknown   CheckVerdict = "unknown"   // no part failed, but the user's program could not tell
	CheckFaulty    CheckVerdict = "faulty"    // a part failed
	CheckStraggler CheckVerdict = "straggler" // no part failed, but they took over twice the median
)

// CheckOutcome is the state of a member's check.
type CheckOutcome struct {
	Number  int          `json:"number"`
	Verdict CheckVerdict `json:"verdict"`
	At      time.Time    `json:"at"` // when it was asked for, or the verdict was reached
	// Part is what failed, and Message says why. Seconds is how long the work took, and Median how long that of the others, if it was slow.
	Part    CheckPart `json:"part,omitempty"`
	Message string    `json:"message,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	Median  float64   `json:"median_seconds,omitempty"`
}
