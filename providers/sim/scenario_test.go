package sim_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers/local"
)

// TestScenarios runs the texts in testdata: events in, and under each what the loop and the cluster did
// about them, with the virtual time.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.command(t, d)
		})
	})
}

// command carries out one directive of a scenario.
func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	slot := func() job.Address {
		a, err := job.ParseAddress(d.CmdArgs[0].Key + index(d))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	switch d.Cmd {
	case "nodes": // NAME cpu=N [label=VALUE] a line
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			w.cluster.SetNode(node(t, line))
		}
		w.settle()
	case "scheduler":
		w.cluster.Schedules = true
	case "not-ready":
		w.cluster.NotReady(d.CmdArgs[0].Key)
	case "ready":
		w.cluster.Ready(d.CmdArgs[0].Key)
	case "delete-node":
		w.cluster.DeleteNode(d.CmdArgs[0].Key)
	case "evict":
		w.cluster.PutOut(w.cluster.Agent(slot()), job.Eviction)
	case "delete":
		w.cluster.PutOut(w.cluster.Agent(slot()), job.Deletion)
	case "edit":
		w.cluster.Agent(slot()).Edit(job.FieldChange{Path: "image", Before: "theirs", After: "ours"})
	case "remove-node":
		w.cluster.RemoveNode(d.CmdArgs[0].Key)
		w.settle()
	case "crash-node":
		w.cluster.CrashNode(d.CmdArgs[0].Key)
		w.settle()
	case "apply": // HCL
		w.declare(parse(t, d.Input))
		if w.master == nil {
			w.start()
		}
	case "run": // a duration
		d, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		w.run(d)
	case "kill-process":
		w.cluster.Agent(slot()).Fail(job.Exit{Code: 137, Signal: "killed"})
	case "exit":
		code := 1
		d.MaybeScanArgs(t, "code", &code)
		w.cluster.Agent(slot()).Fail(job.Exit{Code: code})
	case "kill-agent":
		w.cluster.Agent(slot()).Kill()
	case "silence":
		w.cluster.Agent(slot()).Silence()
	case "wake":
		w.cluster.Agent(slot()).Wake()
	case "finish":
		for _, a := range w.cluster.Agents() {
			a.Finish()
		}
	case "crash-master":
		w.crash()
	case "start-master":
		w.start()
	case "status":
		return w.take() + w.status()
	default:
		t.Fatalf("%s: unknown directive %q", d.Pos, d.Cmd)
	}
	w.settle()
	return w.take()
}

// index puts an address's brackets back: the directive parser takes worker[3] for a list.
func index(d *datadriven.TestData) string {
	if len(d.CmdArgs[0].Vals) > 0 {
		return "[" + d.CmdArgs[0].Vals[0] + "]"
	}
	return ""
}

func node(t *testing.T, line string) job.Node {
	fields := strings.Fields(line)
	n := job.Node{Name: fields[0], Labels: map[string]string{}}
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "cpu":
			cores, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			n.Capacity.CPU, _ = job.Cores(cores)
		case "closed":
			n.Closed = value
		default:
			n.Labels[name] = value
		}
	}
	return n
}

func parse(t *testing.T, text string) []job.Job {
	t.Helper()
	cfg, diags := lang.Parse(map[string][]byte{"job.hcl": []byte(text)}, lang.Options{
		Providers: map[string]reflect.Type{"local": reflect.TypeFor[local.Config]()},
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg.Jobs
}

// status is one line for each job and slot.
func (w *world) status() string {
	var b strings.Builder
	for _, j := range w.jobs {
		rec := w.master.l.Records()[j.Name]
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
