package plan

import (
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Refusal is something that is asked for and must not be done. Whoever plans once does nothing then. Whoever watches
// does all else, and the job stays as it is.
type Refusal struct {
	Job     string `json:"job"`
	Summary string `json:"summary"`
	Detail  string `json:"detail"`
}

func refusal(name, summary, detail string) *Refusal {
	return &Refusal{Job: name, Summary: summary, Detail: detail}
}

func (p *pass) refuse(r Refusal) {
	p.refusedJobs[r.Job] = true
	p.out.Refusals = append(p.out.Refusals, r)
}

// prevented tells whether a recorded job that is not to run any more must not be ended, and refuses it. One that has
// ended has nothing left that could be lost.
func (p *pass) prevented(name string, rec *job.Record) bool {
	prevent, said := p.in.Prevent[name]
	if !said {
		prevent = rec.Spec.Lifecycle.PreventDestroy
	}
	if !prevent || isOver(rec) {
		return false
	}
	how := "either disable lifecycle.prevent_destroy or reduce the scope of the plan using the -target option"
	if !said {
		how = "declare it again, with lifecycle.prevent_destroy disabled, and apply that first: what counts is what was last applied"
	}
	p.refuse(*refusal(name, cannotBeDestroyed, fmt.Sprintf(
		"job.%s has lifecycle.prevent_destroy set, but the plan calls for this job to be destroyed. To avoid this error and continue with the plan, %s.", name, how)))
	p.kept[name] = true
	return true
}

const cannotBeDestroyed = "Instance cannot be destroyed"

// preventedMove tells whether a declared job would have to end where it runs, to begin under another provider, and must
// not; it refuses that.
func (p *pass) preventedMove(spec *job.Job, rec *job.Record) bool {
	if !spec.Lifecycle.PreventDestroy || spec.Provider == rec.Spec.Provider || isOver(rec) {
		return false
	}
	p.refuse(*refusal(spec.Name, cannotBeDestroyed, fmt.Sprintf(
		"job.%s has lifecycle.prevent_destroy set, but the plan calls for it to be destroyed under provider %q and created under %q. To avoid this error and continue with the plan, either disable lifecycle.prevent_destroy or reduce the scope of the plan using the -target option.",
		spec.Name, rec.Spec.Provider, spec.Provider)))
	return true
}

// isOver tells whether the job has ended, and nothing of it is to run.
func isOver(rec *job.Record) bool {
	return rec.Phase.Ended() && !slices.ContainsFunc(rec.Slots, func(s job.Slot) bool { return s.Phase.Live() })
}
