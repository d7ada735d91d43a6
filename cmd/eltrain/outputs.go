package main

import (
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/state"
)

// outputs returns the outputs to store in the state: those of the saved plan if there is one, else of the configuration. A
// destroy removes them; a destroy with -target or -exclude leaves them as they are.
func (a planning) outputs(d *workspace.Workspace) map[string]state.Output {
	switch {
	case a.saved != nil:
		return workspace.StoredOutputs(a.saved.Outputs)
	case a.destroy && len(a.targets)+len(a.excludes) > 0:
		return d.Prior
	case a.destroy:
		return nil
	}
	return workspace.OutputsOf(d.Config)
}

// showOutputs shows the outputs after an apply.
func (r *applyRun) showOutputs() {
	outputs := workspace.OutputsIn(r.args.outputs(r.Workspace))
	view.WriteOutputs(r.streams.Out, outputs)
	if r.stream != nil {
		r.stream.Outputs(outputs)
	}
}
