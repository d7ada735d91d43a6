package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/garbage"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// planning are the options that plan and apply share.
type planning struct {
	preview.Intent
	observes    bool   // ask the providers
	observed    string // a saved plan with the observation to plan from
	vars        assignments
	lockTimeout time.Duration
	compact     bool             // warnings
	files       *workspace.Child // of a watch; nil for a command that reads the files itself
}

func (a *planning) declare(fs *flags) {
	fs.BoolVar(&a.compact, "compact-warnings", false, "Show only the summaries of warnings, unless there are also errors.")
	a.declareScope(fs)
	a.vars.declare(fs)
}

// declarePrune declares -prune. plan has it too, to show what a master with -prune=false will do.
func declarePrune(fs *flags, prune *bool) {
	fs.BoolVar(prune, "prune", true, "Keep jobs that are no longer in the files.")
}

// checkPrune reports flags that cannot be used with -prune=false.
func (a *planning) checkPrune(prune bool) error {
	switch {
	case prune:
		return nil
	case a.Destroy:
		return errors.New("-destroy and -prune=false cannot be used together")
	case a.Refresh:
		return errors.New("-prune=false cannot be used with -refresh-only, which removes nothing")
	}
	return nil
}

type planArgs struct {
	planning
	formats
	detailedExitCode bool
	out              string
	markdown         bool
	prune            bool
}

func (a *planArgs) declare(fs *flags) {
	fs.BoolVar(&a.Destroy, "destroy", false, "Plan to destroy all jobs.")
	fs.BoolVar(&a.detailedExitCode, "detailed-exitcode", false, "Exit with 2 instead of 0 if there are changes.")
	fs.waitVar(&a.lockTimeout, "lock-timeout", "Wait up to `DURATION`, such as 30s, for a running apply to end.")
	fs.BoolVar(&a.markdown, "markdown", false, "Print the plan as a comment for a pull request.")
	declarePrune(fs, &a.prune)
	fs.StringVar(&a.out, "out", "", "Save the plan to `FILE`, for apply and show.")
	fs.Var(asksNothing{}, "input", "No effect: a plan never prompts.")
	a.formats.declare(fs)
	a.planning.declare(fs)
	declareTrust(fs)
	a.declareRest(fs, "Only show what differs from what was last applied.")
}

func planCommand() *command {
	return taking(command{
		name: "plan", usage: "[options]",
		synopsis: "Show what apply would change and why",
		about: `Compares the files with what is running and shows what apply would change, each change with its reason, and
what it costs: which worlds restart, and which jobs give up places. Jobs that wait for capacity are listed with what
they need and what is available. Nothing is changed.

With -out the plan is saved, and eltrain apply FILE does exactly what was shown, or refuses.`,
		exits: []string{
			"Success. With -detailed-exitcode: no changes.",
			"An error.",
			"With -detailed-exitcode: changes, or a job can never run as configured, or processes have ended and an apply has yet to find out how.",
		},
	}, 0, (*session).showOrSavePlan)
}

func (a *planArgs) take(s *session, _ []string) error {
	if a.json && a.markdown {
		return errors.New("-json and -markdown cannot be used together: both write to the standard output. See also -json-into")
	}
	if err := a.formats.check(); err != nil {
		return err
	}
	if err := a.checkPrune(a.prune); err != nil {
		return err
	}
	a.Rerun, a.Keep = !a.Destroy, !a.prune
	s.compact = a.compact
	return a.checkScope(a.Destroy)
}

func (s *session) showOrSavePlan(a *planArgs) int {
	defer garbage.Plan.Set(s.getenv)()
	ctx, stop := s.interruptible()
	defer stop()
	defer s.outlive()() // the exit code and the saved plan matter even if the reader is gone
	finish, err := s.speak(ctx, a.formats, 0)
	if err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	code := s.plan(ctx, *a)
	if err := finish(); err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	return code
}

