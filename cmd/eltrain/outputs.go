package main

import (
	"github.com/eltrain/eltrain/cmd/view"
)

// showOutputs shows the outputs after an apply.
func (r *applyRun) showOutputs() {
	outputs := r.args.Values(r.Workspace).Outputs
	view.WriteOutputs(r.streams.Out, outputs)
	if r.stream != nil {
		r.stream.Outputs(outputs)
	}
}
