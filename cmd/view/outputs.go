package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/state"
)

// outputs reports which outputs a plan changes, in Terraform's form.
func (t *planText) outputs(m *PlanModel) {
	if !m.changesOutputs() {
		return
	}
	t.line("\n%s", t.paint("Changes to Outputs:", bold))
	t.outputRows(m)
	if m.Applyable && len(m.changes()) == 0 {
		t.line("\nYou can apply this plan to save these new output values to the eltrain state, without changing anything that is running.")
	}
}

func (t *planText) outputRows(m *PlanModel) {
	width := 0
	for name, c := range m.OutputChanges {
		if !slices.Equal(c.Actions, actsNothing) {
			width = max(width, len(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.OutputChanges)) {
		c := m.OutputChanges[name]
		r := row{name: name}
		before, after := outputText(c.Before, c.kindBefore, c.BeforeSensitive, 2*valueStep), outputText(c.After, c.kind, c.AfterSensitive, 2*valueStep)
		switch {
		case slices.Equal(c.Actions, actsCreate):
			r.mark, r.value = "+", after
		case slices.Equal(c.Actions, actsUpdate):
			r.mark, r.value = "~", before+" -> "+after
			if c.BeforeSensitive && c.AfterSensitive {
				r.value = sensitive
			}
		case slices.Equal(c.Actions, actsDelete):
			r.mark, r.value = "-", before+" -> null"
		default:
			continue
		}
		t.rowAt("  ", r, width)
	}
}

// hiddenOutput is what Terraform writes for a sensitive output after an apply; elsewhere it writes sensitive.
const hiddenOutput = "<sensitive>"

// WriteOutputs shows the values of outputs after an apply; nothing if there are none.
func WriteOutputs(s Screen, outputs map[string]state.Value) {
	if len(outputs) == 0 {
		return
	}
	t := planText{Screen: s}
	t.line("\n%s\n", t.paint("Outputs:", bold, green))
	s.Write(t.buf.Bytes())
	ListOutputs(s, outputs)
}

// ListOutputs shows the values of outputs, one after the other.
func ListOutputs(s Screen, outputs map[string]state.Value) {
	t := planText{Screen: s}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		value := hiddenOutput
		if !outputs[name].Sensitive {
			value = OutputText(outputs[name])
		}
		t.line("%s = %s", name, value)
	}
	s.Write(t.buf.Bytes())
}

// WriteOutputsJSON writes outputs as Terraform's `output -json` does, except that sensitive ones have no value.
func WriteOutputsJSON(w io.Writer, outputs map[string]state.Value) error {
	return WriteJSON(w, streamOutputs(outputs))
}

// OutputText returns an output's value in the language's syntax.
func OutputText(v state.Value) string { return outputText(v.Value, v.Type, v.Sensitive, 0) }

// outputText returns an output's value in the language's syntax. All lines but the first are indented.
func outputText(value, kind json.RawMessage, hidden bool, indent int) string {
	if hidden {
		return sensitive
	}
	ty, err := ctyjson.UnmarshalType(kind)
	if err != nil {
		return string(value)
	}
	v, err := ctyjson.Unmarshal(value, ty)
	if err != nil {
		return string(value)
	}
	return valueAt(v, indent)
}

// RawOutput converts a value to a string, as Terraform's output -raw.
func RawOutput(v state.Value) (string, error) {
	kind, err := ctyjson.UnmarshalType(v.Type)
	if err != nil {
		return "", err
	}
	value, err := ctyjson.Unmarshal(v.Value, kind)
	if err != nil {
		return "", err
	}
	text, err := convert.Convert(value, cty.String)
	switch {
	case err != nil:
		return "", fmt.Errorf("its type is %s, not string, number or bool; use -json", kind.FriendlyName())
	case text.IsNull():
		return "", errors.New("it is null")
	}
	return text.AsString(), nil
}
