package apply

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// ID identifies an effect in the Loop, in its outcome, in scenarios and in simulated faults. No two effects
// in flight share an ID.
type ID struct {
	Kind   string // "launch", "store" …
	Of     string // a provider, a job's name or its UID
	Slot   job.Address
	Number int // an incarnation, a serial, or a sequence number
}

func (id ID) String() string {
	parts := []string{id.Kind}
	switch {
	case id.Slot != (job.Address{}):
		parts = append(parts, id.Slot.String())
	case id.Of != "":
		parts = append(parts, id.Of)
	}
	if id.Number > 0 {
		parts = append(parts, fmt.Sprintf("#%d", id.Number))
	}
	return strings.Join(parts, " ")
}

// Effect is work outside the Loop: one of the types below. Each has exactly one Outcome, even if it is dropped; only Again
// and Drop are about another effect and have none of their own.
type Effect interface{ ID() ID }

// Hear reads the service's facts. The Result is Facts.
type Hear struct{ Known uint64 } // the known version; facts of that version are not read again

// Observe observes a provider. The Result is Sight.
type Observe struct{ Provider string }

// Gauge reads training progress. The Result is map[string]Progress, by the names that the service knows.
type Gauge struct{}

// ReadFiles reads the configuration. The Result is Files, even if there is an error.
type ReadFiles struct{}

// Approve asks for approval of the first plan. An error ends the run.
type Approve struct{ Decision }

// Check evaluates the files' conditions on the jobs. The Result is map[string]string, details by summary.
type Check struct {
	Number  int
	Records job.Records
}

// Store writes the state.
type Store struct{ State state.State }

// Reread reads the state, to learn whether a failed write was stored anyway. The Result is a state.State.
type Reread struct{ Number int }

// Journal appends events, and changes of goodput ledgers.
type Journal struct {
	Number  int
	Notices []job.Notice
	Ledger  []goodput.Entry
}

// Chronicle journals a decision with its complete input: once its changes have been carried out, or at the next pulse. Encoding
// one of 1,000 slots takes a core for 10 ms, which the changes must not wait for, and recovery needs the state alone.
type Chronicle struct {
	Number int
	Decision
}

// Publish publishes the service's address to the agents of a provider.
type Publish struct {
	Provider string
	Number   int
	Service  providers.Service
}

// Prepare creates what a job needs besides its slots. The Result is the job's token.
type Prepare struct {
	Provider string
	Group    job.Group
}

// Launch starts one incarnation.
type Launch struct {
	Provider string
	Launch   job.Launch
	Urgent   bool // it heals or repairs, and takes precedence over new work
}

// Stop ends one incarnation.
type Stop struct {
	Provider    string
	UID         string
	Slot        job.Address
	Incarnation int
	Grace       time.Duration
}

// Forget removes what a provider keeps for a job.
type Forget struct{ Provider, UID, Name string }

// Tell sends News to the service.
type Tell struct {
	Number int
	News
}

// News is a message to the service: one of the types below.
type News interface{ news() string }

// Wanted is a job's desired world.
type Wanted struct {
	Job     string
	Desired elastic.Desired
}

// Unwanted makes the service forget a job.
type Unwanted struct{ Job string }

// Ended is an incarnation that has definitely ended.
type Ended struct {
	Slot        job.Address
	Incarnation int
	Succeeded   bool
}

// Open: the desired state is known and stored.
type Open struct{}

// Recorded answers the service's Forming.
type Recorded struct {
	Forming int
	Err     error
}

// Answer replies to a request to reconcile.
type Answer struct {
	Request int
	Reply   elastic.ReconcileReply
}

// Respond stores what has become of an operator's request.
type Respond struct{ Reply job.Reply }

// Notify delivers a message of a notify block. There is one of each block at a time.
type Notify struct{ Message job.Message }

