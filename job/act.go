package job

import "time"

// Act is what an agent does once for its slot's training processes, because of a request. An agent that learns of the same ID again does
// nothing again.
type Act struct {
	ID    string  `json:"id"` // of the request; a later one has a greater ID
	Kind  ActKind `json:"kind"`
	Value string  `json:"value,omitempty"` // of ActSignal: its name, as SIGUSR2; of ActFind: a step, or "" for the newest
}

// ActKind is what kind of act it is.
type ActKind string

// The kinds of acts.
const (
	ActSignal     ActKind = "signal"          // send a signal to each training process
	ActCheckpoint ActKind = "checkpoint"      // ask for a checkpoint, and wait until it is whole
	ActFind       ActKind = "find_checkpoint" // look for a checkpoint in the checkpoint directory
	ActRestart    ActKind = "restart"         // end the training processes, as before a planned stop, and wait to be started again
)

// ActKinds are the acts that this version knows.
var ActKinds = []ActKind{ActSignal, ActCheckpoint, ActFind, ActRestart}

// CanCheck is what a member can do that checks its node when its order says so. That is no act: no request asks for it.
const CanCheck ActKind = "check_node"

// ActResult is the outcome of an act at one agent. Path is the checkpoint's, and Step its step, 0 if that is unknown.
type ActResult struct {
	ID    string   `json:"id"`
	State ActState `json:"state"`
	Step  int64    `json:"step,omitempty"`
	Path  string   `json:"path,omitempty"`
	Flaw  Flaw     `json:"flaw,omitzero"` // of ActTorn
	// Steps are those of the newest whole checkpoints, newest first, if the one that was looked for is not there; 0 is none.
	Steps [10]int64 `json:"steps,omitzero"`
}

// ActState is what has become of an act.
type ActState string

// The outcomes of acts.
const (
	ActDone        ActState = "done"
	ActNoProcess   ActState = "no_process"  // no training process ran, or they ended before it was done
	ActAbsent      ActState = "absent"      // no such checkpoint was found, or none was written in time
	ActTorn        ActState = "torn"        // there is one, but it is not whole
	ActUnsupported ActState = "unsupported" // the agent does not know the kind or the value
	ActUnknown     ActState = "unknown"     // it was begun, and how it ended is not known any more
)

// WantAct is an act that some slots are to do.
type WantAct struct {
	Act
	Slots map[string]int `json:"slots"` // their incarnations, by short address
}

// Kill ends the worlds up to a generation at once: their processes hang, and are killed.
type Kill struct {
	Through int       `json:"through"`
	At      time.Time `json:"at"` // when it was decided
}

// Reload ends the worlds up to a generation. Those that form later resume from Step, or from the newest checkpoint if it is 0.
type Reload struct {
	Request string `json:"request"` // its ID
	Through int    `json:"through"`
	Step    int64  `json:"step,omitempty"`
	Save    bool   `json:"save,omitempty"` // after a checkpoint, as a planned stop
}
