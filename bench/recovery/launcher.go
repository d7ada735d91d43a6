//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A launcher is what is measured: torchrun or eltrain with certain settings.
type launcher interface {
	// Name is its name in -launchers and in the report.
	Name() string
	// Describe returns its version and settings for the report.
	Describe() string
	// Start starts a job with this many agents, without waiting for it.
	Start(ctx context.Context, r *run, agents int) (job, error)
}

// A job was started by a launcher. It ends with its run.
type job interface {
	// AddNode gives the job one more node.
	AddNode(ctx context.Context) error
	// Slots returns the agents with their training processes, in a fixed order. The first is
	// never a victim: with torchrun it hosts the store, and its loss would end the job.
	Slots(ctx context.Context) ([]slot, error)
}

// A slot is an agent and its training process.
type slot struct {
	Agent, Worker int // PIDs
}

// A run is one job from start to end: a directory, and all processes started in it.
type run struct {
	dir     string
	trainer []string // command of the training process
	// clear removes what a launcher left outside the directory, once all processes have exited; nil if there is nothing.
	clear func(context.Context) error
	mu    sync.Mutex
	waits []chan struct{}
}

// runMark is an environment variable that names the run. All its processes inherit it, including
// those that left their parent's process group or outlived their parent.
const runMark = "ELTRAIN_BENCH_RUN"

func newRun(python, script string, cfg config) (*run, error) {
	dir, err := os.MkdirTemp("", "eltrain-bench-")
	if err != nil {
		return nil, err
	}
	r := &run{dir: dir}
	r.trainer = []string{
		python, script, "--steps=1000000", "--step-ms=20", "--ckpt-every=10", "--log-every=10",
		"--ckpt-dir=" + filepath.Join(dir, "ckpt"), eventsFlag(dir),
		fmt.Sprintf("--pg-timeout=%g", cfg.pgTimeout.Seconds()),
	}
	return r, nil
}

func (r *run) events() string { return filepath.Join(r.dir, "events") }

// start starts a process in the run's directory, with its output in a log file there.
func (r *run) start(name string, env []string, argv ...string) (int, error) {
	log, err := os.OpenFile(filepath.Join(r.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), runMark+"="+r.dir), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches only us
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // most are killed on purpose
	}()
	r.mu.Lock()
	r.waits = append(r.waits, done)
	r.mu.Unlock()
	return cmd.Process.Pid, nil
}

// clearBound is the time limit of clear, which deals only with processes that have exited.
const clearBound = 30 * time.Second

// close kills the remaining processes of the run, waits for them, and removes the directory and what is outside of it.
func (r *run) close() error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := marked(r.dir)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not exit", left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // may be gone already
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, done := range r.waits {
		<-done
	}
	var err error
	if r.clear != nil {
		ctx, cancel := context.WithTimeout(context.Background(), clearBound)
		defer cancel()
		err = r.clear(ctx)
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// logs returns the end of each log, for an error message.
func (r *run) logs() string {
	var b strings.Builder
	names, _ := filepath.Glob(filepath.Join(r.dir, "*.log"))
	for _, name := range names {
		data, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(name), data[max(0, len(data)-600):])
	}
	return b.String()
}

// marked finds the running processes of a run by the mark or, if a launcher does not pass on its
// environment, by the trainer's argument that names the run.
func marked(dir string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	mark := []byte(runMark + "=" + dir + "\x00")
	argument := []byte(eventsFlag(dir) + "\x00")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Both are empty for a zombie, and unreadable if it has just exited.
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(env, mark) || bytes.Contains(cmdline, argument) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventsFlag(dir string) string { return "--events=" + filepath.Join(dir, "events") }

// childOf returns the only child of a process.
func childOf(pid int) (int, error) {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(child) == pid {
			found = append(found, child)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("process %d has children %v, want one", pid, found)
	}
	return found[0], nil
}

// parentOf returns 0 if the process is gone or a zombie.
func parentOf(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(data), ") ") // the name before it may contain anything
	f := strings.Fields(rest)
	if !ok || len(f) < 2 || f[0] == "Z" {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}
