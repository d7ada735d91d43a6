// Package command runs commands that users name in their files, on their behalf and within bounds.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// MostOutput bounds the output that an error quotes, in bytes.
	MostOutput = 1 << 10
	// killWait bounds how long output is awaited from what a killed command has started.
	killWait = time.Second
)

// Tail keeps the end of what is written to it.
type Tail struct{ text []byte }

func (t *Tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(0, len(p)-MostOutput):]...)
	t.text = t.text[max(0, len(t.text)-MostOutput):]
	return len(p), nil
}

func (t *Tail) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(t.text), "")) }

// Run runs a command in a process group of its own, which is killed as a whole when ctx
// ends. What it prints goes to out, if that is set. An error quotes the end of it, or of what it prints as errors.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var end Tail
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &end, &end
	if out != nil {
		cmd.Stdout = out
	}
	cmd.Env = environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("command: %w", ctx.Err())
	case errors.Is(err, syscall.EPIPE), errors.Is(err, exec.ErrWaitDelay):
		return nil // it exited with 0 without reading all, or with output still open
	case err != nil && end.String() != "":
		return fmt.Errorf("command: %w: %s", err, &end)
	case err != nil:
		return fmt.Errorf("command: %w", err)
	}
	return nil
}

// environment returns an environment without the values of variables, which may be sensitive.
func environment(all []string) (kept []string) {
	for _, one := range all {
		if !strings.HasPrefix(one, "ELTRAIN_VAR_") {
			kept = append(kept, one)
		}
	}
	return kept
}
