package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is what somebody asks of whoever leads a directory's jobs. It is an object of its own beside the state: who asks
// writes it, who leads answers it.
type Request struct {
	ID      string     `json:"id"` // unique; a later request has a greater one
	Verb    Verb       `json:"verb"`
	On      []Selector `json:"on,omitempty"`    // to apply: jobs, and slots of them that are restarted besides
	Nodes   []string   `json:"nodes,omitempty"` // the names of nodes, if it is about nodes and not about jobs
	By      string     `json:"by"`              // who asks, as far as its store can tell
	At      time.Time  `json:"at"`
	Expires time.Time  `json:"expires"` // refused if not accepted by then
	Why     string     `json:"why,omitempty"`
	Until   time.Time  `json:"until,omitzero"` // when an override ends by itself
	// Files is the digest of the configuration that is to be applied, and Commit its commit, for display.
	Files  string `json:"files,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Value is what the verb takes: a size, a signal, a step. For a verb that takes one for each of On, they are separated by commas.
	Value string `json:"value,omitempty"`
	// Mode is the verb's flavor; "" is the usual one.
	Mode string `json:"mode,omitempty"`
}

// ValueOf returns the part of Value that is for On[i].
func (r *Request) ValueOf(i int) string {
	if all := strings.Split(r.Value, ","); i < len(all) {
		return all[i]
	}
	return ""
}

// ValueFor returns the parts of Value that are for a job.
func (r *Request) ValueFor(job string) string {
	all := strings.Split(r.Value, ",")
	if len(all) != len(r.On) {
		return r.Value
	}
	var values []string
	for i, sel := range r.On {
		if sel.Job == job {
			values = append(values, all[i])
		}
	}
	return strings.Join(values, ",")
}

// The modes, each of one verb.
const (
	Force     = "force"     // cancel: without a checkpoint, and killed at once
	Elsewhere = "elsewhere" // restart: on another node
	InPlace   = "in-place"  // restart: the training processes alone
	Keep      = "keep"      // suspend: the slots stay, with their places
)

// Sizes to scale to that are no numbers.
const (
	AutoSize   = "auto"   // leaves a role's number of slots to its scaling
	PausedSize = "paused" // as many as the role has when the request takes effect
)

// Verb is what a request asks for.
type Verb string

// The verbs.
const (
	AskSuspend Verb = "suspend"
	AskResume  Verb = "resume"
	AskCancel  Verb = "cancel"
	AskRestart Verb = "restart"
	AskDestroy Verb = "destroy"
	AskApply   Verb = "apply"
	AskScale   Verb = "scale"

	AskCheckpoint Verb = "checkpoint"
	AskSignal     Verb = "signal"
	AskReload     Verb = "reload"

	// About nodes.
	AskCordon   Verb = "cordon"
	AskUncordon Verb = "uncordon"
	AskDrain    Verb = "drain"
)

// Handled is a request that has taken effect on a job, with its outcome.
type Handled struct {
	Reply
	Mode string `json:"mode,omitempty"` // of the request
	// Awaits: it has no effect until nothing of the job runs, which starts anew then.
	Awaits bool `json:"awaits,omitempty"`
	// Slots are the incarnations that a restart replaces, or that have not reported the outcome of Act yet, by address.
	Slots map[string]int `json:"slots,omitempty"`
	// Asks are the values that it asks for, by the path of the attribute: "role.worker.replicas". The next request about one of them
	// supersedes it.
	Asks map[string]string `json:"asks,omitempty"`
	// Act is what agents do for it; zero if they do nothing.
	Act Act `json:"act,omitzero"`
	// Reload is what it asks of the job's world, until a world trains that was formed for that; zero if nothing.
	Reload Reload `json:"reload,omitzero"`
	// Failed is why slots did not do it.
	Failed map[string]Reason `json:"failed,omitempty"`
}

// Reply is what has become of a request.
type Reply struct {
	ID    string     `json:"id"`
	State ReplyState `json:"state"`
	// Reason is why it was refused or has failed, or why its outcome is unknown; of one that is accepted, what it waits for.
	Reason Reason `json:"reason,omitzero"`
	// Results are what it has yielded, such as a checkpoint.
	Results []Reason `json:"results,omitempty"`
}

// ReplyState is how far a request has come.
type ReplyState string

// The states of a request. One without a reply is waiting for a leader.
const (
	Accepted ReplyState = "accepted" // it is recorded, and being carried out
	Done     ReplyState = "done"
	Refused  ReplyState = "refused" // nothing was done
	Undone   ReplyState = "failed"  // it was accepted, and will not be carried out in full
	Unknown  ReplyState = "unknown" // it was begun, and may have been carried out or not
)

// Final reports whether the state does not change any more.
func (s ReplyState) Final() bool { return s == Done || s == Refused || s == Undone || s == Unknown }

// Override is what a request put in place of an attribute of a job. It lasts until a later request about the attribute, until an
// edit of that attribute in the files, or until its time is over.
type Override struct {
	Path     string    `json:"path"` // "suspend", "role.worker.replicas"
	Value    string    `json:"value"`
	Declared string    `json:"declared"` // what the files said then
	Request  string    `json:"request"`  // its ID
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Why      string    `json:"why,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	// Size is how many slots a role had when its scaling was paused.
	Size int `json:"size,omitempty"`
}

// Slots is the number of slots that an override of a role's size asks for.
func (o *Override) Slots() int {
	if o.Value == PausedSize {
		return o.Size
	}
	n, _ := strconv.Atoi(o.Value) // it was legal
	return n
}

// Override returns the override of an attribute; nil if it has none.
func (r *Record) Override(path string) *Override {
	if i := slices.IndexFunc(r.Overrides, func(o Override) bool { return o.Path == path }); i >= 0 {
		return &r.Overrides[i]
	}
	return nil
}

// Overridden returns overrides with one added or replaced, by path. The argument is not changed.
func Overridden(all []Override, o Override) []Override {
	all = slices.DeleteFunc(slices.Clone(all), func(old Override) bool { return old.Path == o.Path })
	all = append(all, o)
	slices.SortFunc(all, func(a, b Override) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// Addresses are those of what a request is about.
func (r *Request) Addresses() []string {
	all := []string{}
	for _, sel := range r.On {
		all = append(all, sel.String())
	}
	for _, name := range r.Nodes {
		all = append(all, NodeAddress(name))
	}
	return all
}

// CompareRequests orders requests by their IDs.
func CompareRequests(a, b Request) int { return cmp.Compare(a.ID, b.ID) }
