package planfile

import (
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// at is a slot of a job.
type at struct {
	uid  string
	slot job.Address
}

// recorded says what the state's records declare. What they do not declare is started only if the plan shows it: the file
// says what is declared and what runs, so by itself it could hide a start.
type recorded struct {
	before map[string]*job.Record // by UID
	after  map[string]*job.Record // with what is to be applied
	prints map[*job.Role]func(index int) string
}

func newRecorded(before, after job.Records) *recorded {
	r := &recorded{map[string]*job.Record{}, map[string]*job.Record{}, map[*job.Role]func(int) string{}}
	for _, rec := range before {
		r.before[rec.UID] = rec
	}
	for _, rec := range after {
		r.after[rec.UID] = rec
	}
	return r
}

// declares reports whether a slot is recorded, and is to be started from what its record declares.
func (r *recorded) declares(a at) bool {
	was, is := r.before[a.uid], r.after[a.uid]
	if was == nil || is == nil || was.Slot(a.slot.Role, a.slot.Index) == nil && a.slot.Index >= was.Counts[a.slot.Role] {
		return false
	}
	before, after := r.fingerprint(was, a.slot), r.fingerprint(is, a.slot)
	return before != "" && before == after
}

func (r *recorded) fingerprint(rec *job.Record, a job.Address) string {
	role := rec.Spec.Role(a.Role)
	if role == nil {
		return ""
	}
	if r.prints[role] == nil {
		r.prints[role] = job.Fingerprints(&rec.Spec, role)
	}
	return r.prints[role](a.Index)
}

// claims returns the slots of the plan's jobs that run, by what the file says, and that no record declares so: that the plan
// does not start them rests on the file alone.
func claims(in *plan.Input, p *plan.Plan) (out []at) {
	r := newRecorded(in.Records, p.Records)
	changed := map[at]bool{}
	for i := range p.Changes {
		changed[at{p.Changes[i].UID, p.Changes[i].Slot}] = true
	}
	for inc := range in.Snapshot.Incarnations.All() {
		if a := (at{inc.UID, inc.Slot}); inc.State != job.Gone && r.after[inc.UID] != nil && !changed[a] && !r.declares(a) {
			changed[a] = true
			out = append(out, a)
		}
	}
	return out
}

// hidden describes the changes of now that would start what neither the plan shows nor a record declares. shown has the
// plan's change, for each that is the same.
func hidden(in *plan.Input, now *plan.Plan, shown map[*plan.Change]*plan.Change) (why []string) {
	r := newRecorded(in.Records, now.Records)
	for i := range now.Changes {
		c := &now.Changes[i]
		if !starts(c) && c.Launch == nil || r.declares(at{c.UID, c.Slot}) {
			continue
		}
		if old := shown[c]; old == nil || !slices.Equal(old.Fields, c.Fields) {
			why = append(why, fmt.Sprintf("%s would be started, which the plan does not show", c.Slot))
		}
	}
	return why
}
