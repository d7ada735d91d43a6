package workspace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// OutputsOf returns a configuration's outputs, or nil on errors: the plan has reported those.
func OutputsOf(cfg *lang.Config) map[string]state.Output {
	_, outputs, err := Given(cfg)
	if err != nil {
		return nil
	}
	return StoredOutputs(outputs)
}

// Given returns a configuration's variables and outputs as JSON. Sensitive ones have only their type.
func Given(cfg *lang.Config) (variables, outputs map[string]view.GivenValue, err error) {
	var secrets job.Secrets
	secrets.Add(cfg.Secrets()...)
	variables, outputs = map[string]view.GivenValue{}, map[string]view.GivenValue{}
	for _, v := range cfg.Variables {
		if variables[v.Name], err = givenValue(v.Value, v.Sensitive, &secrets); err != nil {
			return nil, nil, fmt.Errorf("encode the variable %s: %w", v.Name, err)
		}
	}
	for _, o := range cfg.Outputs {
		if outputs[o.Name], err = givenValue(o.Value, o.Sensitive, &secrets); err != nil {
			return nil, nil, fmt.Errorf("encode the output %s: %w", o.Name, err)
		}
	}
	return variables, outputs, nil
}

func givenValue(v cty.Value, hidden bool, secrets *job.Secrets) (view.GivenValue, error) {
	hidden = hidden || v.ContainsMarked() || !v.IsWhollyKnown()
	if hidden && slices.ContainsFunc(namesIn(v.Type()), secrets.In) {
		return view.GivenValue{Sensitive: true}, nil
	}
	kind, err := ctyjson.MarshalType(v.Type())
	if hidden || err != nil {
		return view.GivenValue{Type: kind, Sensitive: hidden}, err
	}
	value, err := ctyjson.Marshal(v, v.Type())
	return view.GivenValue{Value: value, Type: kind}, err
}

// namesIn returns the attribute names within a type. They may be derived from sensitive values.
func namesIn(ty cty.Type) []string {
	var inner []cty.Type
	var names []string
	switch {
	case ty.IsObjectType():
		names = slices.Collect(maps.Keys(ty.AttributeTypes()))
		inner = slices.Collect(maps.Values(ty.AttributeTypes()))
	case ty.IsTupleType():
		inner = ty.TupleElementTypes()
	case ty.IsCollectionType():
		inner = []cty.Type{ty.ElementType()}
	}
	for _, t := range inner {
		names = append(names, namesIn(t)...)
	}
	return names
}

// StoredOutputs returns outputs as the state has them.
func StoredOutputs(given map[string]view.GivenValue) map[string]state.Output {
	out := map[string]state.Output{}
	for name, v := range given {
		out[name] = state.Output{Value: v.Value, Type: v.Type, Sensitive: v.Sensitive}
	}
	return out
}

// OutputsIn returns the outputs of a state.
func OutputsIn(stored map[string]state.Output) map[string]view.GivenValue {
	out := map[string]view.GivenValue{}
	for name, v := range stored {
		out[name] = view.GivenValue{Value: v.Value, Type: v.Type, Sensitive: v.Sensitive}
	}
	return out
}
