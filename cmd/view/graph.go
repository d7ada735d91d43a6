package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// Graph is the jobs with two independent kinds of edges between their roles. They may point in opposite directions: a role
// that starts after another may supply the value of that other's count.
type Graph struct {
	Jobs   []GraphJob
	Starts []GraphEdge // From starts after To
	Values []GraphEdge // From is derived from a value of To
}

// GraphJob is a job with its roles.
type GraphJob struct {
	Address string
	Label   []string // lines
	Action  plan.Action
	Roles   []GraphRole
}

// GraphRole is a role. Action is what a plan does to its slots: the most severe action if there are several.
type GraphRole struct {
	Address string
	Label   []string // lines
	Action  plan.Action
}

// GraphEdge points from one address to another. A value edge names the two arguments.
type GraphEdge struct {
	From, To string
	Label    string
}

// NewGraph returns the graph of declared jobs, in the order of their declarations. The caller adds Values, which are known only
// from the files' text.
func NewGraph(jobs []job.Job) *Graph {
	g := new(Graph)
	for i := range jobs {
		j := &jobs[i]
		address := "job." + j.Name
		node := GraphJob{Address: address, Label: []string{address}}
		for k := range j.Roles {
			r := &j.Roles[k]
			node.Roles = append(node.Roles, GraphRole{Address: address + "." + r.Name, Label: []string{r.Name, sizeOf(r)}})
			for _, on := range r.DependsOn {
				g.Starts = append(g.Starts, GraphEdge{From: address + "." + r.Name, To: address + "." + roleName(on)})
			}
		}
		g.Jobs = append(g.Jobs, node)
	}
	return g
}

// sizeOf returns how many slots a role has: "4", or "2..8" for an elastic role.
func sizeOf(r *job.Role) string {
	if r.Scaling == nil {
		return itoa(r.Replicas)
	}
	return itoa(r.Scaling.Min) + ".." + itoa(r.Scaling.Max)
}

// NewPlanGraph returns the graph of a plan: declared jobs and those being destroyed, each with the actions on it.
func NewPlanGraph(f PlanFacts, m *PlanModel) *Graph {
	jobs := slices.Clone(f.Input.Jobs)
	for _, name := range slices.Sorted(maps.Keys(f.Input.Records)) {
		if !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Name == name }) {
			jobs = append(jobs, f.Input.Records[name].Spec)
		}
	}
	g := NewGraph(jobs)
	done := map[string]map[plan.Action]int{}
	for i := range m.ResourceChanges {
		c := m.ResourceChanges[i].Eltrain
		if c == nil {
			continue
		}
		address := "job." + c.Job
		if c.Role != "" {
			address += "." + c.Role
		}
		if done[address] == nil {
			done[address] = map[plan.Action]int{}
		}
		done[address][c.Action]++
	}
	for i := range g.Jobs {
		j := &g.Jobs[i]
		j.Action, _ = summed(done[j.Address])
		for k := range j.Roles {
			r := &j.Roles[k]
			var text string
			if r.Action, text = summed(done[r.Address]); text != "" {
				r.Label = append(r.Label, text)
			}
		}
	}
	return g
}

// actionColours are the fill colors of nodes, the most severe action first.
var actionColours = []struct {
	action plan.Action
	colour string
}{
	{plan.Delete, "lightcoral"},
	{plan.Replace, "orange"},
	{plan.Restart, "khaki"},
	{plan.Update, "lightyellow"},
	{plan.Create, "palegreen"},
	{plan.Forget, "lightgrey"},
	{plan.NoOp, "white"}, // only the records change
}

// summed returns the most severe action, and the count of each: "3 to create, 1 to delete".
func summed(done map[plan.Action]int) (gravest plan.Action, text string) {
	var parts []string
	for _, c := range actionColours {
		if n := done[c.action]; n > 0 {
			if gravest == "" {
				gravest = c.action
			}
			parts = append(parts, fmt.Sprintf("%d to %s", n, c.action))
		}
	}
	return gravest, strings.Join(parts, ", ")
}

// WriteGraph writes a graph in the DOT language of Graphviz. Edges of the start order are solid and of the class
// "depends_on"; those of values are dashed, of the class "value", and do not decide where nodes are.
func WriteGraph(w io.Writer, g *Graph) error {
	var b strings.Builder
	b.WriteString("digraph \"eltrain\" {\n  rankdir = \"RL\";\n  node [shape = \"box\", style = \"filled\", fillcolor = \"white\", fontname = \"sans-serif\"];\n")
	b.WriteString("  edge [fontname = \"sans-serif\", fontsize = \"10\"];\n")
	for _, j := range g.Jobs {
		fmt.Fprintf(&b, "\n  subgraph %s {\n    label = %s;\n", dotID("cluster_"+j.Address), dotID(j.Label...))
		fmt.Fprintf(&b, "    %s [shape = \"component\", label = \"job\"%s];\n", dotID(j.Address), filled(j.Action))
		for _, r := range j.Roles {
			fmt.Fprintf(&b, "    %s [label = %s%s];\n", dotID(r.Address), dotID(r.Label...), filled(r.Action))
		}
		b.WriteString("  }\n")
	}
	writeEdges(&b, g.Starts, `class = "depends_on"`)
	writeEdges(&b, g.Values, `class = "value", style = "dashed", constraint = "false"`)
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeEdges(b *strings.Builder, edges []GraphEdge, attributes string) {
	if len(edges) > 0 {
		b.WriteString("\n")
	}
	for _, e := range edges {
		label := ""
		if e.Label != "" {
			label = ", label = " + dotID(e.Label)
		}
		fmt.Fprintf(b, "  %s -> %s [%s%s];\n", dotID(e.From), dotID(e.To), attributes, label)
	}
}

func filled(a plan.Action) string {
	for _, c := range actionColours {
		if c.action == a {
			return fmt.Sprintf(", fillcolor = %q", c.colour)
		}
	}
	return ""
}

// dotID returns lines as one quoted DOT string. DOT has escapes only for quotes and line ends.
func dotID(lines ...string) string {
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable(line))
	}
	return `"` + strings.Join(escaped, `\n`) + `"`
}
