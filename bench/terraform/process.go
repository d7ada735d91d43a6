//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is the measurement of one whole process, from its start until wait returned.
type sample struct {
	took time.Duration
	peak int64 // resident memory in bytes
}

// command is a process to measure.
type command struct {
	program string
	args    []string
	dir     string
	env     []string
	want    int // exit code; any other means that it did not do what is measured
}

// shownProblem bounds the output of a failed process that is shown, in bytes.
const shownProblem = 2 << 10

// resetPeak resets this process's peak memory to its current memory. A child is started with the parent's memory mapped
// and inherits the parent's peak, and copying 10,000 objects takes more memory than either tool.
func resetPeak() error {
	debug.FreeOSMemory()
	const peak = "5" // proc_pid_clear_refs(5)
	return os.WriteFile("/proc/self/clear_refs", []byte(peak), 0)
}

// ownStatus is the file with a process's own memory counters.
const ownStatus = "/proc/self/status"

// ownPeak returns this process's peak in bytes, the lower bound of the children's measured peaks.
func ownPeak() (int64, error) {
	status, err := os.ReadFile(ownStatus)
	if err != nil {
		return 0, err
	}
	return peakIn(string(status))
}

// peakIn returns the peak resident memory, in bytes, from the text of /proc/PID/status.
func peakIn(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not tell a peak")
}

// measure runs the command with its output in a file, because a slow reader would be measured, too.
func (c command) measure(ctx context.Context) (sample, error) {
	if err := resetPeak(); err != nil {
		return sample{}, err
	}
	out, err := os.CreateTemp("", "bench-terraform-*")
	if err != nil {
		return sample{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.CommandContext(ctx, c.program, c.args...)
	var problems bytes.Buffer
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = out, &problems
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return sample{}, fmt.Errorf("%s %v: %w", c.program, c.args, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != c.want {
		said, _ := os.ReadFile(out.Name())
		said = append(said, problems.Bytes()...)
		return sample{}, fmt.Errorf("%s %v in %s: exit code %d, not %d\n%s", c.program, c.args, c.dir, code, c.want, said[max(0, len(said)-shownProblem):])
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10 // the kernel counts KiB
	own, err := ownPeak()
	if err != nil {
		return sample{}, err
	}
	if peak <= own {
		return sample{}, fmt.Errorf("%s %v: a peak of %d is no more than this program's own, %d", c.program, c.args, peak, own)
	}
	return sample{took: took, peak: peak}, nil
}

// run runs the command for its effect.
func (c command) run(ctx context.Context) error {
	_, err := c.measure(ctx)
	return err
}
