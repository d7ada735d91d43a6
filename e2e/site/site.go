// Package site is what tests of the built eltrain on a cluster share: a job directory, the commands that a user runs in
// it, masters, what status says, and what a job has on the API server and on this machine. It knows the programs by their
// output and objects alone: what they print, and the labels of their objects.
//
//	site.go       a directory in a namespace, and eltrain in it as a user with the rights of deploy/
//	master.go     an eltrain in the background
//	status.go     what `eltrain status -json` says, and waiting for it
//	cluster.go    objects and processes
//	gate.go       stops a master at one of its writes
//	image.go      the image that deploy/ makes of the programs
//	demo.go       the example job on nodes of its own
//	page.go       a page of docs/ that is followed to the letter, by kubectl
//	loss.go       its losses beside those of an undisturbed run
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/testbed"
)

const (
	// Bound is how long anything may take.
	Bound = hang.Bound
	// Poll is the pause between two looks.
	Poll = 50 * time.Millisecond
)

// Rights is what deploy/ grants eltrain: no test has others. It is seen from the folder of a test below e2e/.
var Rights = filepath.Join("..", "..", "deploy", "base", "rbac.yaml")

// Script is what the example for one machine trains with, seen from there.
var Script = filepath.Join("..", "..", "examples", "mnist-local", "train.py")

// Programs are where the built programs are.
type Programs struct{ Eltrain, Agent string }

// Build builds both programs, as deploy/Dockerfile has them: they run in any image.
func Build(dir string) (Programs, error) {
	const commands = "github.com/eltrain/eltrain/cmd/"
	build := exec.Command("go", "build", "-o", dir+"/", commands+"eltrain", commands+"eltrain-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	return Programs{Eltrain: filepath.Join(dir, "eltrain"), Agent: filepath.Join(dir, "eltrain-agent")}, nil
}

// Needed skips a test where what it needs is not to be had.
func Needed(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process nodes make mounts and namespaces: needs root")
	}
}

// Site is one job directory, with a namespace and a user of its own.
type Site struct {
	T          *testing.T
	Cluster    *testbed.Cluster
	Programs   Programs
	Job        string // the name of the job that is looked at
	Namespace  string
	Kubeconfig string
	Dir        string   // of the job files
	Work       string   // where its processes work, as they see it; empty without any
	Events     string   // where the training script writes EventsFile, on this machine
	Env        []string // more environment of the commands
}

// New makes a namespace, a user with the rights of deploy/, and a directory.
func New(t *testing.T, c *testbed.Cluster, programs Programs, job string) *Site {
	t.Helper()
	s := &Site{T: t, Cluster: c, Programs: programs, Job: job, Namespace: c.Namespace(t), Dir: t.TempDir()}
	s.Kubeconfig = c.Kubeconfig(t, s.User())
	return s
}

// User is who eltrain is for the API server.
func (s *Site) User() testbed.User {
	return testbed.User{Namespace: s.Namespace, Roles: []string{Rights}}
}

// OK fails the test with an error.
func (s *Site) OK(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Read gives the text of one of the directory's files.
func (s *Site) Read(name string) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, name))
	s.OK(err)
	return string(text)
}

// Write puts a file into the directory, whole or not at all: a master may be watching.
func (s *Site) Write(name, text string) {
	s.T.Helper()
	path := filepath.Join(s.Dir, name)
	s.OK(os.WriteFile(path+".new", []byte(text), 0o644))
	s.OK(os.Rename(path+".new", path))
}

// Edit replaces a part of a file, which has to be there.
func (s *Site) Edit(name, old, new string) {
	s.T.Helper()
	text := s.Read(name)
	if !strings.Contains(text, old) {
		s.T.Fatalf("%s has no %q to be edited", name, old)
	}
	s.Write(name, strings.Replace(text, old, new, 1))
}

// Command is eltrain in the directory.
func (s *Site) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Programs.Eltrain, args...)
	cmd.Dir = s.Dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "KUBECONFIG="+s.Kubeconfig), s.Env...)
	return cmd
}

// Run runs one command to its end.
func (s *Site) Run(args ...string) (out string, code int) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Bound) // some wait themselves, for a lock or a rendezvous
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

// Must is Run that has to succeed.
func (s *Site) Must(args ...string) string {
	s.T.Helper()
	out, code := s.Run(args...)
	if code != 0 {
		s.T.Fatalf("eltrain %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// Until waits for a fact that no status shows.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Bound); !holds(); time.Sleep(Poll) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, Bound)
		}
	}
}

// Has checks a text for its parts, however its lines are wrapped.
func Has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(Unwrapped(text), part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// Unwrapped is text with every run of white space, and of the lines that frame a diagnostic, as one blank.
func Unwrapped(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " ")
}

// Kill sends a signal to processes that are there.
func Kill(t *testing.T, sig syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if pid <= 1 {
			t.Fatalf("no process to send %v to", sig)
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatalf("kill -%d %d: %v", sig, pid, err)
		}
	}
}

// Gone waits until a process has ended. The pid cannot be reused so soon.
func Gone(t *testing.T, pid int) {
	t.Helper()
	Until(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !lives(fmt.Sprintf("/proc/%d", pid)) })
}

// lives reports whether a process is there that is not only waited for.
func lives(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
