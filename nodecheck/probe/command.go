package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

const (
	// mostOutput bounds what is kept of a program's output. The rest is read and dropped.
	mostOutput = 16 << 10
	// killWait bounds how long the end of a killed program is awaited, and output of what it has left. One that waits in the kernel
	// is left behind.
	killWait = time.Second
)

// Runner runs programs. Each has a process group of its own, which is killed as a whole when the context ends.
type Runner struct {
	// Start starts a program, and Attributes are those of its process.
	Start      func(*exec.Cmd) error
	Attributes *syscall.SysProcAttr
	Env        []string
	Dir        string
}

// startError is why a program could not be started.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }

// output is how a program ended, with the beginning of what it printed.
type output struct {
	code           int
	stdout, stderr head
}

// head keeps the beginning of what is written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), mostOutput-len(h.text))]...)
	return len(p), nil
}

// first is the first line that is not empty, of the output or else of the errors.
func (o *output) first() string {
	for _, h := range []*head{&o.stdout, &o.stderr} {
		for line := range bytes.Lines(h.text) {
			if text := displayable(line); text != "" {
				return text
			}
		}
	}
	return ""
}

// evidence is the first line, or else how the program ended.
func (o *output) evidence() string {
	if line := o.first(); line != "" {
		return line
	}
	return fmt.Sprintf("it exited with %d", o.code)
}

// displayable is a line as text for screens and records.
func displayable(line []byte) string {
	text := strings.Map(func(r rune) rune {
		if job.Displayable(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(string(line), "\uFFFD"))
	text = strings.TrimSpace(text)
	return strings.ToValidUTF8(text[:min(len(text), job.MaxCheckMessage)], "")
}

// run runs a program to its end, or until ctx ends. The error is a startError, or that of ctx.
func (r Runner) run(ctx context.Context, command []string) (*output, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out output
	cmd.Stdout, cmd.Stderr = &out.stdout, &out.stderr
	cmd.Env, cmd.Dir, cmd.SysProcAttr = r.Env, r.Dir, r.Attributes
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = killWait
	if err := r.Start(cmd); err != nil {
		if ctx.Err() != nil {
			return &output{}, ctx.Err()
		}
		return nil, &startError{err}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() // how it ended is in ProcessState
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(2 * killWait):
			return &output{}, ctx.Err() // out is still written to
		}
	}
	if ctx.Err() != nil {
		return &out, ctx.Err()
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if out.code = cmd.ProcessState.ExitCode(); status.Signaled() {
		out.code = 128 + int(status.Signal())
	}
	return &out, nil
}

// gpuQuery asks NVIDIA's driver for each GPU and the errors of its memory since it was loaded that could not be corrected.
var gpuQuery = []string{"nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader,nounits"}

// gpus asks the driver whether all GPUs answer, if there is one on the node.
func (r Runner) gpus(ctx context.Context) error {
	path, err := exec.LookPath(gpuQuery[0])
	if err != nil {
		return nil
	}
	out, err := r.run(ctx, append([]string{path}, gpuQuery[1:]...))
	if start := (*startError)(nil); errors.As(err, &start) {
		return nil // it is another system's
	}
	if err != nil {
		return &fault{job.CheckGPU, "the driver does not answer"}
	}
	if out.code != 0 {
		return &fault{job.CheckGPU, out.evidence()}
	}
	for line := range strings.Lines(string(out.stdout.text)) {
		gpu, errorsText, _ := strings.Cut(strings.TrimSpace(line), ",")
		if n, err := strconv.Atoi(strings.TrimSpace(errorsText)); err == nil && n > 0 {
			return &fault{job.CheckGPU, fmt.Sprintf("GPU %s has %d uncorrected memory errors", displayable([]byte(gpu)), n)}
		}
	}
	return nil
}
