package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// The versions of Terraform's formats that a plan's JSON follows. Tools recognize a plan by them.
const (
	planFormatVersion  = "1.2"
	stateFormatVersion = "1.0"
	terraformVersion   = "1.11.4"
)

// The kinds of resource in a plan.
const (
	slotType = "eltrain_slot"
	jobType  = "eltrain_job"
)

// PlanFacts is what a plan is shown from.
type PlanFacts struct {
	Input plan.Input `json:"input"`
	Plan  plan.Plan  `json:"plan,omitzero"`
	// Version is eltrain's own.
	Version string `json:"version"`
	state.Values
	// PriorOutputs are those that were last applied.
	PriorOutputs map[string]state.Value `json:"prior_outputs,omitempty"`
	// Reached is the progress of jobs by name, as reported by the master. Without a master it is empty, and only the records'
	// progress is known.
	Reached map[string]Reached `json:"reached,omitempty"`
	// Unseen: no provider was asked; slots are assumed to run as recorded.
	Unseen bool `json:"unseen,omitempty"`
	// Checks are the results of the files' conditions.
	Checks []CheckFact `json:"checks,omitempty"`
}

// Reached is the progress of a job.
type Reached struct {
	Step int64   `json:"step"`
	Rate float64 `json:"steps_per_second,omitempty"`
	// Saved is the newest checkpoint that it reported. It is in the checkpoint directory, at Path in it; "" if that is not known.
	Saved job.Saved `json:"saved,omitzero"`
	Path  string    `json:"path,omitempty"`
}

// PlanModel is a plan as JSON, in the form of terraform show -json, which policy tools for Terraform read. What Terraform does
// not have is under Eltrain. The texts are made from it too. Every value in it has passed a Redactor.
type PlanModel struct {
	FormatVersion    string                  `json:"format_version"`
	TerraformVersion string                  `json:"terraform_version"`
	Variables        map[string]PlanVariable `json:"variables,omitempty"`
	PlannedValues    PlanValues              `json:"planned_values"`
	ResourceDrift    []ResourceChange        `json:"resource_drift,omitempty"`
	ResourceChanges  []ResourceChange        `json:"resource_changes"`
	OutputChanges    map[string]OutputChange `json:"output_changes,omitempty"`
	PriorState       PlanState               `json:"prior_state"`
	Configuration    PlanConfiguration       `json:"configuration"`
	Checks           []CheckResult           `json:"checks,omitempty"`
	Timestamp        time.Time               `json:"timestamp"`
	Applyable        bool                    `json:"applyable"` // there is something to do
	Complete         bool                    `json:"complete"`  // nothing has to wait
	Errored          bool                    `json:"errored"`
	Eltrain          PlanExtras              `json:"eltrain"`

	destroy bool // the plan is for a destroy
}

// PlanVariable is a variable's value.
type PlanVariable struct {
	Value json.RawMessage `json:"value,omitempty"`
}

// PlanExtras is what Terraform's plans do not have.
type PlanExtras struct {
	Version string       `json:"version"`
	Summary plan.Summary `json:"summary"`
	Waits   []PlanWait   `json:"waits,omitempty"`
	Nodes   []PlanNode   `json:"nodes,omitempty"`
	Caveats []string     `json:"caveats,omitempty"`
	Costs   []JobCost    `json:"costs,omitempty"`
	Sizes   []RoleSize   `json:"sizes,omitempty"`
	Budget  *HoursStatus `json:"budget,omitempty"` // of the directory; nil without one
	Failed  []FailedJob  `json:"failed,omitempty"`
	Ended   []EndedJob   `json:"ended,omitempty"`
	// Shipped are the source files that slots which start get from here.
	Shipped []ShippedSource `json:"shipped,omitempty"`
	// Left are the jobs that are no longer in the files, but stay because of -prune=false.
	Left []string `json:"left,omitempty"`
	// Settings are those that are not the defaults, a line for each block: what a plan is applied with besides its jobs.
	Settings []string `json:"settings,omitempty"`
	// Targets, Excludes and Replace are the addresses that limit the plan. RefreshOnly: it only records what is observed.
	Targets     []string `json:"targets,omitempty"`
	Excludes    []string `json:"excludes,omitempty"`
	Replace     []string `json:"replace,omitempty"`
	RefreshOnly bool     `json:"refresh_only,omitempty"`
}

