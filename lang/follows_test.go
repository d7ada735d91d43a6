package lang

import (
	"fmt"
	"strings"
	"testing"
)

func rolesOf(lines ...string) string {
	var b strings.Builder
	b.WriteString("job \"gpt\" {\n")
	for i, line := range lines {
		name := string(rune('a' + i))
		fmt.Fprintf(&b, "role %q {\ncommand = [\"x\"]\n%s\n}\n", name, line)
	}
	b.WriteString("}\n")
	return b.String()
}

const elasticA = "scaling {\nmin = 2\nmax = 9\n}"

// A count that refers to an elastic role's is a table over that role's legal sizes, and starts where that role does.
func TestCountsThatFollow(t *testing.T) {
	for name, c := range map[string]struct {
		roles []string
		want  string // replicas and table of the last role
	}{
		"a quarter":           {[]string{elasticA, "replicas = ceil(role.a.replicas / 4)"}, "1 a [{2 1} {5 2} {9 3}]"},
		"declared first":      {[]string{"replicas = role.b.replicas", elasticA, "replicas = ceil(role.b.replicas / 4)"}, "1 b [{2 1} {5 2} {9 3}]"},
		"where it starts":     {[]string{elasticA + "\nreplicas = 6", "replicas = ceil(role.a.replicas / 4)"}, "2 a [{2 1} {5 2} {9 3}]"},
		"legal sizes alone":   {[]string{"scaling {\nmin = 3\nmax = 12\nstep = 4\n}", "replicas = role.a.replicas / 4"}, "1 a [{4 1} {8 2} {12 3}]"},
		"a list of sizes":     {[]string{"scaling {\nmin = 2\nmax = 8\nsizes = [2, 8]\n}", "replicas = role.a.replicas * role.a.processes"}, "2 a [{2 2} {8 8}]"},
		"falling":             {[]string{elasticA, "replicas = 10 - role.a.replicas"}, "8 a [{2 8} {3 7} {4 6} {5 5} {6 4} {7 3} {8 2} {9 1}]"},
		"through another":     {[]string{elasticA, "replicas = ceil(role.a.replicas / 2)", "replicas = role.b.replicas + 1"}, "2 a [{2 2} {3 3} {5 4} {7 5} {9 6}]"},
		"the whole role":      {[]string{elasticA, "replicas = min(role.a.replicas, 4)"}, "2 a [{2 2} {3 3} {4 4}]"},
		"of a fixed one":      {[]string{"replicas = 3", "replicas = role.a.replicas"}, "3"},
		"where one starts":    {[]string{elasticA, "replicas = role.a.replicas\nscaling {\nmin = 1\nmax = 4\n}"}, "2"},
		"bounds only":         {[]string{elasticA, "replicas = role.a.scaling.max"}, "9"},
		"a slot's own values": {[]string{elasticA, "replicas = role.a.replicas\nenv = { I = slot.index }"}, "2 a [{2 2} {3 3} {4 4} {5 5} {6 6} {7 7} {8 8} {9 9}]"},
	} {
		t.Run(name, func(t *testing.T) {
			roles := mustParse(t, rolesOf(c.roles...)).Jobs[0].Roles
			r := roles[len(roles)-1]
			got := fmt.Sprint(r.Replicas)
			if f := r.Follows; f != nil {
				got += fmt.Sprint(" ", f.Role, " ", f.Counts)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if _, most := r.Bounds(); len(r.PerSlot) > 0 && len(r.PerSlot) != most {
				t.Errorf("%d programs for up to %d slots", len(r.PerSlot), most)
			}
		})
	}
}

func TestCountsThatCannotFollow(t *testing.T) {
	for name, c := range map[string]struct {
		roles []string
		want  string
	}{
		"no slot at a size":    {[]string{elasticA, "replicas = floor(role.a.replicas / 4)"}, "It is 0 while role.a.replicas is 2"},
		"none at a later size": {[]string{elasticA, "replicas = 6 - role.a.replicas"}, "It is 0 while role.a.replicas is 6, which is a legal size"},
		"not a whole number":   {[]string{elasticA, "replicas = role.a.replicas / 2"}, "a whole number is required"},
		"two roles":            {[]string{elasticA, elasticA, "replicas = role.a.replicas + role.b.replicas"}, "depends on both role.a.replicas and role.b.replicas"},
		"each other":           {[]string{elasticA + "\nreplicas = role.b.replicas", "replicas = role.a.replicas"}, "Values in a cycle"},
		"its own bounds":       {[]string{"scaling {\nmin = 2\nmax = role.b.replicas\n}\nreplicas = 4", "replicas = role.a.replicas * 2"}, "role.b.replicas follows role.a.replicas, whose bounds depend on it (role.a.scaling.max)"},
		"its own start":        {[]string{"scaling {\nmin = 2\nmax = role.b.replicas\n}", "replicas = role.a.replicas * 2"}, "Values in a cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustFail(t, rolesOf(c.roles...)); !strings.Contains(got, c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}
