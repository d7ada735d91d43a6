// Package apply carries plans out. A Loop is the one loop as a value: it is told what is observed and how what it asked for
// has ended, plans, and says what is to be done. A Driver runs it against the world: it owns the goroutines, the bounds and
// the clock. `eltrain plan` looks once and stops before acting (Planner); `apply` runs until nothing is left to do,
// `apply -watch` for ever.
//
// It is the only room in which plans, providers, the service and the store meet.
package apply

import (
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Intent is what a run is to do, beside what the files say.
type Intent struct {
	// Watch goes on for ever. Else the run ends once nothing is left to do: elastic roles get what they begin with, and grow
	// no further.
	Watch bool
	// Destroy says that Files has no jobs because all are to be destroyed.
	Destroy bool
	// Prevent says which jobs the files keep from being destroyed, where Files has none.
	Prevent map[string]bool
	// Keep leaves jobs alone that are recorded and not declared.
	Keep bool
	// MaxDestroy bounds how many slots a change of the files may have removed or replaced at once. What is beyond that is
	// not done, and is told. nil is no bound.
	MaxDestroy *int
	// Rerun starts jobs that failed anew.
	Rerun bool
	// Scope bounds what may be changed, and Replace names slots to start anew besides those that Scope does.
	Scope   plan.Scope
	Replace []job.Selector
	// Refresh plans nothing but to record what is seen.
	Refresh bool
}

// Files is one reading of the configuration.
type Files struct {
	Jobs    []job.Job
	Blocks  plan.Blocks // what the files say of jobs' names, and whose jobs are
	Outputs map[string]state.Output
	// Commit names what the files are of, for a person; "" if that is not known. It is there with an error, too.
	Commit string
	// Caution is what is doubtful about how the files came to be as they are; "" if nothing.
	Caution string
	// Misnamed tells of a removed block that keeps nothing while a job is ended; "" if there is none.
	Misnamed string
	// Seal takes out of what is kept what is sensitive by now; nil takes nothing out.
	Seal *job.Sealer
}

// Words writes reasons for people. cmd/view has the sentences.
type Words interface {
	// Sentence says a reason in full.
	Sentence(job.Reason) string
}

// codes are the words where nobody reads.
type codes struct{}

func (codes) Sentence(r job.Reason) string { return r.String() }

// View is told what a run does while it does it. cmd/view implements it for people and for machines. Calls come from one
// goroutine at a time and must not block for long.
type View interface {
	// Planned is told each plan that has new changes, waits or sizes, before it is carried out, and the first one after that
	// which has no changes any more: what was not done of those is given up. Of its waits it has those that are news.
	Planned(p *plan.Plan)
	// Started, Still and Finished follow one change. err is nil when it was done.
	Started(c *plan.Change)
	Still(c *plan.Change, elapsed time.Duration)
	Finished(c *plan.Change, elapsed time.Duration, err error)
	// Withdrawn ends one that was not done, and is not asked for any more.
	Withdrawn(c *plan.Change, elapsed time.Duration)
	// Noticed is told what happens, but for what conditions tell: phases, worlds, incidents.
	Noticed(n job.Notice)
	// Condition is told what holds and somebody should know, and that it is over: each transition once. What an earlier run has
	// told and holds on is told as that.
	Condition(c conditions.Change)
	// Progressed is told, every few seconds, how training goes.
	Progressed(jobName string, p Progress)
}
