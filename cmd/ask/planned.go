package ask

import (
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Planned returns what to ask for to have a plan carried out; nothing is on no address. commit is that of its files; "" if unknown. It is one
// request, so that a plan is carried out as a whole, whatever becomes of who asks.
func Planned(facts *view.PlanFacts, commit string, now time.Time) job.Request {
	r := job.Request{Verb: job.AskDestroy, At: now, Expires: now.Add(Expiry)}
	if facts.Input.Destroy {
		r.On = removed(facts)
		return r
	}
	files := apply.Files{Jobs: facts.Input.Jobs, Blocks: facts.Input.Blocks}
	scope := plan.Scope{Targets: facts.Input.Scope.Targets, Excludes: facts.Input.Scope.Excludes}.Named(files.Jobs, facts.Input.Records)
	r.Verb, r.Files, r.Commit = job.AskApply, files.Digest(), commit
	for i := range files.Jobs {
		name := files.Jobs[i].Name
		if _, destroyed := facts.Plan.Destroyed[name]; scope.Touches(name) && !destroyed {
			r.On = append(r.On, job.Selector{Job: name})
		}
	}
	for _, c := range facts.Input.Scope.Replace {
		if slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == c.Slot.Job }) {
			r.On = append(r.On, job.Selector{Job: c.Slot.Job, Role: c.Slot.Role, Ranges: [][2]int{{c.Slot.Index, c.Slot.Index}}})
		}
	}
	return r
}

// removed returns the recorded jobs that a plan removes.
func removed(facts *view.PlanFacts) (on []job.Selector) {
	for i := range facts.Plan.Changes {
		sel := job.Selector{Job: facts.Plan.Changes[i].Job}
		same := func(o job.Selector) bool { return o.Job == sel.Job }
		if facts.Input.Records[sel.Job] != nil && !slices.ContainsFunc(on, same) {
			on = append(on, sel)
		}
	}
	slices.SortFunc(on, func(a, b job.Selector) int { return strings.Compare(a.Job, b.Job) })
	return on
}
