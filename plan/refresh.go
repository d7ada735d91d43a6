package plan

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/signature"
)

// refresh updates the records from the snapshot and decides nothing: faults are recorded and left for a later plan. Jobs count
// as they were last applied.
func (p *pass) refresh() Plan {
	for _, w := range p.jobs {
		if w.frozen {
			continue
		}
		p.track(w)
		p.recordFaults(w)
		if w.active() && w.done() {
			p.close(w, job.JobSucceeded, job.Reason{})
			p.note("job."+w.name, "job_phase", entered(job.JobSucceeded))
		}
		p.judge(w)
	}
	p.markNodes()
	return p.finish()
}

// asLastApplied replaces the declarations by the recorded jobs as last applied.
func (p *pass) asLastApplied() {
	p.in.Jobs, p.in.Keep, p.in.Rerun, p.in.Blocks = nil, true, nil, Blocks{}
	p.in.Scope.Replace = nil
}

// Drift is one object that differs from what was last applied, not because of a plan.
type Drift struct {
	Slot     job.Address `json:"slot"`
	UID      string      `json:"uid"`
	Provider string      `json:"provider"`
	// Action is Update if it was changed, Delete if it is gone, Create if it runs and is not recorded.
	Action  Action       `json:"action"`
	Reasons []job.Reason `json:"reasons,omitempty"`
	// Fields are the changed attributes: Before as applied, After as it is now.
	Fields []job.FieldChange `json:"fields,omitempty"`
}

// Drifted compares what is observed of recorded jobs with what was last applied, and lists the differences by address. It only
// reads.
func Drifted(in *Input) []Drift {
	type at struct {
		uid  string
		slot job.Address
	}
	seen := map[at][]*job.Incarnation{}
	byUID := map[string]string{} // current names of recorded jobs
	for name, rec := range in.Records {
		byUID[rec.UID] = name
	}
	for inc := range in.Snapshot.Incarnations.All() {
		name, recorded := byUID[inc.UID]
		if !recorded {
			continue
		}
		slot := inc.Slot
		slot.Job = name // it may have been launched under another
		seen[at{inc.UID, slot}] = append(seen[at{inc.UID, slot}], inc)
	}
	var out []Drift
	extents := map[string]*extent{}
	var running map[string][]job.Address
	if in.Scope.Limited() {
		running = in.running()
	}
	included := func(a job.Address) bool {
		if in.Scope.Limited() && extents[a.Job] == nil {
			extents[a.Job] = in.Scope.extent(a.Job, in.specs(a.Job), slotsOf(in.Records[a.Job], running), in.Destroy)
		}
		return !in.Scope.Limited() || extents[a.Job].has(a)
	}
	for name, rec := range in.Records {
		site := in.Capabilities[rec.Spec.Provider]
		if _, shown := in.Capabilities[rec.Spec.Provider]; !shown || rec.Site != "" && site.Site != "" && rec.Site != site.Site {
			continue // nothing is known about it
		}
		for i := range rec.Slots {
			s := &rec.Slots[i]
			key := at{rec.UID, job.Address{Job: name, Role: s.Address.Role, Index: s.Address.Index}}
			if d, drifted := driftOf(rec, s, seen[key], site.Places); drifted && included(d.Slot) {
				out = append(out, d)
			}
			delete(seen, key)
		}
	}
	for key, incs := range seen { // slots without a record
		for _, inc := range incs {
			if inc.State != job.Gone && included(key.slot) {
				out = append(out, Drift{Slot: key.slot, UID: key.uid, Provider: inc.Provider, Action: Create,
					Reasons: []job.Reason{job.Because(NotRecorded, "incarnation", strconv.Itoa(inc.Number), "node", inc.Node)}})
			}
		}
	}
	slices.SortFunc(out, func(a, b Drift) int { return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(a.Action, b.Action)) })
	return out
}

// driftOf compares what is observed of a slot with its record. places: the planner chose its node.
func driftOf(rec *job.Record, s *job.Slot, seen []*job.Incarnation, places bool) (d Drift, drifted bool) {
	d = Drift{Slot: s.Address, UID: rec.UID, Provider: rec.Spec.Provider, Action: Update}
	if s.Incarnation == 0 || !s.Phase.Live() || s.Phase == job.Canceling || s.Phase == job.Failing || s.Phase == job.Pending {
		return d, false
	}
	var current, newest *job.Incarnation
	for _, inc := range seen {
		if inc.Number == s.Incarnation {
			current = inc
		}
		if newest == nil || inc.Number > newest.Number {
			newest = inc
		}
	}
	changed := func(path, was, is string) {
		d.Fields = append(d.Fields, job.FieldChange{Path: path, Before: was, After: is, Change: job.Update})
	}
	switch {
	case newest != nil && newest.Number > s.Incarnation:
		recorded, runs := strconv.Itoa(s.Incarnation), strconv.Itoa(newest.Number)
		changed("incarnation", recorded, runs)
		d.Reasons = []job.Reason{job.Because(NewerIncarnation, "incarnation", runs, "recorded", recorded)}
	case current == nil:
		d.Action, d.Reasons = Delete, []job.Reason{job.Because(Gone)}
		return d, s.Phase != job.Scheduling // in Scheduling it is still to be started
	case current.State == job.Gone && current.Ended == job.EndFinished:
		changed("phase", string(s.Phase), string(job.Succeeded))
		d.Reasons = []job.Reason{job.Because(EndedWell)}
	case current.State == job.Gone:
		d.Action, d.Reasons = Delete, endOf(s, current)
	default:
		for _, f := range current.Drift {
			d.Fields = append(d.Fields, job.FieldChange{Path: f.Path, Before: f.After, After: f.Before, Change: f.Change, By: f.By})
		}
		if places && s.Node != "" && current.Node != s.Node {
			changed("node", s.Node, current.Node)
		}
		if len(d.Fields) == 0 {
			return d, false
		}
	}
	return d, true
}

// endOf says how an incarnation ended that we did not stop.
func endOf(s *job.Slot, inc *job.Incarnation) []job.Reason {
	return append(evidence("", s.Node, cmp.Or(inc.Cause, endedBy(inc)), inc.Exit, signature.Match{}), reported("", inc.Evidence)...)
}

// endedBy is the cause of an end for which the infrastructure gives none.
func endedBy(inc *job.Incarnation) job.Cause {
	switch {
	case inc.Exit != nil && inc.Exit.NotStarted != "":
		return job.StartFailed
	case inc.Exit != nil && inc.Exit.OOM:
		return job.OutOfMemory
	case inc.Ended == job.EndLeft:
		return job.AgentLeft
	case inc.Ended == job.EndFailed: // its processes ended before their agent, which could still report how
		return inc.Exit.Cause()
	}
	return job.AgentGone
}