// Sample asks a source of a scaling policy. The Result is a float64; the error is scaling.ErrNotTraining if there is none because
// nothing trains.
type Sample struct {
	At       time.Time // of its evaluation
	Job, UID string    // Job as its agents know it
	Role     string
	Policy   string
	Source   job.MetricSource
	Bound    time.Duration
}

// Again retries an effect that failed temporarily, at a given time.
type Again struct {
	Effect
	At time.Time
}

// Drop cancels a queued effect, whose outcome is then ErrDropped. Of those that have started it affects only Observe.
type Drop struct{ Effect ID }

func (Hear) ID() ID        { return ID{Kind: "hear"} }
func (e Observe) ID() ID   { return ID{Kind: "observe", Of: e.Provider} }
func (Gauge) ID() ID       { return ID{Kind: "gauge"} }
func (ReadFiles) ID() ID   { return ID{Kind: "read-files"} }
func (Approve) ID() ID     { return ID{Kind: "approve"} }
func (e Check) ID() ID     { return ID{Kind: "check", Number: e.Number} }
func (e Store) ID() ID     { return ID{Kind: "store", Number: int(e.State.Serial)} }
func (e Reread) ID() ID    { return ID{Kind: "reread", Number: e.Number} }
func (e Journal) ID() ID   { return ID{Kind: "journal", Number: e.Number} }
func (e Chronicle) ID() ID { return ID{Kind: "chronicle", Number: e.Number} }
func (e Publish) ID() ID   { return ID{Kind: "publish", Of: e.Provider, Number: e.Number} }
func (e Prepare) ID() ID   { return ID{Kind: "prepare", Of: e.Group.UID} }
func (e Launch) ID() ID {
	return ID{Kind: "launch", Of: e.Launch.UID, Slot: e.Launch.Slot, Number: e.Launch.Incarnation}
}
func (e Stop) ID() ID   { return ID{Kind: "stop", Of: e.UID, Slot: e.Slot, Number: e.Incarnation} }
func (e Forget) ID() ID { return ID{Kind: "forget", Of: e.UID} }
func (e Tell) ID() ID   { return ID{Kind: "tell", Of: e.news(), Number: e.Number} }
func (e Answer) ID() ID { return ID{Kind: "answer", Number: e.Request} }
func (e Notify) ID() ID { return ID{Kind: "notify", Of: e.Message.ID} }
func (e Sample) ID() ID {
	return ID{Kind: "sample", Of: e.UID + " " + e.Role + " " + e.Policy, Number: int(e.At.UnixMilli())}
}
func (e Drop) ID() ID { return e.Effect }
func (e Respond) ID() ID {
	return ID{Kind: "respond", Of: e.Reply.ID + " " + string(e.Reply.State)}
}

func (n Wanted) news() string   { return n.Job }
func (n Unwanted) news() string { return n.Job }
func (n Ended) news() string    { return n.Slot.String() }
func (Open) news() string       { return "" }
func (n Recorded) news() string { return "" }

// Facts are what the service knows.
type Facts struct {
	// Version differs once a fact that plans depend on has changed.
	Version uint64
	// Jobs are keyed by the names that agents know; nil if Version was known.
	Jobs map[string]elastic.Facts
}

// Sight is a provider's observation and its capabilities.
type Sight struct {
	Capabilities job.Capabilities
	Observation  *providers.Observation
}

// Progress is the training progress of a job.
type Progress struct {
	Step     int64
	Loss     *job.Loss // nil if unknown
	StepRate float64   // steps a second
	// BatchSize and NoiseScale are those of job.Reading; 0 if no process says both.
	BatchSize, NoiseScale float64
}

// Decision is a plan with its complete input: plan.Make of the input returns the same plan.
type Decision struct {
	Input plan.Input `json:"input"`
	Plan  plan.Plan  `json:"plan"`
}

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Of, b.Of), a.Slot.Compare(b.Slot), cmp.Compare(a.Number, b.Number))
}
