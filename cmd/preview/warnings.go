package preview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// CheckAddresses returns an error for an address that names nothing.
func (a *Intent) CheckAddresses(in plan.Input, cfg *lang.Config) error {
	in.Jobs = cfg.Jobs // a plan to destroy has none
	for _, sel := range plan.Named(slices.Concat(a.Scope.Targets, a.Scope.Excludes, a.Replace), in.Jobs, in.Records) {
		known, ok := in.Knows(sel)
		if ok {
			continue
		}
		whole := sel
		whole.Role, whole.Ranges = "", nil
		instead := view.WhatThereIs(view.DidYouMean(whole.String(), known), "There are", known)
		if _, declared := in.Knows(whole); declared {
			instead = view.SlotsThere(sel, possibleSlots(sel.Job, in))
		}
		return fmt.Errorf("%s matches nothing that is declared or recorded%s", sel, instead)
	}
	return nil
}

// possibleSlots returns by role the slots that a job may have according to the files, and those that the state has.
func possibleSlots(name string, in plan.Input) map[string][]int {
	indices := map[string][]int{}
	for i := range in.Jobs {
		if in.Jobs[i].Name == name {
			for k := range in.Jobs[i].Roles {
				r := &in.Jobs[i].Roles[k]
				_, most := r.Bounds()
				for index := range most {
					indices[r.Name] = append(indices[r.Name], index)
				}
			}
		}
	}
	if rec := in.Records[name]; rec != nil {
		for role, more := range view.RecordedSlots(rec) {
			indices[role] = append(indices[role], more...)
		}
	}
	return indices
}

// Cautions returns warnings about the effects of these options on the plan.
func (a *Intent) Cautions(in plan.Input) []view.Diagnostic {
	which, missing := a.bound(), a.missing(in)
	if which == "" {
		return missing
	}
	return append(missing, view.Caution("Resource targeting is in effect", fmt.Sprintf(
		"You are creating a plan with the %s option, which means that the result of this plan may not represent all of the changes requested by the current configuration.\n\n"+
			"The %s option is not for routine use, and is provided only for exceptional situations such as recovering from errors or mistakes.", which, which)))
}

// missing warns about slots named by number that do not exist, or cannot be replaced.
func (a *Intent) missing(in plan.Input) []view.Diagnostic {
	var named []string
	note := func(sel job.Selector, absent []int) {
		if len(absent) > 0 {
			named = append(named, "job."+sel.Job+"."+job.Fold(sel.Role, absent))
		}
	}
	for _, sel := range plan.Named(slices.Concat(a.Scope.Targets, a.Scope.Excludes), in.Jobs, in.Records) {
		note(sel, in.Absent(sel))
	}
	for _, sel := range plan.Named(a.Replace, in.Jobs, in.Records) {
		note(sel, in.Unreplaced(sel))
	}
	if len(named) == 0 {
		return nil
	}
	return []view.Diagnostic{view.Caution("No such slots",
		strings.Join(named, ", ")+": these slots do not exist, so nothing is planned for them. eltrain status lists those that do.")}
}

// Incomplete warns after an apply that was limited to a scope.
func (a *Intent) Incomplete() []view.Diagnostic {
	which := a.bound()
	if which == "" {
		return nil
	}
	return []view.Diagnostic{view.Caution("Applied changes may be incomplete", fmt.Sprintf(
		"The plan was created with the %s option in effect, so some changes requested in the configuration may have been ignored. Run the following command to verify that no other changes are pending:\n    eltrain plan\n\n"+
			"Note that the %s option is not suitable for routine use, and is provided only for exceptional situations such as recovering from errors or mistakes.", which, which))}
}

// bound returns the option that leaves something out of the plan; "" if none does.
func (a *Intent) bound() string {
	switch {
	case len(a.Scope.Targets) > 0:
		return "-target"
	case len(a.Scope.Excludes) > 0:
		return "-exclude"
	}
	return ""
}

// Unasked warns about what -refresh=false means for the plan.
func Unasked(o *apply.Observation) view.Diagnostic {
	const summary = "The providers were not asked"
	if o == nil {
		return view.Caution(summary, "With -refresh=false, slots are assumed to run as the state says. No observation of the nodes is recorded here: what does not have a place yet waits. "+
			"eltrain apply records an observation when it ends, eltrain apply -refresh-only at once.")
	}
	return view.Caution(summary, fmt.Sprintf("With -refresh=false, slots are assumed to run as the state says, and nodes to be as observed at %s.", o.At.UTC().Format(time.RFC3339)))
}

// Misnamed warns about a removed block that keeps nothing, if the plan destroys jobs: see workspace.Misnamed.
func Misnamed(cfg *lang.Config, facts *view.PlanFacts) []view.Diagnostic {
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

// Forgetting warns about a plan that forgets jobs, as Terraform does.
func Forgetting(p *plan.Plan) []view.Diagnostic {
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

// Unsaved warns about jobs that the plan starts or restarts slots of, and that do not say where their checkpoints are: what they have
// trained is lost with each world. Slots without ranks train nothing together, so jobs that have only such are left out.
func Unsaved(p *plan.Plan) []view.Diagnostic {
	var jobs []string
	for i := range p.Changes {
		c := &p.Changes[i]
		rec := p.Records[c.Job]
		switch c.Action {
		case plan.Create, plan.Replace, plan.Restart:
		default:
			continue
		}
		ranked := func(r job.Role) bool { return r.Ranked }
		if name := "job." + c.Job; rec != nil && rec.Spec.Checkpoint == nil && slices.ContainsFunc(rec.Spec.Roles, ranked) && !slices.Contains(jobs, name) {
			jobs = append(jobs, name)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return []view.Diagnostic{view.Caution("No checkpoints are declared", strings.Join(jobs, ", ")+
		": a fault, a resize or an edit restarts all processes of a world. Unless the script resumes by itself, all training so far is then lost.\n\n"+
		"Say where its checkpoints are with checkpoint { dir = \"DIR\" } in the job. If it needs none, an empty block, checkpoint {}, says so.")}
}

// OtherValues warns if a watch leads that has other values of variables: it does not do what this plan shows.
func OtherValues(ctx context.Context, d *workspace.Workspace) []view.Diagnostic {
	holder, err := d.Store.Holder(ctx)
	if err != nil || holder == nil || !view.Watching(holder) {
		return nil
	}
	var differ []string
	here := workspace.ValuesOf(d.Config).Variables
	for _, name := range slices.Sorted(maps.Keys(here)) {
		if there, known := d.Prior.Variables[name]; known && !there.Equal(here[name]) {
			differ = append(differ, fmt.Sprintf("  var.%s is %s there, and %s here", name, view.OutputText(there), view.OutputText(here[name])))
		}
	}
	if differ == nil {
		return nil
	}
	return []view.Diagnostic{view.Caution("The watch has other values of variables", fmt.Sprintf(
		"%s (pid %d) watches these jobs with other values, so it does not do what this plan shows:\n%s\nSet the same with -var or -var-file to plan what it does.",
		holder.Who, holder.PID, strings.Join(differ, "\n")))}
}

// Left returns an error that names what a destroy could not destroy.
func Left(last plan.Plan) error {
	first := &last.Changes[0]
	address := "job." + first.Job
	if first.Slot != (job.Address{}) {
		address = first.Slot.String()
	}
	if more := len(last.Changes) - 1; more > 0 {
		address += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s could not be destroyed, for the reason shown above; the next destroy continues from here", address)
}
