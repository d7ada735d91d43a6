package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// dotGraph is a parsed DOT text.
type dotGraph struct {
	nodes map[string]map[string]string // attributes by name
	edges map[[2]string]map[string]string
	// clusters are the nodes in each subgraph.
	clusters map[string][]string
}

// dotTokens matches the tokens of the DOT language that a graph needs: names, quoted strings, and punctuation.
var dotTokens = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z_0-9]*|"(?:[^"\\\n]|\\.)*"|->|[{}\[\];=,])`)

// parseDOT parses a directed graph by the grammar of graphviz.org/doc/info/lang.html, as far as it is used here: anything else
// is an error.
func parseDOT(text string) (*dotGraph, error) {
	var tokens []string
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		token := dotTokens.FindString(text)
		if token == "" {
			return nil, fmt.Errorf("no token: %.40q", text)
		}
		tokens, text = append(tokens, token), text[len(token):]
	}
	p := &dotParser{tokens: tokens, graph: &dotGraph{map[string]map[string]string{}, map[[2]string]map[string]string{}, map[string][]string{}}}
	p.want("digraph")
	p.name()
	p.block("")
	if p.err == nil && len(p.tokens) > 0 {
		p.err = fmt.Errorf("%q after the end", p.tokens[0])
	}
	return p.graph, p.err
}

type dotParser struct {
	tokens []string
	graph  *dotGraph
	err    error
}

func (p *dotParser) next() string {
	if len(p.tokens) == 0 {
		if p.err == nil {
			p.err = fmt.Errorf("the text ends too early")
		}
		return ""
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *dotParser) peek(token string) bool { return len(p.tokens) > 0 && p.tokens[0] == token }

func (p *dotParser) want(token string) {
	if got := p.next(); got != token && p.err == nil {
		p.err = fmt.Errorf("%q where %q belongs", got, token)
	}
}

func (p *dotParser) name() string {
	t := p.next()
	if strings.ContainsAny(t[:min(1, len(t))], "-{}[];=,") && p.err == nil {
		p.err = fmt.Errorf("%q is no name", t)
	}
	return strings.ReplaceAll(strings.Trim(t, `"`), `\"`, `"`)
}

func (p *dotParser) block(cluster string) {
	p.want("{")
	for p.err == nil && !p.peek("}") {
		p.statement(cluster)
	}
	p.want("}")
}

func (p *dotParser) statement(cluster string) {
	if p.peek("subgraph") {
		p.next()
		p.block(p.name())
		return
	}
	name := p.name()
	switch {
	case p.peek("="):
		p.next()
		p.name()
	case p.peek("->"):
		p.next()
		p.graph.edges[[2]string{name, p.name()}] = p.attributes()
	default:
		attributes := p.attributes()
		if name != "node" && name != "edge" {
			p.graph.nodes[name] = attributes
			p.graph.clusters[cluster] = append(p.graph.clusters[cluster], name)
		}
	}
	p.want(";")
}

func (p *dotParser) attributes() map[string]string {
	out := map[string]string{}
	p.want("[")
	for p.err == nil {
		key := p.name()
		p.want("=")
		out[key] = p.name()
		if !p.peek(",") {
			break
		}
		p.next()
	}
	p.want("]")
	return out
}

func graphJobs() []job.Job {
	return []job.Job{{Name: "gpt", Roles: []job.Role{
		{Name: "worker", Replicas: 4, Scaling: &job.Scaling{Min: 2, Max: 8}, DependsOn: []string{"role.ps"}},
		{Name: "ps", Replicas: 1},
	}}, {Name: "b", Roles: []job.Role{{Name: "w", Replicas: 3}}}}
}

func TestGraphKeepsItsTwoKindsOfEdgesApart(t *testing.T) {
	g := NewGraph(graphJobs())
	g.Values = []GraphEdge{{From: "job.gpt.ps", To: "job.gpt.worker", Label: `replicas from "x"\`}}
	var b strings.Builder
	if err := WriteGraph(&b, g); err != nil {
		t.Fatal(err)
	}
	got, err := parseDOT(b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if want := []string{"job.gpt", "job.gpt.worker", "job.gpt.ps"}; !slices.Equal(got.clusters["cluster_job.gpt"], want) {
		t.Errorf("the cluster has %v, want %v", got.clusters["cluster_job.gpt"], want)
	}
	if label := got.nodes["job.gpt.worker"]["label"]; label != `worker\n2..8` {
		t.Errorf("the label is %q", label)
	}
	start, value := got.edges[[2]string{"job.gpt.worker", "job.gpt.ps"}], got.edges[[2]string{"job.gpt.ps", "job.gpt.worker"}]
	if start["class"] != "depends_on" || start["style"] != "" || value["class"] != "value" || value["style"] != "dashed" || value["constraint"] != "false" {
		t.Errorf("the start order is %v, the value %v", start, value)
	}
	if len(got.edges) != 2 {
		t.Errorf("there are edges %v", got.edges)
	}
}

func TestGraphOfAPlan(t *testing.T) {
	f := PlanFacts{}
	f.Input.Jobs = graphJobs()
	f.Input.Records = job.Records{"old": {Spec: job.Job{Name: "old", Roles: []job.Role{{Name: "w", Replicas: 1}}}}}
	m := &PlanModel{}
	planned := func(name, role string, a plan.Action) {
		m.ResourceChanges = append(m.ResourceChanges, ResourceChange{Eltrain: &PlannedChange{Action: a, Job: name, Role: role}})
	}
	planned("gpt", "", plan.Update)
	planned("gpt", "worker", plan.Create)
	planned("gpt", "worker", plan.Create)
	planned("gpt", "worker", plan.Replace)
	planned("old", "w", plan.Delete)
	m.ResourceChanges = append(m.ResourceChanges, ResourceChange{}) // stays as it is
	var b strings.Builder
	if err := WriteGraph(&b, NewPlanGraph(f, m)); err != nil {
		t.Fatal(err)
	}
	got, err := parseDOT(b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	for node, want := range map[string][2]string{
		"job.gpt":        {"job", "lightyellow"},
		"job.gpt.worker": {`worker\n2..8\n1 to replace, 2 to create`, "orange"},
		"job.gpt.ps":     {`ps\n1`, ""},
		"job.old.w":      {`w\n1\n1 to delete`, "lightcoral"},
	} {
		if n := got.nodes[node]; n["label"] != want[0] || n["fillcolor"] != want[1] {
			t.Errorf("%s is %v, want %v", node, n, want)
		}
	}
}

// Every action that a plan may have is colored.
func TestEveryActionHasAColour(t *testing.T) {
	for _, a := range []plan.Action{plan.Create, plan.Update, plan.Restart, plan.Replace, plan.Delete, plan.Forget, plan.NoOp} {
		if filled(a) == "" {
			t.Errorf("%s has no colour", a)
		}
	}
}
