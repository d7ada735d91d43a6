package sim_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers/local"
)

// TestScenarios runs the scenarios in testdata: steps, and under each what the loop and the cluster did, with the virtual time.
// The invariants are checked as well.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		t.Cleanup(w.close)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			if err := w.directive(d); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			w.settle()
			for _, wrong := range w.wrong {
				t.Errorf("%s: %s", d.Pos, wrong)
			}
			w.wrong = nil
			switch d.Cmd {
			case "status":
				return w.take() + w.status()
			case "goodput":
				return w.take() + w.goodput()
			}
			return w.take()
		})
	})
}

// directive carries out one directive of a scenario: a step, or one with lines of input.
func (w *world) directive(d *datadriven.TestData) error {
	switch d.Cmd {
	case "nodes", "do": // one line for each
		for line := range strings.Lines(d.Input) {
			if d.Cmd == "nodes" {
				line = "node " + line
			}
			if err := w.do(step(line)); err != nil {
				return err
			}
			w.settle()
		}
		return nil
	case "apply": // HCL
		if err := w.declare(d.Input); err != nil {
			return err
		}
		if len(w.masters) == 0 {
			w.start("a")
		}
		return nil
	case "status", "goodput":
		return nil
	}
	line := d.Cmd
	for _, a := range d.CmdArgs {
		line += " " + a.String()
	}
	return w.do(step(line))
}

// declare replaces the configuration.
func (w *world) declare(text string) error {
	jobs, err := parse(text, w.set)
	if err != nil {
		return err
	}
	w.text, w.jobs = text, slices.DeleteFunc(jobs, func(j job.Job) bool { return w.dropped[j.Name] })
	for i := range w.jobs {
		w.jobs[i].Suspend = w.suspended[w.jobs[i].Name]
	}
	for _, m := range w.all() {
		if m.leads() {
			m.do(func() { m.step(apply.FilesChanged{}) })
		}
	}
	w.settle()
	return nil
}

// parse returns the jobs of a configuration, with values of its variables.
func parse(text string, set map[string]string) ([]job.Job, error) {
	var assigned []lang.Assignment
	for name, value := range set {
		assigned = append(assigned, lang.Assignment{Name: name, Value: value})
	}
	cfg, diags := lang.Parse(map[string][]byte{"job.hcl": []byte(text)}, lang.Options{
		Assignments: assigned, Providers: map[string]reflect.Type{"local": reflect.TypeFor[local.Config]()},
	})
	if diags.HasErrors() {
		return nil, diags
	}
	return cfg.Jobs, nil
}

// status returns one line for each job and slot.
func (w *world) status() string {
	m := w.leader()
	if m == nil {
		return "nobody leads\n"
	}
	var b strings.Builder
	for _, j := range w.jobs {
		rec := m.l.Records()[j.Name]
		if rec == nil {
			continue
		}
		fmt.Fprintf(&b, "job.%s %s generation %d\n", j.Name, rec.Phase, rec.World.Generation)
		for _, s := range rec.Slots {
			fmt.Fprintf(&b, "  %s %s incarnation %d rank %d node %s\n", s.Address.Short(), s.Phase, s.Incarnation, s.Rank, s.Node)
		}
	}
	return b.String()
}
