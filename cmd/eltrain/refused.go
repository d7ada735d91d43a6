package main

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

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
