package main

import (
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// outputs are what the state is to remember of the configuration's outputs: those of a saved plan, where there is one. Of a
// directory that is destroyed there are none, and a destroy of a part of it leaves them as they are.
func (a planning) outputs(d *directory) map[string]state.Output {
	switch {
	case a.saved != nil:
		return storedOutputs(a.saved.Outputs)
	case a.destroy && len(a.targets)+len(a.excludes) > 0:
		return d.prior
	case a.destroy:
		return nil
	}
	return outputsOf(d.config)
}

// outputsOf are a configuration's outputs. One that JSON cannot hold has been reported by the plan.
func outputsOf(cfg *lang.Config) map[string]state.Output {
	_, outputs, err := given(cfg)
	if err != nil {
		return nil
	}
	return storedOutputs(outputs)
}

func storedOutputs(given map[string]view.GivenValue) map[string]state.Output {
	out := map[string]state.Output{}
	for name, v := range given {
		out[name] = state.Output{Value: v.Value, Type: v.Type, Sensitive: v.Sensitive}
	}
	return out
}

func givenOutputs(stored map[string]state.Output) map[string]view.GivenValue {
	out := map[string]view.GivenValue{}
	for name, v := range stored {
		out[name] = view.GivenValue{Value: v.Value, Type: v.Type, Sensitive: v.Sensitive}
	}
	return out
}

// showOutputs shows the outputs once they are applied.
func (m *master) showOutputs() {
	outputs := givenOutputs(m.args.outputs(m.directory))
	view.WriteOutputs(m.streams.Out, outputs)
	if m.stream != nil {
		m.stream.Outputs(outputs)
	}
}
