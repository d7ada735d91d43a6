package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// uiLine is a line of a machine-readable UI.
type uiLine map[string]any

func (l uiLine) kind() string { return l["type"].(string) }

func uiLines(t *testing.T, text []byte) []uiLine {
	t.Helper()
	var out []uiLine
	for line := range bytes.Lines(text) {
		var l uiLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, l)
	}
	return out
}

// everyLine returns what eltrain writes: each kind of line in all its forms.
func everyLine(t *testing.T) []uiLine {
	t.Helper()
	var out bytes.Buffer
	s := NewStream(&out, "0.1.0", still)
	for _, name := range cases(t, "plan") {
		_, m := readPlanCase(t, name)
		s.Plan(m)
	}
	known := &job.Record{UID: "u1", Spec: job.Job{Name: "j", Provider: "local"}}
	s.Refreshing("j", known)
	s.Refreshed("j", known)
	p := NewStreamProgress(s, NewRedactor(nil))
	c := plan.Change{Action: plan.Create, Job: "j", Provider: "local", Slot: job.Address{Job: "j", Role: "worker", Index: 3}, Incarnation: 1}
	stop := plan.Change{Action: plan.Delete, Job: "j", Provider: "local", Slot: c.Slot, Incarnation: 1, Stop: []int{1}}
	p.Planned(&plan.Plan{Changes: []plan.Change{c}})
	p.Started(&c)
	p.Still(&c, 10*time.Second)
	p.Finished(&c, time.Second, errors.New("no room"))
	p.Finished(&c, 2*time.Second, nil)
	p.Started(&stop)
	p.Finished(&stop, time.Second, nil)
	s.Applied(plan.Summary{Add: 1})
	s.Applied(plan.Summary{Add: 1, Import: 2})
	s.Destroyed(plan.Summary{Remove: 1})
	s.Outputs(map[string]state.Value{"a": {Value: json.RawMessage("1"), Type: json.RawMessage(`"number"`)}, "b": {Type: json.RawMessage(`"string"`), Sensitive: true}})
	about := Problem("Wrong", "Why.")
	about.Address = "job.j"
	about.Range = &Range{Filename: "main.hcl", Start: Position{1, 1, 0}, End: Position{1, 2, 1}}
	about.Snippet = &Snippet{Code: "x", StartLine: 1, End: 1, Values: []ExpressionValue{{"var.x", "is 1"}}}
	s.Diagnostics([]Diagnostic{Problem("Wrong", "Why."), Caution("Doubtful", "Why."), about})
	return uiLines(t, out.Bytes())
}

// testdata/terraform.jsonl is what terraform 1.11.4 wrote for plans and applies of terraform_data: each kind of line once
// in each form. Lines of the same kind have the same fields here.
func TestStreamHasTheShapeOfTerraform(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "terraform.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := map[string]*uiShape{}, map[string]*uiShape{}
	gather := func(into map[string]*uiShape, lines []uiLine) {
		for _, l := range lines {
			if into[l.kind()] == nil {
				into[l.kind()] = &uiShape{paths: map[string]map[string]bool{}, always: map[string]int{}, texts: map[string]bool{}}
			}
			into[l.kind()].add(l)
		}
	}
	gather(theirs, uiLines(t, text))
	gather(ours, everyLine(t))
	for kind, want := range theirs {
		got := ours[kind]
		if got == nil {
			t.Errorf("no line is of the type %s", kind)
			continue
		}
		for path, of := range want.paths {
			is, there := got.paths[path]
			switch {
			case !there && want.always[path] == want.lines:
				t.Errorf("%s: %s is missing", kind, path)
			case len(of) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(is)), func(one string) bool { return !of[one] }):
				t.Errorf("%s: %s is %v, and %v in terraform's", kind, path, is, of)
			case want.always[path] == want.lines && got.always[path] < got.lines:
				t.Errorf("%s: %s is missing in %d of %d lines", kind, path, got.lines-got.always[path], got.lines)
			case !there && !optional[path]:
				t.Errorf("%s: %s is in no line", kind, path)
			}
		}
		for text := range got.texts {
			if !want.texts[text] && worded[kind] {
				t.Errorf("%s: the message %q is not one of %q", kind, text, slices.Sorted(maps.Keys(want.texts)))
			}
		}
	}
}

// optional are fields that eltrain's lines about changes do not have: a slot's name on the infrastructure is known only once it
// runs.
var optional = map[string]bool{"hook.id_key": true, "hook.id_value": true, "outputs.*.type.*": true}

// worded are the kinds with exactly Terraform's messages; the messages of others name what eltrain does.
var worded = map[string]bool{"change_summary": true, "outputs": true, "apply_progress": true, "apply_errored": true, "apply_complete": true,
	"refresh_start": true, "refresh_complete": true}

// uiShape is what lines of one type have in common.
type uiShape struct {
	lines  int
	paths  map[string]map[string]bool // the JSON types at each path, without null
	always map[string]int             // number of lines that have a path
	texts  map[string]bool            // messages without addresses and numbers
}

func (s *uiShape) add(l uiLine) {
	s.lines++
	seen := map[string]bool{"@level=" + l["@level"].(string): true}
	s.paths["@level="+l["@level"].(string)] = nil
	s.walk("", map[string]any(l), seen)
	for path := range seen {
		s.always[path]++
	}
	text := l["@message"].(string)
	if hook, ok := l["hook"].(map[string]any); ok {
		text = strings.ReplaceAll(text, hook["resource"].(map[string]any)["addr"].(string), "ADDR")
	}
	s.texts[uiNumber.ReplaceAllString(uiID.ReplaceAllString(text, ""), "#")] = true
}

var (
	uiID     = regexp.MustCompile(` \[u?id=.*\]`)
	uiNumber = regexp.MustCompile(`\d+(\.\d+)?`)
)

func (s *uiShape) walk(path string, v any, seen map[string]bool) {
	if path != "" {
		seen[path] = true
		if s.paths[path] == nil {
			s.paths[path] = map[string]bool{}
		}
		if v != nil {
			s.paths[path][uiType(v)] = true
		}
	}
	object, isObject := v.(map[string]any)
	switch {
	case !isObject, path == "change.eltrain":
		return
	case path == "outputs": // by the names of outputs
		for _, output := range object {
			s.walk("outputs.*", output, seen)
		}
		return
	}
	for key, value := range object {
		s.walk(strings.TrimPrefix(path+"."+key, "."), value, seen)
	}
}

func uiType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "list"
	}
	return "object"
}
