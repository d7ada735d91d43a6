// Package plan decides. Make is a pure function from the declaration, the observation, the records and the time to the ordered
// changes that bring what runs in line with the declaration, each with its reason.
//
// It does no I/O, reads no clock, and knows no provider by name: what a provider can do comes as a job.Capabilities. There is
// one file per concern; pass.go has their order, which is the policy.
package plan

import (
	"time"

	"github.com/eltrain/eltrain/goodput"
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
	// Bars are the nodes that slots of a role can never use, with the reason, by role ("job.mnist.worker") and node. A role
	// that is not here may use every node of its provider.
	Bars map[string]map[string]string `json:"bars,omitempty"`
	// Extra is what each slot of a role takes of its node in addition to its reservation, by role.
	Extra map[string]job.Resources `json:"extra,omitempty"`
	// Since is when the master started: an agent gets its full time to register from then on.
	Since time.Time `json:"since,omitzero"`
	// Destroy reports that jobs are left out because they are to be destroyed. It only changes the reason given.
	Destroy bool `json:"destroy,omitempty"`
	// NewUID returns the UID of a new job. It must return the same UID for the same name within a plan.
	NewUID func(name string) string `json:"-"`
	// Rerun names declared jobs that failed and start again, as an explicit apply asks for. The watch loop never sets it.
	Rerun map[string]bool `json:"rerun,omitempty"`
	// Once reports that the run ends when nothing is left to do. An elastic role then gets its initial size, and does not grow
	// beyond it: nobody would take back what others need.
	Once bool `json:"once,omitempty"`
	// Scope bounds the plan to a part of the jobs.
	Scope Scope `json:"scope,omitzero"`
	// Refresh updates the records from the snapshot and changes nothing else.
	Refresh bool `json:"refresh,omitempty"`
	// Withheld are jobs, by name, that continue as they are although the files may say otherwise by now, with the reason. They
	// are Degraded, however well they run.
	Withheld map[string]job.Reason `json:"withheld,omitempty"`
	// Keep lets recorded jobs that are no longer declared continue as they were last applied, instead of
	// destroying them.
	Keep bool `json:"keep,omitempty"`
	Blocks
	// Prevent says, from the files, which jobs must not be destroyed, where Jobs leaves them out because all are to be
	// destroyed. For a job that is not in it, the last applied setting counts.
	Prevent map[string]bool `json:"prevent_destroy,omitempty"`
	// Released are jobs, by UID, that were forgotten and may still run.
	Released map[string]job.Released `json:"released,omitempty"`
	// Forgotten are recorded jobs, by UID, of which nothing is left: their provider has forgotten them.
	Forgotten map[string]bool `json:"forgotten,omitempty"`
	// InFlight are recorded jobs, by UID, of which a slot is being launched or stopped. Requests that change what runs of them are
	// done afterwards, even if the snapshot shows the result already.
	InFlight map[string]bool `json:"in_flight,omitempty"`
	// Destroyed are the jobs, by name, that operators have destroyed and that the files may still declare.
	Destroyed map[string]job.Override `json:"destroyed,omitempty"`
	// Nodes are those about which operators asked for something, and those with incidents, by provider and name.
	Nodes []job.NodeRecord `json:"node_records,omitempty"`
	// Spent is what was used of the directory's budget.
	Spent job.Spent `json:"spent,omitzero"`
	// Requests are those without a final reply, in order. It is nil for a plan that answers none.
	Requests []job.Request `json:"requests"`
	// Refused are those that cannot take effect, by ID.
	Refused map[string]job.Reason `json:"refused_requests,omitempty"`
	// Deferred are the IDs of those about a job that is left out of this input: they wait.
	Deferred map[string]bool `json:"deferred_requests,omitempty"`
}

// Blocks is the content of the files' moved, removed and import blocks, and what they say about all jobs together.
type Blocks struct {
	Directory job.Directory `json:"directory,omitzero"`
	// Moved maps old job names to new ones. Chains are already resolved.
	Moved map[string]string `json:"moved,omitempty"`
	// Forget names jobs that are no longer declared and keep running, unmanaged.
	Forget map[string]bool `json:"forget,omitempty"`
	// ForgetDeclared does the same for all jobs recorded as declared under one of these job addresses. An address without a key
	// covers all instances of a block with for_each: job.gpt, module.eval.job.gpt.
	ForgetDeclared []string `json:"forget_declared,omitempty"`
	// ForgetWithin does the same for all jobs of modules.
	ForgetWithin []Module `json:"forget_within,omitempty"`
	// Imports are running jobs to be managed from now on.
	Imports []Import `json:"imports,omitempty"`
}

// Module is a module that is no longer declared; without a key in Address, all its instances.
type Module struct {
	Address string `json:"address"` // module.eval, module.eval["de"], module.eval.module.deep
	Begins  string `json:"begins"`  // prefix of the names of its jobs
}

