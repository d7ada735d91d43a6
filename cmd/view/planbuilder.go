package view

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// NewPlan makes the model of a plan. Sensitive values are those that r knows, and their former values. It takes time
// linear in the number of slots.
func NewPlan(f PlanFacts, r *Redactor) *PlanModel {
	for i := range f.Input.Jobs {
		if before := f.Input.Records[f.Input.Jobs[i].Name]; before != nil {
			r.AddFormer(&before.Spec, &f.Input.Jobs[i])
		}
	}
	declared := f.Input.Jobs
	f.Input = f.Input.Effective()
	b := newPlanBuilder(&f, r)
	m := &PlanModel{
		FormatVersion: planFormatVersion, TerraformVersion: terraformVersion,
		Timestamp: f.Input.Now.UTC(),
		Applyable: len(f.Plan.Changes) > 0 && len(f.Plan.Refusals) == 0,
		Errored:   len(f.Plan.Refusals) > 0,
		destroy:   f.Input.Destroy,
		Eltrain:   PlanExtras{Version: f.Version, Summary: f.Plan.Summary(), Caveats: r.Texts(f.Plan.Caveats)},
	}
	m.Eltrain.Waits, m.Eltrain.Nodes = planWaits(f.Plan.Waits, r), planNodes(f.Plan.Nodes, r)
	for _, w := range plan.Left(&f.Input) {
		m.Eltrain.Left = append(m.Eltrain.Left, w.Address())
	}
	m.Eltrain.Budget = plannedHours(&f.Input)
	m.ResourceChanges = b.changes()
	m.ResourceDrift = b.drift()
	m.PriorState = PlanState{stateFormatVersion, terraformVersion, PlanValues{Outputs: outputValues(f.PriorOutputs), RootModule: b.values(m.ResourceChanges, before)}}
	m.PlannedValues = PlanValues{Outputs: outputValues(f.Outputs), RootModule: b.values(m.ResourceChanges, after)}
	m.Variables, m.OutputChanges = planVariables(f.Variables), outputChanges(f.PriorOutputs, f.Outputs)
	m.Configuration = b.configuration(declared)
	m.Checks = checkResults(f.Checks, r)
	m.Eltrain.Costs, m.Eltrain.Sizes, m.Eltrain.Failed = b.costs(), b.sizes(), b.failed()
	m.Eltrain.Ended, m.Eltrain.Shipped = b.ended(), b.shipped()
	m.Complete = len(f.Plan.Waits)+len(f.Plan.Refusals)+len(m.leftFailed()) == 0 && !f.Input.Scope.Limited()
	m.bound(&f.Input)
	m.Applyable = m.Applyable || m.changesOutputs() && !m.Errored
	if f.Input.Refresh {
		m.Applyable = f.Plan.Dirty && len(m.ResourceDrift) > 0
	}
	return m
}

// bound fills in what limits the plan's scope.
func (m *PlanModel) bound(in *plan.Input) {
	m.Eltrain.RefreshOnly = in.Refresh
	for _, sel := range in.Scope.Targets {
		m.Eltrain.Targets = append(m.Eltrain.Targets, sel.String())
	}
	for _, sel := range in.Scope.Excludes {
		m.Eltrain.Excludes = append(m.Eltrain.Excludes, sel.String())
	}
	for _, r := range in.Scope.Replace {
		m.Eltrain.Replace = append(m.Eltrain.Replace, r.Slot.String())
	}
}

// planBuilder makes a model.
type planBuilder struct {
	facts    *PlanFacts
	redactor *Redactor
	// shown caches redacted differences by their first element: like slots share a list.
	shown       map[*job.FieldChange][]FieldShown
	roles       map[roleAt]roleObject // like slots share most of their attributes
	jobs        map[string]*job.Job   // as declared
	at          map[*plan.Change]int
	from        map[string]string                  // old names of moved jobs, by their new ones
	forgotten   map[string]bool                    // jobs that are left running unmanaged
	seen        map[incarnationAt]*job.Incarnation // nil until asked for
	reasonCache cachedReasons
}

// cachedReasons caches the texts of the last change's reasons: the next change often has the same.
type cachedReasons struct {
	of    []job.Reason
	texts []string
	codes []job.Reason
}

