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

// Start starts a command in the background. When the test ends it is asked to end, too.
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

// Watch starts a master that goes on for ever.
func (s *Site) Watch(flags ...string) *Master {
	s.T.Helper()
	return s.Start(append([]string{"apply", "-watch", "-auto-approve", "-input=false"}, flags...)...)
}

// cleanUp lets the next command have the lock at once where the master can give it back.
func (m *Master) cleanUp() {
	if m.t.Failed() {
		m.t.Logf("%v said:\n%s", m.cmd.Args[1:], m.Out)
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.Ended:
	case <-time.After(Bound / 2):
		m.t.Errorf("a master does not end:\n%s", m.Out)
		m.Kill()
	}
}

// Kill ends it as kill -9 does.
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

// PID is its process.
func (m *Master) PID() int { return m.cmd.Process.Pid }

// Interrupt asks it to end, waits for that, and gives its exit code.
func (m *Master) Interrupt() int {
	m.t.Helper()
	m.cmd.Process.Signal(syscall.SIGTERM)
	return m.Wait()
}

// Wait waits for its end and gives its exit code.
func (m *Master) Wait() int {
	m.t.Helper()
	select {
	case <-m.Ended:
	case <-time.After(Bound):
		m.t.Fatalf("the master does not end:\n%s", m.Out)
	}
	return m.cmd.ProcessState.ExitCode()
}

// Heard waits until it has said this.
func (m *Master) Heard(text string) {
	m.t.Helper()
	Until(m.t, fmt.Sprintf("the master's word %q", text), func() bool { return strings.Contains(Unwrapped(m.Out.String()), text) })
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

// Reset forgets what was written so far.
func (l *Lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// String is all that was written so far.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
