package view

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// WriteState shows the state as Terraform does: a block for each object, with its set attributes and its last phase, and then
// the outputs. With only, it shows just the job or slots that the selector names.
func WriteState(out io.Writer, state PlanState, records job.Records, only *job.Selector) {
	var b strings.Builder
	for i := range state.Values.RootModule.Resources {
		r := &state.Values.RootModule.Resources[i]
		if only != nil && !named(*only, r) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		writeObject(&b, r, records)
	}
	if only == nil {
		writeOutputs(&b, state.Values.Outputs)
	}
	if b.Len() == 0 {
		b.WriteString("The state is empty. No jobs are represented.\n")
	}
	io.WriteString(out, b.String())
}

// writeOutputs writes the outputs that were last applied.
func writeOutputs(b *strings.Builder, outputs map[string]OutputValue) {
	if len(outputs) == 0 {
		return
	}
	if b.Len() > 0 {
		b.WriteString("\n\n")
	}
	b.WriteString("Outputs:\n\n")
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		v := outputs[name]
		fmt.Fprintf(b, "%s = %s\n", name, outputText(v.Value, v.Type, v.Sensitive, 0))
	}
}

// named reports whether a selector names an object. A job's address does not name its slots.
func named(sel job.Selector, r *ResourceValues) bool {
	if sel.Role == "" {
		return r.Address == sel.String()
	}
	a, err := job.ParseAddress(r.Address)
	return err == nil && sel.Matches(a)
}

func writeObject(b *strings.Builder, r *ResourceValues, records job.Records) {
	fmt.Fprintf(b, "# %s:%s\n", r.Address, lastPhase(r, records))
	kind, label := "job", r.Name
	if r.Type == slotType {
		kind, label = "slot", r.Address
	}
	fmt.Fprintf(b, "%s %q {\n", kind, label)
	if values, ok := r.Values.(map[string]any); ok {
		writeEntries(b, values, 1)
	}
	b.WriteString("}\n")
}

// lastPhase returns the phase of an object when the state was written: " (Running)".
func lastPhase(r *ResourceValues, records job.Records) string {
	if r.Type == jobType {
		if rec := records[r.Name]; rec != nil {
			return " (" + string(rec.Phase) + ")"
		}
		return ""
	}
	a, err := job.ParseAddress(r.Address)
	if err != nil || records[a.Job] == nil {
		return ""
	}
	if s := records[a.Job].Slot(a.Role, a.Index); s != nil {
		return " (" + string(s.Phase) + ")"
	}
	return ""
}

// stateIndent is a block's indentation in Terraform's texts of the state, in spaces.
const stateIndent = 4

// writeEntries writes what is set, sorted by name, with aligned equals signs.
func writeEntries(b *strings.Builder, entries map[string]any, depth int) {
	width := 0
	var names []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if entries[name] != nil {
			names = append(names, name)
			width = max(width, len(entryName(name)))
		}
	}
	for _, name := range names {
		fmt.Fprintf(b, "%*s%-*s = ", depth*stateIndent, "", width, entryName(name))
		writeValue(b, entries[name], depth)
		b.WriteString("\n")
	}
}

// entryName quotes a name that is not an identifier: keys of env, names of devices.
func entryName(name string) string {
	if job.ValidName(name) {
		return name
	}
	return strconv.Quote(name)
}

func writeValue(b *strings.Builder, v any, depth int) {
	switch v := v.(type) {
	case string:
		if v == sensitive {
			b.WriteString(sensitive)
			return
		}
		b.WriteString(strconv.Quote(v))
	case map[string]any:
		if len(v) == 0 {
			b.WriteString("{}")
			return
		}
		b.WriteString("{\n")
		writeEntries(b, v, depth+1)
		fmt.Fprintf(b, "%*s}", depth*stateIndent, "")
	case []any:
		if len(v) == 0 {
			b.WriteString("[]")
			return
		}
		b.WriteString("[\n")
		for _, elem := range v {
			fmt.Fprintf(b, "%*s", (depth+1)*stateIndent, "")
			writeValue(b, elem, depth+1)
			b.WriteString(",\n")
		}
		fmt.Fprintf(b, "%*s]", depth*stateIndent, "")
	default:
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(strconv.Quote(fmt.Sprint(v)))
		}
		b.Write(text)
	}
}
