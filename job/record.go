package job

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Record is the stored state of one job. Heartbeats and progress are not part of it.
type Record struct {
	UID     string    `json:"uid"` // made at the first apply; a new job of the same name gets a new one
	Created time.Time `json:"created"`
	Spec    Job       `json:"spec"`           // as last applied
	Site    string    `json:"site,omitempty"` // the provider's site at the first launch; see Capabilities
	// Launched is the job's name in its infrastructure and for its agents, if that differs from its current name: it was
	// moved or imported since its first launch, or its name was in use there. It never changes, because running incarnations
	// are found by it.
	Launched string   `json:"launched_as,omitempty"`
	Phase    JobPhase `json:"phase"`
	// Awaits is what a job that is Starting or Degraded still waits for, if all that it needs runs: the first step of its world.
	Awaits Reason `json:"awaits,omitzero"`
	Slots  []Slot `json:"slots"` // by address
	// Counts is the desired number of slots of each role, as the plan last decided.
	Counts map[string]int `json:"counts"`
	World  World          `json:"world,omitzero"` // the newest one formed
	// Charges are the restarts that count against the budget, oldest first, pruned to its window.
	Charges   []time.Time `json:"charges,omitempty"`
	Incidents []Incident  `json:"incidents,omitempty"` // the newest, at most MaxIncidents; the journal has all
	Goodput   Goodput     `json:"goodput,omitzero"`
	// Ended is when it succeeded, failed or was canceled.
	Ended time.Time `json:"ended,omitzero"`
	// Verdict is why it was failed, or who canceled it. Its last incident says what was wrong, not why that was the last one.
	Verdict Reason `json:"verdict,omitzero"`
	// Overrides are what operators asked for in place of the declaration, by path.
	Overrides []Override `json:"overrides,omitempty"`
	// Handled are requests that have taken effect, in order, with their outcome. Each stays until its final reply is stored, so that
	// the next leader does not act on it again.
	Handled []Handled `json:"handled,omitempty"`
	// Reload is the newest that an operator asked for, until a later world has written a checkpoint.
	Reload Reload `json:"reload,omitzero"`
	// Kill is what healing last decided about worlds that hang.
	Kill Kill `json:"kill,omitzero"`
	// Check is the generation of the world before which healing has the nodes of its members checked; 0 for none. It is over once that
	// world has formed.
	Check int `json:"check,omitempty"`
	// Scaled is what policies last decided about elastic roles, by role.
	Scaled map[string]Scaled `json:"scaled,omitempty"`
	// Measured is what earlier worlds have shown of how long a step takes; nil if nothing.
	Measured *Measured `json:"measured,omitempty"`
	// Rhythm is how far apart the checkpoints of an elastic job are that cannot be asked for one.
	Rhythm Rhythm `json:"rhythm,omitzero"`
	// Stopping is since when the figure of the job's StopWhen counts; nil if it does not.
	Stopping *Stopping `json:"stopping,omitempty"`
}

// LaunchedAs returns the job's name in its infrastructure and for its agents, where name is its current name.
func (r *Record) LaunchedAs(name string) string { return cmp.Or(r.Launched, name) }

// AtOtherSite reports whether the job runs at another site than the one that its provider shows now: nothing is known about its slots.
func (r *Record) AtOtherSite(now Capabilities) bool {
	return r.Site != "" && now.Site != "" && r.Site != now.Site
}

// Renamed returns the record of the job from under the name to. Running incarnations keep the name that they were launched
// under. The declared address becomes unknown.
func (r *Record) Renamed(from, to string) *Record {
	moved := *r
	if moved.Launched = r.LaunchedAs(from); moved.Launched == to {
		moved.Launched = ""
	}
	moved.Spec.Name, moved.Spec.Address = to, ""
	moved.Slots = slices.Clone(r.Slots)
	for i := range moved.Slots {
		moved.Slots[i].Address.Job = to
	}
	moved.World = r.World.Of(to)
	moved.Incidents = slices.Clone(r.Incidents)
	for i := range moved.Incidents {
		in := &moved.Incidents[i]
		in.Culprits, in.Faults = slices.Clone(in.Culprits), slices.Clone(in.Faults)
		for k := range in.Culprits {
			in.Culprits[k].Job = to
		}
		for k := range in.Faults {
			in.Faults[k].Slot.Job = to
		}
	}
	return &moved
}

// Of returns the same world with its slots under the given job name.
func (w World) Of(name string) World {
	w.Members = slices.Clone(w.Members)
	for i := range w.Members {
		w.Members[i].Slot.Job = name
	}
	return w
}

