package planfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// expectation is the state of one slot that a plan changes, or claims to run, when the plan was made.
type expectation struct {
	Slot job.Address
	UID  string
	// Runs are the incarnations of the slot that were not gone.
	Runs []Run
	// Place is the node that the slot is to start on, if the plan chose it.
	Place *Place
}

// Run is an incarnation. It does not include its state: the end of starting is not a change by somebody.
type Run struct {
	Number      int
	Node        string
	Fingerprint string
	Drift       []job.FieldChange
}

// Place is a node.
type Place struct {
	Name    string
	Closed  string
	Drained string
}

// expect returns the current state of the slots that a plan changes, and of others.
func expect(in *plan.Input, p *plan.Plan, others []at) []expectation {
	runs := map[at][]Run{}
	for inc := range in.Snapshot.Incarnations.All() {
		if inc.State != job.Gone {
			key := at{inc.UID, inc.Slot}
			runs[key] = append(runs[key], Run{inc.Number, inc.Node, inc.Fingerprint, inc.Drift})
		}
	}
	nodes := map[string]*job.Node{}
	for i := range in.Snapshot.Nodes {
		nodes[in.Snapshot.Nodes[i].Name] = &in.Snapshot.Nodes[i]
	}
	var out []expectation
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Slot == (job.Address{}) {
			continue // a change of the job's settings: they are in the records, which the serial covers
		}
		e := expectation{Slot: c.Slot, UID: c.UID, Runs: runs[at{c.UID, c.Slot}]}
		if node := nodes[c.Node]; node != nil && starts(c) && chosen(in, c) {
			e.Place = &Place{node.Name, node.Closed, node.Drained}
		}
		out = append(out, e)
	}
	for _, a := range others {
		out = append(out, expectation{Slot: a.slot, UID: a.uid, Runs: runs[a]})
	}
	for i := range out {
		slices.SortFunc(out[i].Runs, func(a, b Run) int { return a.Number - b.Number })
	}
	return out
}

func starts(c *plan.Change) bool { return c.Action == plan.Create || c.Action == plan.Replace }

// chosen reports whether the plan chooses the nodes of the change's provider; otherwise they are hints.
func chosen(in *plan.Input, c *plan.Change) bool {
	name := c.Provider
	if rec := in.Records[c.Job]; name == "" && rec != nil {
		name = rec.Spec.Provider
	}
	for i := range in.Jobs {
		if name == "" && in.Jobs[i].Name == c.Job {
			name = in.Jobs[i].Provider
		}
	}
	return in.Capabilities[name].Places
}

// StaleError is why a saved plan can no longer be applied. Because completes a sentence that ends in "because".
type StaleError struct {
	Because string
	Why     []string // the differences, one sentence for each slot
}

// HasSource reports whether a role of the plan's jobs consists of files, which may have changed.
func (f *File) HasSource() bool {
	return slices.ContainsFunc(f.Facts.Input.Jobs, func(j job.Job) bool {
		return slices.ContainsFunc(j.Roles, func(r job.Role) bool { return len(r.Source) > 0 })
	})
}

// CheckSource returns a StaleError if source files are other ones than the plan was made with. declared are the jobs by the
// files as they are now.
func (f *File) CheckSource(declared []job.Job) error {
	for i := range f.Facts.Input.Jobs {
		planned := &f.Facts.Input.Jobs[i]
		now := new(job.Job)
		if at := slices.IndexFunc(declared, func(j job.Job) bool { return j.Name == planned.Name }); at >= 0 {
			now = &declared[at]
		}
		for k := range planned.Roles {
			role, files := &planned.Roles[k], job.Files(nil)
			if r := now.Role(role.Name); r != nil {
				files = r.Source
			}
			for _, path := range slices.Sorted(maps.Keys(role.Source)) {
				if files[path] != role.Source[path] {
					return &StaleError{Because: fmt.Sprintf("the source file %q of job.%s.%s has changed", path, planned.Name, role.Name)}
				}
			}
			if len(files) > len(role.Source) {
				return &StaleError{Because: fmt.Sprintf("job.%s.%s has more source files", planned.Name, role.Name)}
			}
		}
	}
	return nil
}

// maxWhy bounds the reasons shown: a plan for 10,000 slots may have as many.
const maxWhy = 10

func (e *StaleError) Error() string {
	text := e.Because
	why := e.Why
	if len(why) > maxWhy {
		why = append(slices.Clone(why[:maxWhy]), fmt.Sprintf("and %d more", len(e.Why)-maxWhy))
	}
	if len(why) == 0 {
		text += "."
	} else {
		text += ":\n  - " + strings.Join(why, "\n  - ") + "\n"
	}
	return text + "\nNothing was changed. Plan again and review the new plan."
}

// CheckState returns a *StaleError if the state is not the one that the plan was made from.
func (f *File) CheckState(lineage string, serial uint64) error {
	switch {
	case lineage != f.Lineage && f.Lineage == "":
		return &StaleError{Because: "there was no state when it was created, and there is one now"}
	case lineage != f.Lineage:
		return &StaleError{Because: "it was created from a different state lineage: for another directory, or before the state was recreated"}
	case serial != f.Serial:
		return &StaleError{Because: fmt.Sprintf("the state was changed by another operation after the plan was created: its serial is %d, was %d", serial, f.Serial)}
	}
	return nil
}

