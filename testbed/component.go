package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Component is one process of the control plane. Its methods that inject faults are for a test's goroutine: they must
// not run concurrently.
type Component struct {
	name     string
	path     string
	args     []string
	env      []string
	log      string
	launcher *launcher
	ready    func(context.Context) error // returns nil once it works

	mu      sync.Mutex
	process *os.Process
	ended   chan struct{} // closed once the process was waited for
}

// Kill kills the component as kill -9 does, and waits until it is gone.
func (c *Component) Kill(t T) {
	t.Helper()
	if err := c.kill(); err != nil {
		t.Fatalf("%v", err)
	}
}

// Start starts the component again, with the same address and data, and waits until it is ready.
func (c *Component) Start(t T) {
	t.Helper()
	if err := c.start(); err != nil {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.awaitReady(ctx); err != nil {
		t.Fatalf("%v", err)
	}
}

// Restart is Kill and Start.
func (c *Component) Restart(t T) {
	t.Helper()
	c.Kill(t)
	c.Start(t)
}

// Pause suspends the component, with connections open and unanswered, like a machine that swaps, and waits until it has
// stopped: the signal reaches one thread after the other, and on a busy machine the remaining ones still answer.
func (c *Component) Pause(t T) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	for end := time.Now().Add(leverTimeout); !c.paused(t); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s has not stopped within %s", c.name, leverTimeout)
			return
		}
	}
}

// paused reports whether the kernel counts every thread of the component as stopped. WNOWAIT keeps the status for later calls.
func (c *Component) paused(t T) bool {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, c.Pid(), &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatalf("%s: wait until it has stopped: %v", c.name, err)
		return true
	}
	return info.Signo != 0
}

// Resume continues a paused component.
func (c *Component) Resume(t T) {
	t.Helper()
	c.signal(t, syscall.SIGCONT)
}

// Pid returns the process id, for measurements; 0 if the component is down.
func (c *Component) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return 0
	}
	return c.process.Pid
}

func (c *Component) signal(t T, signal syscall.Signal) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		t.Fatalf("%s is not running", c.name)
		return
	}
	if err := c.process.Signal(signal); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
}

func (c *Component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		return fmt.Errorf("%s runs already", c.name)
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.path, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := c.launcher.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	ended := make(chan struct{})
	c.process, c.ended = cmd.Process, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log has the reason
	}()
	return nil
}

// kill works in any state of the component.
func (c *Component) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil
	}
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.name, err)
	}
	<-c.ended // the kernel ends a killed process, so this needs no timeout
	c.process = nil
	return nil
}

func (c *Component) awaitReady(ctx context.Context) error {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended while it came up:\n%s", c.name, logTail(c.log))
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w", c.name, err)
		case <-time.After(pollInterval):
		}
	}
}

// logTail returns the last lines of a log, each cut to a readable width.
func logTail(path string) string {
	const (
		lines = 30
		width = 400
	)
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	var tail strings.Builder
	for _, line := range all {
		fmt.Fprintf(&tail, "%.*s\n", width, line)
	}
	return tail.String()
}

// launcher starts processes from one thread that lives until it is closed. The parent-death signal is tied to the thread
// that forked, and Go's threads come and go.
type launcher struct {
	requests chan func()
	done     chan struct{}
}

func newLauncher() *launcher {
	l := &launcher{requests: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		for request := range l.requests {
			request()
		}
	}()
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	l.requests <- func() { result <- cmd.Start() }
	return <-result
}

// close must be called after every process is down.
func (l *launcher) close() {
	close(l.requests)
	<-l.done
}