// PlanNode is a node that an operator keeps new slots off.
type PlanNode struct {
	Address    string     `json:"address"` // node.NAME
	Reason     string     `json:"reason"`
	ReasonCode job.Reason `json:"reason_code"`
}

// planNodes returns the nodes that operators keep new slots off.
func planNodes(nodes []job.NodeRecord, r *Redactor) (out []PlanNode) {
	cordons := plan.Cordons(nodes)
	for _, address := range slices.Sorted(maps.Keys(cordons)) {
		why := []job.Reason{cordons[address]}
		out = append(out, PlanNode{address, r.Sentences(why)[0], r.Reasons(why)[0]})
	}
	return out
}

// nodeItems say which nodes operators keep new slots off.
func (m *PlanModel) nodeItems() (items []string) {
	for _, n := range m.Eltrain.Nodes {
		items = append(items, n.Address+": "+n.Reason)
	}
	return items
}

// ShippedSource is what a role's slots that start get: its source files, in a ConfigMap.
type ShippedSource struct {
	Address string `json:"address"` // of the role
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
}

// shipped returns the source files that are taken to slots that start.
func (b *planBuilder) shipped() (out []ShippedSource) {
	starts := map[job.Address]bool{}
	for i := range b.facts.Plan.Changes {
		if c := &b.facts.Plan.Changes[i]; c.Action == plan.Create || c.Action == plan.Replace {
			starts[job.Address{Job: c.Slot.Job, Role: c.Slot.Role}] = true
		}
	}
	in := &b.facts.Input
	for i := range in.Jobs {
		for k := range in.Jobs[i].Roles {
			j, r := &in.Jobs[i], &in.Jobs[i].Roles[k]
			if len(r.Source) > 0 && in.Capabilities[j.Provider].Ships && starts[job.Address{Job: j.Name, Role: r.Name}] {
				out = append(out, ShippedSource{"job." + j.Name + "." + r.Name, len(r.Source), int64(r.SourceSize)})
			}
		}
	}
	return out
}

// shippedItems say which source files reach pods.
func (m *PlanModel) shippedItems() (items []string) {
	for _, s := range m.Eltrain.Shipped {
		items = append(items, fmt.Sprintf("%s: %s, %s, in a ConfigMap", s.Address, plural(s.Files, "source file"), job.Bytes(s.Bytes)))
	}
	return items
}

// EndedJob is a declared job that has succeeded or was canceled, and that the plan does not start again.
type EndedJob struct {
	Address string       `json:"address"`
	Phase   job.JobPhase `json:"phase"`
	At      time.Time    `json:"at"`
	// Verdict says who canceled it, VerdictCode the same in a code.
	Verdict     string      `json:"verdict,omitempty"`
	VerdictCode *job.Reason `json:"verdict_code,omitempty"`
}

// endedItems say which jobs have ended, and how they start again.
func (m *PlanModel) endedItems() []string {
	var items []string
	for _, e := range m.Eltrain.Ended {
		verdict := ""
		if e.Verdict != "" {
			verdict = " " + strings.TrimSuffix(e.Verdict, ".") + "."
		}
		items = append(items, fmt.Sprintf("%s has %s, at %s.%s To run it again: eltrain restart %s", e.Address, endedAs[e.Phase], e.At.Local().Format(time.DateTime), verdict, e.Address))
	}
	return items
}

var endedAs = map[job.JobPhase]string{job.JobSucceeded: "succeeded", job.JobCanceled: "been canceled"}

// leftItems say which jobs stay although they are not in the files.
func (m *PlanModel) leftItems() []string {
	var items []string
	for _, address := range m.Eltrain.Left {
		items = append(items, address+" is no longer in the files; without -prune=false it would be destroyed.")
	}
	return items
}

