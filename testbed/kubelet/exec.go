package kubelet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// execIdle is how long a connection without traffic lasts, and execCreation how long its streams may take to be there: a kubelet's.
const (
	execIdle     = 4 * time.Hour
	execCreation = 30 * time.Second
)

// serveExec serves the kubelet's API for `kubectl exec`.
func (n *node) serveExec(w http.ResponseWriter, r *http.Request) {
	if !n.connected() {
		panic(http.ErrAbortHandler)
	}
	p, err := n.pod(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.PathValue("container")
	remotecommand.ServeExec(w, r, executor{p}, "", "", name, r.URL.Query()["command"], options, execIdle, execCreation,
		[]string{remotecommand.StreamProtocolV4Name}) // to which the API server translates
}

// executor runs commands in the containers of a pod.
type executor struct{ pod *pod }

// ExecInContainer implements remotecommand.Executor. A command whose caller has left runs on, as in containerd.
func (e executor) ExecInContainer(_ context.Context, _, _, container string, command []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	into, ok := e.pod.inside(container)
	if !ok {
		return errors.New("container not found (\"" + container + "\")")
	}
	cmd := into.command(context.Background(), command)
	var err error
	if tty {
		err = onTerminal(cmd, in, out, resize)
	} else {
		err = withStreams(cmd, in, out, errs)
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		status := exit.Sys().(syscall.WaitStatus)
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		return utilexec.CodeExitError{Err: exit, Code: code}
	}
	return err
}

// withStreams runs a command, and ends when it has, whoever still reads its input.
func withStreams(cmd *exec.Cmd, in io.Reader, out, errs io.Writer) error {
	cmd.Stdout, cmd.Stderr = out, errs
	if in != nil {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	return cmd.Run()
}

func onTerminal(cmd *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	cmd.SysProcAttr = nil // pty makes it a session
	cmd.Env = append(cmd.Env, "TERM=xterm")
	master, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	defer master.Close()
	go func() {
		for size := range resize {
			pty.Setsize(master, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go io.Copy(master, in)
	}
	io.Copy(out, master) // until no process has it open
	return cmd.Wait()
}

// inside is how to run commands in a container.
type inside struct {
	pid  int
	env  []string
	user *user // nil for root
}

// inside returns how to run commands in the container of that name, if it runs.
func (p *pod) inside(container string) (inside, bool) {
	p.logs.Lock()
	defer p.logs.Unlock()
	newest, ok := p.logs.newest[container]
	if !ok || newest.ended() {
		return inside{}, false
	}
	return newest.process.inside, true
}

// command runs in the container, until it ends or ctx does.
func (i inside) command(ctx context.Context, command []string) *exec.Cmd {
	argv := []string{"--target", strconv.Itoa(i.pid), "--mount", "--root", "--wd", "--uts", "--ipc", "--pid"}
	if i.user != nil {
		argv = append(argv, "--setgid", strconv.FormatInt(i.user.gid, 10), "--setuid", strconv.FormatInt(i.user.uid, 10))
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(argv, command...)...)
	cmd.Env = append([]string{}, i.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // nsenter has forked
	return cmd
}