// incarnationAt is an incarnation's identity.
type incarnationAt struct {
	uid    string
	slot   job.Address
	number int
}

// underNewNames returns the facts with moved jobs under their new names, before the plan too.
func underNewNames(f *PlanFacts, from map[string]string) *PlanFacts {
	if len(from) == 0 {
		return f
	}
	named := *f
	named.Input.Records = maps.Clone(f.Input.Records)
	for to, old := range from {
		rec := f.Input.Records[old]
		delete(named.Input.Records, old)
		named.Input.Records[to] = rec.Renamed(old, to)
		named.Input.Snapshot.Incarnations = named.Input.Snapshot.Incarnations.Changed(rec.UID, func(inc *job.Incarnation) { inc.Slot.Job = to })
	}
	return &named
}

func newPlanBuilder(f *PlanFacts, r *Redactor) *planBuilder {
	from, forgotten := map[string]string{}, map[string]bool{}
	for _, c := range f.Plan.Changes {
		if c.Action == plan.Forget {
			forgotten[c.Job] = true
		}
		if c.From != "" && f.Input.Records[c.From] != nil {
			from[c.Job] = c.From
		}
	}
	f = underNewNames(f, from)
	b := &planBuilder{facts: f, from: from, forgotten: forgotten, redactor: r, shown: map[*job.FieldChange][]FieldShown{}, roles: map[roleAt]roleObject{},
		jobs: map[string]*job.Job{}, at: make(map[*plan.Change]int, len(f.Plan.Changes))}
	for i := range f.Input.Jobs {
		j := &f.Input.Jobs[i]
		if before := f.Input.Records[j.Name]; before != nil && len(j.Lifecycle.IgnoreChanges) > 0 && b.sameJob(j.Name) {
			settled := j.Settled(&before.Spec)
			j = &settled
		}
		b.jobs[j.Name] = j
	}
	for i := range f.Plan.Changes {
		b.at[&f.Plan.Changes[i]] = i
	}
	return b
}

// sameJob reports whether a recorded job is still the same job after the plan.
func (b *planBuilder) sameJob(name string) bool {
	before, next := b.facts.Input.Records[name], b.facts.Plan.Records[name]
	return before != nil && next != nil && before.UID == next.UID
}

// kept reports whether a recorded job continues although it is not declared.
func (b *planBuilder) kept(name string) bool {
	return b.facts.Input.Keep || slices.Contains(b.facts.Plan.Kept, name)
}

// roleAt is a role before or after the plan.
type roleAt struct {
	spec *job.Job
	role string
}

// roleObject is what all slots of a role have in common, redacted.
type roleObject struct {
	values map[string]any
	marks  any
}

func (b *planBuilder) text(s string) string { return b.redactor.Text(s) }

// changes returns all objects, including unchanged ones: jobs by name, each before its slots by address.
func (b *planBuilder) changes() []ResourceChange {
	type planned struct {
		job   *plan.Change
		slots map[job.Address][]*plan.Change
	}
	byJob := map[string]*planned{}
	of := func(name string) *planned {
		if byJob[name] == nil {
			byJob[name] = &planned{slots: map[job.Address][]*plan.Change{}}
		}
		return byJob[name]
	}
	for i := range b.facts.Plan.Changes {
		c := &b.facts.Plan.Changes[i]
		if ofJob(c) {
			of(c.Job).job = c
			continue
		}
		of(c.Job).slots[c.Slot] = append(of(c.Job).slots[c.Slot], c)
	}
	for name := range b.facts.Input.Records {
		of(name)
	}
	for i := range b.facts.Input.Jobs {
		of(b.facts.Input.Jobs[i].Name)
	}
	out := []ResourceChange{}
	for _, name := range slices.Sorted(maps.Keys(byJob)) {
		p := byJob[name]
		out = append(out, b.jobChange(name, p.job))
		at := map[job.Address]bool{}
		for a := range p.slots {
			at[a] = true
		}
		for _, rec := range b.records(name) {
			for i := range rec.Slots {
				at[rec.Slots[i].Address] = true
			}
		}
		out = slices.Grow(out, len(at))
		for _, a := range slices.SortedFunc(maps.Keys(at), job.Address.Compare) {
			if len(p.slots[a]) == 0 {
				out = append(out, b.slotChange(a, nil)...)
			}
			for _, c := range p.slots[a] {
				out = append(out, b.slotChange(a, c)...)
			}
		}
	}
	return out
}

