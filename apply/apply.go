// Package apply carries plans out. A Loop is the control loop as a value: it takes observations and outcomes of its effects,
// plans, and returns the next effects. A Driver runs it against the world: it owns the goroutines, the timeouts and
// the clock. `eltrain plan` observes once and does not act (Planner); `apply` runs until nothing is left to do,
// `apply -watch` until it is interrupted.
//
// It is the only package in which plans, providers, the service and the store meet.
package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Intent is what a run should do, in addition to the files.
type Intent struct {
	// Watch runs until interrupted. Otherwise the run ends once nothing is left to do, and elastic roles do not grow beyond
	// their initial size.
	Watch bool
	// UntilEnded ends a watching run once all jobs have ended.
	UntilEnded bool
	// Destroy: Files has no jobs because all are to be destroyed.
	Destroy bool
	// Prevent names the jobs that the files protect from destruction, for when Files has no jobs.
	Prevent map[string]bool
	// Keep retains jobs that are recorded but not declared.
	Keep bool
	// MaxDestroy limits how many slots one change of the files may remove or replace. A change that exceeds it is
	// held back and reported. nil means no limit.
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
	Jobs   []job.Job
	Blocks plan.Blocks // moved, removed and import blocks, and the jobs' owner
	Values state.Values
	// Notify are the notify blocks; nil if they are unknown, because the configuration was not read from files.
	Notify []job.Notify
	// Commit is the commit of the files, for display; "" if unknown. It is set even if reading failed.
	Commit string
	// Caution is FilesDoubtful if the files may be incomplete.
	Caution job.Reason
	// Misnamed is RemovedMisnamed if a removed block matches nothing while a job is destroyed.
	Misnamed job.Reason
	// Seal replaces sensitive values in whatever is stored; nil if nothing is sensitive.
	Seal *job.Sealer
}

// Digest identifies the declared jobs and blocks, wherever in which files they are.
func (f *Files) Digest() string {
	jobs := slices.Clone(f.Jobs)
	for i := range jobs {
		jobs[i].Source = job.Source{}
		jobs[i].Roles = slices.Clone(jobs[i].Roles)
		for k := range jobs[i].Roles {
			jobs[i].Roles[k].SourceRoot = ""
		}
	}
	slices.SortFunc(jobs, func(a, b job.Job) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	json.NewEncoder(h).Encode(jobs) // declared values can always be encoded, with sorted keys
	json.NewEncoder(h).Encode(f.Blocks)
	return hex.EncodeToString(h.Sum(nil))
}

// Words renders reasons for people. cmd/view has the sentences.
type Words interface {
	// Sentence renders a reason in full.
	Sentence(job.Reason) string
}

// codes renders codes instead of sentences.
type codes struct{}

func (codes) Sentence(r job.Reason) string { return r.String() }

// View receives the progress of a run. cmd/view implements it for people and for programs. Calls come from one
// goroutine at a time and must not block for long.
type View interface {
	// Planned receives each plan that has new changes or sizes, before it is carried out, and then the first plan without
	// changes: whatever was not done by then is canceled. What its jobs wait for is reported by Condition.
	Planned(p *plan.Plan)
	// Started, Still and Finished report one change. err is nil if it succeeded.
	Started(c *plan.Change)
	Still(c *plan.Change, elapsed time.Duration)
	Finished(c *plan.Change, elapsed time.Duration, err error)
	// Withdrawn reports a change that was canceled: it is no longer needed.
	Withdrawn(c *plan.Change, elapsed time.Duration)
	// Noticed reports events that no condition covers: phases, worlds, incidents.
	Noticed(n job.Notice)
	// Condition reports each transition of a condition once. A condition that an earlier run reported and that still holds
	// is reported as Held.
	Condition(c conditions.Change)
	// Progressed reports training progress every few seconds.
	Progressed(jobName string, p Progress)
}
