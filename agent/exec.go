package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/execsocket"
)

// hangupGrace is what a command gets between SIGTERM and SIGKILL once nobody waits for it.
const hangupGrace = 2 * time.Second

// errIdle: commands run in the environment of a world's processes.
var errIdle = errors.New("no training process runs here now: it waits for a world")

// executor runs commands for callers of the incarnation's socket, in the environment of the current generation.
type executor struct {
	listener *execsocket.Listener
	forker   *forker
	log      *slog.Logger
	current  atomic.Pointer[generation] // nil while no process runs
	calls    sync.WaitGroup
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
}

// newExecutor serves the socket in the agent's directory. Without one, in a pod, Helper runs commands.
func newExecutor(dir string, f *forker, log *slog.Logger) *executor {
	x := &executor{forker: f, log: log}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	if dir == "" {
		return x
	}
	var err error
	if x.listener, err = execsocket.Listen(dir); err != nil {
		log.Error("no command can be run in this slot", "error", err) // training can
		return x
	}
	x.calls.Go(x.serve)
	return x
}

func (x *executor) serve() {
	for {
		conn, pid, err := x.listener.Accept()
		if err != nil {
			return // closed
		}
		x.calls.Go(func() { x.call(conn, pid) })
	}
}

// close stops serving. No generation may run.
func (x *executor) close() {
	x.cancel()
	if x.listener != nil {
		x.listener.Close()
	}
	x.calls.Wait()
}

// call runs the command of one caller.
func (x *executor) call(conn execsocket.Conn, caller int) {
	defer conn.Close()
	defer context.AfterFunc(x.ctx, func() { conn.Close() })()
	request, files, err := conn.Receive()
	if err != nil {
		x.log.Warn("a request to run a command is unusable", "caller", caller, "error", err)
		return
	}
	p, err := x.start(request, files)
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		x.log.Info("a command was not run", "command", request.Command, "caller", caller, "error", err)
		conn.Reply(execsocket.Reply{Code: codeOf(err), NotRun: err.Error()})
		return
	}
	x.log.Info("runs a command", "command", request.Command, "caller", caller, "pid", p.id.PID)
	ended := make(chan struct{})
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		conn.Read(make([]byte, 1)) // callers send nothing more: it returns at the end of the connection
		p.hangUp(ended)
	}()
	code := <-p.code
	close(ended)
	x.log.Info("a command has ended", "pid", p.id.PID, "code", code)
	conn.Reply(execsocket.Reply{Code: code})
	conn.Close()
	<-hungUp
}

// start starts a command in the environment of the slot's first process.
func (x *executor) start(r execsocket.Request, files [3]*os.File) (*command, error) {
	g := x.current.Load()
	if g == nil {
		return nil, errIdle
	}
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	first := g.processes[0].cmd
	cmd.Dir, cmd.Env = first.Dir, guestEnvironment(first.Env)
	cmd.SysProcAttr = attributes()
	if r.Terminal {
		cmd.SysProcAttr.Setpgid = false
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true // the terminal is the child's descriptor 0
		cmd.Env = append(cmd.Env, "TERM="+r.Term)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	return g.commands.start(cmd, x.forker)
}

// codeOf is the exit code of a command that could not be started.
func codeOf(err error) int {
	switch {
	case errors.Is(err, errIdle):
		return 1
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return codeNotFound
	}
	return codeNotExecutable
}

// commands are what operators run beside the processes of a generation. They end with it: their environment is that of its world.
type commands struct {
	mu      sync.Mutex
	ended   bool
	running map[*command]bool
	waits   sync.WaitGroup
}

// command is one of them. It leads its own process group.
type command struct {
	process
	code chan int // its exit code, once it was reaped
}

func (c *commands) start(cmd *exec.Cmd, f *forker) (*command, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, errIdle
	}
	if err := f.start(cmd); err != nil {
		return nil, err
	}
	p := &command{process: process{cmd: cmd, id: identify(cmd.Process.Pid)}, code: make(chan int, 1)}
	if c.running == nil {
		c.running = map[*command]bool{}
	}
	c.running[p] = true
	c.waits.Go(func() {
		code := p.awaitCode()
		c.mu.Lock()
		delete(c.running, p)
		c.mu.Unlock()
		p.code <- code
	})
	return p, nil
}

// has reports whether pid is a command that was not reaped yet.
func (c *commands) has(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.running {
		if p.id.PID == pid {
			return true
		}
	}
	return false
}

// end kills all commands, waits until none runs, and lets no other start.
func (c *commands) end() {
	c.mu.Lock()
	c.ended = true
	for p := range c.running {
		p.signal(unix.SIGKILL)
	}
	c.mu.Unlock()
	c.waits.Wait()
}

// awaitCode waits until the command has exited, kills what is left in its group, and returns its exit code.
func (p *command) awaitCode() int {
	awaitExit(p.id.PID)
	p.reap()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// hangUp stops a command that nobody waits for.
func (p *command) hangUp(ended <-chan struct{}) {
	p.signal(unix.SIGTERM)
	p.signal(unix.SIGCONT)
	select {
	case <-ended:
	case <-time.After(hangupGrace):
		p.signal(unix.SIGKILL)
	}
}

// guestEnvironment is a training process's environment for another program: without the error file, which only the process itself
// may write.
func guestEnvironment(env []string) []string {
	var kept []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, errorFileVariable+"=") {
			kept = append(kept, kv)
		}
	}
	return kept
}