// records returns a job's records before and after the plan, as far as they exist.
func (b *planBuilder) records(name string) []*job.Record {
	both := []*job.Record{b.facts.Input.Records[name], b.facts.Plan.Records[name]}
	return slices.DeleteFunc(both, func(rec *job.Record) bool { return rec == nil })
}

// jobChange returns a job. A new or removed job is shown as created or deleted, although the actions are on its slots.
func (b *planBuilder) jobChange(name string, c *plan.Change) ResourceChange {
	before, now := b.facts.Input.Records[name], b.jobs[name]
	if now == nil && before != nil && b.kept(name) {
		now = &before.Spec
	}
	rc := ResourceChange{Resource: Resource{Address: "job." + name, Mode: "managed", Type: jobType, Name: name}}
	rc.Change = ObjectChange{Actions: actsNothing, AfterUnknown: map[string]bool{}, BeforeSensitive: false, AfterSensitive: false}
	if before != nil {
		rc.Provider = before.Spec.Provider
		rc.Change.Before, rc.Change.BeforeSensitive = b.jobObject(&before.Spec, before.UID)
	}
	if now != nil {
		rc.Provider = now.Provider
		uid := ""
		if rec := b.facts.Plan.Records[name]; rec != nil {
			uid = rec.UID
		}
		rc.Change.After, rc.Change.AfterSensitive = b.jobObject(now, uid)
	}
	rc.PreviousAddress = b.previous("job."+name, name)
	if c != nil && c.Import != "" {
		rc.Change.Importing = &Importing{b.text(c.Import)}
		rc.Change.Before, rc.Change.BeforeSensitive = rc.Change.After, rc.Change.AfterSensitive
	}
	switch {
	case c != nil && c.Action == plan.Update:
		rc.Change.Actions = actsUpdate
	case c != nil && (c.Action == plan.Forget || c.Import != ""):
		rc.Change.Actions = acts(c.Action)
		if c.Action == plan.Forget {
			rc.ActionReason = "delete_because_no_resource_config"
		}
	case now == nil:
		rc.Change.Actions = actsDelete
		if !b.facts.Input.Destroy {
			rc.ActionReason = "delete_because_no_resource_config"
		}
	case before == nil:
		rc.Change.Actions = actsCreate
	case b.facts.Plan.Records[name] != nil && b.facts.Plan.Records[name].UID != before.UID:
		rc.Change.Actions = actsReplace
	case slices.ContainsFunc(job.Diff(before.Spec, *now), forces): // another change would be planned
		rc.Change.Actions = actsUpdate
	}
	if c == nil {
		return rc
	}
	rc.Eltrain = b.planned(c)
	if rc.Provider == "" {
		rc.Provider = c.Provider
	}
	return rc
}

// previous returns the address before the job was moved; "" if it is not moved.
func (b *planBuilder) previous(address, name string) string {
	old, moved := b.from[name]
	if !moved {
		return ""
	}
	return "job." + old + strings.TrimPrefix(address, "job."+name)
}

func (b *planBuilder) jobObject(j *job.Job, uid string) (values, marks any) {
	values, marks = b.redactor.hidden(attributes(reflect.ValueOf(*j)))
	values.(map[string]any)["uid"] = uid
	return values, orEmpty(marks)
}

// orEmpty returns marks, or Terraform's form of an object without any.
func orEmpty(marks any) any {
	if marks == nil {
		return map[string]any{}
	}
	return marks
}

