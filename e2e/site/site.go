// Package site is the harness of all tests of the built eltrain: a job directory, the commands that a user runs in it,
// masters, the status, and the training's losses. It knows the programs only by their output. Where jobs run is a Place: this
// machine here, a cluster in package podsite.
//
//	site.go      a directory, and eltrain in it
//	master.go    an eltrain in the background
//	status.go    what `eltrain status -json` says, and waiting for it
//	place.go     where jobs run: this machine
//	example.go   the example job
//	loss.go      its losses, compared with those of an undisturbed run
//	main.go      TestMain of a package's tests
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

const (
	// Bound is how long any wait may take.
	Bound = hang.Bound
	// Poll is the polling interval.
	Poll = 50 * time.Millisecond
	// look is the polling interval of the status: each poll is a command, and parallel tests should leave the cores to training.
	look = 150 * time.Millisecond
)

// Root is the repository's root directory.
var Root = func() string {
	dir, _ := os.Getwd()
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}()

// Programs are the paths of the built programs.
type Programs struct{ Eltrain, Agent string }

// Site is one job directory, and the place where its jobs run.
type Site struct {
	Place
	T        *testing.T
	Programs Programs
	Job      string   // the name of the job under test
	Dir      string   // of the job files
	Output   string   // where the training script writes EventsFile, on this machine
	Env      []string // additional environment of the commands
	Vars     string   // the example's variables, except its steps
}

// New makes a directory for jobs. The Place is not set yet.
func New(t *testing.T, programs Programs, job string) *Site {
	t.Helper()
	s := &Site{T: t, Programs: programs, Job: job, Dir: t.TempDir()}
	s.Output = s.Dir
	return s
}

// Of returns the site with another job under test.
func (s *Site) Of(job string) *Site {
	other := *s
	other.Job = job
	return &other
}

// Elsewhere returns a copy of the site in another directory, for a second master.
func (s *Site) Elsewhere() *Site {
	s.T.Helper()
	other := *s
	other.Dir = s.T.TempDir()
	for _, pattern := range []string{"*.hcl", "*.vars"} {
		files, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		s.OK(err)
		for _, path := range files {
			other.Write(filepath.Base(path), s.Read(filepath.Base(path)))
		}
	}
	return &other
}

// OK fails the test if err is not nil.
func (s *Site) OK(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Read returns the text of one of the directory's files.
func (s *Site) Read(name string) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, name))
	s.OK(err)
	return string(text)
}

// Write writes a file in the directory, atomically: a master may be watching.
func (s *Site) Write(name, text string) {
	s.T.Helper()
	path := filepath.Join(s.Dir, name)
	s.OK(os.WriteFile(path+".new", []byte(text), 0o644))
	s.OK(os.Rename(path+".new", path))
}

// Edit replaces a part of a file. The part must exist.
func (s *Site) Edit(name, old, new string) {
	s.T.Helper()
	text := s.Read(name)
	if !strings.Contains(text, old) {
		s.T.Fatalf("%s has no %q to be edited", name, old)
	}
	s.Write(name, strings.Replace(text, old, new, 1))
}

// Command returns an eltrain command in the directory.
func (s *Site) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Programs.Eltrain, args...)
	cmd.Dir = s.Dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "PWD="+s.Dir), s.Env...) // PWD as a shell sets it: links not resolved
	return cmd
}

// Run runs one command to its end.
func (s *Site) Run(args ...string) (out string, code int) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	cmd := s.Command(ctx, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.T.Fatalf("eltrain %v: %v", args, err)
	}
	if ctx.Err() != nil {
		s.T.Fatalf("eltrain %v does not end:\n%s", args, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// Must is Run for a command that must succeed.
func (s *Site) Must(args ...string) string {
	s.T.Helper()
	out, code := s.Run(args...)
	if code != 0 {
		s.T.Fatalf("eltrain %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// Clean destroys what runs and checks that nothing is left.
func (s *Site) Clean() {
	if s.T.Failed() {
		events, _ := s.Run("events")
		s.T.Logf("events:\n%s", events)
		s.Log()
	}
	out, code := s.Run("destroy", "-auto-approve", "-lock-timeout=30s")
	if code != 0 {
		s.T.Errorf("destroy: exit code %d\n%s", code, out)
	}
	s.replay()
	// Some of it may end after the destroy: on a cluster, the objects that the garbage collector deletes.
	var left []string
	for deadline := time.Now().Add(Bound); time.Now().Before(deadline); time.Sleep(Poll) {
		if left = s.Left(); len(left) == 0 {
			return
		}
	}
	s.T.Errorf("left after destroy: %v; it said\n%s", left, out)
	for pid := range s.Processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// replay checks that all decisions of the directory's journal, if it has one, come out the same when they are made again.
func (s *Site) replay() {
	if out, code := s.Run("replay"); code != 0 || strings.Contains(out, "not replayable") {
		s.T.Errorf("replay: exit code %d\n%s", code, out)
	}
}

// Until waits for something that the status does not show.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Bound); !holds(); time.Sleep(Poll) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, Bound)
		}
	}
}

// Has checks that text contains the parts, however its lines are wrapped.
func Has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(Unwrapped(text), part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// stamps are the times with which the lines of a watch begin.
var stamps = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT[\d:.]+Z`)

// Unwrapped returns text without the times of its lines, and with each run of white space, and of the box around a diagnostic,
// replaced by one space.
func Unwrapped(text string) string {
	text = stamps.ReplaceAllString(text, "")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " ")
}

// Kill sends a signal to processes. Only the first must exist: a killed agent takes its training process along.
func Kill(t *testing.T, sig syscall.Signal, pids ...int) {
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

// AwaitExit waits until processes have exited. A pid is not reused that soon.
func AwaitExit(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		Until(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !lives(fmt.Sprintf("/proc/%d", pid)) })
	}
}

// lives reports whether a process exists and is not a zombie.
func lives(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
