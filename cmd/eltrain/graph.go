package main

import (
	"errors"
	"slices"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

type graphArgs struct {
	plan string
	vars assignments
}

func (a *graphArgs) declare(fs *flags) {
	fs.StringVar(&a.plan, "plan", "", "Draw the saved plan in `FILE`: created green, updated or restarted yellow, replaced orange, deleted red.")
	a.vars.declare(fs)
	declareTrust(fs)
}

func graphCommand() *command {
	return taking(command{
		name: "graph", usage: "[options]",
		synopsis: "Print a graph of the jobs for Graphviz",
		about: `Prints a graph of the jobs in the DOT language, for Graphviz:

eltrain graph | dot -Tsvg > graph.svg

A solid arrow points from a role to one that it starts after (depends_on). A dashed arrow points from a role or job to
a role whose values one of its arguments uses, labeled with both names. They are independent: a ps role whose replicas
follow the workers' may start before them. A plan contains values only, so its graph has no dashed arrows.

Variables need no values here. A role's number of slots is "?" if it depends on an unset variable, and jobs whose
for_each does appear once, as job.NAME-*.

Nothing is contacted or changed.`,
	}, 0, (*session).graph)
}

func (a *graphArgs) take(*session, []string) error {
	if a.plan != "" && len(a.vars) > 0 {
		return errors.New("-var and -var-file cannot be used with a saved plan: its variables are set")
	}
	return nil
}

func (s *session) graph(a *graphArgs) int {
	draw := s.jobsGraph
	if a.plan != "" {
		draw = s.planGraph
	}
	g, ok := draw(a)
	if !ok {
		return exitError
	}
	if err := view.WriteGraph(s.streams.Out, g); err != nil {
		return s.fail("Cannot show the graph", err)
	}
	return exitDone
}

func (s *session) jobsGraph(a *graphArgs) (g *view.Graph, ok bool) {
	cfg, ok := s.readValid(a.vars)
	if !ok {
		return nil, false
	}
	jobs := slices.Concat(cfg.Jobs, cfg.Templates)
	g = view.NewGraph(jobs)
	for i := range jobs {
		markUnknown(&g.Jobs[i], &jobs[i], cfg.Unknown[jobs[i].Name])
	}
	for _, ref := range cfg.ValueReferences() {
		from := "job." + ref.Job
		to := from + "." + ref.Of
		if ref.Role != "" {
			from += "." + ref.Role
		}
		g.Values = append(g.Values, view.GraphEdge{From: from, To: to, Label: ref.Argument + " from " + ref.Value})
	}
	return g, true
}

// notKnown is the label for an unknown number of slots, and for unknown roles.
const notKnown = "?"

// markUnknown replaces counts that are derived from a variable without a value, which the job has as zero, by notKnown.
func markUnknown(g *view.GraphJob, j *job.Job, unknown []string) {
	for i := range j.Roles {
		r := &j.Roles[i]
		sizes := []string{"scaling", "scaling.min", "scaling.max"}
		if r.Scaling == nil {
			sizes = []string{"scaling", "replicas"}
		}
		if slices.ContainsFunc(sizes, func(of string) bool { return slices.Contains(unknown, "role."+r.Name+"."+of) }) {
			g.Roles[i].Label = []string{r.Name, notKnown}
		}
	}
	if slices.Contains(unknown, "role") {
		g.Roles = append(g.Roles, view.GraphRole{Address: g.Address + "." + notKnown, Label: []string{notKnown}})
	}
}

func (s *session) planGraph(a *graphArgs) (g *view.Graph, ok bool) {
	f, err := planfile.Read(a.plan, version)
	if err != nil {
		s.fail("Cannot draw the plan", err)
		return nil, false
	}
	return view.NewPlanGraph(f.Facts, view.NewPlan(f.Facts, view.NewRedactor(nil))), true
}
