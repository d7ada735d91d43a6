package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Phase is where a slot is in its life.
type Phase string

const (
	Pending    Phase = "Pending"    // declared, nothing reserved
	Scheduling Phase = "Scheduling" // holds a reservation; its agent is to be started, or has not registered yet
	Registered Phase = "Registered" // its agent is there and waits for a world (or, unranked, for its start)
	Running    Phase = "Running"    // its processes train in a world
	Suspect    Phase = "Suspect"    // beats are missed, nothing is sure
	Lost       Phase = "Lost"       // beats were missed for a whole lease, or its node is gone
	Failing    Phase = "Failing"    // a fault that is to be healed or given up
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	Canceling  Phase = "Canceling" // is being stopped permanently
	Canceled   Phase = "Canceled"
)

// Live reports whether the slot may still train: it holds or wants a reservation.
func (p Phase) Live() bool {
	switch p {
	case Succeeded, Failed, Canceled:
		return false
	}
	return true
}

// Event is what moves a slot from one phase to another.
type Event string

const (
	Granted      Event = "granted"       // capacity was reserved for it
	Register     Event = "registered"    // its agent registered, or is ready again after a restart in place
	WorldFormed  Event = "world formed"  // its processes were started
	WorldBroke   Event = "world broke"   // a peer went; this one is fine and waits for the next world
	ExitedZero   Event = "exited 0"      // all its processes succeeded
	Fault        Event = "fault"         // exit other than 0, killed, hung, could not start
	BeatsMissed  Event = "beats missed"  // first sign of silence
	Heard        Event = "heard again"   // a suspect spoke
	LeaseExpired Event = "lease expired" // silent for the whole lease, or known to be gone
	Retry        Event = "retry"         // budget left
	GiveUp       Event = "give up"       // budget spent, or the cause is the user's
	Evicted      Event = "evicted"       // its reservation is gone with its node and no other has room
	Replaced     Event = "replaced"      // its program or resources changed: next incarnation
	Cancel       Event = "cancel"
	Stopped      Event = "stopped" // nothing of it is running
)

type edge struct {
	from Phase
	on   Event
}

// transitions is the whole life of a slot. Cancel, Replaced and Evicted apply to every live phase and are
// added below. A fault may come before the slot runs (its agent died while starting), so Fault leaves
// Scheduling and Registered too. A slot that was released as the job shrank is used again when it grows:
// its address, rank history and incarnation numbers continue.
var transitions = map[edge]Phase{
	{Pending, Granted}:         Scheduling,
	{Scheduling, Register}:     Registered,
	{Registered, WorldFormed}:  Running,
	{Running, WorldBroke}:      Registered,
	{Running, ExitedZero}:      Succeeded,
	{Scheduling, Fault}:        Failing,
	{Registered, Fault}:        Failing,
	{Running, Fault}:           Failing,
	{Suspect, Fault}:           Failing,
	{Registered, BeatsMissed}:  Suspect,
	{Running, BeatsMissed}:     Suspect,
	{Suspect, Heard}:           Registered,
	{Suspect, LeaseExpired}:    Lost,
	{Lost, Fault}:              Failing,
	{Failing, Retry}:           Scheduling,
	{Failing, GiveUp}:          Failed,
	{Canceling, Stopped}:       Canceled,
	{Canceling, Replaced}:      Scheduling,
	{Pending, Stopped}:         Canceled,
	{Canceled, Granted}:        Scheduling,
	{Scheduling, LeaseExpired}: Lost,
}

func init() {
	for _, p := range []Phase{Pending, Scheduling, Registered, Running, Suspect, Lost, Failing} {
		transitions[edge{p, Cancel}] = Canceling
		transitions[edge{p, Evicted}] = Pending
		transitions[edge{p, Replaced}] = Scheduling
	}
}

// Step returns the phase that follows p on e. What is not in the table is an error, and p stays.
func (p Phase) Step(e Event) (Phase, error) {
	next, ok := transitions[edge{p, e}]
	if !ok {
		return p, fmt.Errorf("a slot in phase %s cannot take the event %q", p, e)
	}
	return next, nil
}

// Slot is what is remembered of one slot. It outlives every process in it.
type Slot struct {
	Address     Address   `json:"address"`
	Phase       Phase     `json:"phase"`
	Incarnation int       `json:"incarnation"`    // the newest; 0 before the first start
	Node        string    `json:"node,omitempty"` // where its reservation is; "" if it has none
	Reserved    Resources `json:"reserved,omitzero"`
	Fingerprint string    `json:"fingerprint,omitempty"` // of what its incarnation was started from
	Rank        int       `json:"rank"`                  // the last one; -1 before the first world
	Restarts    int       `json:"restarts,omitempty"`    // times it was healed, in place or replaced
	Since       time.Time `json:"since,omitzero"`        // when it entered its phase
	Exit        *Exit     `json:"exit,omitempty"`        // how its last processes ended, if they did
	Cause       Cause     `json:"cause,omitempty"`       // of its last fault
	// InPlace is the number of restarts in place asked of the current incarnation; the agent echoes it,
	// so that a restart is asked once and survives a change of master.
	InPlace int `json:"in_place,omitempty"`
	// Return: once it has stopped (Canceling) it is started again, on the reservation that it keeps; or elsewhere, if it
	// left its node.
	Return bool `json:"return,omitempty"`
	// Recover: it lost its place by a fault and is placed ahead of all new work.
	Recover bool `json:"recover,omitempty"`
	// Stopped: its last incarnation was stopped to come back, and none has registered since: what a plan starts in it is an
	// addition, since the end of that one was a change of its own.
	Stopped bool `json:"stopped,omitempty"`
	// Why it is being stopped (Canceling), as the pass that decided it said: a later one says the same.
	Why *Reason `json:"why,omitempty"`
	// Avoid are the nodes that could not start it, where it was lost, or that it left as they were drained, since it last
	// trained: the next start goes elsewhere if there is room.
	Avoid Avoided `json:"avoid,omitempty"`
	// Crashes counts agents in a row that ended before they registered; it spaces the next start.
	Crashes int `json:"crashes,omitempty"`
	// CrashesSince is when the first of them ended.
	CrashesSince time.Time `json:"crashes_since,omitzero"`
	// Grown counts enlargements of its reservation by cause, as heal's on "oom".
	Grown int `json:"grown,omitempty"`
	// Unbound: it was withdrawn (Canceled) before a scheduler had bound its incarnation to a node.
	Unbound bool `json:"unbound,omitempty"`
}

// Avoided are nodes that a slot has left, the last one last.
type Avoided []string

// maxAvoided bounds what the state keeps, and a scheduler is told, of a slot that no node starts.
const maxAvoided = 128

// And is these and one more, as a list of its own.
func (a Avoided) And(node string) Avoided {
	all := append(slices.DeleteFunc(slices.Clone(a), func(n string) bool { return n == node }), node)
	return all[max(0, len(all)-maxAvoided):]
}

// Last is the node that was left last; "" if none was.
func (a Avoided) Last() string {
	if len(a) == 0 {
		return ""
	}
	return a[len(a)-1]
}

// UnmarshalJSON reads a single name, too: an older state has that.
func (a *Avoided) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) != nil {
		return json.Unmarshal(text, (*[]string)(a))
	}
	if *a = nil; one != "" {
		*a = Avoided{one}
	}
	return nil
}