// slotChange returns a slot with what is done to it; c is nil if nothing is. It returns nil for a slot that exists neither
// before nor after.
func (b *planBuilder) slotChange(a job.Address, c *plan.Change) []ResourceChange {
	index := a.Index
	rc := ResourceChange{Resource: Resource{Address: a.String(), Mode: "managed", Type: slotType, Name: a.Job + "." + a.Role, Index: &index}}
	rc.Change = ObjectChange{Actions: actsNothing, AfterUnknown: map[string]bool{}, BeforeSensitive: false, AfterSensitive: false}
	old, next := b.facts.Input.Records[a.Job], b.facts.Plan.Records[a.Job]
	if old != nil && slotThere(old, a) || c != nil && len(c.Stop) > 0 {
		rc.Change.Before, rc.Change.BeforeSensitive = b.slotObject(old, a, c, false)
	}
	if c != nil && c.Action != plan.Delete || c == nil && next != nil && slotThere(next, a) {
		rc.Change.After, rc.Change.AfterSensitive = b.slotObject(next, a, c, true)
	}
	switch {
	case c == nil && rc.Change.Before == nil && rc.Change.After == nil:
		return nil
	case c == nil && (rc.Change.Before == nil || rc.Change.After == nil):
		// Only its phase changed, to follow the facts. The plan does nothing.
		rc.Change.After, rc.Change.AfterSensitive = b.either(rc.Change)
		rc.Change.Before, rc.Change.BeforeSensitive = rc.Change.After, rc.Change.AfterSensitive
	}
	for _, rec := range b.records(a.Job) {
		rc.Provider = rec.Spec.Provider
	}
	if rc.Change.Before != nil {
		rc.PreviousAddress = b.previous(rc.Address, a.Job)
	}
	if c == nil && b.forgotten[a.Job] {
		rc.Change.Actions, rc.Change.After, rc.Change.AfterSensitive = actsForget, nil, false
		rc.ActionReason = "delete_because_no_resource_config"
	}
	if c == nil {
		return []ResourceChange{rc}
	}
	if c.Provider != "" {
		rc.Provider = c.Provider
	}
	rc.Change.Actions = acts(c.Action)
	if c.Action == plan.Create {
		rc.Change.Before, rc.Change.BeforeSensitive = nil, false
	}
	starts := c.Action == plan.Create || c.Action == plan.Replace
	if starts && (c.Node == "" || b.hinted(rc.Provider)) {
		rc.Change.AfterUnknown["node"] = true
	}
	if stops(c) {
		rc.Change.AfterUnknown["incarnation"] = true // it is numbered when it starts
	}
	rc.ActionReason = b.reason(a, c)
	rc.Eltrain = b.planned(c)
	rc.Eltrain.hinted = starts && b.hinted(rc.Provider)
	if was, known := rc.Change.Before.(map[string]any); known && c.Action == plan.Replace {
		rc.Eltrain.was, _ = was["node"].(string)
	}
	for _, f := range c.Fields {
		if c.Action == plan.Replace && forces(f) {
			rc.Change.ReplacePaths = append(rc.Change.ReplacePaths, replacePath(withinRole(f.Path)))
		}
	}
	return []ResourceChange{rc}
}

func (b *planBuilder) either(c ObjectChange) (values, marks any) {
	if c.After != nil {
		return c.After, c.AfterSensitive
	}
	return c.Before, c.BeforeSensitive
}

// slotThere reports whether a slot runs or should run: it has not ended and was not released.
func slotThere(rec *job.Record, a job.Address) bool {
	s := rec.Slot(a.Role, a.Index)
	return s != nil && (s.Phase.Live() || s.Phase == job.Succeeded)
}

// hinted reports whether a scheduler chooses a provider's nodes.
func (b *planBuilder) hinted(provider string) bool {
	c, known := b.facts.Input.Capabilities[provider]
	return known && !c.Places
}

