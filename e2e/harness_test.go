// Package e2e runs the built eltrain as a user does: real files, real agents, real training processes, and
// faults by real signals. Every test ends by checking that a destroy leaves nothing behind, and that what was
// healed ends with the loss of an undisturbed run.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait far more than they work, for steps of 40 ms, also where there are two cores.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eltrain-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "eltrain")
	cmd := exec.Command("go", "build", "-o", dir, "github.com/eltrain/eltrain/cmd/eltrain", "github.com/eltrain/eltrain/cmd/eltrain-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const (
	// bound is how long anything may take here.
	bound = hang.Bound
	// poll is the pause between two looks at a job: each is a command, and eight tests at once leave the cores to training.
	poll = 150 * time.Millisecond
)

// site is one job directory.
type site struct {
	t      *testing.T
	dir    string
	master *exec.Cmd
	out    *lines
	ended  chan struct{} // closed when master has ended
}

// notShort skips a test that trains with -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("trains: not with -short")
	}
}

// newSite makes a directory with the training script and these files.
func newSite(t *testing.T, files map[string]string) *site {
	t.Helper()
	notShort(t)
	s := &site{t: t, dir: t.TempDir()}
	script, err := os.ReadFile("../examples/mnist-local/train.py")
	if err != nil {
		t.Fatal(err)
	}
	s.write("train.py", string(script))
	for name, text := range files {
		s.write(name, text)
	}
	t.Cleanup(s.clean)
	return s
}

func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// run runs one command to its end.
func (s *site) run(args ...string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	cmd := s.command(ctx, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("eltrain %v: %v", args, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "PWD="+s.dir) // as a shell sets it: the way there, with its links
	return cmd
}

// must is run that has to succeed.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("eltrain %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// watch starts a master in the background, with more flags perhaps.
func (s *site) watch(flags ...string) {
	s.t.Helper()
	s.begin(append([]string{"apply", "-watch", "-auto-approve"}, flags...)...)
}

// begin runs the CLI in the background, in the master's place.
func (s *site) begin(args ...string) {
	s.t.Helper()
	s.master = s.command(context.Background(), args...)
	s.out = &lines{}
	s.master.Stdout, s.master.Stderr = s.out, s.out
	if err := s.master.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(s.master, s.ended)
}

// until waits for a fact that no status shows.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(bound); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not happen", what)
		}
	}
}

// heard waits until the master has said this. Lines are wrapped, so white space counts as one blank.
func (s *site) heard(text string) {
	s.t.Helper()
	out := s.out
	s.until(fmt.Sprintf("the master's word %q", text), func() bool { return strings.Contains(unwrapped(out.String()), text) })
}

// unwrapped is text with every run of white space as one blank.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// read gives the text of one of the directory's files.
func (s *site) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// has checks a command's output for its parts.
func has(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(unwrapped(out), part) {
			t.Errorf("%q is missing in:\n%s", part, out)
		}
	}
}

// lines collects output from several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// reset forgets what was said so far.
func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// kill ends the master at once.
func (s *site) kill() { s.signalMaster(syscall.SIGKILL) }

func (s *site) signalMaster(sig syscall.Signal) {
	s.t.Helper()
	s.master.Process.Signal(sig)
	select {
	case <-s.ended:
	case <-time.After(bound):
		s.t.Fatalf("the master does not end on %v:\n%s", sig, s.out)
	}
	s.master = nil
}

// clean destroys what runs and checks that nothing is left.
func (s *site) clean() {
	if s.t.Failed() {
		if s.out != nil {
			s.t.Logf("the master said:\n%s", s.out)
		}
		events, _ := s.run("events")
		s.t.Logf("events:\n%s", events)
		s.logAgents()
	}
	if s.master != nil {
		s.signalMaster(syscall.SIGTERM)
	}
	out, code := s.run("destroy", "-auto-approve", "-lock-timeout=30s")
	if code != 0 {
		s.t.Errorf("destroy: exit code %d\n%s", code, out)
	}
	deadline := time.Now().Add(bound)
	for {
		left := s.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("left after destroy: %v", left)
			for pid := range left {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *site) logAgents() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, ".eltrain/jobs/*/slots/*/*/agent.log"))
	for _, path := range logs {
		if text, _ := os.ReadFile(path); len(text) > 0 {
			s.t.Logf("%s:\n%s", strings.TrimPrefix(path, s.dir), text)
		}
	}
}

// processes are those that work in the directory, by pid.
func (s *site) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cwd, err := os.Readlink(d + "/cwd")
		if err != nil || !strings.HasPrefix(cwd, s.dir) {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		args, _ := os.ReadFile(d + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(d))
		found[pid] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
	}
	return found
}

// status is `eltrain status -json`, as docs/commands.md has it.
type status struct {
	Jobs []jobStatus `json:"jobs"`
}

type jobStatus struct {
	Address    string   `json:"address"`
	UID        string   `json:"uid"`
	Phase      string   `json:"phase"`
	Healthy    bool     `json:"healthy"`
	Generation int      `json:"generation"`
	WorldSize  int      `json:"world_size"`
	Step       int64    `json:"step"`
	Checkpoint int64    `json:"checkpoint_step"`
	Reasons    []string `json:"reasons"`
	Roles      []struct {
		Name                       string
		Desired, Running, Min, Max int
	} `json:"roles"`
	Slots     []slotStatus `json:"slots"`
	Incidents []struct {
		Cause    string   `json:"cause"`
		Culprits []string `json:"culprits"`
		Action   string   `json:"action"`
		Evidence []string `json:"evidence"`
	} `json:"incidents"`
}

