package lang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiffering(t *testing.T) {
	type node struct {
		Name   string            `hcl:"name,label"`
		Labels map[string]string `hcl:"labels,optional"`
	}
	type config struct {
		Settings `hcl:",inline"`
		Nodes    []node         `hcl:"node,block"`
		Pod      map[string]any `hcl:"pod,any"`
		Count    int            `hcl:"count,optional" default:"7"`
	}
	cfg, diags := Parse(map[string][]byte{"main.hcl": []byte("job \"a\" {\n  role \"w\" {\n    command = [\"x\"]\n  }\n}\n")}, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	c := config{Settings: cfg.Settings, Count: 7}
	if got := Differing(c); got != nil {
		t.Errorf("of the defaults it tells %q", got)
	}
	c.Service.Listen, c.Service.TLSCert, c.State.Type, c.Count = "", "a\nb", "kubernetes", 0
	c.Nodes = []node{{"a", map[string]string{"x": "y"}}, {"b", nil}, {"c", nil}, {"d", nil}, {"e", nil}}
	c.Pod = map[string]any{"n": 1.5, "l": []any{true, nil}}
	want := []string{`state.type = "kubernetes"`, `service.listen = ""`, `service.tls_cert = "a\nb"`,
		`node "a"`, `node "b"`, `node "c"`, "2 more of node", `pod = {"l":[true,null],"n":1.5}`, "count = 0"}
	if diff := cmp.Diff(want, Differing(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