// CheckRecords returns a *StaleError unless the records that the plan was made from are those of the state, which has the
// same serial: otherwise the plan shows changes from something else.
func (f *File) CheckRecords(stored job.Records) error {
	var why []string
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if f.Facts.Input.Records[name] == nil {
			why = append(why, "job."+name+" is in the state, and not in the plan file")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Facts.Input.Records)) {
		was, err := json.Marshal(f.Facts.Input.Records[name])
		if err != nil {
			return fmt.Errorf("the plan's record of job %s: %w", name, err)
		}
		is, err := json.Marshal(stored[name])
		if err != nil {
			return fmt.Errorf("the state's record of job %s: %w", name, err)
		}
		if !bytes.Equal(was, is) {
			why = append(why, "job."+name+" is recorded differently in the plan file and in the state")
		}
	}
	if len(why) > 0 {
		return &StaleError{"its records are not those of the state, although the serial is the same: the plan file or the state was edited", why}
	}
	return nil
}

// Check returns a *StaleError if a slot that the plan changes is no longer in the expected state, or if a new plan for the
// same configuration, now, would change it differently. Other slots do not matter if they are as the state's records declare;
// the changes that now has for them are returned as others. Nothing else is started that the plan does not show.
func (f *File) Check(in *plan.Input, now *plan.Plan) (others []plan.Change, err error) {
	var why []string
	claimed := claims(&f.Facts.Input, &f.Facts.Plan)
	expected, seen := expect(&f.Facts.Input, &f.Facts.Plan, claimed), expect(in, &f.Facts.Plan, claimed)
	for i := range expected {
		why = append(why, expected[i].differences(&seen[i])...)
	}
	type target struct {
		uid  string
		slot job.Address
		name string
	}
	approved := map[target][]*plan.Change{}
	for i := range f.Facts.Plan.Changes {
		c := &f.Facts.Plan.Changes[i]
		key := target{c.UID, c.Slot, c.Job}
		approved[key] = append(approved[key], c)
	}
	same, shown := map[*plan.Change]bool{}, map[*plan.Change]*plan.Change{}
	for i := range now.Changes {
		c := &now.Changes[i]
		was := approved[target{c.UID, c.Slot, c.Job}]
		if was == nil {
			others = append(others, *c)
			continue
		}
		for _, old := range was {
			if f.equal(in, old, c) {
				same[old], shown[c] = true, old
			}
		}
	}
	if len(why) == 0 { // otherwise different changes follow from it
		for i := range f.Facts.Plan.Changes {
			if c := &f.Facts.Plan.Changes[i]; !same[c] {
				why = append(why, changed(c, now))
			}
		}
	}
	if len(why) == 0 {
		why = hidden(in, now, shown)
	}
	if len(why) > 0 {
		return nil, &StaleError{"what it touches was changed after the plan was created", why}
	}
	return others, nil
}

// equal reports whether two changes of the same slot are the same.
func (f *File) equal(in *plan.Input, a, b *plan.Change) bool {
	return a.Action == b.Action && a.Incarnation == b.Incarnation && slices.Equal(a.Stop, b.Stop) && (a.Node == b.Node || !chosen(in, a))
}

// changed describes how a new plan differs from a change of the saved one.
func changed(c *plan.Change, now *plan.Plan) string {
	name := "job." + c.Job
	if c.Slot != (job.Address{}) {
		name = c.Slot.String()
	}
	for i := range now.Changes {
		if n := &now.Changes[i]; n.UID == c.UID && n.Slot == c.Slot && n.Job == c.Job {
			if n.Action == c.Action && n.Node != c.Node {
				return fmt.Sprintf("%s was planned on node %s, but would now be on %s", name, c.Node, n.Node)
			}
			return fmt.Sprintf("%s: the plan was to %s it, now it is to %s it", name, c.Action, n.Action)
		}
	}
	return fmt.Sprintf("%s: there is nothing left to %s", name, c.Action)
}

// differences describes what changed, in full sentences.
func (e *expectation) differences(now *expectation) []string {
	var why []string
	if e.Place != nil && (now.Place == nil || *e.Place != *now.Place) {
		why = append(why, fmt.Sprintf("%s was to start on node %s, which now %s", e.Slot, e.Place.Name, now.Place.state()))
	}
	was, is := runsText(e.Runs), runsText(now.Runs)
	switch {
	case was != is:
		why = append(why, fmt.Sprintf("%s was %s, and is now %s", e.Slot, was, is))
	case !slices.EqualFunc(e.Runs, now.Runs, Run.same):
		why = append(why, fmt.Sprintf("%s (%s) was edited since", e.Slot, is))
	}
	return why
}

func (r Run) same(o Run) bool {
	return r.Number == o.Number && r.Node == o.Node && r.Fingerprint == o.Fingerprint && slices.Equal(r.Drift, o.Drift)
}

func (p *Place) state() string {
	switch {
	case p == nil:
		return "does not exist"
	case p.Closed != "":
		return "is closed (" + p.Closed + ")"
	case p.Drained != "":
		return "is drained (" + p.Drained + ")"
	}
	return "is open"
}

func runsText(runs []Run) string {
	if len(runs) == 0 {
		return "not running"
	}
	var parts []string
	for _, r := range runs {
		text := fmt.Sprintf("incarnation %d", r.Number)
		if r.Node != "" {
			text += " on " + r.Node
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}
