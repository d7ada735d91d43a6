package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// scoping are the options that limit the scope of a plan, and say what it is made from.
type scoping struct {
	targets  addresses
	excludes addresses
	replaces addresses
	// refreshOnly records what is observed and does nothing else. refresh: ask the providers.
	refreshOnly bool
	refresh     bool
	observed    string // a saved plan with the observation to plan from
}

// addresses are the values of a flag that may be given several times.
type addresses []job.Selector

func (a *addresses) add(text string) error {
	sel, err := job.ParseTarget(text)
	if err != nil {
		return err
	}
	*a = append(*a, sel)
	return nil
}

func (a *scoping) declare(fs *flags) {
	fs.Func("exclude", "Leave out `ADDRESS` and what depends on it. Can be repeated.", a.excludes.add)
	fs.StringVar(&a.observed, "observed", "", "Plan from the observation of the saved plan in `FILE`, without providers and state.")
	fs.BoolVar(&a.refresh, "refresh", true, "Plan from the state and the last observation, without asking the providers.")
	fs.Func("target", "Change only `ADDRESS` and what it depends on: job.NAME (with for_each, all of its keys), job.NAME[\"KEY\"], job.NAME.ROLE, job.NAME.ROLE[0-3,7] or module.NAME. Can be repeated. For exceptions, not for routine use.", a.targets.add)
}

// declareRest declares the options that make no sense for a destroy. refreshOnly is the usage of -refresh-only.
func (a *scoping) declareRest(fs *flags, refreshOnly string) {
	fs.BoolVar(&a.refreshOnly, "refresh-only", false, refreshOnly)
	fs.Func("replace", "Replace `ADDRESS` even if nothing is wrong with it. Can be repeated.", a.replaces.add)
}

// given returns the first of these options that was used; "" if none was.
func (a *scoping) given() string {
	switch {
	case len(a.targets) > 0:
		return "-target"
	case len(a.excludes) > 0:
		return "-exclude"
	case len(a.replaces) > 0:
		return "-replace"
	case a.refreshOnly:
		return "-refresh-only"
	case !a.refresh:
		return "-refresh=false"
	case a.observed != "":
		return "-observed"
	}
	return ""
}

// check reports flags that cannot be used together.
func (a *scoping) check(destroy bool) error {
	switch {
	case len(a.targets) > 0 && len(a.excludes) > 0:
		return errors.New("-target and -exclude cannot be used together")
	case a.refreshOnly && destroy:
		return errors.New("-refresh-only cannot be used with -destroy: it changes nothing that is running")
	case a.refreshOnly && len(a.replaces) > 0:
		return errors.New("-refresh-only cannot be used with -replace: it changes nothing that is running")
	case destroy && len(a.replaces) > 0:
		return errors.New("-destroy and -replace cannot be used together: what is destroyed is not started again")
	case a.refreshOnly && !a.refresh:
		return errors.New("-refresh-only and -refresh=false cannot be used together")
	case a.observed != "" && !a.refresh:
		return errors.New("-observed and -refresh=false cannot be used together")
	}
	return nil
}

