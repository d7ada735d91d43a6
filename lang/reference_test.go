package lang

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/local"
)

// languagePage is the users' documentation of the language. Two parts of it are generated from the code.
const languagePage = "../docs/language.md"

func TestLanguagePageIsTheSchema(t *testing.T) {
	text, err := os.ReadFile(languagePage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for name, want := range map[string]string{
		"functions": wrap("`"+strings.Join(functionNames(), "` `")+"`", 100) + "\n",
		"blocks":    referenceOf(map[string]reflect.Type{local.Name: reflect.TypeFor[local.Config]()}),
	} {
		before, rest, ok1 := strings.Cut(page, "<!-- generated "+name+" -->\n")
		got, after, ok2 := strings.Cut(rest, "<!-- end -->")
		if !ok1 || !ok2 {
			t.Fatalf("%s has no generated part %q", languagePage, name)
		}
		if got != want && !*update {
			t.Errorf("%s is out of date; run: go test ./lang -run %s -update", languagePage, t.Name())
		}
		page = before + "<!-- generated " + name + " -->\n" + want + "<!-- end -->" + after
	}
	if *update {
		if err := os.WriteFile(languagePage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// functionNames returns the sorted names of all functions.
func functionNames() []string {
	return slices.Sorted(maps.Keys(newLoader(Options{}).ctx.Functions))
}

// wrap breaks a text at spaces.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// referenceOf returns the language reference in Markdown: a section for each block with its arguments, their types,
// defaults and docs from the tags of the declared types. providers has the types that Options.Providers takes.
func referenceOf(providers map[string]reflect.Type) string {
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

type reference struct{ b strings.Builder }

// section describes a block nested in the blocks of the path outer ("job > role").
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

// typeText returns the type of a field's value for the reference.
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
	case f.Kind == job.Patterns:
		return "list of patterns"
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

// cell escapes a text for use in a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
