package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// blocksOf converts the moved, removed and import blocks of the files for the planner.
func blocksOf(cfg *lang.Config) plan.Blocks {
	b := plan.Blocks{Moved: map[string]string{}, Forget: map[string]bool{}}
	for _, m := range cfg.Moved {
		b.Moved[m.From] = m.To
	}
	for _, r := range cfg.Removed {
		addRemoved(&b, r)
	}
	for _, i := range cfg.Imports {
		b.Imports = append(b.Imports, plan.Import{To: i.To, ID: i.ID})
	}
	return b
}

// addRemoved adds a removed block to b. One with destroy = true adds nothing: jobs that are not declared are destroyed anyway.
func addRemoved(b *plan.Blocks, r lang.Removed) {
	for _, was := range r.Was {
		addRemoved(b, was)
	}
	switch {
	case r.Destroy:
	case r.Module != "":
		b.ForgetWithin = append(b.ForgetWithin, plan.Module{Address: r.Address, Begins: r.Module})
	default:
		b.Forget[r.Job] = true
		b.ForgetDeclared = append(b.ForgetDeclared, r.Address)
	}
}

// blocks returns those of the saved plan if there is one, else those of the files.
func (a planning) blocks(cfg *lang.Config) plan.Blocks {
	if a.saved != nil {
		return a.saved.Input.Blocks
	}
	return blocksOf(cfg)
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
			Severity: hcl.DiagError, Summary: view.Words{}.Headline(r.Reason.Code), Detail: view.Sentence(r.Reason), Subject: lineOf(cfg, sourceOf(cfg, r.Job)),
		})
	}
	shown := view.DiagnoseHCL(diags, cfg.Files)
	for i := range shown {
		shown[i].ReasonCode = &refusals[i].Reason
	}
	s.diagnose(shown...)
	return len(diags) > 0
}

// sourceOf returns where the files import a job, or else where they declare it.
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

// misnamed finds the first removed block with destroy = false that matches no job, while other jobs are destroyed: with a
// wrong address, the job that it should keep is among them. there has the existing jobs' addresses by name.
func misnamed(cfg *lang.Config, there map[string]string, ended []string) (detail string, at job.Source) {
	if len(ended) == 0 || cfg.Invalid {
		return "", at
	}
	for _, r := range cfg.Removed {
		b := plan.Blocks{Forget: map[string]bool{}}
		addRemoved(&b, r)
		if r.Destroy || slices.ContainsFunc(slices.Collect(maps.Keys(there)), func(name string) bool { return b.Forgets(name, there[name]) }) {
			continue
		}
		return fmt.Sprintf("The removed block at %s:%d keeps %s running, but nothing has that address. Destroyed, because no longer in the files: %s. "+
			"If the block was meant to keep it, correct the address. If the block is no longer needed, remove it.", r.Source.File, r.Source.Line, r.Address, severalJobs(ended)), r.Source
	}
	return "", at
}

// severalJobs names the first job and counts the others.
func severalJobs(names []string) string {
	text := "job." + names[0]
	if more := len(names) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// misnamedIn is misnamed for a plan.
func misnamedIn(cfg *lang.Config, facts *view.PlanFacts) []view.Diagnostic {
	there, declared := declaredAs(facts.Input.Records), addressesOf(cfg.Jobs)
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
	detail, at := misnamed(cfg, there, ended)
	if detail == "" {
		return nil
	}
	return view.DiagnoseHCL(hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: view.MisnamedTrouble, Detail: detail, Subject: lineOf(cfg, at)}}, cfg.Files)
}

// declaredAs returns the addresses under which recorded jobs were declared, by name.
func declaredAs(records job.Records) map[string]string {
	addresses := map[string]string{}
	for name, rec := range records {
		addresses[name] = rec.Spec.Address
	}
	return addresses
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
