//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workload is a number of jobs of the same number of pods each.
type workload struct {
	name string
	jobs int
	pods int // per job
	min  int // 0: a gang of all pods
	// state is the state block in the eltrain block; "" for the default, a file.
	state string
}

func (w workload) total() int { return w.jobs * w.pods }

// hcl returns the job file. KWOK's pods have no agents, so the rendezvous timeout is long enough that this is no fault
// during a measurement.
func (w workload) hcl(provider, kubeconfig string) string {
	var b strings.Builder
	if w.state != "" {
		fmt.Fprintf(&b, "eltrain {\n  %s\n}\n", w.state)
	}
	fmt.Fprintf(&b, "provider %q {\n  kubeconfig = %q\n}\n", provider, kubeconfig)
	for i := range w.jobs {
		fmt.Fprintf(&b, `
job "gpt%d" {
  provider = %q
  role "worker" {
    image    = "registry.example/train:1"
    replicas = %d
    command  = ["python3", "train.py", "--model", "gpt"]
    env      = { NCCL_DEBUG = "INFO" }
    resources {
      cpu    = 0.25
      memory = "256MiB"
    }
`, i, provider, w.pods)
		if w.min > 0 {
			fmt.Fprintf(&b, "    scaling {\n      min = %d\n      max = %d\n    }\n", w.min, w.pods)
		}
		b.WriteString("  }\n  rendezvous {\n    timeout = \"24h\"\n  }\n}\n")
	}
	return b.String()
}

// master is a running eltrain apply -watch.
type master struct {
	cmd   *exec.Cmd
	dir   string
	log   string
	began time.Time
	ended chan struct{}
}

// apply starts the program with a workload.
func (b *bed) apply(w workload, kubeconfig string) (*master, error) {
	return b.start(w.hcl(b.provider, kubeconfig))
}

// start starts eltrain in a job directory of its own, as a user does.
func (b *bed) start(hcl string) (*master, error) {
	dir, err := os.MkdirTemp(b.dir, "job-*")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "job.hcl"), []byte(hcl), 0o644); err != nil {
		return nil, err
	}
	m := &master{dir: dir, log: filepath.Join(dir, "apply.log"), ended: make(chan struct{})}
	log, err := os.Create(m.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m.cmd = exec.Command(b.eltrain, "apply", "-watch", "-auto-approve", "-no-color")
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = dir, log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only the bench, which stops eltrain
	m.began = time.Now()
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.ended)
		_ = m.cmd.Wait() // it is killed on purpose
	}()
	return m, nil
}

// await waits until holds is true of the observed pods, or the master has exited.
func (m *master) await(ctx context.Context, o *observer, holds func(*observer) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-m.ended:
			cancel(errors.New("eltrain has ended"))
		case <-ctx.Done():
		}
	}()
	if err := o.await(ctx, holds); err != nil {
		return fmt.Errorf("%w\n%s", err, m.tail())
	}
	return nil
}

// close kills the master. The pods stay.
func (m *master) close() error {
	err := m.cmd.Process.Kill()
	<-m.ended
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("eltrain ended while it was measured:\n%s", m.tail())
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// tail returns the end of its output, for errors.
func (m *master) tail() string {
	const most = 2000
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// peakMemory returns the process's peak resident memory in bytes.
func (m *master) peakMemory() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc has no VmHWM")
}

// cpuTime returns the process's CPU time so far.
func (m *master) cpuTime() (time.Duration, error) { return cpuTime(m.cmd.Process.Pid) }

func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15 of proc_pid_stat(5), in ticks; the name before them may contain anything.
	const (
		utime, stime = 11, 12 // indices after the name
		tick         = 10 * time.Millisecond
	)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc has %q", text)
	}
	user, err := strconv.Atoi(fields[utime])
	system, err2 := strconv.Atoi(fields[stime])
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}
