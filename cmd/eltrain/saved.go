package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/state"
)

// save writes the plan to the file of -out.
func (s *session) save(d *directory, a planArgs, stored state.State, facts view.PlanFacts) error {
	home, err := homeOf(d.config.Settings.State)
	if err != nil {
		return err
	}
	place, err := placeOf(&facts.Input)
	if err != nil {
		return err
	}
	f := &planfile.File{
		Eltrain: version, Made: facts.Input.Now, Lineage: stored.Lineage, Serial: stored.Serial, Home: home, Place: place,
		Settings: d.config.Settings, Assignments: withoutSecrets(d.config, a.vars),
		Facts: facts, UIDs: planfile.NewUIDs(&facts),
	}
	if f.Providers, err = encodeProviders(d.config.Providers); err != nil {
		return err
	}
	return f.Write(a.out)
}

func encodeProviders(all []lang.ProviderConfig) (encoded []planfile.Provider, err error) {
	for _, p := range all {
		text, err := json.Marshal(p.Value)
		if err != nil {
			return nil, fmt.Errorf("the block of provider %q: %w", p.Name, err)
		}
		encoded = append(encoded, planfile.Provider{Name: p.Name, Config: text})
	}
	return encoded, nil
}

func decodeProviders(encoded []planfile.Provider, known map[string]reflect.Type) (all []lang.ProviderConfig, err error) {
	for _, p := range encoded {
		t := known[p.Name]
		if t == nil {
			return nil, fmt.Errorf("provider %q is unknown here", p.Name)
		}
		value := reflect.New(t)
		if err := json.Unmarshal(p.Config, value.Interface()); err != nil {
			return nil, fmt.Errorf("the block of provider %q: %w", p.Name, err)
		}
		all = append(all, lang.ProviderConfig{Name: p.Name, Value: value.Elem().Interface()})
	}
	return all, nil
}

// withoutSecrets returns vars without the values of sensitive variables.
func withoutSecrets(cfg *lang.Config, vars assignments) []lang.Assignment {
	return slices.DeleteFunc(slices.Clone(vars), func(a lang.Assignment) bool {
		return slices.ContainsFunc(cfg.Variables, func(v lang.Variable) bool { return a.File == "" && v.Name == a.Name && v.Sensitive })
	})
}

// homeOf names where a state is kept, the same from any working directory.
func homeOf(settings lang.State) (string, error) {
	if settings.Type == "kubernetes" {
		return ownerOf(settings)
	}
	path, err := resolvedPath(cmp.Or(settings.Path, defaultState))
	if err != nil {
		return "", fmt.Errorf("find the state: %w", err)
	}
	return "file " + path, nil
}

// resolvedPath returns an absolute path without symbolic links in its directory. The file need not exist.
func resolvedPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, nil
}

// placeOf names where a plan's local jobs run: the job directory and that of run-time files, without symbolic links. It is ""
// for a plan without local jobs, which can be carried out elsewhere.
func placeOf(in *plan.Input) (string, error) {
	here := slices.ContainsFunc(in.Jobs, func(j job.Job) bool { return j.Provider == local.Name })
	for _, rec := range in.Records {
		here = here || rec.Spec.Provider == local.Name
	}
	if !here {
		return "", nil
	}
	dir, err := filepath.Abs(jobDirectory)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the job directory: %w", err)
	}
	runs := runDirectory
	if !filepath.IsAbs(runs) {
		runs = filepath.Join(dir, runs)
	}
	if runs, err = resolvedPath(runs); err != nil {
		return "", fmt.Errorf("find the directory of run-time files: %w", err)
	}
	return dir + ", with run-time files in " + runs, nil
}

// checkPlace rejects a plan made in another directory that shares the state with this one: jobs started here would not find
// their files, and jobs running there would appear lost.
func checkPlace(f *planfile.File) error {
	place, err := placeOf(&f.Facts.Input)
	if err != nil {
		return err
	}
	if place != f.Place {
		return fmt.Errorf("it was made for another directory: its jobs run in %s, here they would run in %s. Apply it there, or plan again here", f.Place, place)
	}
	return nil
}

