//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

func TestFirstFormedWaitsForTheWholeWorld(t *testing.T) {
	step := func(at float64, pid, rank, world int) event {
		return event{Ev: "first_step", T: at, PID: pid, Rank: rank, World: world}
	}
	imports := func(pid int, top, took float64) []event {
		return []event{{Ev: "start", T: top, Top: top, PID: pid}, {Ev: "imported", T: top + took, PID: pid}}
	}
	before := []event{step(1, 1, 0, 2), step(1.1, 2, 1, 2)}
	tests := []struct {
		name   string
		events []event
		size   int
		want   formed
	}{
		{"nothing after the incident", before, 2, formed{}},
		{"half a world", append(before, step(6, 3, 0, 2)), 2, formed{}},
		{"a world, the last rank counts", append(before, step(6.5, 4, 1, 2), step(6, 3, 0, 2)), 2,
			formed{Size: 2, At: 6.5, PIDs: []int{3, 4}}},
		{"another size first", append(before, step(6, 3, 0, 1), step(7, 4, 0, 2), step(7.5, 5, 1, 2)), 2,
			formed{Size: 2, At: 7.5, PIDs: []int{4, 5}}},
		{"a world that fell apart at once", append(before, step(6, 3, 0, 2), step(7, 4, 0, 2), step(7.5, 5, 1, 2)), 2,
			formed{Size: 2, At: 7.5, PIDs: []int{4, 5}}},
		{"the slowest import", slices.Concat(imports(3, 5.5, 0.1), imports(4, 5.5, 0.3), []event{step(6, 3, 0, 2), step(6, 4, 1, 2)}), 2,
			formed{Size: 2, At: 6, Import: 0.3, PIDs: []int{3, 4}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := firstFormed(slices.Clone(tt.events), 5, func(size int) bool { return size == tt.size })
			if d := got.Import - tt.want.Import; d > 1e-9 || d < -1e-9 {
				t.Errorf("import %v, want %v", got.Import, tt.want.Import)
			}
			if got.Size != tt.want.Size || got.At != tt.want.At || !slices.Equal(got.PIDs, tt.want.PIDs) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// bare launches the trainer as a world of one, without agents: enough to test the parts that
// all launchers share.
type bare struct{}

func (bare) Name() string     { return "bare" }
func (bare) Describe() string { return "no launcher" }

func (bare) Start(_ context.Context, r *run, _ int) (job, error) {
	j := &bareJob{run: r}
	return j, j.AddNode(context.Background())
}

type bareJob struct {
	run *run
	pid int
}

func (j *bareJob) AddNode(context.Context) (err error) {
	j.pid, err = j.run.start("trainer", nil, j.run.trainer...)
	return err
}

func (j *bareJob) Slots(context.Context) ([]slot, error) {
	return []slot{{Agent: j.pid, Worker: j.pid}}, nil
}

func testConfig() config {
	return config{
		python: "python3", script: filepath.Join("..", "..", "examples", "mnist-local", "train.py"),
		bound: 30 * time.Second, pgTimeout: 20 * time.Second, phase: time.Millisecond,
	}
}

func TestMeasureTimesTheIncidentAndLeavesNothingBehind(t *testing.T) {
	cfg := testConfig()
	cfg.script, _ = filepath.Abs(cfg.script)
	var dir string
	sc := scenario{
		name: "killed", agents: 1, wanted: func(size int) bool { return size == 1 },
		incident: func(ctx context.Context, j job, v slot) error {
			dir = j.(*bareJob).run.dir
			return errors.Join(kill(syscall.SIGKILL, v.Worker), j.AddNode(ctx))
		},
	}
	s, err := measure(context.Background(), bare{}, sc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.total <= 0 || s.launcher >= s.total || s.size != 1 {
		t.Errorf("implausible: %+v", s)
	}
	if s.memory.agent.rss < 1000 || s.memory.agent.private > s.memory.agent.rss {
		t.Errorf("implausible memory: %+v kB", s.memory.agent)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestCloseFindsProcessesThatLeftTheGroup(t *testing.T) {
	r, err := newRun("python3", "unused", testConfig())
	if err != nil {
		t.Fatal(err)
	}
	// A grandchild in its own session, whose parent has exited.
	pid, err := r.start("parent", nil, "sh", "-c", "setsid sleep 600 & exec true")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(hang.Bound); syscall.Kill(pid, 0) == nil || len(marked(r.dir)) != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no orphan: %v", marked(r.dir))
		}
	}
	dir := r.dir
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestMendScriptIsPython(t *testing.T) {
	cmd := exec.Command("python3", "-c", "import sys; compile(sys.stdin.read(), 'torchrun113.py', 'exec')")
	cmd.Stdin = bytes.NewReader(torchrun113)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNewTorchrunLeavesMasterPortToTheScript(t *testing.T) {
	for _, l := range torchruns("torchrun-2", "python", "2.0", false) {
		if env := l.(torchrun).env; !slices.Contains(env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1") {
			t.Errorf("%s: MASTER_PORT would be taken by the agent's store", l.Name())
		}
	}
}

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestReport(t *testing.T) {
	old := torchrun{name: "torchrun-x", version: "x", settings: "defaults"}
	ours := eltrain{name: "eltrain", version: "eltrain v0", settings: "defaults"}
	r := &result{
		machine: "2026-01-02: a machine.", bound: time.Minute, pgTimeout: 20 * time.Second,
		launchers: []launcher{old, ours}, scenarios: scenarios[1:4], samples: map[[2]string][]sample{},
		notes: []string{"torchrun-y is left out: no room"},
	}
	m := memory{agent: usage{rss: 10000, pss: 8000, private: 7000}}
	for _, v := range []float64{4, 2, 3} {
		r.add(old, scenarios[1], sample{total: v, launcher: v - 0.5, size: 4, memory: m})
		r.add(ours, scenarios[1], sample{total: v / 10, launcher: v/10 - 0.05, size: 4, memory: memory{agent: m.agent, service: m.agent}})
	}
	r.add(old, scenarios[2], sample{total: 14, launcher: 13, size: 3, memory: m})
	r.add(old, scenarios[2], sample{total: -1, launcher: -1, memory: m})
	r.add(old, scenarios[3], sample{total: -1, launcher: -1, memory: m})
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/report.md"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got:\n%s\nwant %s:\n%s", &b, golden, want)
	}
}
