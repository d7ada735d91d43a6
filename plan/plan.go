// Package plan decides. Make is a pure function from what is declared, what is observed, what is remembered
// and the time to the ordered changes that bring the second to the first, each with its reason.
//
// It does no I/O, asks no clock, and knows no provider by name: what a provider can do comes as a
// job.Capabilities. One file per concern; pass.go has their order, which is the policy.
package plan

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// Input is everything that a decision depends on.
type Input struct {
	Jobs     []job.Job    `json:"jobs"`
	Snapshot job.Snapshot `json:"snapshot"`
	Records  job.Records  `json:"records"`
	// Capabilities by provider name. A job whose provider is not here is refused.
	Capabilities map[string]job.Capabilities `json:"capabilities"`
	Now          time.Time                   `json:"now"`
	// Bars are the nodes that slots of a role can never be on, with the reason, by role ("job.mnist.worker")
	// and node. A role that is not here may be on every node of its provider.
	Bars map[string]map[string]string `json:"bars,omitempty"`
	// Extra is what each slot of a role takes of its node beside what it reserves, by role.
	Extra map[string]job.Resources `json:"extra,omitempty"`
	// Since is when the master began: an agent that has not registered is not late before it had time to.
	Since time.Time `json:"since,omitzero"`
	// Destroy reports that jobs are left out because they are to be destroyed; it is a reason, nothing else.
	Destroy bool `json:"destroy,omitempty"`
	// NewUID returns the UIDs of jobs that are new; it must give the same for the same name within a plan.
	NewUID func(name string) string `json:"-"`
	// Rerun names declared jobs that failed and are to start again, as an explicit apply does it. The watch loop
	// never does.
	Rerun map[string]bool `json:"rerun,omitempty"`
	// Once reports that the run ends when nothing is left to do: an elastic role gets what it begins with, and grows no
	// further. It would grow once its first world trains, which the plan that was approved does not show.
	Once bool `json:"once,omitempty"`
	// Scope bounds the plan to a part of the jobs.
	Scope Scope `json:"scope,omitzero"`
	// Refresh brings the records up to what is seen and changes nothing else.
	Refresh bool `json:"refresh,omitempty"`
	// Withheld are jobs that continue though the files may say otherwise by now, with the reason, by name. They are
	// Degraded, however well they run.
	Withheld map[string]job.Reason `json:"withheld,omitempty"`
	// Keep lets recorded jobs that are no longer declared continue as they were last applied, instead of
	// destroying them.
	Keep bool `json:"keep,omitempty"`
	Blocks
	// Prevent says which jobs must not be destroyed by what the files say of them, where Jobs does not have them because
	// all are to be. Of a job that is not in it what was last applied counts.
	Prevent map[string]bool `json:"prevent_destroy,omitempty"`
	// Released are jobs, by UID, that were forgotten and may still run.
	Released map[string]job.Released `json:"released,omitempty"`
}

// Blocks is what the files say of which job is which: their moved, removed and import blocks.
type Blocks struct {
	// Moved returns the names that jobs are to have, by those that they had. Chains were followed.
	Moved map[string]string `json:"moved,omitempty"`
	// Forget names jobs that are no longer declared and are to keep running, unmanaged.
	Forget map[string]bool `json:"forget,omitempty"`
	// ForgetDeclared says the same of all jobs that are recorded as declared under one of these addresses, of jobs. Where an
	// address has no key it is all that a block with for_each stands for: job.gpt, module.eval.job.gpt.
	ForgetDeclared []string `json:"forget_declared,omitempty"`
	// ForgetWithin says the same of all jobs of modules.
	ForgetWithin []Module `json:"forget_within,omitempty"`
	// Imports are what runs and is to be managed from now on.
	Imports []Import `json:"imports,omitempty"`
}

// Module is a module that is no longer declared, with all its keys if it has no key here.
type Module struct {
	Address string `json:"address"` // module.eval, module.eval["de"], module.eval.module.deep
	Begins  string `json:"begins"`  // what the names of its jobs begin with
}