// configOf returns the configuration that a saved plan was made from.
func (s *session) configOf(f *planfile.File) (*lang.Config, error) {
	configured, err := decodeProviders(f.Providers, s.options(nil).Providers)
	return &lang.Config{Settings: f.Settings, Jobs: f.Facts.Input.Jobs, Providers: configured}, err
}

// unseal finds the sensitive values of a saved plan's jobs. It reads them as a plan does, from the files and the
// environment, but only if the plan needs any.
func (s *session) unseal(ctx context.Context, d *directory, f *planfile.File) error {
	if !f.Sealed() {
		return nil
	}
	cfg, diags := s.read(f.Assignments)
	_, err := d.sealed(ctx, cfg.Jobs)
	if err == nil {
		err = f.CheckSealed(d.sealer)
	}
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
	cfg, err := s.configOf(f)
	if err != nil {
		return s.notApplied(a, err)
	}
	home, err := homeOf(cfg.Settings.State)
	if err != nil {
		return s.notApplied(a, err)
	}
	if home != f.Home {
		return s.notApplied(a, fmt.Errorf("it was made for another directory: its state is at %s, and this directory's at %s", f.Home, home))
	}
	if err := checkPlace(f); err != nil {
		return s.notApplied(a, err)
	}
	d, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	defer d.close(s)
	if err := s.unseal(ctx, d, f); err != nil {
		return s.notApplied(a, err)
	}
	a.destroy, a.keep, a.rerun = f.Facts.Input.Destroy, f.Facts.Input.Keep, !f.Facts.Input.Destroy
	a.uids, a.saved = f.UIDs, &f.Facts
	a.targets, a.excludes, a.refreshOnly = f.Facts.Input.Scope.Targets, f.Facts.Input.Scope.Excludes, f.Facts.Input.Refresh
	m := newMaster(s, d, a)
	defer closeServer(s, m.server)
	lock, _, err := s.lock(ctx, d.store, a.operation(), a.lockTimeout)
	switch {
	case err != nil && ctx.Err() != nil:
		return s.interruptedEarly(a, "while waiting for the state's lock")
	case err != nil:
		return s.fail("Cannot lock the state", err)
	}
	defer s.unlock(lock)
	stored, err := d.store.Read(ctx)
	if err == nil {
		err = f.CheckState(stored.Lineage, stored.Serial)
	}
	if err != nil {
		return s.notApplied(a, err)
	}
	if !s.connect(d) {
		return exitError
	}
	if a.refreshOnly {
		return s.refreshState(ctx, d, a, lock, f)
	}
	if err := s.recheck(ctx, d, a, f); err != nil {
		return s.notApplied(a, err)
	}
	s.diagnose(view.CheckWarnings(f.Facts.Checks)...)
	if s.stream != nil {
		s.stream.Approved(view.NewPlan(f.Facts, &s.redactor))
	}
	m.progress.Shown(&f.Facts.Plan)
	m.saved = f
	return m.run(ctx, lock)
}

// recheck checks, before the service is published, that what runs is as the plan expects. It warns about further changes that
// have become necessary since.
func (s *session) recheck(ctx context.Context, d *directory, a applyArgs, f *planfile.File) error {
	facts, err := d.preview(ctx, s, a.planning)
	if err != nil {
		return err
	}
	if err := f.CheckRecords(facts.Input.Records); err != nil {
		return err
	}
	besides, err := f.Check(&facts.Input, &facts.Plan)
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
func (m *master) stillApproved(in *plan.Input, p *plan.Plan) error {
	if len(p.Refusals) > 0 {
		return &RefusedPlanError{p.Refusals}
	}
	if m.saved == nil {
		return nil
	}
	_, err := m.saved.Check(in, p)
	return err
}
