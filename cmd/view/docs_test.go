package view

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The page on a plan's JSON names every field of it.
func TestPlanPageHasEveryField(t *testing.T) {
	text, err := os.ReadFile("../../docs/plan-json.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	seen := map[reflect.Type]bool{}
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || !strings.HasPrefix(typ.PkgPath(), "github.com/eltrain/") || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/plan-json.md does not mention the field %s of %s", name, typ)
			}
			check(typ.Field(i).Type)
		}
	}
	check(reflect.TypeFor[PlanModel]())
	check(reflect.TypeFor[StreamChange]())
	check(reflect.TypeFor[StreamOutput]())
	if len(seen) < 15 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

// The page names every type of line.
func TestPlanPageHasEveryLine(t *testing.T) {
	text, err := os.ReadFile("../../docs/plan-json.md")
	if err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile("testdata/stream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(everyLine(t), uiLines(t, told)...) {
		if !strings.Contains(string(text), "`"+l.kind()+"`") {
			t.Errorf("docs/plan-json.md does not mention lines of the type %s", l.kind())
		}
	}
}

// The contract's types of lines, each of which is written somewhere.
func TestStreamHasEveryTypeOfTheContract(t *testing.T) {
	told, err := os.ReadFile("testdata/stream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, l := range append(everyLine(t), uiLines(t, told)...) {
		written[l.kind()] = true
	}
	for _, kind := range []string{
		"version", "diagnostic", "resource_drift", "planned_change", "change_summary", "apply_start", "apply_progress", "apply_complete",
		"apply_errored", "outputs", "reconcile_start", "reconcile_complete", "scale_decision", "incident",
	} {
		if !written[kind] {
			t.Errorf("no line is of the type %s", kind)
		}
	}
}
