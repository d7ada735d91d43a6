package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// save writes the plan to the file of -out.
func (s *session) save(d *workspace.Workspace, a planArgs, stored state.State, facts view.PlanFacts) error {
	f, err := preview.File(d, stored, facts, a.vars, version)
	if err != nil {
		return err
	}
	return f.Write(a.out)
}

// unseal finds the sensitive values of a saved plan's jobs. It reads them as a plan does, from the files and the
// environment, but only if the plan needs any.
func (s *session) unseal(ctx context.Context, d *workspace.Workspace, f *planfile.File) error {
	if !f.Sealed() {
		return nil
	}
	cfg, diags := s.dir.Read(f.Assignments)
	_, err := d.Sealed(ctx, cfg.Jobs)
	if err == nil {
		err = f.CheckSealed(d.Sealer)
	}
	if err != nil && diags.HasErrors() {
		s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...) // usually the cause
	}
	return err
}

// checkSource rejects a saved plan whose jobs would run other source files than it was made with.
func (s *session) checkSource(f *planfile.File) error {
	if !f.HasSource() {
		return nil
	}
	cfg, diags := s.dir.Read(f.Assignments)
	err := f.CheckSource(cfg.Jobs)
	if err != nil && diags.HasErrors() {
		s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...) // usually the cause
	}
	return err
}

// notApplied says why an approved plan is not carried out: a saved one, or one made without asking the providers.
func (s *session) notApplied(a applyArgs, err error) int {
	saved := a.planFile != ""
	var stale *planfile.StaleError
	switch {
	case errors.As(err, &stale) && saved:
		return s.fail("Saved plan is stale", fmt.Errorf("the given plan file can no longer be applied because %w", stale))
	case errors.As(err, &stale):
		return s.fail("The plan is stale", fmt.Errorf("it can no longer be applied because %w", stale))
	case saved:
		return s.fail("The saved plan was not applied", err)
	}
	return s.fail("The plan was not applied", err)
}

// applySaved carries out a saved plan, or rejects it and changes nothing.
func (s *session) applySaved(ctx context.Context, a applyArgs) int {
	f, err := planfile.Read(a.planFile, version)
	if err != nil {
		return s.notApplied(a, err)
	}
	intent, cfg, err := preview.Intended(f)
	if err != nil {
		return s.notApplied(a, err)
	}
	a.Intent = intent
	d, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	defer d.Close()
	if err := errors.Join(s.unseal(ctx, d, f), s.checkSource(f)); err != nil {
		return s.notApplied(a, err)
	}
	r := newApply(s, d, a)
	defer r.master.Close()
	leader, err := r.leaderBeside(ctx)
	switch {
	case err != nil:
		return s.fail("Cannot lock the state", err)
	case leader != nil:
		return r.askWatchSaved(ctx, leader, f)
	}
	lock, _, err := s.lock(ctx, d.Store, a.operation(), a.lockTimeout)
	switch {
	case err != nil && ctx.Err() != nil:
		return s.interruptedEarly(a, "while waiting for the state's lock")
	case err != nil:
		return s.fail("Cannot lock the state", err)
	}
	defer s.unlock(lock)
	stored, err := d.Store.Read(ctx)
	if err == nil {
		err = f.CheckState(stored.Lineage, stored.Serial)
	}
	if err != nil {
		return s.notApplied(a, err)
	}
	if !s.connect(d) {
		return exitError
	}
	if a.Refresh {
		return s.refreshState(ctx, d, a, lock, f)
	}
	if err := s.recheck(ctx, d, a, f); err != nil {
		return s.notApplied(a, err)
	}
	s.diagnose(view.CheckWarnings(f.Facts.Checks)...)
	if s.stream != nil {
		s.stream.Approved(view.NewPlan(f.Facts, &s.redactor))
	}
	r.progress.Shown(&f.Facts.Plan)
	r.saved = f
	return r.carryOut(ctx, lock)
}

// recheck checks, before the service is published, that what runs is as the plan expects. It warns about further changes that
// have become necessary since.
func (s *session) recheck(ctx context.Context, d *workspace.Workspace, a applyArgs, f *planfile.File) error {
	besides, err := preview.Recheck(ctx, d, &a.Intent, f, s.stream)
	if err != nil {
		return err
	}
	if len(besides) > 0 {
		s.diagnose(view.Caution("More changes than planned",
			"Something outside the plan changed since, for example "+view.ChangeAddress(&besides[0])+". It is reconciled as by any apply."))
	}
	return nil
}

// stillApproved checks the first plan of a run before anything is stored or done: it must have no refusals, and a saved plan
// must still be valid.
func (r *applyRun) stillApproved(in *plan.Input, p *plan.Plan) error {
	if len(p.Refusals) > 0 {
		return &RefusedPlanError{p.Refusals}
	}
	if r.saved == nil {
		return nil
	}
	_, err := r.saved.Check(in, p)
	return err
}
