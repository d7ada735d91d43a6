package job

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Phase is a slot's state in its life cycle.
type Phase string

const (
	Pending    Phase = "Pending"    // declared, nothing reserved
	Scheduling Phase = "Scheduling" // holds a reservation; its agent is to be started, or has not registered yet
	Registered Phase = "Registered" // its agent has registered and waits for a world (or, if unranked, for its start)
	Running    Phase = "Running"    // its processes train in a world
	Suspect    Phase = "Suspect"    // heartbeats are missing, less than a lease
	Lost       Phase = "Lost"       // heartbeats were missing for a whole lease, or its node is gone
	Failing    Phase = "Failing"    // has a fault that is to be healed or fails the slot
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	Canceling  Phase = "Canceling" // being stopped; permanently, unless Return is set
	Canceled   Phase = "Canceled"
)

// Live reports whether the slot may still train, so that it holds or needs a reservation.
func (p Phase) Live() bool {
	switch p {
	case Succeeded, Failed, Canceled:
		return false
	}
	return true
}

// Event moves a slot from one phase to another.
type Event string

const (
	Granted      Event = "granted"       // capacity was reserved for it
	Register     Event = "registered"    // its agent registered, or is ready again after a restart in place
	WorldFormed  Event = "world formed"  // its processes were started
	WorldBroke   Event = "world broke"   // a peer left or failed; this slot waits for the next world
	ExitedZero   Event = "exited 0"      // all its processes succeeded
	Fault        Event = "fault"         // exit other than 0, killed, hung, could not start
	BeatsMissed  Event = "beats missed"  // its agent missed a heartbeat
	Heard        Event = "heard again"   // a suspect sent a request
	LeaseExpired Event = "lease expired" // silent for the whole lease, or known to be gone
	Retry        Event = "retry"         // budget left
	GiveUp       Event = "give up"       // budget spent, or the cause is the user's
	Evicted      Event = "evicted"       // its reservation was lost with its node and no other has room
	Replaced     Event = "replaced"      // its program or resources changed: next incarnation
	Cancel       Event = "cancel"
	Stopped      Event = "stopped" // nothing of it is running
)

type edge struct {
	from Phase
	on   Event
}

// transitions is the life cycle of a slot. Cancel, Replaced and Evicted, which apply to every live phase but Canceling, are
// added below. A fault may occur before the slot runs (its agent died while starting), so Fault also leaves
// Scheduling and Registered. A slot that was canceled when the job shrank is reused when it grows:
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

// Step returns the phase that follows p on e. If there is no such transition, it returns p and an error.
func (p Phase) Step(e Event) (Phase, error) {
	next, ok := transitions[edge{p, e}]
	if !ok {
		return p, fmt.Errorf("event %q is not allowed in phase %s", e, p)
	}
	return next, nil
}

// Slot is the stored state of one slot. It outlives every process in it.
type Slot struct {
	Address     Address   `json:"address"`
	Phase       Phase     `json:"phase"`
	Incarnation int       `json:"incarnation"`    // the newest; 0 before the first start
	Node        string    `json:"node,omitempty"` // of its reservation; "" if it has none
	Reserved    Resources `json:"reserved,omitzero"`
	Fingerprint string    `json:"fingerprint,omitempty"` // of what its incarnation was started from
	Rank        int       `json:"rank"`                  // the last one; -1 before the first world
	Restarts    int       `json:"restarts,omitempty"`    // times it was healed, in place or replaced
	Since       time.Time `json:"since,omitzero"`        // when it entered its phase
	Exit        *Exit     `json:"exit,omitempty"`        // how its last processes exited, if they did
	Cause       Cause     `json:"cause,omitempty"`       // of its last fault
	// InPlace is the number of restarts in place requested from the current incarnation. The agent echoes it,
	// so that each restart is requested once, even across a change of master.
	InPlace int `json:"in_place,omitempty"`
	// Return: once it has stopped (Canceling), it is started again with the reservation that it keeps; elsewhere, if it
	// left its node.
	Return bool `json:"return,omitempty"`
	// Recover: it lost its place through a fault and is placed before all new work.
	Recover bool `json:"recover,omitempty"`
	// Stopped: its last incarnation was stopped to be restarted, and none has registered since. A plan that starts it shows an
	// addition, because the stop was a change of its own.
	Stopped bool `json:"stopped,omitempty"`
	// Why it is being stopped (Canceling), as first decided, so that later passes give the same reason.
	Why *Reason `json:"why,omitempty"`
	// Avoid lists the nodes that, since it last trained, could not start it, lost it, or were drained: the next start goes
	// elsewhere if there is room.
	Avoid Avoided `json:"avoid,omitempty"`
	// Crashes counts its faults without progress in between; it delays the next restart.
	Crashes int `json:"crashes,omitempty"`
	// CrashesSince is when the first of consecutive agents exited before they registered.
	CrashesSince time.Time `json:"crashes_since,omitzero"`
	// Grown counts increases of its memory reservation by heal's on "oom".
	Grown int `json:"grown,omitempty"`
	// Unbound: it was withdrawn (Canceled) before a scheduler bound its incarnation to a node.
	Unbound bool `json:"unbound,omitempty"`
}

// same reports whether two slots have the same content.
func (s *Slot) same(o *Slot) bool {
	return s.Address == o.Address && s.Phase == o.Phase && s.Incarnation == o.Incarnation && s.Node == o.Node && s.Reserved.Equal(o.Reserved) &&
		s.Fingerprint == o.Fingerprint && s.Rank == o.Rank && s.Restarts == o.Restarts && s.Since.Equal(o.Since) && s.Cause == o.Cause &&
		s.InPlace == o.InPlace && s.Return == o.Return && s.Recover == o.Recover && s.Stopped == o.Stopped && s.Crashes == o.Crashes &&
		s.CrashesSince.Equal(o.CrashesSince) && s.Grown == o.Grown && s.Unbound == o.Unbound && slices.Equal(s.Avoid, o.Avoid) &&
		(s.Exit == o.Exit || reflect.DeepEqual(s.Exit, o.Exit)) && (s.Why == o.Why || reflect.DeepEqual(s.Why, o.Why))
}

// Avoided lists nodes that a slot has left, the last one last.
type Avoided []string

// maxAvoided bounds the list in the state and in what a scheduler gets.
const maxAvoided = 128

// And returns a new list with node at its end.
func (a Avoided) And(node string) Avoided {
	all := append(slices.DeleteFunc(slices.Clone(a), func(n string) bool { return n == node }), node)
	return all[max(0, len(all)-maxAvoided):]
}

// After returns a new list with nodes before those that the slot has left.
func (a Avoided) After(nodes []string) Avoided {
	if len(nodes) == 0 {
		return a
	}
	all := slices.Concat(slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return slices.Contains(a, n) }), a)
	return all[max(0, len(all)-maxAvoided):]
}

// Last returns the node that was left last; "" if there is none.
func (a Avoided) Last() string {
	if len(a) == 0 {
		return ""
	}
	return a[len(a)-1]
}

// UnmarshalJSON also accepts a single name, as in states of older versions.
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
