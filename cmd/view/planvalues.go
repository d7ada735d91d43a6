package view

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

func shownValue(v state.Value) json.RawMessage {
	if v.Sensitive {
		return hiddenText
	}
	return v.Value
}

func planVariables(given map[string]state.Value) map[string]PlanVariable {
	out := map[string]PlanVariable{}
	for name, v := range given {
		out[name] = PlanVariable{shownValue(v)}
	}
	return out
}

func outputValues(given map[string]state.Value) map[string]OutputValue {
	out := map[string]OutputValue{}
	for name, v := range given {
		out[name] = OutputValue{v.Sensitive, v.Type, shownValue(v)}
	}
	return out
}

func outputChanges(prior, next map[string]state.Value) map[string]OutputChange {
	out := map[string]OutputChange{}
	for name, v := range next {
		c := OutputChange{Actions: actsNothing, Before: shownValue(v), After: shownValue(v), BeforeSensitive: v.Sensitive, AfterSensitive: v.Sensitive}
		old, had := prior[name]
		switch {
		case !had:
			c.Actions, c.Before, c.BeforeSensitive = actsCreate, nil, false
		case !old.Equal(v):
			c.Actions, c.Before, c.BeforeSensitive = actsUpdate, shownValue(old), old.Sensitive
		}
		c.kind, c.kindBefore = v.Type, old.Type
		out[name] = c
	}
	for name, old := range prior {
		if _, still := next[name]; !still {
			out[name] = OutputChange{Actions: actsDelete, Before: shownValue(old), BeforeSensitive: old.Sensitive, kindBefore: old.Type}
		}
	}
	return out
}

// changesOutputs reports whether applying the plan changes an output.
func (m *PlanModel) changesOutputs() bool {
	if m.Eltrain.RefreshOnly {
		return false
	}
	for _, c := range m.OutputChanges {
		if !slices.Equal(c.Actions, actsNothing) {
			return true
		}
	}
	return false
}

// configuration returns what is declared, each role's slots as one resource with a count.
func (b *planBuilder) configuration(declared []job.Job) PlanConfiguration {
	c := PlanConfiguration{Providers: map[string]ConfiguredProvider{}}
	c.RootModule.Variables, c.RootModule.Outputs = configuredValues(b.facts.Variables), configuredValues(b.facts.Outputs)
	for i := range declared {
		j := &declared[i]
		c.Providers[j.Provider] = ConfiguredProvider{j.Provider, j.Provider}
		alone := *j
		alone.Roles = nil
		c.RootModule.Resources = append(c.RootModule.Resources, ConfiguredResource{
			Address: "job." + j.Name, Mode: "managed", Type: jobType, Name: j.Name, ProviderConfigKey: j.Provider,
			Expressions: b.expressions(attributes(reflect.ValueOf(alone))),
		})
		for k := range j.Roles {
			r := &j.Roles[k]
			role := ConfiguredResource{
				Address: "job." + j.Name + "." + r.Name, Mode: "managed", Type: slotType, Name: j.Name + "." + r.Name, ProviderConfigKey: j.Provider,
				Expressions: b.expressions(slotAttributes(r, 0)), Count: &Expression{r.Replicas},
			}
			for _, on := range r.DependsOn {
				role.DependsOn = append(role.DependsOn, "job."+j.Name+"."+roleName(on))
			}
			c.RootModule.Resources = append(c.RootModule.Resources, role)
		}
	}
	return c
}

func (b *planBuilder) expressions(values map[string]any) map[string]Expression {
	out := map[string]Expression{}
	for name, v := range values {
		if shown, _ := b.redactor.hidden(v); shown != nil {
			out[name] = Expression{shown}
		}
	}
	return out
}

func configuredValues(given map[string]state.Value) map[string]ConfiguredValue {
	out := map[string]ConfiguredValue{}
	for name, v := range given {
		out[name] = ConfiguredValue{v.Description, v.Sensitive}
	}
	return out
}
