package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// Reference is the language's reference in Markdown: a section for each block with its arguments, their
// types, defaults and meaning, as the tags of the declared types have them. providers are the types that
// Options.Providers takes.
func Reference(providers map[string]reflect.Type) string {
	var r reference
	for _, f := range job.Fields(reflect.TypeFor[root]()) {
		if f.Name == "provider" {
			continue // by provider, below
		}
		r.section("", f)
	}
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		r.table(fmt.Sprintf("provider %q", name), "", providers[name])
	}
	return strings.TrimSpace(r.b.String()) + "\n"
}

// Functions lists the names of all functions, sorted.
func Functions() []string {
	return slices.Sorted(maps.Keys(newLoader(Options{}).ctx.Functions))
}

type reference struct{ b strings.Builder }

// section describes a block that is nested in the blocks of the path outer ("job > role").
func (r *reference) section(outer string, f job.Field) {
	title := f.Name
	if outer != "" {
		title = outer + " > " + f.Name
	}
	r.table(title, f.Doc, f.ElemType())
}

func (r *reference) table(title, doc string, t reflect.Type) {
	fmt.Fprintf(&r.b, "### %s\n\n", title)
	if doc != "" {
		fmt.Fprintf(&r.b, "%s\n\n", doc)
	}
	fields := job.Fields(t)
	if len(fields) > 0 {
		r.b.WriteString("| name | type | default | an edit | meaning |\n|---|---|---|---|---|\n")
	}
	for _, f := range fields {
		fmt.Fprintf(&r.b, "| `%s` | %s | %s | %s | %s |\n", f.Name, typeText(f), defaultText(f), changeText(f), cell(f.Doc+lateText(f)))
	}
	if len(fields) > 0 {
		r.b.WriteString("\n")
	}
	for _, f := range fields {
		if f.Kind == job.Block {
			r.section(title, f)
		}
	}
}

// typeText says how the field is written.
func typeText(f job.Field) string {
	switch {
	case f.Kind == job.Label:
		return "label"
	case f.Repeated():
		return "blocks"
	case f.Kind == job.Block:
		return "block"
	case f.Kind == job.References:
		return "list of role.NAME"
	case f.Kind == job.Paths:
		return "list of arguments, or `all`"
	case f.Kind == job.Any:
		return "any object"
	case f.Type == exprType:
		return "expression"
	}
	return plainType(f.Type)
}

func plainType(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[job.Duration]():
		return "duration"
	case reflect.TypeFor[job.Bytes]():
		return "size"
	case reflect.TypeFor[job.Factor]():
		return "factor"
	case cpuType:
		return "number of cores"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + plainType(t.Elem())
	case reflect.Map:
		return "map of " + plainType(t.Elem())
	case reflect.Int, reflect.Int64:
		return "whole number"
	}
	return ValueType(t).FriendlyName()
}

func defaultText(f job.Field) string {
	switch {
	case f.Kind == job.Required:
		return "required"
	case f.Default == "":
		return ""
	case ValueType(f.Type) == cty.String:
		return fmt.Sprintf("`%q`", f.Default)
	}
	return "`" + f.Default + "`"
}

func changeText(f job.Field) string {
	switch f.Change {
	case job.Update:
		return "in place"
	case job.Replaces:
		return "replaces slots"
	}
	return ""
}

func lateText(f job.Field) string {
	if f.Late {
		return " May refer to `slot`."
	}
	return ""
}

// cell keeps a text from ending its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
