package importer

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

// The output parses back to the same values, whatever characters they contain.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab0 _-=.,:/\\\"'`$%{}()[]<>#\n\tä–\u0001")))
	name := rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_./-]{0,9}|for|null|true|1`)
	rapid.Check(t, func(rt *rapid.T) {
		j := &imported{from: text.Draw(rt, "from")}
		setDefaults(&j.Job)
		j.Name = "j"
		j.Priority = rapid.IntRange(-9, 9).Draw(rt, "priority")
		j.Heal.Budget.Restarts = rapid.IntRange(0, 20).Draw(rt, "restarts")
		for i := range rapid.IntRange(1, 3).Draw(rt, "roles") {
			r := &role{container: text.Draw(rt, "container")}
			setDefaults(&r.Role)
			r.Name = fmt.Sprintf("r%d", i)
			r.Command = rapid.SliceOfN(text, 1, 4).Draw(rt, "command")
			r.Command[0] = "x" + r.Command[0]
			r.Env = rapid.MapOfN(rapid.StringMatching(`[A-Z_.]{1,5}|for|null`), text, 0, 3).Draw(rt, "env")
			r.WorkingDir = text.Draw(rt, "dir")
			r.Ranked = rapid.Bool().Draw(rt, "ranked")
			r.Resources = job.Resources{
				CPU: job.CPU(rapid.IntRange(0, 5000).Draw(rt, "cpu")), Memory: job.Bytes(rapid.Int64Range(0, 1<<50).Draw(rt, "memory")),
				Devices: rapid.MapOfN(name, rapid.IntRange(0, 9), 0, 2).Draw(rt, "devices"),
			}
			r.Pod = rapid.MapOfN(name, rapid.Custom(func(t *rapid.T) any { return overlay(t, text, name, 3) }), 0, 3).Draw(rt, "pod")
			if i > 0 {
				r.DependsOn = []string{"r0"}
			}
			if most := rapid.IntRange(1, 9).Draw(rt, "max"); most > 1 {
				r.Scaling = &job.Scaling{Min: 1, Max: most, Step: 1}
			}
			j.roles = append(j.roles, r)
			j.Roles = append(j.Roles, r.Role)
		}
		im := newImporter("in.yaml", nil)
		im.jobs = []*imported{j}
		src := im.write()
		read := mustBeValid(t, src)
		if diff := job.Diff(j.Job, read[0]); len(diff) > 0 {
			rt.Fatalf("%v\n%s", diff, src)
		}
	})
}

func overlay(t *rapid.T, text, name *rapid.Generator[string], depth int) any {
	switch rapid.IntRange(0, 3+min(depth, 2)).Draw(t, "kind") {
	case 0:
		return text.Draw(t, "text")
	case 1:
		return rapid.Int64().Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return rapid.SampledFrom([]float64{0.5, -1.25, 1e-9, 123456.789}).Draw(t, "float")
	case 4:
		return rapid.MapOfN(name, rapid.Custom(func(t *rapid.T) any { return overlay(t, text, name, depth-1) }), 0, 3).Draw(t, "object")
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return overlay(t, text, name, depth-1) }), 0, 3).Draw(t, "list")
}

func TestNamesAreMadeLegal(t *testing.T) {
	for _, c := range []struct{ what, name, want string }{
		{"job", "a-b_c", "a-b_c"},
		{"job", "a.b", "a-b"},
		{"job", "", "job"},
		{"job", "../..", "job"},
		{"job", "9x", "9x"},
		{"role", "9x", "role-9x"},
		{"job", "ünï", "n"},
		{"job", strings.Repeat("a", 70), strings.Repeat("a", 63)},
		{"job", "taken", "taken-2"},
		{"job", "ta.ken", "ta-ken"},
		{"job", strings.Repeat("b", 63), strings.Repeat("b", 61) + "-2"},
	} {
		im := newImporter("in.yaml", []byte("name\n"))
		at := &value{path: "metadata.name", key: place{line: 1, column: 1}}
		got := im.validName(c.name, at, c.what, &names{taken: map[string]bool{"taken": true, strings.Repeat("b", 63): true}, numbers: map[string]int{}})
		if got != c.want || !job.ValidName(got) {
			t.Errorf("the %s %q is called %q, not %q", c.what, c.name, got, c.want)
		}
		if reported := len(im.diags) > 0; reported != (got != c.name) {
			t.Errorf("the %s %q is called %q; the diagnostics are %v", c.what, c.name, got, im.diags)
		}
	}
}