// slotObject returns a slot before or after the plan.
func (b *planBuilder) slotObject(rec *job.Record, a job.Address, c *plan.Change, next bool) (values, marks any) {
	var common roleObject
	var s *job.Slot
	if rec != nil {
		common, s = b.role(rec, a), rec.Slot(a.Role, a.Index)
	}
	object := make(map[string]any, len(common.values)+4)
	maps.Copy(object, common.values)
	object["job"], object["role"] = a.Job, a.Role
	if s != nil {
		object["node"], object["incarnation"] = orNull(s.Node), s.Incarnation
	}
	switch {
	case next && c != nil && stops(c):
		object["node"], object["incarnation"] = orNull(c.Node), nil
	case next && c != nil && c.Incarnation > 0:
		object["node"], object["incarnation"] = orNull(c.Node), c.Incarnation
	case !next && c != nil && len(c.Stop) > 0:
		object["incarnation"] = slices.Max(c.Stop)
	}
	return object, orEmpty(common.marks)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// role returns what the slot has from its role. It is cached by role, unless programs differ by slot.
func (b *planBuilder) role(rec *job.Record, a job.Address) roleObject {
	r := rec.Spec.Role(a.Role)
	if r == nil {
		return roleObject{}
	}
	key := roleAt{&rec.Spec, a.Role}
	if made, ok := b.roles[key]; ok {
		return made
	}
	values, marks := b.redactor.hidden(slotAttributes(r, a.Index))
	made := roleObject{values.(map[string]any), marks}
	if r.PerSlot == nil {
		b.roles[key] = made
	}
	return made
}

// reason returns Terraform's action_reason for a change, if one fits.
func (b *planBuilder) reason(a job.Address, c *plan.Change) string {
	now := b.jobs[a.Job]
	switch {
	case c.Action == plan.Replace && slices.ContainsFunc(c.Fields, forces):
		return "replace_because_cannot_update"
	case c.Action == plan.Replace && b.requested(c):
		return "replace_by_request"
	case c.Action == plan.Replace:
		return "replace_because_tainted" // the slot or its place is damaged
	case c.Action != plan.Delete || b.facts.Input.Destroy:
		return ""
	case now == nil || now.Role(a.Role) == nil:
		return "delete_because_no_resource_config"
	}
	next := b.facts.Plan.Records[a.Job]
	if next != nil && a.Index >= next.Counts[a.Role] {
		return "delete_because_count_index"
	}
	return ""
}

// requested reports whether the user asked for a slot's replacement.
func (b *planBuilder) requested(c *plan.Change) bool {
	return slices.ContainsFunc(b.facts.Input.Scope.Replace, func(r plan.Replacement) bool {
		return r.Slot == c.Slot && r.UID == c.UID && c.Launch == nil && c.Incarnation <= r.Incarnation
	})
}

// replacePath returns a field's path in Terraform's form: "resources.cpu" is ["resources", "cpu"].
func replacePath(path string) []any {
	path, key, keyed := strings.Cut(path, "[")
	var out []any
	for part := range strings.SplitSeq(path, ".") {
		out = append(out, part)
	}
	if keyed {
		out = append(out, strings.Trim(strings.TrimSuffix(key, "]"), `"`))
	}
	return out
}

// planned returns a change with its texts redacted.
func (b *planBuilder) planned(c *plan.Change) *PlannedChange {
	if !slices.EqualFunc(c.Reasons, b.reasonCache.of, job.Reason.Equal) {
		b.reasonCache = cachedReasons{c.Reasons, b.redactor.Sentences(c.Reasons), b.redactor.Reasons(c.Reasons)}
	}
	return &PlannedChange{
		Action: c.Action, Job: c.Job, Role: c.Slot.Role, UID: c.UID, From: c.From, Import: b.text(c.Import), Reasons: b.reasonCache.texts, ReasonCodes: b.reasonCache.codes,
		Fields: b.fields(c), Node: c.Node, Incarnation: c.Incarnation, Stop: c.Stop, Grace: c.Grace,
		Wave: c.Wave, Follows: b.follows(c), remains: b.remains(c), index: c.Slot.Index, at: b.at[c],
	}
}

// remains reports whether a change removes what is left of a job without a record: it had none, or the record under its name is
// another job's by now.
func (b *planBuilder) remains(c *plan.Change) bool {
	if c.Action != plan.Delete || !ofJob(c) {
		return false
	}
	rec := b.facts.Input.Records[c.Job]
	return rec == nil || rec.UID != c.UID || b.facts.Plan.Records[c.Job] != nil
}

func (b *planBuilder) fields(c *plan.Change) []FieldShown {
	if len(c.Fields) == 0 {
		return nil
	}
	if made, ok := b.shown[&c.Fields[0]]; ok {
		return made
	}
	out := make([]FieldShown, len(c.Fields))
	for i, f := range c.Fields {
		path := f.Path
		if c.Action != plan.Update { // a slot's field is shown in its role's block
			path = withinRole(path)
		}
		s := FieldShown{Path: b.text(path), Before: b.redactor.Value(f.Before), After: b.redactor.Value(f.After), Forces: c.Action == plan.Replace && forces(f), By: b.text(f.By)}
		if c.Action == plan.Create {
			s.Before = "" // a new slot had no values: do not show zero values
		}
		if s.After == sensitive && s.Before != "" {
			s.Before = sensitive // the former value of a sensitive attribute is sensitive too
		}
		out[i] = s
	}
	b.shown[&c.Fields[0]] = out
	return out
}

// follows returns the roles that a change of a later wave waits for: a start for those it depends on, a stop for those
// that depend on it.
func (b *planBuilder) follows(c *plan.Change) []string {
	record := b.facts.Plan.Records[c.Job]
	if c.Wave == 0 || record == nil {
		return nil
	}
	var others []string
	if c.Action == plan.Delete {
		for i := range record.Spec.Roles {
			r := &record.Spec.Roles[i]
			if slices.ContainsFunc(r.DependsOn, func(on string) bool { return roleName(on) == c.Slot.Role }) {
				others = append(others, r.Name)
			}
		}
		return others
	}
	if r := record.Spec.Role(c.Slot.Role); r != nil {
		for _, on := range r.DependsOn {
			others = append(others, roleName(on))
		}
	}
	return others
}

// drift returns what runs differently from what was last applied: Before as applied, After as it is now.
func (b *planBuilder) drift() []ResourceChange {
	var out []ResourceChange
	for _, d := range plan.Drifted(&b.facts.Input) {
		out = append(out, b.drifted(&d))
	}
	return out
}

func (b *planBuilder) drifted(d *plan.Drift) ResourceChange {
	index := d.Slot.Index
	c := ObjectChange{Actions: acts(d.Action), AfterUnknown: map[string]bool{}, BeforeSensitive: false, AfterSensitive: false}
	shown := &PlannedChange{Action: d.Action, Job: d.Slot.Job, Role: d.Slot.Role, UID: d.UID, index: index, drift: true}
	reasons := slices.Clip(d.Reasons)
	was, is := map[string]any{}, map[string]any{}
	for _, f := range d.Fields {
		was[b.text(f.Path)], is[b.text(f.Path)] = orNull(f.Before), orNull(f.After)
		shown.Fields = append(shown.Fields, FieldShown{Path: b.text(f.Path), Before: b.redactor.Value(f.Before), After: b.redactor.Value(f.After), By: b.text(f.By)})
		if f.By != "" {
			reasons = append(reasons, job.Because(changedBy, "path", f.Path, "by", f.By))
		}
	}
	shown.Reasons, shown.ReasonCodes = b.redactor.Sentences(reasons), b.redactor.Reasons(reasons)
	switch d.Action {
	case plan.Delete:
		c.Before, c.BeforeSensitive = b.slotObject(b.facts.Input.Records[d.Slot.Job], d.Slot, nil, false)
	case plan.Create:
		c.After, c.AfterSensitive = map[string]any{"job": d.Slot.Job, "role": d.Slot.Role}, map[string]any{}
	default:
		c.Before, c.BeforeSensitive = b.redactor.hidden(was)
		c.After, c.AfterSensitive = b.redactor.hidden(is)
		c.BeforeSensitive, c.AfterSensitive = orEmpty(c.BeforeSensitive), orEmpty(c.AfterSensitive)
	}
	return ResourceChange{Change: c, Eltrain: shown, Resource: Resource{Address: d.Slot.String(), Mode: "managed", Type: slotType,
		Name: d.Slot.Job + "." + d.Slot.Role, Index: &index, Provider: d.Provider}}
}

// The two sides of a change.
func before(c *ObjectChange) (values, marks any) { return c.Before, c.BeforeSensitive }

func after(c *ObjectChange) (values, marks any) { return c.After, c.AfterSensitive }

// values returns the objects that exist before or after, as side selects.
func (b *planBuilder) values(changes []ResourceChange, side func(*ObjectChange) (values, marks any)) PlanModule {
	var m PlanModule
	for i := range changes {
		values, marks := side(&changes[i].Change)
		last := len(m.Resources) - 1
		if values == nil || last >= 0 && m.Resources[last].Address == changes[i].Address {
			continue // does not exist on this side, or is already listed because of another change
		}
		if m.Resources == nil {
			m.Resources = make([]ResourceValues, 0, len(changes)-i)
		}
		m.Resources = append(m.Resources, ResourceValues{Resource: changes[i].Resource, Values: values, Sensitive: marks})
	}
	return m
}