// Released is a job that was forgotten while it ran. It is kept until nothing of the job runs, so that no master stops its
// incarnations and no other job takes them over.
type Released struct {
	Name     string `json:"name"`          // under which it was launched
	Was      string `json:"was,omitempty"` // its name in the state; empty in states of earlier versions
	Provider string `json:"provider"`
}

// Released returns what remains known of the job, whose current name is name, once it is forgotten.
func (r *Record) Released(name string) Released {
	return Released{Name: r.LaunchedAs(name), Was: name, Provider: r.Spec.Provider}
}

// MaxIncidents bounds a record. status shows the incidents in it without reading the journal.
const MaxIncidents = 20

// JobPhase is a job's state as a whole.
type JobPhase string

const (
	JobPending   JobPhase = "Pending"   // not admitted: no capacity
	JobStarting  JobPhase = "Starting"  // admitted; its world has not formed yet, or has not shown its first step
	JobRunning   JobPhase = "Running"   // it trains
	JobDegraded  JobPhase = "Degraded"  // was running, and now is healing or below its desired count
	JobSuspended JobPhase = "Suspended" // nothing of it runs, and nothing starts until it is resumed
	JobSucceeded JobPhase = "Succeeded"
	JobFailed    JobPhase = "Failed"
	JobCanceled  JobPhase = "Canceled"
)

// Ended reports whether the job is over.
func (p JobPhase) Ended() bool { return p == JobSucceeded || p == JobFailed || p == JobCanceled }

// Reruns reports whether an explicit apply starts the job again: it failed. One that was canceled stays so until it is restarted.
func (p JobPhase) Reruns() bool { return p == JobFailed }

// FailedBy returns the exit that failed the job: of the culprits of its last incident the first; nil if no process exited.
func (r *Record) FailedBy() (first *Exit) {
	if r.Phase != JobFailed || len(r.Incidents) == 0 {
		return nil
	}
	for _, culprit := range r.Incidents[len(r.Incidents)-1].Culprits {
		s := r.Slot(culprit.Role, culprit.Index)
		if s != nil && s.Exit != nil && s.Exit.Code != 0 && (first == nil || s.Exit.At.Before(first.At)) {
			first = s.Exit
		}
	}
	return first
}

// Idle reports whether nothing of the job is to run: it is over, or suspended.
func (p JobPhase) Idle() bool { return p.Ended() || p == JobSuspended }

// Cause is why something failed.
type Cause string

const (
	ProcessFailed     Cause = "process_failed"     // exit code other than 0
	ProcessKilled     Cause = "process_killed"     // by a signal that eltrain did not send
	OutOfMemory       Cause = "oom"                // killed by the kernel's OOM killer
	StartFailed       Cause = "start_failed"       // the command could not be started: missing, not executable, no such directory
	AgentGone         Cause = "agent_gone"         // the agent exited, and its processes with it
	AgentLeft         Cause = "agent_left"         // the agent was asked to stop (SIGTERM)
	NodeGone          Cause = "node_gone"          // its node was removed
	LeaseLost         Cause = "lease_lost"         // silent for the whole lease
	NodeFailed        Cause = "node_failed"        // its node could not start its agent; another node may
	LaunchFailed      Cause = "launch_failed"      // its agent was started but did not register in time
	RendezvousTimeout Cause = "rendezvous_timeout" // no world formed in time
	Preemption        Cause = "preempted"          // it had to make room for a higher priority
	Eviction          Cause = "evicted"            // its node or an administrator evicted it: pressure, a drain, a taint
	Deletion          Cause = "deleted"            // deleted in its infrastructure, not by eltrain
	Hang              Cause = "hang"               // the world makes no progress
	Straggler         Cause = "straggler"          // slower than its peers, which wait for it
	Diverged          Cause = "diverged"           // reports other results than its data-parallel peers at the same step
	NaNLoss           Cause = "nan_loss"           // the loss is not finite
	Network           Cause = "network"            // a connection between processes failed
	DeviceOutOfMemory Cause = "device_oom"         // an accelerator's memory is full
	Accelerator       Cause = "accelerator"        // an accelerator failed
	NodeFaulty        Cause = "node_faulty"        // its node is faulty
	ScriptError       Cause = "script_error"       // an error of the program's own
	NoProgress        Cause = "no_progress"        // restarts that end at the same step
	PendingTimeout    Cause = "pending_timeout"    // the job waited too long for capacity
)

