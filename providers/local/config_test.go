package local

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestConfigIsOfTheLanguage(t *testing.T) {
	var names []string
	for _, f := range job.Fields(reflect.TypeFor[Node]()) {
		if f.Doc == "" {
			t.Errorf("%s has no doc", f.Name)
		}
		names = append(names, f.Name+" "+string(f.Kind))
	}
	if got, want := strings.Join(names, ", "), "name label, cpu optional, memory optional, devices optional, labels optional"; got != want {
		t.Errorf("a node's fields are %s, want %s", got, want)
	}
	if f := job.Fields(reflect.TypeFor[Config]()); len(f) != 1 || !f[0].Repeated() || f[0].Name != "node" {
		t.Errorf("fields of provider local: %+v", f)
	}
}

func TestValidateListsEveryMistake(t *testing.T) {
	c := Config{Nodes: []Node{
		{Name: "n1"}, {Name: "n1"}, {Name: "no/slash"}, {Name: "n2", Devices: map[string]int{"gpu": -1}}, {Name: "n3"},
	}}
	text := errors.Join(c.Validate()...).Error()
	for _, want := range []string{`"n1" is declared twice`, `"no/slash" is not a valid node name`, `node "n2" declares -1 of device "gpu"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if n := len(c.Validate()); n != 3 {
		t.Errorf("%d errors, want 3:\n%s", n, text)
	}
	if _, err := New(Options{Dir: t.TempDir(), Config: c}); err == nil {
		t.Error("a provider was made with an invalid config")
	}
}

func TestDeclaredNodesAreObservedAsDeclared(t *testing.T) {
	b := newBench(t)
	declared := Config{Nodes: []Node{{
		Name: "n1", CPU: 2500, Memory: 4 << 30, Devices: map[string]int{"example.com/gpu": 2}, Labels: map[string]string{"rack": "r1"},
	}}}
	b.ok(b.SetConfig(declared))
	<-b.Changes()
	b.ok(b.SetConfig(declared))
	if len(b.Changes()) > 0 {
		t.Error("unchanged nodes are signaled")
	}
	o, err := b.Observe(b.ctx)
	b.ok(err)
	want := []job.Node{{
		Name: "n1", Provider: "local", Labels: map[string]string{"rack": "r1"},
		Capacity: job.Resources{CPU: 2500, Memory: 4 << 30, Devices: map[string]int{"example.com/gpu": 2}},
	}}
	if !reflect.DeepEqual(o.Nodes, want) {
		t.Errorf("nodes %+v, want %+v", o.Nodes, want)
	}
}

func TestThisMachineIsTheNodeWhenNoneIsDeclared(t *testing.T) {
	b := newBench(t)
	o, err := b.Observe(b.ctx)
	b.ok(err)
	hostname, _ := os.Hostname()
	if len(o.Nodes) != 1 {
		t.Fatalf("nodes %+v", o.Nodes)
	}
	n := o.Nodes[0]
	if n.Name != nodeName(hostname) || n.Capacity.CPU != job.CPU(1000*runtime.NumCPU()) || n.Capacity.Memory < 64<<20 {
		t.Errorf("this machine is %+v", n)
	}
	for hostname, want := range map[string]string{
		"gpu-1.cluster.example": "gpu-1-cluster-example", "": "localhost", "-x": "x", "ähh": "hh", strings.Repeat("a", 70): strings.Repeat("a", 63),
	} {
		if got := nodeName(hostname); got != want || !job.ValidName(got) {
			t.Errorf("hostname %q names the node %q, want %q", hostname, got, want)
		}
	}
}
