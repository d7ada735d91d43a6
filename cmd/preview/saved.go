package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// File returns a plan as it is saved. vars are those that it was made with.
func File(d *workspace.Workspace, stored state.State, facts view.PlanFacts, vars []lang.Assignment, eltrain string) (*planfile.File, error) {
	home, err := workspace.HomeOf(d.Config.Settings.State)
	if err != nil {
		return nil, err
	}
	place, err := workspace.PlaceOf(&facts.Input)
	if err != nil {
		return nil, err
	}
	f := &planfile.File{
		Eltrain: eltrain, Made: facts.Input.Now, Lineage: stored.Lineage, Serial: stored.Serial, Home: home, Place: place,
		Settings: d.Config.Settings, Assignments: withoutSecrets(d.Config, vars),
		Facts: facts, UIDs: plan.NewUIDs(&facts.Input, &facts.Plan),
	}
	f.Providers, err = workspace.EncodeProviders(d.Config.Providers)
	return f, err
}

// Intended returns what a saved plan intends, and with which configuration. It rejects one that was made for another directory.
func Intended(f *planfile.File) (a Intent, cfg *lang.Config, err error) {
	if cfg, err = ConfigOf(f); err != nil {
		return a, nil, err
	}
	home, err := workspace.HomeOf(cfg.Settings.State)
	if err != nil {
		return a, nil, err
	}
	if home != f.Home {
		return a, nil, fmt.Errorf("it was made for another directory: its state is at %s, and this directory's at %s", f.Home, home)
	}
	in := &f.Facts.Input
	a = Intent{UIDs: f.UIDs, Saved: &f.Facts, Intent: apply.Intent{
		Destroy: in.Destroy, Keep: in.Keep, Rerun: !in.Destroy, Refresh: in.Refresh, Scope: plan.Scope{Targets: in.Scope.Targets, Excludes: in.Scope.Excludes},
	}}
	return a, cfg, checkPlace(f)
}

// withoutSecrets returns vars without the values of sensitive variables.
func withoutSecrets(cfg *lang.Config, vars []lang.Assignment) []lang.Assignment {
	return slices.DeleteFunc(slices.Clone(vars), func(a lang.Assignment) bool {
		return slices.ContainsFunc(cfg.Variables, func(v lang.Variable) bool { return a.File == "" && v.Name == a.Name && v.Sensitive })
	})
}

// checkPlace rejects a plan made in another directory that shares the state with this one: jobs started here would not find
// their files, and jobs running there would appear lost.
func checkPlace(f *planfile.File) error {
	place, err := workspace.PlaceOf(&f.Facts.Input)
	if err != nil {
		return err
	}
	if place != f.Place {
		return fmt.Errorf("it was made for another directory: its jobs run in %s, here they would run in %s. Apply it there, or plan again here", f.Place, place)
	}
	return nil
}

// ConfigOf returns the configuration that a saved plan was made from.
func ConfigOf(f *planfile.File) (*lang.Config, error) {
	configured, err := workspace.DecodeProviders(f.Providers)
	return &lang.Config{Settings: f.Settings, Jobs: f.Facts.Input.Jobs, Providers: configured}, err
}

// Recheck checks that what runs is as an approved plan expects. besides are further changes that have become necessary since.
func Recheck(ctx context.Context, d *workspace.Workspace, a *Intent, f *planfile.File, told *view.Stream) (besides []plan.Change, err error) {
	facts, err := Live(ctx, d, a, told)
	if err != nil {
		return nil, err
	}
	if err := f.CheckRecords(facts.Input.Records); err != nil {
		return nil, err
	}
	return f.Check(&facts.Input, &facts.Plan)
}

// SameDrift returns an error unless the drift observed now is the drift that was approved.
func SameDrift(was, is *plan.Input) error {
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
