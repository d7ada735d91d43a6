package site

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Master is an eltrain in the background.
type Master struct {
	Out   *Lines
	Ended chan struct{} // closed when it has ended

	t   *testing.T
	cmd *exec.Cmd
}

// Start starts a command in the background. It gets SIGTERM when the test ends.
func (s *Site) Start(args ...string) *Master {
	s.T.Helper()
	m := &Master{t: s.T, cmd: s.Command(context.Background(), args...), Out: &Lines{}, Ended: make(chan struct{})}
	m.cmd.Stdout, m.cmd.Stderr = m.Out, m.Out
	s.OK(m.cmd.Start())
	go func() {
		defer close(m.Ended)
		m.cmd.Wait()
	}()
	s.T.Cleanup(m.cleanUp)
	return m
}

// Watch starts apply -watch in the background.
func (s *Site) Watch(flags ...string) *Master {
	s.T.Helper()
	return s.Start(append([]string{"apply", "-watch", "-auto-approve", "-input=false", "-timestamps=false"}, flags...)...)
}

// cleanUp interrupts the master, so that it releases the lock for the next command.
func (m *Master) cleanUp() {
	if m.t.Failed() {
		m.t.Logf("%v said:\n%s", m.cmd.Args[1:], m.Out)
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.Ended:
	case <-time.After(Bound):
		m.t.Errorf("a master does not end:\n%s", m.Out)
		m.Kill()
	}
}

// Kill sends SIGKILL and waits.
func (m *Master) Kill() {
	m.t.Helper()
	m.cmd.Process.Kill()
	<-m.Ended
}

// Signal sends it a signal.
func (m *Master) Signal(sig syscall.Signal) {
	m.t.Helper()
	Kill(m.t, sig, m.cmd.Process.Pid)
}

// PID returns its process ID.
func (m *Master) PID() int { return m.cmd.Process.Pid }

// Interrupt sends SIGTERM, waits, and returns the exit code.
func (m *Master) Interrupt() int {
	m.t.Helper()
	m.cmd.Process.Signal(syscall.SIGTERM)
	return m.Wait()
}

// Wait waits for its end and returns the exit code.
func (m *Master) Wait() int {
	m.t.Helper()
	select {
	case <-m.Ended:
	case <-time.After(Bound):
		m.t.Fatalf("the master does not end:\n%s", m.Out)
	}
	return m.cmd.ProcessState.ExitCode()
}

// AwaitOutput waits until its output contains text.
func (m *Master) AwaitOutput(text string) {
	m.t.Helper()
	Until(m.t, fmt.Sprintf("the master's output %q", text), func() bool { return strings.Contains(Unwrapped(m.Out.String()), text) })
}

// Lines collects output from several goroutines.
type Lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Reset discards what was written so far.
func (l *Lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// String returns what was written since Reset.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
