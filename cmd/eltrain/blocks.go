package main

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// blocksOf is what the files say of jobs' names, and of whose jobs are, as the planner takes it.
func blocksOf(cfg *lang.Config) plan.Blocks {
	b := plan.Blocks{Moved: map[string]string{}, Forget: map[string]bool{}}
	for _, m := range cfg.Moved {
		b.Moved[m.From] = m.To
	}
	for _, r := range cfg.Removed {
		switch {
		case r.Destroy: // what is declared no more is ended anyway
		case r.Module != "":
			b.ForgetWithin = append(b.ForgetWithin, plan.Module{Address: r.Address, Begins: r.Module})
		default:
			b.Forget[r.Job] = true
		}
	}
	for _, i := range cfg.Imports {
		b.Imports = append(b.Imports, plan.Import{To: i.To, ID: i.ID})
	}
	return b
}

// blocks are those of a saved plan, where there is one.
func (a planning) blocks(cfg *lang.Config) plan.Blocks {
	if a.saved != nil {
		return a.saved.Input.Blocks
	}
	return blocksOf(cfg)
}

// prevent is what the files say of prevent_destroy, for a destroy. With errors in them they say nothing: what was last
// applied counts then.
func (a planning) prevent(cfg *lang.Config) map[string]bool {
	switch {
	case a.saved != nil:
		return a.saved.Input.Prevent
	case !a.destroy || cfg.Invalid:
		return nil
	}
	prevent := map[string]bool{}
	for i := range cfg.Jobs {
		prevent[cfg.Jobs[i].Name] = cfg.Jobs[i].Lifecycle.PreventDestroy
	}
	return prevent
}

// RefusedPlanError is of a plan that asks for what must not be done. session.refused shows what that is.
type RefusedPlanError struct{ Refusals []plan.Refusal }

func (e *RefusedPlanError) Error() string {
	return fmt.Sprintf("the plan asks for what must not be done to %d jobs", len(e.Refusals))
}

// refused shows what is asked for and must not be done, each where the files ask for it, and tells whether there is
// any. Nothing is done then.
func (s *session) refused(cfg *lang.Config, refusals []plan.Refusal) bool {
	var diags hcl.Diagnostics
	for _, r := range refusals {
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: r.Summary, Detail: r.Detail, Subject: lineOf(cfg, sourceOf(cfg, r.Job)),
		})
	}
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	return len(diags) > 0
}

// sourceOf is where the files speak of a job: where they import it, or declare it.
func sourceOf(cfg *lang.Config, name string) (at job.Source) {
	for i := range cfg.Jobs {
		if cfg.Jobs[i].Name == name {
			at = cfg.Jobs[i].Source
		}
	}
	for _, i := range cfg.Imports {
		if i.To.Job == name {
			at = i.Source
		}
	}
	return at
}

// forgetting is told of a plan that lets jobs go, as Terraform does.
func forgetting(p *plan.Plan) []view.Diagnostic {
	var objects strings.Builder
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action == plan.Forget {
			objects.WriteString("\n - " + view.ChangeAddress(c))
		}
	}
	if objects.Len() == 0 {
		return nil
	}
	return []view.Diagnostic{view.Caution("Some objects will no longer be managed by eltrain",
		"If you apply this plan, eltrain will discard its tracking information for the following objects, but it will not delete them:"+objects.String()+
			"\n\nAfter applying this plan, eltrain will no longer manage these objects. You will need to import them into eltrain to manage them again.")}
}
