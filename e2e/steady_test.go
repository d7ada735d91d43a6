package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// The overhead of a job that trains undisturbed.

// quiet is how long nothing happens: two heartbeats of each agent, even if one is some seconds late.
const quiet = 35 * time.Second

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

func TestSteadyTrainingWritesNothingAndCostsLittle(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.SetSteps(100_000)
	s.SetLease(45 * time.Second)
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	site.Until(s.T, "quiet", func() bool { // the last write about the world that formed
		seen := writings(s)
		time.Sleep(time.Second)
		return seen == writings(s)
	})
	seen, spent, step := writings(s), cpuTime(t, m.PID()), s.Status().Step
	began := time.Now()
	time.Sleep(quiet)
	cpu, took := cpuTime(t, m.PID())-spent, time.Since(began)
	t.Logf("the master of %d agents spent %v of cpu time in %v, %.2f %% of a core", len(before.Slots), cpu, took, 100*cpu.Seconds()/took.Seconds())
	if cpu > took/4 {
		t.Errorf("the master spent %v of cpu time in %v in which nothing happened", cpu, took)
	}
	if now := writings(s); now != seen {
		t.Errorf("files were written although nothing happened:\n%s\n%s", seen, now)
	}
	after := s.Status()
	if after.Step <= step {
		t.Errorf("it did not train: step %d -> %d", step, after.Step)
	}
	s.Undisturbed(before, after)
	for _, slot := range after.Slots {
		rss := residentMemory(t, slot.AgentPID)
		t.Logf("the agent of %s has %.1f MB", slot.Address, float64(rss)/1e6)
		if rss > 20e6 {
			t.Errorf("the agent of %s has %d bytes of memory", slot.Address, rss)
		}
	}
}

// writings returns what any write to the state and the journal changes: names, inodes, times and sizes.
func writings(s *site.Site) string {
	s.T.Helper()
	var text strings.Builder
	for _, pattern := range []string{"eltrain.state*", ".eltrain/journal/*"} {
		paths, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		if err != nil {
			s.T.Fatal(err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				continue // a temporary file of a write: the next call differs
			}
			fmt.Fprintf(&text, "%s %d %v\n", strings.TrimPrefix(path, s.Dir), info.Size(), info.ModTime())
		}
	}
	return text.String()
}

// cpuTime returns the CPU time of a process: utime and stime of proc_pid_stat(5), the 14th and 15th field.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	fields, err := statOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum
}

// startOf returns when a process started, in clock ticks since boot: starttime of proc_pid_stat(5), the 22nd field.
func startOf(pid int) (int, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[19])
}

// statOf returns the fields of proc_pid_stat(5) from the third on.
func statOf(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the process name before it may contain anything
	return strings.Fields(rest), nil
}

// residentMemory returns the resident memory of a process in bytes.
func residentMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no VmRSS", pid)
	return 0
}
