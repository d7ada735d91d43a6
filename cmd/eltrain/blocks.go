package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// blocks returns those of the saved plan if there is one, else those of the files.
func (a planning) blocks(cfg *lang.Config) plan.Blocks {
	if a.saved != nil {
		return a.saved.Input.Blocks
	}
	return workspace.BlocksOf(cfg)
}

// prevent returns prevent_destroy by job as the files have it, for a destroy. It returns nil if the files have errors: what
// was last applied counts then.
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

// RefusedPlanError is returned for a plan with refusals, which session.refused shows.
type RefusedPlanError struct{ Refusals []plan.Refusal }

func (e *RefusedPlanError) Error() string {
	return fmt.Sprintf("the plan is not allowed for %d jobs", len(e.Refusals))
}

// refused shows each refusal with the line of the files that caused it, and reports whether there are any. If so, nothing is
// carried out.
func (s *session) refused(cfg *lang.Config, refusals []plan.Refusal) bool {
	var diags hcl.Diagnostics
	for _, r := range refusals {
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: view.Words{}.Headline(r.Reason.Code), Detail: view.Sentence(r.Reason), Subject: cfg.LineOf(cfg.SourceOf(r.Job)),
		})
	}
	shown := view.DiagnoseHCL(diags, cfg.Files)
	for i := range shown {
		shown[i].ReasonCode = &refusals[i].Reason
	}
	s.diagnose(shown...)
	return len(diags) > 0
}

// misnamedIn is misnamed for a plan.
func misnamedIn(cfg *lang.Config, facts *view.PlanFacts) []view.Diagnostic {
	there, declared := workspace.DeclaredAs(facts.Input.Records), workspace.AddressesOf(cfg.Jobs)
	var ended []string
	for _, c := range facts.Plan.Changes {
		_, is := declared[c.Job]
		switch {
		case c.Action == plan.Delete && !is && !slices.Contains(ended, c.Job):
			ended = append(ended, c.Job)
		case c.Action == plan.Forget && there[c.Job] == "":
			there[c.Job] = "" // it runs without a record
		}
	}
	detail, at := workspace.Misnamed(cfg, there, ended)
	if detail == "" {
		return nil
	}
	return view.DiagnoseHCL(hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: view.MisnamedTrouble, Detail: detail, Subject: cfg.LineOf(at)}}, cfg.Files)
}

// forgetting warns about a plan that forgets jobs, as Terraform does.
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
