package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// into returns the setter of an option that adds an address.
func into(all *[]job.Selector) func(string) error {
	return func(text string) error {
		sel, err := job.ParseTarget(text)
		if err == nil {
			*all = append(*all, sel)
		}
		return err
	}
}

// declareScope declares the options that limit the scope of a plan, and say what it is made from.
func (a *planning) declareScope(fs *flags) {
	fs.Func("exclude", "Leave out `ADDRESS` and what depends on it. Can be repeated.", into(&a.Scope.Excludes))
	fs.StringVar(&a.observed, "observed", "", "Plan from the observation of the saved plan in `FILE`, without providers and state.")
	fs.BoolVar(&a.observes, "refresh", true, "Plan from the state and the last observation, without asking the providers.")
	fs.Func("target", "Change only `ADDRESS` and what it depends on: job.NAME (with for_each, all of its keys), job.NAME[\"KEY\"], job.NAME.ROLE, job.NAME.ROLE[0-3,7] or module.NAME. Can be repeated. For exceptions, not for routine use.", into(&a.Scope.Targets))
}

// declareRest declares the options that make no sense for a destroy. refreshOnly is the usage of -refresh-only.
func (a *planning) declareRest(fs *flags, refreshOnly string) {
	fs.BoolVar(&a.Refresh, "refresh-only", false, refreshOnly)
	fs.Func("replace", "Replace `ADDRESS` even if nothing is wrong with it. Can be repeated.", into(&a.Replace))
}

// limit returns the first of these options that was used; "" if none was.
func (a *planning) limit() string {
	switch {
	case len(a.Scope.Targets) > 0:
		return "-target"
	case len(a.Scope.Excludes) > 0:
		return "-exclude"
	case len(a.Replace) > 0:
		return "-replace"
	case a.Refresh:
		return "-refresh-only"
	case !a.observes:
		return "-refresh=false"
	case a.observed != "":
		return "-observed"
	}
	return ""
}

// check reports flags that cannot be used together.
func (a *planning) checkScope(destroy bool) error {
	switch {
	case len(a.Scope.Targets) > 0 && len(a.Scope.Excludes) > 0:
		return errors.New("-target and -exclude cannot be used together")
	case a.Refresh && destroy:
		return errors.New("-refresh-only cannot be used with -destroy: it changes nothing that is running")
	case a.Refresh && len(a.Replace) > 0:
		return errors.New("-refresh-only cannot be used with -replace: it changes nothing that is running")
	case destroy && len(a.Replace) > 0:
		return errors.New("-destroy and -replace cannot be used together: what is destroyed is not started again")
	case a.Refresh && !a.observes:
		return errors.New("-refresh-only and -refresh=false cannot be used together")
	case a.observed != "" && !a.observes:
		return errors.New("-observed and -refresh=false cannot be used together")
	}
	return nil
}

// offline reports whether the plan is made without asking the providers.
func (a *planning) offline() bool { return !a.observes || a.observed != "" }

// planOffline plans from the recorded observation and the state base.
func (s *session) planOffline(ctx context.Context, d *workspace.Workspace, a planning) (facts view.PlanFacts, base state.State, err error) {
	if a.observed != "" {
		f, err := planfile.Read(a.observed, version)
		if err != nil {
			return facts, base, fmt.Errorf("-observed: %w", err)
		}
		return preview.Observed(ctx, d, a.Intent, f)
	}
	facts, base, seen, err := preview.Recorded(ctx, d, &a.Intent)
	if err == nil {
		s.diagnose(preview.Unasked(seen))
	}
	return facts, base, err
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
	look, cancel := context.WithTimeout(ctx, preview.Timeout) // a person may take longer to answer
	defer cancel()
	if err := d.Seal(look); err != nil {
		return s.fail("Planning failed", err)
	}
	approve := func(seen apply.Decision) error {
		if approved != nil {
			return preview.SameDrift(&approved.Facts.Input, &seen.Input)
		}
		facts, err := d.PlanFacts(seen, nil)
		if err == nil {
			err = a.CheckAddresses(seen.Input, d.Config)
		}
		if err != nil {
			return err
		}
		model := view.NewPlan(facts, &s.redactor)
		s.showPreview(model)
		s.diagnose(append(s.held(), a.Cautions(seen.Input)...)...)
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
	planner := preview.NewPlanner(d, a.Setup(d, stored), s.stream)
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
