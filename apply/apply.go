// Package apply carries plans out. A Loop is the one loop as a value: it takes observations and outcomes of its effects,
// plans, and returns the next effects. A Driver runs it against the world: it owns the goroutines, the bounds and
// the clock. `eltrain plan` observes once and does not act (Planner); `apply` runs until nothing is left to do,
// `apply -watch` forever.
//
// It is the only package in which plans, providers, the service and the store meet.
package apply

import (
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Intent is what a run should do, in addition to the files.
type Intent struct {
	// Watch runs until it is interrupted. Otherwise it ends once nothing is left to do: elastic roles get their initial size and do not grow
	// further.
	Watch bool
	// Destroy: Files has no jobs because all are to be destroyed.
	Destroy bool
	// Prevent names the jobs that the files protect from being destroyed, if Files has none.
	Prevent map[string]bool
	// Keep keeps jobs that are recorded but not declared.
	Keep bool
	// MaxDestroy limits how many slots a change of the files may remove or replace at once. What exceeds it is
	// held back and reported. nil is no limit.
	MaxDestroy *int
	// Rerun starts failed jobs again.
	Rerun bool
	// Scope limits what may change. Replace names slots to replace in addition to those in Scope.
	Scope   plan.Scope
	Replace []job.Selector
	// Refresh only records what is observed.
	Refresh bool
}

// Files is one reading of the configuration.
type Files struct {
	Jobs    []job.Job
	Blocks  plan.Blocks // moved, removed and import blocks, and the owner of jobs
	Outputs map[string]state.Output
	// Commit is the commit of the files, for a person; "" if unknown. It is also set with an error.
	Commit string
	// Caution says why the files may be incomplete; "" if they are not.
	Caution string
	// Misnamed reports a removed block that matches nothing while a job is destroyed; "" if there is none.
	Misnamed string
	// Seal takes out of what is kept what is sensitive by now; nil takes nothing out.
	Seal *job.Sealer
}

// Words writes reasons for people. cmd/view has the sentences.
type Words interface {
	// Sentence says a reason in full.
	Sentence(job.Reason) string
}

// codes writes codes instead of sentences, where nobody reads them.
type codes struct{}

func (codes) Sentence(r job.Reason) string { return r.String() }

// View receives the progress of a run. cmd/view implements it for people and for programs. Calls come from one
// goroutine at a time and must not block for long.
type View interface {
	// Planned is told each plan that has new changes, waits or sizes, before it is carried out, and the first one after that
	// which has no changes any more: what was not done of those is given up. Of its waits it has those that are news.
	Planned(p *plan.Plan)
	// Started, Still and Finished report one change. err is nil if it succeeded.
	Started(c *plan.Change)
	Still(c *plan.Change, elapsed time.Duration)
	Finished(c *plan.Change, elapsed time.Duration, err error)
	// Withdrawn reports a change that was canceled: it is no longer needed.
	Withdrawn(c *plan.Change, elapsed time.Duration)
	// Noticed is told what happens, but for what conditions tell: phases, worlds, incidents.
	Noticed(n job.Notice)
	// Condition is told what holds and somebody should know, and that it is over: each transition once. What an earlier run has
	// told and holds on is told as that.
	Condition(c conditions.Change)
	// Progressed reports training progress every few seconds.
	Progressed(jobName string, p Progress)
}
