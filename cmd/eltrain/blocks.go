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
		if !r.Destroy {
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

// RefusedPlanError is of a plan that asks for what must not be done.
type RefusedPlanError struct{ Refusals []plan.Refusal }

func (e *RefusedPlanError) Error() string {
	texts := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		texts[i] = fmt.Sprintf("%s: %s", r.Summary, r.Detail)
	}
	return strings.Join(texts, "\n")
}

// refused shows why a plan cannot be, if it cannot. Nothing is done then.
func (s *session) refused(cfg *lang.Config, p *plan.Plan) bool {
	var diags hcl.Diagnostics
	for _, r := range p.Refusals {
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
