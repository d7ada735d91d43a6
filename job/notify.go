package job

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// NotifyEvent is something about a job that others are notified of.
type NotifyEvent string

const (
	NotifyFailed    NotifyEvent = "failed"    // the job has failed
	NotifySucceeded NotifyEvent = "succeeded" // the job has succeeded
	NotifyWaiting   NotifyEvent = "waiting"   // the job waits, or what is done about it is refused
	NotifyIncident  NotifyEvent = "incident"  // an incident, from the first one until the job runs as before
	NotifyRecovered NotifyEvent = "recovered" // the job runs, and nothing holds any more that others were notified of
)

// NotifyEvents are all events.
var NotifyEvents = []NotifyEvent{NotifyFailed, NotifySucceeded, NotifyWaiting, NotifyIncident, NotifyRecovered}

// Notify is a notify block: who is notified of what. Its Hook says how.
type Notify struct {
	Name string
	On   []NotifyEvent
	Jobs []string // the jobs that it is about, by name; all if All
	All  bool
	For  Duration // how long an event holds before others are notified of it
}

// Covers reports whether the block is about a job.
func (n *Notify) Covers(name string) bool { return n.All || slices.Contains(n.Jobs, name) }

// Wants reports whether the block asks for an event.
func (n *Notify) Wants(e NotifyEvent) bool { return slices.Contains(n.On, e) }

// Hook is where the messages of a notify block go: a URL or a command. It may contain sensitive values: it is neither stored nor
// shown.
type Hook struct {
	URL     string
	Headers map[string]string
	Command []string
	Text    string // with placeholders of a Message
}

// Alert is an event that holds, as a notify block knows it.
type Alert struct {
	Notify string      `json:"notify"` // the block
	UID    string      `json:"uid"`    // of the job
	Event  NotifyEvent `json:"event"`
	// At is what of the job it is about, as ".worker"; "" for the whole job. Code is the condition's.
	At   string `json:"at,omitempty"`
	Code Code   `json:"code,omitempty"`
	// Since is when it began. For NotifyRecovered it is zero while something still holds.
	Since time.Time `json:"since,omitzero"`
	// Newest is the time of the newest incident.
	Newest time.Time `json:"newest,omitzero"`
	Told   bool      `json:"told,omitempty"` // a Message was made
	Over   bool      `json:"over,omitempty"` // of an incident: the job runs as before
}

// AlertKey is what identifies an alert: at most one holds for each.
type AlertKey struct {
	Notify, UID string
	Event       NotifyEvent
	At          string
	Code        Code
}

// Key returns the alert's key.
func (a *Alert) Key() AlertKey { return AlertKey{a.Notify, a.UID, a.Event, a.At, a.Code} }

// Equal reports whether two alerts are the same.
func (a Alert) Equal(b Alert) bool {
	return a.Key() == b.Key() && a.Since.Equal(b.Since) && a.Newest.Equal(b.Newest) && a.Told == b.Told && a.Over == b.Over
}

// Compare orders alerts by their keys.
func (a Alert) Compare(b Alert) int {
	return cmp.Or(strings.Compare(a.Notify, b.Notify), strings.Compare(a.UID, b.UID), cmp.Compare(a.Event, b.Event), strings.Compare(a.At, b.At), cmp.Compare(a.Code, b.Code))
}

// Message is what a notify block tells, once. It is made when it is due and does not change while it is delivered.
type Message struct {
	ID      string      `json:"id"` // the same for each attempt, whoever makes it
	Notify  string      `json:"notify"`
	Event   NotifyEvent `json:"event"`
	Job     string      `json:"job"` // its name
	UID     string      `json:"uid"`
	Address string      `json:"address"` // what it is about: the job, or a role or slot of it
	Since   time.Time   `json:"since"`
	Time    time.Time   `json:"time"` // when it was made
	Reason  Reason      `json:"reason"`
}

// Notifications are the alerts that hold, and the messages to deliver, in order.
type Notifications struct {
	Alerts []Alert   `json:"alerts,omitempty"`
	Unsent []Message `json:"unsent,omitempty"`
}

// Equal reports whether two are the same. Messages are compared by their IDs.
func (n Notifications) Equal(other Notifications) bool {
	return slices.EqualFunc(n.Alerts, other.Alerts, Alert.Equal) &&
		slices.EqualFunc(n.Unsent, other.Unsent, func(a, b Message) bool { return a.ID == b.ID })
}