func (s *session) plan(ctx context.Context, a planArgs) int {
	cfg, ok := s.readFor(a.planning)
	if !ok {
		return exitError
	}
	d, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	defer d.Close()
	d.ReadOnly = a.out == "" // a saved plan is sealed with the state's key
	facts, stored, ok := s.look(ctx, d, a)
	if !ok {
		return exitError
	}
	if s.refused(cfg, facts.Plan.Refusals) {
		return exitError
	}
	model := view.NewPlan(facts, &s.redactor)
	model.Eltrain.Settings = s.redactor.Texts(preview.Settings(d.Config))
	if a.out != "" {
		if err := s.save(d, a, stored, facts); err != nil {
			return s.fail("Cannot save the plan", err)
		}
	}
	if err := s.showPlan(a, model); err != nil {
		return s.fail("Cannot show the plan", err)
	}
	s.diagnose(slices.Concat(s.held(), a.Cautions(facts.Input), preview.Forgetting(&facts.Plan), preview.Unsaved(&facts.Plan), preview.Misnamed(cfg, &facts), preview.OtherValues(ctx, d))...)
	if a.detailedExitCode && model.Differs() {
		return exitChanges
	}
	return exitDone
}

// look makes the plan. stored is the state that it is made from.
func (s *session) look(ctx context.Context, d *workspace.Workspace, a planArgs) (facts view.PlanFacts, stored state.State, ok bool) {
	var err error
	if a.offline() {
		facts, stored, err = s.planOffline(ctx, d, a.planning)
	} else {
		if !s.connect(d) {
			return facts, stored, false
		}
		if err := d.AwaitApply(ctx, a.lockTimeout); err != nil {
			s.fail("Cannot read the state's lock", err)
			return facts, stored, false
		}
		stored, err = d.Store.Read(ctx) // before the plan reads it: if it changes in between, the saved plan is stale
		if err != nil {
			s.fail("Cannot read the state", err)
			return facts, stored, false
		}
		facts, err = s.preview(ctx, d, a.planning)
	}
	if err == nil {
		err = a.CheckAddresses(facts.Input, d.Config)
	}
	if err != nil {
		s.fail("Planning failed", err)
		return facts, stored, false
	}
	return facts, stored, true
}

// showPlan shows a plan in the requested format, with what to do next.
func (s *session) showPlan(a planArgs, model *view.PlanModel) error {
	if s.stream != nil {
		s.stream.Plan(model)
	}
	if a.markdown {
		return view.WritePlanMarkdown(s.streams.Out, model)
	}
	view.WritePlan(s.streams.Out, model)
	switch {
	case a.out != "":
		fmt.Fprintf(s.streams.Out, "\nSaved the plan to: %s\n\nTo perform exactly these actions, run the following command to apply:\n    eltrain apply %q\n", a.out, a.out)
	case model.Applyable:
		fmt.Fprint(s.streams.Out, "\nNote: You didn't use the -out option to save this plan, so eltrain can't guarantee to take exactly these actions if you run \"eltrain apply\" now.\n")
	}
	return nil
}

// readFor reads the configuration to plan for. For a destroy the files need not be valid: their errors must not keep anything
// running.
//
// The files' warnings are held, to be shown below the plan with the plan's own.
func (s *session) readFor(a planning) (cfg *lang.Config, ok bool) {
	s.later = nil // drop those of an earlier read
	if a.Destroy {
		return s.dir.ReadAnyway(a.vars), true
	}
	if a.files != nil {
		ctx, cancel := context.WithTimeout(context.Background(), apply.ReadTimeout)
		defer cancel()
		r, err := a.files.Read(ctx)
		if err != nil {
			s.fail("Cannot read the files", err)
			return nil, false
		}
		return r.Config, s.withhold(r.Diagnostics)
	}
	cfg, diags := s.dir.Load(a.vars)
	return cfg, s.withhold(view.DiagnoseHCL(diags, cfg.Files))
}

// withhold shows errors and returns ok false, or keeps warnings for later.
func (s *session) withhold(diags []view.Diagnostic) (ok bool) {
	if view.HaveErrors(diags) {
		s.diagnose(diags...)
		return false
	}
	s.later = diags
	return true
}

// preview plans for the directory as it is now.
func (s *session) preview(ctx context.Context, d *workspace.Workspace, a planning) (view.PlanFacts, error) {
	return preview.Live(ctx, d, &a.Intent, s.stream)
}