// Plan is the outcome. With no Changes, what runs is what should run, as far as it can (see Waits).
type Plan struct {
	Changes []Change `json:"changes"`
	Waits   []Wait   `json:"waits,omitempty"` // what is not as configured, and why
	// Records are the input's, brought up to the snapshot and with every change's reservation and
	// incarnation entered. They are stored before the changes are carried out.
	Records job.Records `json:"records"`
	// Dirty reports that Records differ from the input's: there is something to store.
	Dirty bool `json:"dirty"`
	// Wants is what the service is to form, by job.
	Wants map[string]job.Want `json:"wants"`
	// Groups is what providers are told of the jobs as a whole, by job. Of one that was not begun, and cannot be started
	// as things are, they are told nothing: nothing is to be made for it.
	Groups map[string]job.Group `json:"groups"`
	// Notices are what this pass found: incidents, phases entered.
	Notices []job.Notice `json:"notices,omitempty"`
	// Wake is when to plan again even if nothing happens; zero is never.
	Wake time.Time `json:"wake,omitzero"`
	// Sizes are those of elastic roles that are not as declared, or change.
	Sizes []Size `json:"sizes,omitempty"`
	// Caveats are what providers of the jobs cannot enforce.
	Caveats []string `json:"caveats,omitempty"`
	// Released is the input's, brought up to date. It is stored with the records.
	Released map[string]job.Released `json:"released,omitempty"`
	// Refusals are what is asked for and must not be done.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Kept are recorded jobs, by name, that are not declared and continue anyway: they must not be destroyed, or
	// could not be moved.
	Kept []string `json:"kept,omitempty"`
}

// Action is what a change does.
type Action string

const (
	Create  Action = "create"  // + start a slot's incarnation
	Update  Action = "update"  // ~ take up a change in place: of a job's settings; or repair a slot that was edited
	Restart Action = "restart" // ~ restart the processes of a slot in place
	Replace Action = "replace" // -/+ next incarnation: the old one is stopped first
	Delete  Action = "delete"  // - stop a slot, or take away what is left of a job
	Forget  Action = "forget"  // . take a job out of the records, and leave running what runs
	NoOp    Action = "no-op"   // what runs stays as it is: the records take up a job's new name, or an import
)

// Change is one thing to do. It is a value: it says what it expects, so that apply can check it against
// the newest observation first.
type Change struct {
	Action Action      `json:"action"`
	Job    string      `json:"job"`
	Slot   job.Address `json:"slot,omitzero"` // zero for a change of the job itself
	UID    string      `json:"uid"`
	// Provider is who has it, by name.
	Provider string       `json:"provider"`
	Reasons  []job.Reason `json:"reasons,omitempty"` // most telling first
	// Fields are the attributes that differ, for Update, and for Replace when that is why; for Create all that is set.
	Fields []job.FieldChange `json:"fields,omitempty"`
	// From is the job's name so far, if it was moved; Import the ID by which it was found, if it is managed from now
	// on. Only changes of jobs have them.
	From   string `json:"from,omitempty"`
	Import string `json:"import,omitempty"`
	// Node and Incarnation are what a Create or Replace starts; Incarnation with Delete is what is stopped.
	Node        string `json:"node,omitempty"`
	Incarnation int    `json:"incarnation,omitempty"`
	// Stop are the incarnations of the slot that still run and end first, with Grace.
	Stop  []int        `json:"stop,omitempty"`
	Grace job.Duration `json:"grace,omitempty"`
	// Wave orders changes of one job: those of wave 0 can be done now; later waves follow when what they
	// wait for has been observed, in a later pass.
	Wave int `json:"wave,omitempty"`
	// Launch is what to start, with Create and Replace. A Replace without it is a planned one: the old
	// incarnation ends in its own time, with a checkpoint, and a later pass creates the next. With an Update of a
	// slot it is the incarnation that runs: launching it again repairs what was edited.
	Launch *job.Launch `json:"launch,omitempty"`
}

// Wait is something that is not as configured and needs what is not there.
type Wait struct {
	Job     string       `json:"job"`
	Role    string       `json:"role,omitempty"`
	Reasons []job.Reason `json:"reasons"`
	// Never: no waiting helps, the declaration has to change. A site that starts no job at the moment, as by a closed queue,
	// may do so later.
	Never bool `json:"never,omitempty"`
	// Passing: what was started is queued on its infrastructure, not yet for so long that it looks stuck.
	Passing bool `json:"passing,omitempty"`
	// Unheard: what ran has ended, and how is known to its agents alone, who tell a master. An apply hears them, and does
	// what follows.
	Unheard bool `json:"unheard,omitempty"`
	// Held: it could be done now, and is held back: the plan's scope has only a part of what goes together, or a bound on
	// removals or files that cannot be used keep it from being done.
	Held bool `json:"held,omitempty"`
}

// Summary counts a plan's changes as Terraform does: a replacement is an add and a remove.
type Summary struct {
	Import int `json:"import,omitempty"` // jobs
	Add    int `json:"add"`
	Change int `json:"change"`
	Remove int `json:"remove"`
}

// Summary counts the changes of slots and, for updates, of jobs.
func (p *Plan) Summary() Summary {
	var s Summary
	for _, c := range p.Changes {
		if c.Import != "" {
			s.Import++
		}
		switch c.Action {
		case Create:
			s.Add++
		case Update, Restart:
			s.Change++
		case Replace:
			s.Add++
			s.Remove++
		case Delete:
			if c.Slot != (job.Address{}) {
				s.Remove++
			}
		}
	}
	return s
}