// Incident is one diagnosed fault.
type Incident struct {
	Time       time.Time `json:"time"`
	Cause      Cause     `json:"cause"`
	Culprits   []Address `json:"culprits"`
	Action     Action    `json:"action"` // what was decided
	Evidence   []Reason  `json:"evidence"`
	Generation int       `json:"generation,omitempty"` // of the world that it broke, if any
	Confidence float64   `json:"confidence"`           // 0 to 1
	Told       bool      `json:"told,omitempty"`       // its notice was published
	Added      time.Time `json:"added,omitzero"`       // when the last culprit was added that the notice does not name
	// Faults are those of Culprits, in the same order: what it was found from. Evidence has theirs one after the other.
	Faults []SlotFault `json:"faults,omitempty"`
	// Cascade are further slots of that world whose processes ended because of these faults, as worker[0-3,7].
	Cascade []string `json:"cascade,omitempty"`
}

// Cascaded counts Cascade.
func (i *Incident) Cascaded() (slots int) {
	for _, text := range i.Cascade {
		sel, err := ParseSelector("job.any." + text)
		if err != nil {
			continue // it was written by Fold
		}
		for _, r := range sel.Ranges {
			slots += r[1] - r[0] + 1
		}
	}
	return slots
}

// SlotFault is something wrong with one slot.
type SlotFault struct {
	Slot   Address   `json:"slot"`
	Cause  Cause     `json:"cause"`
	Code   int       `json:"code,omitempty"`   // as in Exit
	Signal string    `json:"signal,omitempty"` // as in Exit
	At     time.Time `json:"at,omitzero"`      // when, by its host's clock
	Step   int64     `json:"step,omitempty"`   // the last one of its world; 0 if unknown
	Error  string    `json:"error,omitempty"`  // a digest of the line that names it, if it is the same in each run
	Alike  bool      `json:"alike,omitempty"`  // the slots of its world are all alike: it may be any of them
	Facts  int       `json:"facts,omitempty"`  // how much of its incident's evidence is about it
}

// Remedy is what a job wants to be done about a cause. What healing did is an Action.
type Remedy string

const (
	RemedyReport  Remedy = "report"  // nothing
	RemedyReload  Remedy = "reload"  // the world ends without a checkpoint, and the next resumes from the newest
	RemedyRestart Remedy = "restart" // in place, or on the same node if the agent has ended
	RemedyCheck   Remedy = "check"   // the same, after a check of the nodes of its world
	RemedyReplace Remedy = "replace" // on another node, if there is one
	RemedyFail    Remedy = "fail"    // the job fails
)

// Remedies are all of them, from cheap to expensive.
var Remedies = []Remedy{RemedyReport, RemedyReload, RemedyRestart, RemedyCheck, RemedyReplace, RemedyFail}

// Action is what healing did, from cheap to expensive.
type Action string

const (
	Report          Action = "report" // nothing
	RestartInPlace  Action = "restart_in_place"
	RestartSameNode Action = "restart_same_node"
	Replace         Action = "replace"
	Shrink          Action = "shrink"
	WaitCapacity    Action = "wait_for_capacity"
	FailJob         Action = "fail"
)

// Goodput accounts for a job's wall time, in seconds: Productive, Unknown and the lost parts sum to Wall. Package goodput keeps it.
type Goodput struct {
	Wall       float64 `json:"wall_seconds"`
	Productive float64 `json:"productive_seconds"`
	// Unknown is the time in worlds that never showed a step: whether it was productive is unknown.
	Unknown float64  `json:"unknown_seconds,omitempty"`
	Lost    LostTime `json:"lost"`
	// Reached is the highest step seen: steps below it after a restart are recomputed.
	Reached int64 `json:"reached,omitempty"`
	// Shown: a world of the job has shown a step, so its later worlds are expected to.
	Shown bool `json:"steps_shown,omitempty"`
	// Saved is the newest checkpoint seen, of any world. While a world trains, its members may report newer ones.
	Saved Saved `json:"saved,omitzero"`
	// At is until when the time is accounted for. What came after it is charged by Mode and, if a world trains, by Open.
	At   time.Time  `json:"at,omitzero"`
	Mode string     `json:"mode,omitempty"`
	Open WorldSpent `json:"open,omitzero"`
}