type slotStatus struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	Rank        int    `json:"rank"`
	Node        string `json:"node"`
	PID         int    `json:"pid"`
	AgentPID    int    `json:"agent_pid"`
	Restarts    int    `json:"restarts"`
}

func (s *site) status() status {
	s.t.Helper()
	out, _ := s.run("status", "-json")
	var st status
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		s.t.Fatalf("status -json: %v\n%s", err, out)
	}
	return st
}

// job finds a job in the status; the zero jobStatus if it is not there.
func (s *site) job(name string) jobStatus {
	s.t.Helper()
	for _, j := range s.status().Jobs {
		if j.Address == "job."+name {
			return j
		}
	}
	return jobStatus{}
}

func (j jobStatus) slot(short string) slotStatus {
	for _, s := range j.Slots {
		if s.Address == j.Address+"."+short {
			return s
		}
	}
	return slotStatus{}
}

// running are the slots that train.
func (j jobStatus) running() []slotStatus {
	var r []slotStatus
	for _, s := range j.Slots {
		if s.Phase == "Running" && s.PID > 0 {
			r = append(r, s)
		}
	}
	return r
}

// trains reports whether n slots train together in a generation of at least g, past the first step.
func (j jobStatus) trains(n, g int) bool {
	return j.Phase == "Running" && len(j.running()) == n && j.WorldSize == n && j.Generation >= g && j.Step > 0
}

// await waits until the job is as wanted, and returns it. As long as it trains on it is not hung.
func (s *site) await(name, what string, ok func(j jobStatus) bool) jobStatus {
	s.t.Helper()
	for wait := (hang.Wait{}); ; time.Sleep(poll) {
		j := s.job(name)
		if ok(j) {
			return j
		}
		if wait.Hung(j.Step) {
			text, _ := json.MarshalIndent(j, "", " ")
			s.t.Fatalf("%s does not happen; job.%s is\n%s", what, name, text)
		}
	}
}

func (s *site) awaitWorld(name string, slots, generation int) jobStatus {
	s.t.Helper()
	return s.await(name, fmt.Sprintf("a world of %d in generation %d or later", slots, generation), func(j jobStatus) bool { return j.trains(slots, generation) })
}

// gone waits until a process has ended. The pid cannot be reused so soon.
func (s *site) gone(pid int) {
	s.t.Helper()
	deadline := time.Now().Add(bound)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("process %d does not end", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// kill sends a signal to processes, of which the first has to be there: an agent that is killed takes its process along.
func kill(t *testing.T, sig syscall.Signal, pids ...int) {
	t.Helper()
	for i, pid := range pids {
		if pid <= 1 {
			t.Fatalf("no process to send %v to", sig)
		}
		if err := syscall.Kill(pid, sig); err != nil && (i == 0 || sig != syscall.SIGKILL || !errors.Is(err, syscall.ESRCH)) {
			t.Fatalf("kill -%d %d: %v", sig, pid, err)
		}
	}
}

var lossLine = regexp.MustCompile(`step (\d+) loss (\S+)`)

// losses reads the losses that a job printed, by step. Two for one step have to be the same: that is what
// makes a recovery right.
func (s *site) losses(name string) map[int]string {
	s.t.Helper()
	found := map[int]string{}
	logs, _ := filepath.Glob(filepath.Join(s.dir, ".eltrain/logs", name, "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, m := range lossLine.FindAllStringSubmatch(string(text), -1) {
			step, _ := strconv.Atoi(m[1])
			if old, known := found[step]; known && old != m[2] {
				s.t.Errorf("the loss at step %d is %s and %s", step, old, m[2])
			}
			found[step] = m[2]
		}
	}
	return found
}

var (
	undisturbedOnce sync.Mutex
	undisturbedBy   = map[int]string{}
)

// undisturbed is the last loss of the same training by one process, without eltrain.
func undisturbed(t *testing.T, steps int) string {
	t.Helper()
	undisturbedOnce.Lock()
	defer undisturbedOnce.Unlock()
	if loss, known := undisturbedBy[steps]; known {
		return loss
	}
	script, err := filepath.Abs("../examples/mnist-local/train.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", script, fmt.Sprintf("--steps=%d", steps), "--step-ms=0", "--ckpt-dir="+filepath.Join(t.TempDir(), "ckpt"))
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the training alone: %v\n%s", err, out)
	}
	all := lossLine.FindAllStringSubmatch(string(out), -1)
	last := all[len(all)-1]
	if last[1] != strconv.Itoa(steps) {
		t.Fatalf("the training alone ended at step %s of %d", last[1], steps)
	}
	undisturbedBy[steps] = last[2]
	return last[2]
}

// endsRight waits for the job's success and compares its last loss with an undisturbed run's.
func (s *site) endsRight(name string, steps int) {
	s.t.Helper()
	s.await(name, "success", func(j jobStatus) bool {
		if j.Phase == "Failed" {
			s.t.Fatalf("job.%s failed: %v", name, j.Reasons)
		}
		return j.Phase == "Succeeded"
	})
	want := undisturbed(s.t, steps)
	if got := s.losses(name)[steps]; got != want {
		s.t.Errorf("the healed run ends with loss %q, an undisturbed one with %q", got, want)
	}
}
