package view

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// StreamBegin is what each line begins with: encoding/json sorts the keys.
const StreamBegin = `{"@level":"`

// uiVersion is the version of Terraform's machine-readable UI that the lines follow.
const uiVersion = "1.2"

// Stream writes Terraform's machine-readable UI: one JSON object a line, each with its type. Its input must have passed a
// Redactor, except diagnostics, which are made to be shown.
type Stream struct {
	mu  sync.Mutex
	w   io.Writer
	now func() time.Time
}

// NewStream returns a Stream on w. It writes the version line.
func NewStream(w io.Writer, version string, now func() time.Time) *Stream {
	s := &Stream{w: w, now: now}
	s.line("info", "eltrain "+version, "version", map[string]any{"eltrain": version, "terraform": terraformVersion, "ui": uiVersion})
	return s
}

// line writes one object. The first four keys are those of Terraform's logger, and must be there in each.
func (s *Stream) line(level, message, kind string, more map[string]any) {
	object := map[string]any{
		"@level": level, "@message": message, "@module": "eltrain.ui",
		"@timestamp": s.now().Format("2006-01-02T15:04:05.000000Z07:00"), "type": kind,
	}
	for key, value := range more {
		object[key] = value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	enc := json.NewEncoder(s.w)
	enc.SetEscapeHTML(false)
	enc.Encode(object) // an error does not stop the run; the writer's owner checks whether all was written
}

// Diagnostics writes lines of the type diagnostic.
func (s *Stream) Diagnostics(diags []Diagnostic) {
	for _, d := range diags {
		level, headline := "error", "Error: "
		if d.Severity == severityWarning {
			level, headline = "warn", "Warning: "
		}
		s.line(level, headline+d.Summary, "diagnostic", map[string]any{"diagnostic": d})
	}
}

// condition writes a raised or changed condition as a diagnostic with the condition beside it, and a cleared one as a line.
func (s *Stream) condition(c *conditions.Change, of map[string]any, d Diagnostic) {
	more := map[string]any{"condition": of}
	if c.Type == conditions.Cleared {
		s.line("info", "Resolved: "+d.Summary, "condition_cleared", more)
		return
	}
	more["diagnostic"] = d
	s.line("warn", "Warning: "+d.Summary, "diagnostic", more)
}

// StreamResource names an object in a line.
type StreamResource struct {
	Addr     string `json:"addr"`
	Module   string `json:"module"`
	Resource string `json:"resource"`
	Provider string `json:"implied_provider"`
	Type     string `json:"resource_type"`
	Name     string `json:"resource_name"`
	Key      *int   `json:"resource_key"`
}

// jobResource names a job in a line.
func jobResource(name, provider string) StreamResource {
	address := "job." + name
	return StreamResource{Addr: address, Resource: address, Provider: provider, Type: jobType, Name: name}
}

// StreamChange is a change in a line.
type StreamChange struct {
	Resource  StreamResource  `json:"resource"`
	Previous  *StreamResource `json:"previous_resource,omitempty"`
	Importing *Importing      `json:"importing,omitempty"`
	Action    string          `json:"action"`
	Reason    string          `json:"reason,omitempty"`
	Eltrain   *PlannedChange  `json:"eltrain,omitempty"`
}

// streamReasons maps Terraform's action reasons in a plan's JSON to those of this format, where they differ.
var streamReasons = map[string]string{
	"replace_because_cannot_update": "cannot_update",
	"replace_because_tainted":       "tainted",
	"replace_by_request":            "requested",
}

func streamChange(rc *ResourceChange) StreamChange {
	reason := rc.ActionReason
	if word, ok := streamReasons[reason]; ok {
		reason = word
	}
	action := rc.Change.Actions[0]
	switch {
	case len(rc.Change.Actions) > 1:
		action = "replace"
	case action == "forget":
		action = "remove"
	case action == "no-op" && rc.Change.Importing != nil:
		action = "import"
	case action == "no-op" && rc.PreviousAddress != "":
		action = "move"
	}
	out := StreamChange{Action: action, Reason: reason, Eltrain: rc.Eltrain, Importing: rc.Change.Importing, Resource: StreamResource{
		Addr: rc.Address, Resource: rc.Address, Provider: rc.Provider, Type: rc.Type, Name: rc.Name, Key: rc.Index,
	}}
	if rc.PreviousAddress != "" {
		old := out.Resource
		old.Addr, old.Resource = rc.PreviousAddress, rc.PreviousAddress
		old.Name, _, _ = strings.Cut(strings.TrimPrefix(rc.PreviousAddress, "job."), "[")
		out.Previous = &old
	}
	return out
}

// Plan writes a plan: what others changed, each change, what waits, the costs, decisions about sizes, the counts, and changes
// of outputs. Its operation is always "plan", as in Terraform, even to destroy and before an apply.
func (s *Stream) Plan(m *PlanModel) {
	s.changes(m)
	for i := range m.Eltrain.Sizes {
		if size := &m.Eltrain.Sizes[i]; size.decides() {
			s.scaleDecision(size)
		}
	}
	for i := range m.Eltrain.Failed {
		f := &m.Eltrain.Failed[i]
		s.line("info", f.Address+": "+strings.Join(f.sentences(), " "), "planned_failed", map[string]any{"failed": f})
	}
	s.waits(m.Eltrain.Waits)
	for _, n := range m.Eltrain.Nodes {
		s.line("info", n.Address+": "+n.Reason, "planned_cordon", map[string]any{"node": n})
	}
	for i := range m.Eltrain.Costs {
		c := &m.Eltrain.Costs[i]
		message := strings.Join(c.sentences(), " ")
		if message == "" {
			continue // it only takes free places, which costs nothing
		}
		s.line("info", message, "planned_cost", map[string]any{"cost": c})
	}
	s.summary("Plan: "+planCounts(m.Eltrain.Summary), m.Eltrain.Summary, "plan")
	outputs := map[string]StreamOutput{}
	for name, c := range m.OutputChanges {
		action := c.Actions[0]
		if action == actsNothing[0] {
			action = streamActions[plan.NoOp]
		}
		outputs[name] = StreamOutput{Sensitive: c.BeforeSensitive || c.AfterSensitive, Action: action}
	}
	s.outputs(outputs)
}

// Approved writes the changes of a plan that was shown before, as Terraform does before it applies a saved plan.
func (s *Stream) Approved(m *PlanModel) { s.changes(m) }

// changes writes what others changed, and what the plan changes.
func (s *Stream) changes(m *PlanModel) {
	for i := range m.ResourceDrift {
		rc := &m.ResourceDrift[i]
		change := streamChange(rc)
		s.line("info", rc.Address+": Drift detected ("+change.Action+")", "resource_drift", map[string]any{"change": change})
	}
	for _, rc := range m.planned() {
		change := streamChange(rc)
		s.line("info", change.Resource.Addr+": Plan to "+change.Action, "planned_change", map[string]any{"change": change})
	}
}

// planned returns the objects that a plan changes, in the plan's own order.
func (m *PlanModel) planned() (out []*ResourceChange) {
	byChange := make(map[*PlannedChange]*ResourceChange, len(m.ResourceChanges))
	for i := range m.ResourceChanges {
		byChange[m.ResourceChanges[i].Eltrain] = &m.ResourceChanges[i]
	}
	for _, c := range m.changes() {
		out = append(out, byChange[c])
	}
	return out
}

// Refreshing writes that a recorded job is being observed. One request to a provider covers all slots of all its jobs, so
// there is a line for each job, not for each slot.
func (s *Stream) Refreshing(name string, rec *job.Record) {
	s.refresh("refresh_start", "Refreshing state...", name, rec)
}

// Refreshed writes that a recorded job was observed.
func (s *Stream) Refreshed(name string, rec *job.Record) {
	s.refresh("refresh_complete", "Refresh complete", name, rec)
}

func (s *Stream) refresh(kind, message, name string, rec *job.Record) {
	s.line("info", "job."+name+": "+message+" [uid="+rec.UID+"]", kind, map[string]any{"hook": map[string]any{
		"resource": jobResource(name, rec.Spec.Provider), "id_key": "uid", "id_value": rec.UID,
	}})
}

// scaleDecision writes that an elastic role is made larger or smaller.
func (s *Stream) scaleDecision(size *RoleSize) {
	s.line("info", size.sentence(), "scale_decision", map[string]any{"scale": size})
}

// waits writes what is not as configured.
func (s *Stream) waits(all []PlanWait) {
	for _, w := range all {
		s.line("info", w.Address+": Waits: "+strings.Join(w.Reasons, " "), "planned_wait", map[string]any{"wait": w})
	}
}

// waiting writes that a condition says what a job or role waits for, or that it no longer does.
func (s *Stream) waiting(c *conditions.Change, of map[string]any, r *Redactor) {
	reasons := conditions.Reasons(c.Reason)
	if c.Type == conditions.Cleared {
		s.line("info", r.Text(c.About)+": No longer waits: "+strings.Join(r.Sentences(reasons), " "), "condition_cleared", map[string]any{"condition": of})
		return
	}
	w := PlanWait{Address: r.Text(c.About), Reasons: r.Sentences(reasons), ReasonCodes: r.Reasons(reasons)}
	s.line("info", w.Address+": Waits: "+strings.Join(w.Reasons, " "), "planned_wait", map[string]any{"wait": w, "condition": of})
}

// summary writes the line of the counts.
func (s *Stream) summary(message string, n plan.Summary, operation string) {
	s.line("info", message, "change_summary", map[string]any{
		"changes": map[string]any{"add": n.Add, "change": n.Change, "import": n.Import, "remove": n.Remove, "operation": operation},
	})
}

// Applied sums up an apply that completed. Any other has no summary, as in Terraform.
func (s *Stream) Applied(done plan.Summary) {
	s.summary("Apply complete! Resources: "+doneCounts(done), done, "apply")
}

// Destroyed sums up a destroy that completed.
func (s *Stream) Destroyed(done plan.Summary) {
	s.summary("Destroy complete! Resources: "+destroyedCount(done), done, "destroy")
}

// Unwatched sums up an interrupted watch.
func (s *Stream) Unwatched(done plan.Summary) {
	s.summary("Watch ended. Resources: "+doneCounts(done), done, "apply")
}

// StreamOutput is an output in a line: for a plan what happens to it, for an apply its value, unless that is sensitive.
type StreamOutput struct {
	Sensitive bool            `json:"sensitive"`
	Type      json.RawMessage `json:"type,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Action    string          `json:"action,omitempty"` // "create", "update", "delete", "noop"
}

// Outputs writes the values of outputs, if there are any.
func (s *Stream) Outputs(outputs map[string]state.Value) { s.outputs(streamOutputs(outputs)) }

func streamOutputs(outputs map[string]state.Value) map[string]StreamOutput {
	shown := map[string]StreamOutput{}
	for name, v := range outputs {
		shown[name] = StreamOutput{Sensitive: v.Sensitive, Type: v.Type, Value: v.Value}
		if v.Sensitive {
			shown[name] = StreamOutput{Sensitive: true, Type: v.Type}
		}
	}
	return shown
}

func (s *Stream) outputs(shown map[string]StreamOutput) {
	if len(shown) > 0 {
		s.line("info", "Outputs: "+itoa(len(shown)), "outputs", map[string]any{"outputs": shown})
	}
}
