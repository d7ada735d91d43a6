package main

import (
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/state"
)

// values returns the values to store in the state: those of the saved plan if there is one, else of the configuration. A
// destroy removes them; a destroy with -target or -exclude leaves them as they are.
func (a planning) values(d *workspace.Workspace) state.Values {
	switch {
	case a.saved != nil:
		return a.saved.Values
	case a.destroy && len(a.targets)+len(a.excludes) > 0:
		return d.Prior
	case a.destroy:
		return state.Values{}
	}
	return workspace.ValuesOf(d.Config)
}

// showOutputs shows the outputs after an apply.
func (r *applyRun) showOutputs() {
	outputs := r.args.values(r.Workspace).Outputs
	view.WriteOutputs(r.streams.Out, outputs)
	if r.stream != nil {
		r.stream.Outputs(outputs)
	}
}