// PlanWait is something that is not as configured, because something it needs is missing.
type PlanWait struct {
	Address string   `json:"address"`
	Reasons []string `json:"reasons"`

	ReasonCodes []job.Reason `json:"reason_codes"` // the same in codes; see docs/reasons.md

	Never   bool `json:"never,omitempty"`   // waiting does not help: the declaration has to change; see plan.Wait
	Held    bool `json:"held,omitempty"`    // the scope has only part of what must change together, or -max-destroy holds it back
	Unheard bool `json:"unheard,omitempty"` // it has ended: an apply learns how, and decides what follows
}

// Unheard reports whether something has ended and only an apply can learn how. The apply then has something to do, although
// the plan cannot say what. A refresh-only apply does not ask agents.
func (m *PlanModel) Unheard() bool {
	return !m.Eltrain.RefreshOnly && slices.ContainsFunc(m.Eltrain.Waits, func(w PlanWait) bool { return w.Unheard })
}

// Differs reports whether what runs is not what is declared, and waiting alone does not change that: there is something to do,
// an apply may find something to do, or something can never be as declared. Of a refresh-only plan it reports any drift.
func (m *PlanModel) Differs() bool {
	if m.Eltrain.RefreshOnly {
		return len(m.ResourceDrift) > 0
	}
	return m.Applyable || slices.ContainsFunc(m.Eltrain.Waits, func(w PlanWait) bool { return w.Unheard || w.Never })
}

// ResourceChange is one object of a plan: a slot or a job, changed or not.
type ResourceChange struct {
	Resource
	PreviousAddress string       `json:"previous_address,omitempty"` // if it was moved
	Change          ObjectChange `json:"change"`
	// ActionReason is one of Terraform's codes if one fits; the sentences are in Eltrain.
	ActionReason string `json:"action_reason,omitempty"`
	// Eltrain is set if the plan has an action of its own on the object, not if the change is only implied by others.
	Eltrain *PlannedChange `json:"eltrain,omitempty"`
}

// Resource names an object as Terraform does.
type Resource struct {
	Address  string `json:"address"`
	Mode     string `json:"mode"`
	Type     string `json:"type"`
	Name     string `json:"name"`
	Index    *int   `json:"index,omitempty"`
	Provider string `json:"provider_name"`
}

// ObjectChange is what happens to an object.
type ObjectChange struct {
	Actions         []string        `json:"actions"`
	Before          any             `json:"before"`
	After           any             `json:"after"`
	AfterUnknown    map[string]bool `json:"after_unknown"`
	BeforeSensitive any             `json:"before_sensitive"`
	AfterSensitive  any             `json:"after_sensitive"`
	ReplacePaths    [][]any         `json:"replace_paths,omitempty"`
	Importing       *Importing      `json:"importing,omitempty"`
}

// Importing is what identified an imported job.
type Importing struct {
	ID string `json:"id"`
}

// PlannedChange is a change as eltrain makes it.
type PlannedChange struct {
	Action      plan.Action  `json:"action"`
	Job         string       `json:"job"`
	Role        string       `json:"role,omitempty"`
	UID         string       `json:"uid"`
	From        string       `json:"from,omitempty"`         // the old name of a moved job
	Import      string       `json:"import,omitempty"`       // the ID that a job is imported by
	Reasons     []string     `json:"reasons,omitempty"`      // most telling first
	ReasonCodes []job.Reason `json:"reason_codes,omitempty"` // the same in codes; see docs/reasons.md
	Fields      []FieldShown `json:"fields,omitempty"`       // for a create all that is set, else what differs
	Node        string       `json:"node,omitempty"`
	Incarnation int          `json:"incarnation,omitempty"`
	Stop        []int        `json:"stop,omitempty"` // incarnations to stop first
	Grace       job.Duration `json:"grace,omitempty"`
	// Wave orders the changes of a job from 0 on. Follows are the roles that a later wave waits for.
	Wave    int      `json:"wave"`
	Follows []string `json:"follows,omitempty"`

	drift   bool   // it has already happened, and not by eltrain
	remains bool   // it removes what is left of an earlier job of that name, which has no record
	index   int    // the slot's; 0 for a job
	at      int    // position in the plan's own order, which is that of the declarations
	was     string // a replacement's old node; "" if unknown
	hinted  bool   // its node is only where it fits now: a scheduler chooses
}