// Plan is the outcome. Without Changes, what runs is what should run, as far as possible (see Waits).
type Plan struct {
	Changes []Change `json:"changes"`
	Waits   []Wait   `json:"waits,omitempty"` // what is not as configured, and why
	// Records are the input's, updated from the snapshot and with every change's reservation and incarnation entered. They are
	// stored before the changes are carried out. One of which nothing has changed is the input's own.
	Records job.Records `json:"records"`
	// Leaving are the updated records of jobs of which nothing runs anymore, by name. They are stored until the jobs' providers
	// have forgotten them: on shared infrastructure only a record says which objects belong to its job.
	Leaving job.Records `json:"leaving,omitempty"`
	// Dirty reports that Records differ from the input's and must be stored.
	Dirty bool `json:"dirty"`
	// Wants is what the service is to form, by job.
	Wants map[string]job.Want `json:"wants"`
	// Groups is what providers are told about each job as a whole, by job. A job that has not begun and cannot start at the
	// moment has none: nothing should be created for it.
	Groups map[string]job.Group `json:"groups"`
	// Notices are what this pass found: incidents, phases entered.
	Notices []job.Notice `json:"notices,omitempty"`
	// Ledger has the changes of goodput ledgers, which the journal keeps.
	Ledger []goodput.Entry `json:"ledger,omitempty"`
	// Wake is when to plan again even if nothing happens; zero is never.
	Wake time.Time `json:"wake,omitzero"`
	// Sizes are those of elastic roles whose size differs from the declared one, or changes.
	Sizes []Size `json:"sizes,omitempty"`
	// Scaling is what policies decided about elastic roles, or would decide, in the order of the jobs and roles.
	Scaling []RoleScaling `json:"scaling,omitempty"`
	// Caveats are what the jobs' providers cannot enforce.
	Caveats []string `json:"caveats,omitempty"`
	// Released is the input's, updated. It is stored with the records.
	Released map[string]job.Released `json:"released,omitempty"`
	// Destroyed is the input's, updated. It is stored with the records.
	Destroyed map[string]job.Override `json:"destroyed,omitempty"`
	// Nodes are the input's, updated. They are stored with the records.
	Nodes []job.NodeRecord `json:"node_records,omitempty"`
	// Spent is the input's, updated. It is stored with the records.
	Spent job.Spent `json:"spent,omitzero"`
	// Replies are what has become of the input's requests, in order. They hold once the records are stored.
	Replies []job.Reply `json:"replies,omitempty"`
	// Refusals are changes of the files that must not be carried out.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Kept are recorded jobs, by name, that are not declared and continue anyway: they must not be destroyed, or could not be
	// moved.
	Kept []string `json:"kept,omitempty"`
}

// Action is what a change does.
type Action string

const (
	Create  Action = "create"  // + start a slot's incarnation
	Update  Action = "update"  // ~ change a job's settings in place, or repair a slot that was edited
	Restart Action = "restart" // ~ restart the processes of a slot in place
	Replace Action = "replace" // -/+ next incarnation: the old one is stopped first
	Delete  Action = "delete"  // - stop a slot, or remove what is left of a job
	Forget  Action = "forget"  // . remove a job from the records, and leave it running
	NoOp    Action = "no-op"   // what runs stays as it is: only the records change, for a job's new name or an import
)

// Change is one thing to do. It is a value that includes what it expects, so that apply can check it against the newest
// observation first.
type Change struct {
	Action Action      `json:"action"`
	Job    string      `json:"job"`
	Slot   job.Address `json:"slot,omitzero"` // zero for a change of the job itself
	UID    string      `json:"uid"`
	// Provider is the name of the provider that carries it out.
	Provider string       `json:"provider"`
	Reasons  []job.Reason `json:"reasons,omitempty"` // most significant first
	// Fields are the attributes that differ, for Update, and for Replace if that is why; for Create all attributes that are
	// set.
	Fields []job.FieldChange `json:"fields,omitempty"`
	// From is the job's previous name, if it was moved. Import is the ID under which it was found, if it is imported. Only
	// changes of jobs have them.
	From   string `json:"from,omitempty"`
	Import string `json:"import,omitempty"`
	// Node and Incarnation are what a Create or Replace starts. For Delete, Incarnation is what is stopped.
	Node        string `json:"node,omitempty"`
	Incarnation int    `json:"incarnation,omitempty"`
	// Stop are the slot's incarnations that still run and are stopped first, with Grace.
	Stop  []int        `json:"stop,omitempty"`
	Grace job.Duration `json:"grace,omitempty"`
	// Force: its processes are killed, without a signal that they could handle.
	Force bool `json:"force,omitempty"`
	// Wave orders the changes of one job: wave 0 can be done now; later waves follow in a later pass, once what they wait for
	// has been observed.
	Wave int `json:"wave,omitempty"`
	// Launch is what to start, for Create and Replace. A Replace without it is a planned one: the old incarnation stops with a
	// checkpoint, and a later pass creates the next. For an Update of a slot it is the running incarnation: launching it again
	// repairs what was edited.
	Launch *job.Launch `json:"launch,omitempty"`
}

// Wait is something that is not as configured, and stays so for now.
type Wait struct {
	Job     string       `json:"job"`
	Role    string       `json:"role,omitempty"`
	Reasons []job.Reason `json:"reasons"`
	// Never: waiting does not help, the declaration has to change. A site that starts no jobs at the moment, such as a closed
	// queue, is not Never.
	Never bool `json:"never,omitempty"`
	// Passing: what was started is queued on its infrastructure, but not yet for so long that it looks stuck.
	Passing bool `json:"passing,omitempty"`
	// Unheard: processes have ended, and only their agents know how. An apply collects their reports and acts on them.
	Unheard bool `json:"unheard,omitempty"`
	// Held: it could be done now but is held back: the plan's scope has only a part of what goes together, or a bound on
	// removals or unusable files prevent it.
	Held bool `json:"held,omitempty"`
}

// Address returns the address of the job or role that waits.
func (w *Wait) Address() string {
	if w.Role == "" {
		return "job." + w.Job
	}
	return "job." + w.Job + "." + w.Role
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
