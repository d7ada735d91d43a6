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

// Planned returns what to ask for to have a plan carried out. commit is that of its files; "" if unknown.
func Planned(facts *view.PlanFacts, commit string, now time.Time) (all []job.Request) {
	ask := func(one job.Request) {
		if one.At, one.Expires = now, now.Add(Expiry); len(one.On) > 0 {
			all = append(all, one)
		}
	}
	if facts.Input.Destroy {
		ask(job.Request{Verb: job.AskDestroy, On: removed(facts)})
		return all
	}
	files := apply.Files{Jobs: facts.Input.Jobs, Blocks: facts.Input.Blocks}
	scope := plan.Scope{Targets: facts.Input.Scope.Targets, Excludes: facts.Input.Scope.Excludes}.Named(files.Jobs, facts.Input.Records)
	declared := job.Request{Verb: job.AskApply, Files: files.Digest(), Commit: commit}
	for i := range files.Jobs {
		name := files.Jobs[i].Name
		if _, destroyed := facts.Plan.Destroyed[name]; scope.Touches(name) && !destroyed {
			declared.On = append(declared.On, job.Selector{Job: name})
		}
	}
	ask(declared)
	var replaced []job.Selector
	for _, c := range facts.Input.Scope.Replace {
		replaced = append(replaced, job.Selector{Job: c.Slot.Job, Role: c.Slot.Role, Ranges: [][2]int{{c.Slot.Index, c.Slot.Index}}})
	}
	ask(job.Request{Verb: job.AskRestart, On: replaced})
	return all
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
