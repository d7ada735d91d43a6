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
