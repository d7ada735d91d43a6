// Package preview plans for a workspace: what is intended with its jobs, the plans that are made of that, live or from what was recorded,
// and whether a plan that was approved can still be carried out. It must not know how a plan is approved or carried out.
package preview

import (
	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Intent is what is intended with a workspace's jobs. Setup completes it by what the files say.
type Intent struct {
	apply.Intent
	UIDs  map[string]string // those of the jobs that are new in an approved plan, by name
	Saved *view.PlanFacts   // what a saved plan was made from, instead of the files; nil without one
}

// Setup returns the input of a plan or a run, given the state.
func (a *Intent) Setup(d *workspace.Workspace, stored state.State) apply.Setup {
	intent := a.Intent
	intent.Prevent, intent.Scope = a.prevent(d.Config), a.scope(d.Config)
	return apply.Setup{
		Intent: intent,
		Files:  apply.Files{Jobs: a.wanted(d.Config), Blocks: a.blocks(d.Config), Values: a.Values(d), Notify: d.Config.Notified()},
		State:  stored, NewUID: a.newUID, Words: view.Words{},
	}
}

// wanted returns the jobs that should run: none for a destroy. Even then the files are read, for their sensitive values.
func (a *Intent) wanted(cfg *lang.Config) []job.Job {
	if a.Destroy {
		return nil
	}
	return cfg.Jobs
}

// newUID returns the saved plan's UID for a job if there is one, else a new one.
func (a *Intent) newUID(name string) string {
	if uid := a.UIDs[name]; uid != "" {
		return uid
	}
	return workspace.NewUID(name)
}

// scope returns the planner's scope. That of a saved plan takes precedence.
func (a *Intent) scope(cfg *lang.Config) plan.Scope {
	if a.Saved != nil {
		return a.Saved.Input.Scope
	}
	scope := a.Scope
	if !scope.Limited() || a.Destroy {
		return scope // the references come from the files, which need not be valid for a destroy
	}
	scope.References = map[string][]string{}
	for _, ref := range cfg.ValueReferences() {
		if ref.Role != "" {
			address := "job." + ref.Job + "." + ref.Role
			scope.References[address] = append(scope.References[address], ref.Of)
		}
	}
	return scope
}

// blocks returns those of the saved plan if there is one, else those of the files.
func (a *Intent) blocks(cfg *lang.Config) plan.Blocks {
	if a.Saved != nil {
		return a.Saved.Input.Blocks
	}
	return workspace.BlocksOf(cfg)
}

// prevent returns prevent_destroy by job as the files have it, for a destroy. It returns nil if the files have errors: what
// was last applied counts then.
func (a *Intent) prevent(cfg *lang.Config) map[string]bool {
	switch {
	case a.Saved != nil:
		return a.Saved.Input.Prevent
	case !a.Destroy || cfg.Invalid:
		return nil
	}
	prevent := map[string]bool{}
	for i := range cfg.Jobs {
		prevent[cfg.Jobs[i].Name] = cfg.Jobs[i].Lifecycle.PreventDestroy
	}
	return prevent
}

// Values returns the values to store in the state: those of the saved plan if there is one, else of the configuration. A
// destroy removes them; a destroy with -target or -exclude leaves them as they are.
func (a *Intent) Values(d *workspace.Workspace) state.Values {
	switch {
	case a.Saved != nil:
		return a.Saved.Values
	case a.Destroy && len(a.Scope.Targets)+len(a.Scope.Excludes) > 0:
		return d.Prior
	case a.Destroy:
		return state.Values{}
	}
	return workspace.ValuesOf(d.Config)
}
