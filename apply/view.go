package apply

import (
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Words writes reasons for people. cmd/view has the sentences.
type Words interface {
	// Sentence says a reason in full, Headline what a refusal is called.
	Sentence(job.Reason) string
	Headline(job.Code) string
}

// codes are the words where nobody reads.
type codes struct{}

func (codes) Sentence(r job.Reason) string  { return r.String() }
func (codes) Headline(code job.Code) string { return string(code) }

// View is told what apply does while it does it. cmd/view implements it for people and for machines. Calls
// come from one goroutine at a time and must not block for long.
type View interface {
	// Planned is told each plan that has new changes, waits or sizes, before it is carried out, and the first one after that
	// which has no changes any more: what was not done of those is given up.
	Planned(p *plan.Plan)
	// Started, Still and Finished follow one change. err is nil when it was done.
	Started(c *plan.Change)
	Still(c *plan.Change, elapsed time.Duration)
	Finished(c *plan.Change, elapsed time.Duration, err error)
	// Withdrawn ends one that was not done, and is not asked for any more.
	Withdrawn(c *plan.Change, elapsed time.Duration)
	// Noticed is told what happens: phases, worlds, incidents.
	Noticed(n job.Notice)
	// Warned is told what is wrong but does not end the run: a file with an error, an unreachable provider.
	// The text is a full diagnostic of one or more lines. The same may be told again while it holds: a view shows it once.
	Warned(summary, detail string)
	// Recovered is told when what was last warned of under this summary is over.
	Recovered(summary string)
	// Progressed is told, at most once a second per job, how training goes. loss is nil if it is not known.
	Progressed(jobName string, step int64, loss *float64, stepsPerSecond float64)
}