// FieldShown is one difference, as HCL texts; "" is nothing.
type FieldShown struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Forces bool   `json:"forces_replacement,omitempty"`
	By     string `json:"by,omitempty"` // for drift: who changed it
}

// PlanValues are objects and outputs, without what they change from or to.
type PlanValues struct {
	Outputs    map[string]OutputValue `json:"outputs,omitempty"`
	RootModule PlanModule             `json:"root_module"`
}

// PlanModule holds all objects: jobs of modules have flat names, and are here too.
type PlanModule struct {
	Resources []ResourceValues `json:"resources,omitempty"`
}

// ResourceValues is an object at one time.
type ResourceValues struct {
	Resource
	SchemaVersion int `json:"schema_version"`
	Values        any `json:"values"`
	Sensitive     any `json:"sensitive_values"`
}

// OutputValue is an output.
type OutputValue struct {
	Sensitive bool            `json:"sensitive"`
	Type      json.RawMessage `json:"type,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// OutputChange is what happens to an output. Sensitive values are not stored, so whether one changes is unknown.
type OutputChange struct {
	Actions         []string        `json:"actions"`
	Before          json.RawMessage `json:"before"`
	After           json.RawMessage `json:"after"`
	AfterUnknown    bool            `json:"after_unknown"`
	BeforeSensitive bool            `json:"before_sensitive"`
	AfterSensitive  bool            `json:"after_sensitive"`

	kindBefore, kind json.RawMessage // the values' types, as cty writes types
}

// PlanState is the state that a plan was made from.
type PlanState struct {
	FormatVersion    string     `json:"format_version"`
	TerraformVersion string     `json:"terraform_version"`
	Values           PlanValues `json:"values"`
}

// PlanConfiguration is the configuration in the form that policy tools read.
type PlanConfiguration struct {
	Providers  map[string]ConfiguredProvider `json:"provider_config,omitempty"`
	RootModule ConfiguredModule              `json:"root_module"`
}

// ConfiguredProvider names a provider that jobs use.
type ConfiguredProvider struct {
	Name     string `json:"name"`
	FullName string `json:"full_name"`
}

// ConfiguredModule is what is declared.
type ConfiguredModule struct {
	Outputs   map[string]ConfiguredValue `json:"outputs,omitempty"`
	Resources []ConfiguredResource       `json:"resources,omitempty"`
	Variables map[string]ConfiguredValue `json:"variables,omitempty"`
}

// ConfiguredValue is a declared variable or output.
type ConfiguredValue struct {
	Description string `json:"description,omitempty"`
	Sensitive   bool   `json:"sensitive,omitempty"`
}

// ConfiguredResource is a job, or the slots of a role.
type ConfiguredResource struct {
	Address           string                `json:"address"`
	Mode              string                `json:"mode"`
	Type              string                `json:"type"`
	Name              string                `json:"name"`
	ProviderConfigKey string                `json:"provider_config_key"`
	Expressions       map[string]Expression `json:"expressions,omitempty"`
	SchemaVersion     int                   `json:"schema_version"`
	Count             *Expression           `json:"count_expression,omitempty"`
	DependsOn         []string              `json:"depends_on,omitempty"`
}

// Expression is an argument. References in it have been evaluated.
type Expression struct {
	Constant any `json:"constant_value"`
}

// Terraform's words for what is done to an object.
var (
	actsNothing = []string{"no-op"}
	actsCreate  = []string{"create"}
	actsUpdate  = []string{"update"}
	actsReplace = []string{"delete", "create"}
	actsDelete  = []string{"delete"}
	actsForget  = []string{"forget"}
)

func acts(a plan.Action) []string {
	switch a {
	case plan.Create:
		return actsCreate
	case plan.Update, plan.Restart:
		return actsUpdate
	case plan.Replace:
		return actsReplace
	case plan.Forget:
		return actsForget
	case plan.NoOp:
		return actsNothing
	}
	return actsDelete
}

// hiddenText replaces a sensitive value in JSON.
var hiddenText = json.RawMessage(`"` + sensitive + `"`)
