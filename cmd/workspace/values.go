package workspace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// ValuesOf returns the values of a configuration, or none on errors: the plan has reported those.
func ValuesOf(cfg *lang.Config) state.Values {
	given, err := Given(cfg)
	if err != nil {
		return state.Values{}
	}
	return given
}

// Given returns the values of a configuration's variables and outputs as JSON. Sensitive ones have only their type.
func Given(cfg *lang.Config) (given state.Values, err error) {
	var secrets job.Secrets
	secrets.Add(cfg.Secrets()...)
	given = state.Values{Variables: map[string]state.Value{}, Outputs: map[string]state.Value{}}
	for _, v := range cfg.Variables {
		value, err := givenValue(v.Value, v.Sensitive, &secrets)
		if err != nil {
			return given, fmt.Errorf("encode the variable %s: %w", v.Name, err)
		}
		if !secrets.In(v.Description) {
			value.Description = v.Description
		}
		given.Variables[v.Name] = value
	}
	for _, o := range cfg.Outputs {
		if given.Outputs[o.Name], err = givenValue(o.Value, o.Sensitive, &secrets); err != nil {
			return given, fmt.Errorf("encode the output %s: %w", o.Name, err)
		}
	}
	return given, nil
}

func givenValue(v cty.Value, hidden bool, secrets *job.Secrets) (state.Value, error) {
	hidden = hidden || v.ContainsMarked() || !v.IsWhollyKnown()
	if hidden && slices.ContainsFunc(namesIn(v.Type()), secrets.In) {
		return state.Value{Sensitive: true}, nil
	}
	kind, err := ctyjson.MarshalType(v.Type())
	if hidden || err != nil {
		return state.Value{Type: kind, Sensitive: hidden}, err
	}
	value, err := ctyjson.Marshal(v, v.Type())
	return state.Value{Value: value, Type: kind}, err
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