// scope returns the planner's scope. That of a saved plan takes precedence.
func (a planning) scope(cfg *lang.Config) plan.Scope {
	if a.saved != nil {
		return a.saved.Input.Scope
	}
	scope := plan.Scope{Targets: a.targets, Excludes: a.excludes}
	if !scope.Limited() || a.destroy {
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

// checkAddresses returns an error for an address that names nothing.
func (a *scoping) checkAddresses(in plan.Input, cfg *lang.Config) error {
	in.Jobs = cfg.Jobs // a plan to destroy has none
	for _, sel := range plan.Named(slices.Concat(a.targets, a.excludes, a.replaces), in.Jobs, in.Records) {
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

// cautions returns warnings about the effects of these options on the plan.
func (a *scoping) cautions(in plan.Input) []view.Diagnostic {
	which, missing := a.bound(), a.missing(in)
	if which == "" {
		return missing
	}
	return append(missing, view.Caution("Resource targeting is in effect", fmt.Sprintf(
		"You are creating a plan with the %s option, which means that the result of this plan may not represent all of the changes requested by the current configuration.\n\n"+
			"The %s option is not for routine use, and is provided only for exceptional situations such as recovering from errors or mistakes.", which, which)))
}

// missing warns about slots named by number that do not exist, or cannot be replaced.
func (a *scoping) missing(in plan.Input) []view.Diagnostic {
	var named []string
	note := func(sel job.Selector, absent []int) {
		if len(absent) > 0 {
			named = append(named, "job."+sel.Job+"."+job.Fold(sel.Role, absent))
		}
	}
	for _, sel := range plan.Named(slices.Concat(a.targets, a.excludes), in.Jobs, in.Records) {
		note(sel, in.Absent(sel))
	}
	for _, sel := range plan.Named(a.replaces, in.Jobs, in.Records) {
		note(sel, in.Unreplaced(sel))
	}
	if len(named) == 0 {
		return nil
	}
	return []view.Diagnostic{view.Caution("No such slots",
		strings.Join(named, ", ")+": these slots do not exist, so nothing is planned for them. eltrain status lists those that do.")}
}

// incomplete warns after an apply that was limited to a scope.
func (a *scoping) incomplete() []view.Diagnostic {
	which := a.bound()
	if which == "" {
		return nil
	}
	return []view.Diagnostic{view.Caution("Applied changes may be incomplete", fmt.Sprintf(
		"The plan was created with the %s option in effect, so some changes requested in the configuration may have been ignored. Run the following command to verify that no other changes are pending:\n    eltrain plan\n\n"+
			"Note that the %s option is not suitable for routine use, and is provided only for exceptional situations such as recovering from errors or mistakes.", which, which))}
}

// bound returns the option that leaves something out of the plan; "" if none does.
func (a *scoping) bound() string {
	switch {
	case len(a.targets) > 0:
		return "-target"
	case len(a.excludes) > 0:
		return "-exclude"
	}
	return ""
}

// offline reports whether the plan is made without asking the providers.
func (a *scoping) offline() bool { return !a.refresh || a.observed != "" }

// planOffline plans from the recorded observation and the state base.
func (s *session) planOffline(ctx context.Context, d *workspace.Workspace, a planning) (facts view.PlanFacts, base state.State, err error) {
	if err := d.Seal(ctx); err != nil {
		return facts, base, err
	}
	if a.observed != "" {
		return s.planObserved(d, a)
	}
	if base, err = d.Store.Read(ctx); err != nil {
		return facts, base, fmt.Errorf("read the state: %w", err)
	}
	d.Prior = base.Values
	o, err := workspace.LastObservation()
	if err != nil {
		return facts, base, err
	}
	s.diagnose(unasked(o))
	facts, err = d.PlanFacts(apply.NewPlanner(a.setup(d, base), d.Providers, d.Sealer).PreviewRecorded(o, time.Now()), nil)
	facts.Unseen = true
	return facts, base, err
}

// unasked warns about what -refresh=false means for the plan.
func unasked(o *apply.Observation) view.Diagnostic {
	const summary = "The providers were not asked"
	if o == nil {
		return view.Caution(summary, "With -refresh=false, slots are assumed to run as the state says. No observation of the nodes is recorded here: what does not have a place yet waits. "+
			"eltrain apply records an observation when it ends, eltrain apply -refresh-only at once.")
	}
	return view.Caution(summary, fmt.Sprintf("With -refresh=false, slots are assumed to run as the state says, and nodes to be as observed at %s.", o.At.UTC().Format(time.RFC3339)))
}

// planObserved plans from the observation of a saved plan.
func (s *session) planObserved(d *workspace.Workspace, a planning) (facts view.PlanFacts, base state.State, err error) {
	f, err := planfile.Read(a.observed, version)
	if err != nil {
		return facts, base, fmt.Errorf("-observed: %w", err)
	}
	a.uids = f.UIDs
	p := apply.NewPlanner(a.setup(d, state.State{}), nil, d.Sealer)
	facts, err = d.PlanFacts(p.Replan(f.Facts.Input), f.Facts.Reached)
	facts.Unseen = f.Facts.Unseen
	return facts, state.State{Lineage: f.Lineage, Serial: f.Serial}, err
}

// refreshQuestion asks for approval to record what was observed.
var refreshQuestion = terminal.Question{
	Ask:     "Would you like to update the eltrain state to reflect these detected changes?",
	Explain: "eltrain will write these changes to the state without modifying anything that runs.",
	Instead: "-auto-approve",
}

// refreshState shows the drift between what runs and what was last applied, and records it after approval. It runs no
// service. approved is the saved plan, or nil.
func (s *session) refreshState(ctx context.Context, d *workspace.Workspace, a applyArgs, lock state.Lock, approved *planfile.File) int {
	journal, err := master.OpenJournal(lock, s.diagnose)
	if err != nil {
		return s.fail("Cannot write the journal", err)
	}
	defer journal.Close()
	look, cancel := context.WithTimeout(ctx, previewTimeout) // a person may take longer to answer
	defer cancel()
	if err := d.Seal(look); err != nil {
		return s.fail("Planning failed", err)
	}
	approve := func(seen apply.Decision) error {
		if approved != nil {
			return sameDrift(&approved.Facts.Input, &seen.Input)
		}
		facts, err := d.PlanFacts(seen, nil)
		if err == nil {
			err = a.checkAddresses(seen.Input, d.Config)
		}
		if err != nil {
			return err
		}
		model := view.NewPlan(facts, &s.redactor)
		s.showPreview(model)
		s.diagnose(append(s.held(), a.cautions(seen.Input)...)...)
		if !model.Applyable || a.autoApprove {
			return nil
		}
		yes, err := s.approved(ctx, refreshQuestion)
		if err == nil && !yes {
			err = errCancelled
		}
		return err
	}
	stored, err := d.Store.Read(look)
	if err != nil {
		return s.fail("Cannot read the state", err)
	}
	planner := s.reportingPlanner(d, a.setup(d, stored))
	_, err = planner.Refresh(ctx, approve, d.Store, lock, journal)
	switch {
	case errors.Is(err, errCancelled):
		fmt.Fprintln(s.streams.Out, "Apply cancelled.")
		return exitError
	case err != nil && approved != nil:
		return s.notApplied(a, err)
	case err != nil:
		return s.fail("Refreshing failed", err)
	}
	d.KeepObservation(planner.Observed())
	fmt.Fprintln(s.streams.Out)
	if s.stream != nil {
		s.stream.Applied(plan.Summary{})
	}
	progress := view.NewProgress(s.streams.Out, &s.redactor, time.Now)
	progress.Applied()
	return exitDone
}

// errCancelled is returned when the user does not approve a plan.
var errCancelled = errors.New("it was not approved")

// sameDrift returns an error unless the drift observed now is the drift that was approved.
func sameDrift(was, is *plan.Input) error {
	text := func(in *plan.Input) []string {
		var lines []string
		for _, d := range plan.Drifted(in) {
			line, err := json.Marshal(d)
			if err != nil {
				return []string{err.Error()}
			}
			lines = append(lines, string(line))
		}
		return lines
	}
	if slices.Equal(text(was), text(is)) {
		return nil
	}
	return &planfile.StaleError{Because: "what is observed now differs from when the plan was created", Why: driftedSince(was, is)}
}

// driftedSince returns the slots that have drifted in either input.
func driftedSince(was, is *plan.Input) []string {
	names := map[string]int{}
	var out []string
	for _, in := range []*plan.Input{was, is} {
		for _, d := range plan.Drifted(in) {
			if names[d.Slot.String()]++; names[d.Slot.String()] == 1 {
				out = append(out, d.Slot.String())
			}
		}
	}
	slices.Sort(out)
	return out
}