// WorldSpent is what is known of the time since Goodput.At, in which a world trains. Times are by the master's clock.
type WorldSpent struct {
	Generation int  `json:"generation,omitempty"`
	Expected   bool `json:"expected,omitempty"` // it is expected to show steps
	Shown      bool `json:"shown,omitempty"`    // it has shown one
	// FirstStep is when it showed its first step, which was Resumed, and Passed when it came past the step that was reached before;
	// zero until then.
	FirstStep time.Time `json:"first_step_at,omitzero"`
	Resumed   int64     `json:"resumed,omitempty"`
	Passed    time.Time `json:"passed_at,omitzero"`
	// Hang is since when it makes no progress, zero if it does; HangCertain that this is more than a suspicion.
	Hang        time.Time `json:"hang_since,omitzero"`
	HangCertain bool      `json:"hang_certain,omitempty"`
	// Slow is since when stragglers cost the share SlowBy of its time.
	Slow   time.Time `json:"slow_since,omitzero"`
	SlowBy float64   `json:"slow_by,omitempty"`
}

// Rhythm is how far apart a job's checkpoints are.
type Rhythm struct {
	Saved      Saved `json:"saved"`                // the newest that was recorded; while they come as expected, a later one is not
	Steps      int64 `json:"steps,omitempty"`      // from one checkpoint to the next; 0 if not known
	Generation int   `json:"generation,omitempty"` // of the world that showed Steps
	// Until is when a change of the job's size is made that waits for the checkpoint after Saved, even without it; zero if none waits.
	Until time.Time `json:"until,omitzero"`
}

// LostTime is time without progress, by reason, in seconds.
type LostTime struct {
	Scheduling  float64 `json:"scheduling"`   // no capacity, or slots that did not run yet
	Rendezvous  float64 `json:"rendezvous"`   // slots ran, and waited for their first world
	Start       float64 `json:"start"`        // from when a world formed until its first step
	RedoneSteps float64 `json:"redone_steps"` // steps that an earlier world had done already
	Hang        float64 `json:"hang"`         // from the last step until the world ended
	Straggling  float64 `json:"straggling"`   // waiting for slower members
	Checkpoint  float64 `json:"checkpoint"`   // checkpoints before planned stops
	Restart     float64 `json:"restart"`      // from the end of a world until the next formed
	Suspended   float64 `json:"suspended"`
}

// Sum is all time lost, in seconds.
func (l *LostTime) Sum() (seconds float64) {
	for _, part := range l.Parts() {
		seconds += part
	}
	return seconds
}

// Parts is the time lost by reason, under the names that the JSON has.
func (l *LostTime) Parts() map[string]float64 {
	return map[string]float64{
		"scheduling": l.Scheduling, "rendezvous": l.Rendezvous, "start": l.Start, "redone_steps": l.RedoneSteps, "hang": l.Hang,
		"straggling": l.Straggling, "checkpoint": l.Checkpoint, "restart": l.Restart, "suspended": l.Suspended,
	}
}

// Records are the records of all jobs, by job name.
type Records map[string]*Record

// Slot finds a slot's record; nil if there is none.
func (r *Record) Slot(role string, index int) *Slot {
	i, found := slices.BinarySearchFunc(r.Slots, Address{Role: role, Index: index}, func(s Slot, a Address) int {
		a.Job = s.Address.Job
		return s.Address.Compare(a)
	})
	if !found {
		return nil
	}
	return &r.Slots[i]
}

// Notice is one event, as eltrain events shows it and the journal stores it.
type Notice struct {
	Seq     uint64    `json:"seq,omitempty"` // given by the journal
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`              // "world_formed", "world_adopted", "incident", "job_phase", "rejected", "configuration", "withheld", "left", "refused", "condition"; for changes "added", "removed", "replaced", "destroyed", "forgotten"
	Address string    `json:"address,omitempty"` // of its subject
	// Reason is the structured content, Message the sentence rendered from it when it was journaled.
	Reason  Reason `json:"reason_code,omitzero"`
	Message string `json:"message"`
	// Condition is "raised", "changed" or "cleared" if the notice is about a condition.
	Condition string `json:"condition,omitempty"`
	// Incident is set with Type "incident".
	Incident *Incident `json:"incident,omitempty"`
}

// Same reports whether two records have the same content. It is fast if they share most of it, as an updated copy does.
func (r *Record) Same(o *Record) bool {
	if r == o {
		return true
	}
	if !slices.EqualFunc(r.Slots, o.Slots, func(a, b Slot) bool { return a.same(&b) }) {
		return false
	}
	a, b := *r, *o
	a.Slots, b.Slots = nil, nil
	return reflect.DeepEqual(a, b)
}
