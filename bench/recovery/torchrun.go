//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed torchrun113.py
var torchrun113 []byte

// torchrun launches with PyTorch's elastic agent and its c10d rendezvous.
type torchrun struct {
	name     string
	python   string   // interpreter with PyTorch
	version  string   // of PyTorch
	settings string   // description for the report
	flags    []string // in addition to those of every variant
	conf     []string // for --rdzv_conf
	env      []string
	patched  bool // started through torchrun113.py
}

// minMaxNodes is the elastic range: torchrun may continue with the remaining nodes of four.
const minMaxNodes = "1:4"

// torchruns returns the variants for one PyTorch: with defaults, with waits shortened by options,
// and additionally with a silent node lost after 3 s.
//
// The default monitor_interval is 5 s in 1.13 and 0.1 s in newer versions; last_call_timeout is
// 30 s and keep-alive 5 s x 3 in both.
func torchruns(prefix, python, version string, patched bool) []launcher {
	defaults := torchrun{name: prefix, python: python, version: version, patched: patched, settings: "defaults"}

	if !patched {
		// Newer agents serve a store on MASTER_PORT, but the stdlib script needs that port itself.
		defaults.env = []string{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"}
	}

	tuned := defaults
	tuned.name += "-tuned"
	tuned.settings = "monitor_interval 0.1, last_call_timeout 1"
	tuned.flags = []string{"--monitor_interval=0.1"}
	tuned.conf = []string{"last_call_timeout=1"}

	keepAlive := tuned
	keepAlive.name = prefix + "-ka"
	keepAlive.settings += ", keep-alive 1 s x 3"
	if patched {
		keepAlive.env = []string{"KEEP_ALIVE=1x3"}
	} else {
		keepAlive.conf = append([]string{"keep_alive_interval=1", "keep_alive_max_attempt=3"}, tuned.conf...)
	}
	return []launcher{defaults, tuned, keepAlive}
}

func (t torchrun) Name() string { return t.name }

func (t torchrun) Describe() string { return fmt.Sprintf("PyTorch %s; %s", t.version, t.settings) }

func (t torchrun) Start(_ context.Context, r *run, agents int) (job, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	j := &torchrunJob{launcher: t, run: r, endpoint: fmt.Sprintf("127.0.0.1:%d", port)}
	if t.patched {
		if err := os.WriteFile(filepath.Join(r.dir, "torchrun113.py"), torchrun113, 0o644); err != nil {
			return nil, err
		}
	}
	for range agents {
		if err := j.addAgent(); err != nil {
			return nil, err
		}
	}
	return j, nil
}

type torchrunJob struct {
	launcher torchrun
	run      *run
	endpoint string
	agents   []int
}

func (j *torchrunJob) AddNode(context.Context) error { return j.addAgent() }

func (j *torchrunJob) addAgent() error {
	t, n := j.launcher, len(j.agents)
	argv := []string{t.python, "-m", "torch.distributed.run"}
	if t.patched {
		argv = []string{t.python, "torchrun113.py"}
	}
	// One agent hosts the store, as on a cluster. By default each would try to on this machine.
	conf := append([]string{fmt.Sprintf("is_host=%d", b2i(n == 0))}, t.conf...)
	argv = append(argv, "--nnodes="+minMaxNodes, "--nproc_per_node=1", "--max_restarts=1000",
		"--rdzv_backend=c10d", "--rdzv_endpoint="+j.endpoint, "--rdzv_id=bench",
		"--rdzv_conf="+strings.Join(conf, ","),
		// stdout to a file and stderr to both: the default (neither) does not work in 1.13 on Python 3.11.
		"--redirects=1", "--tee=2", "--log_dir="+filepath.Join(j.run.dir, fmt.Sprintf("logs%d", n)))
	argv = append(argv, t.flags...)
	argv = append(append(argv, "--no_python"), j.run.trainer...)
	pid, err := j.run.start(fmt.Sprintf("agent%d", n), t.env, argv...)
	if err != nil {
		return err
	}
	j.agents = append(j.agents, pid)
	return nil
}

func (j *torchrunJob) Slots(context.Context) ([]slot, error) {
	var slots []slot
	for _, agent := range j.agents {
		worker, err := childOf(agent)
		if err != nil {
			return nil, err
		}
		slots = append(slots, slot{Agent: agent, Worker: worker})
	}
	return slots, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// torchVersion returns the PyTorch version of an interpreter.
func torchVersion(ctx context.Context, python string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a first import from a cold disk is slow
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c", "import torch; print(torch.__version__)").Output()
	if err != nil {
		return "", fmt.Errorf("%s cannot import torch: %w%s", python, err, lastLine(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// currentTorch finds PyPI's current PyTorch in a virtual environment in the user's cache, which it
// creates first if install is true. The Linux wheel needs the CUDA libraries even without a
// GPU: import fails without them, so all 5 GB (unpacked) are required.
func currentTorch(ctx context.Context, install bool) (python, version string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	venv := filepath.Join(cache, "eltrain-bench", "torch")
	python = filepath.Join(venv, "bin", "python")
	if _, statErr := os.Stat(python); statErr != nil {
		if !install {
			return "", "", fmt.Errorf("not in the cache; -install-torch downloads it (3 GB)")
		}
		for _, argv := range [][]string{
			{"python3", "-m", "venv", venv},
			{python, "-m", "pip", "install", "--quiet", "torch", "numpy"},
		} {
			if err := runBounded(ctx, 20*time.Minute, argv...); err != nil {
				_ = os.RemoveAll(venv) // a partial installation would be mistaken for a complete one
				return "", "", err
			}
		}
	}
	version, err = torchVersion(ctx, python)
	return python, version, err
}

func runBounded(ctx context.Context, bound time.Duration, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if _, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output(); err != nil {
		return fmt.Errorf("%s: %w%s", strings.Join(argv, " "), err, lastLine(err))
	}
	return nil
}

// lastLine returns the last line that a failed command wrote to its standard error.
func lastLine(err error) string {
	exit, ok := err.(*exec.ExitError)
	if !ok || len(exit.Stderr) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
	return ": " + lines[len(lines)-1]
}
