package lang

import (
	"fmt"
	"strings"
	"testing"
)

func TestLimitsOfTheDirectory(t *testing.T) {
	cfg := mustParse(t, "eltrain {\nlimits {\ncpu = 8\ndevices = { \"nvidia.com/gpu\" = 16 }\n}\n}\n"+inJob(""))
	l := cfg.Settings.Limits
	if got := fmt.Sprint(*l.CPU, l.Memory, l.Devices); got != "8 <nil> map[nvidia.com/gpu:16]" {
		t.Errorf("got %s", got)
	}
	if got := strings.Join(Differing(cfg.Settings), "; "); got != `limits.cpu = 8; limits.devices = {"nvidia.com/gpu":16}` {
		t.Errorf("shown as %s", got)
	}
	if got := mustFail(t, "eltrain {\nlimits {\ndevices = { gpu = -1 }\n}\n}\n"+inJob("")); !strings.Contains(got, "Invalid number of devices") {
		t.Errorf("got %s", got)
	}
}

func TestBudgetOfTheDirectory(t *testing.T) {
	b := mustParse(t, "eltrain {\nbudget {\nnode_hours = 1.5\n}\n}\n"+inJob("")).Settings.Budget
	if b.NodeHours != 1.5 || b.Then != "hold" {
		t.Errorf("got %+v", b)
	}
	for lines, want := range map[string]string{
		"node_hours = 0":                       "A budget is above 0 node hours",
		"node_hours = 5\nthen = \"suspended\"": `"suspended" is not possible here; there are "hold", "suspend" and "cancel"`,
		"then = \"hold\"":                      "node_hours",
	} {
		if got := mustFail(t, "eltrain {\nbudget {\n"+lines+"\n}\n}\n"+inJob("")); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", lines, got, want)
		}
	}
}
