package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// recordingTorch stands in for a PyTorch of which only the process groups and the flight recorder are used.
var recordingTorch = map[string]string{
	"torch/__init__.py":             "import torch._C\nimport torch.distributed\n",
	"torch/_C/__init__.py":          "import torch._C._distributed_c10d\n",
	"torch/distributed/__init__.py": "from .distributed_c10d import *\n",
	"torch/distributed/distributed_c10d.py": `
import os
class _world:
    pg_names = {}
def init_process_group(backend):
    _world.pg_names.update({"world": "0", "pair": "2", "unused": "5"})
def get_rank():
    return int(os.environ["RANK"])
`,
	"torch/_C/_distributed_c10d.py": `
import os
def _dump_nccl_trace_json():
    return b'{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2.10"}'
def _dump_fr_trace_json():
    return open(os.environ["OUT"] + ".json", "rb").read()
`,
}

// A process that waits for its peers says in which collective, without a change of its script: what PyTorch 2.15 recorded of a process
// that waits in a group of two.
func TestCollectivesByTheHook(t *testing.T) {
	t.Parallel()
	b := python(t, "import os, threading\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"+
		"import sys; assert not any(type(f).__name__ == '_Finder' for f in sys.meta_path)\n"+
		"open(os.environ['OUT'], 'w')\nthreading.Event().wait()\n")
	for name, text := range recordingTorch {
		if err := os.MkdirAll(filepath.Join(b.dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		b.write(t, name, text)
	}
	recorded, err := os.ReadFile("testdata/flight_recorder.json")
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, "there.json", string(recorded))
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there")) == 1 })
	process := trainee{pid: r.PIDs[0], env: environOf(r.PIDs[0])}
	want := []job.Collective{
		{Group: "2", Title: "pair", Entered: 4, Waits: 4, Op: "gloo:all_reduce", Sizes: "[[2]]"},
		{Group: "0", Title: "default_pg", Entered: 3, Op: "gloo:all_reduce", Sizes: "[[4]]"},
		{Group: "5"},
	}
	for range 2 {
		e := examined(subject{pid: process.pid, stacks: process.variable(job.StacksVariable)})
		if !slices.Equal(e.Collectives, want) || e.Source != job.StacksFaulthandler {
			t.Errorf("%+v, by %s", e.Collectives, e.Source)
		}
	}
	b.write(t, "there.json", "{}") // recorded nothing, or it is off
	if e := examined(subject{pid: process.pid, stacks: process.variable(job.StacksVariable)}); len(e.Collectives) > 0 {
		t.Errorf("%+v", e.Collectives)
	}
}

// Whatever a process writes as its answer, what is kept of it is bounded, and what it waits in comes first.
func TestAnswersAreBounded(t *testing.T) {
	long := `"` + strings.Repeat("é", 1000) + `"`
	many := strings.Repeat(`{"group": "a", "entered": 9, "op": `+long+`, "sizes": `+long+`},`, 100)
	all := parseCollectives([]byte("[" + many + `{"group": "b", "entered": -1}, {"group": "late", "peer": "nccl:recv 0<-1\u001b[2J"}]`))
	if len(all) != job.MaxCollectives || all[0].Group != "late" || strings.Contains(all[0].Peer, "\x1b") || len(all[1].Op) > maxCollectiveText || len(all[1].Sizes) > maxCollectiveText {
		t.Errorf("%d, the first %+v, the second %+v", len(all), all[0], all[1])
	}
	for _, text := range []string{"", "{}", `[{"group": 7}]`, "[]"} {
		if all := parseCollectives([]byte(text)); len(all) > 0 {
			t.Errorf("%s gives %+v", text, all)
		}
	}
}
