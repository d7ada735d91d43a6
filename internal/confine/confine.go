// Package confine runs work on untrusted input in a child process with limits, so that the input can exhaust neither the
// memory nor the time of the process that needs the result. The child is the same program: its command calls Enter, reads the
// request from standard input, and writes the result to standard output.
package confine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limit is a limit that ended the work.
type Limit string

const (
	Memory Limit = "memory" // it needed more, or the kernel chose it when memory ran out
	Time   Limit = "time"   // it was computing when the time was over
	Hang   Limit = "hang"   // it was waiting when the time was over, or an earlier child still is
	Size   Limit = "size"   // of the result
)

// LimitError says which limit was hit.
type LimitError struct{ Limit Limit }

func (e *LimitError) Error() string { return "the limit of " + string(e.Limit) + " was exceeded" }

// killWithin is how long a killed child may take to end. One that waits for a dead network file system may never do so.
const killWithin = 2 * time.Second

// maxComplaint bounds how much of a child's standard error is kept, in bytes.
const maxComplaint = 16 << 10

// Runner runs one child at a time. It may be used by several goroutines.
type Runner struct {
	Args   []string // the command line of the child, without the program
	Env    []string
	Result int64 // most bytes of a result

	mu   sync.Mutex
	left chan struct{} // closed once the child that was left behind has ended; nil if none was
}

// ended is how a child ended.
type ended struct {
	result []byte
	more   bool // the result was too large
	state  *os.ProcessState
	err    error
}

// Run passes request, which is JSON, to a new child and returns its result. When ctx ends the child is killed: at the deadline that is a
// LimitError, as is every other limit. A child that does not end even then is left behind, and until it ends Run returns Hang
// without starting another.
func (r *Runner) Run(ctx context.Context, request []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.left:
		r.left = nil
	default:
		if r.left != nil {
			return nil, &LimitError{Hang}
		}
	}
	program, err := self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, r.Args...)
	cmd.Env = r.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	complaint := &beginning{}
	cmd.Stderr = complaint
	in, err := cmd.StdinPipe() // stays open: its end tells the child that nobody needs the result
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Args[0], err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Args[0], err)
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	begun, done, gone := time.Now(), make(chan ended, 1), make(chan struct{})
	go func() {
		defer close(gone)
		defer in.Close()
		if _, err := fmt.Fprintf(in, "%s\n", request); err != nil {
			kill()
		}
		var e ended
		e.result, e.err = io.ReadAll(io.LimitReader(out, r.Result+1))
		if e.more = int64(len(e.result)) > r.Result; e.more || e.err != nil {
			kill()
		}
		e.err = errors.Join(e.err, cmd.Wait())
		e.state = cmd.ProcessState
		done <- e
	}()
	select {
	case e := <-done:
		return e.judge(r.Args[0], complaint.text())
	case <-ctx.Done():
		kill()
	}
	select {
	case e := <-done:
		switch {
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, ctx.Err()
		case e.state != nil && e.state.UserTime()+e.state.SystemTime() > time.Since(begun)/20: // on a busy machine it gets little
			return nil, &LimitError{Time}
		}
		return nil, &LimitError{Hang}
	case <-time.After(killWithin):
		r.left = gone
		return nil, &LimitError{Hang}
	}
}

// judge returns the result of a child that ended by itself, or of one that was killed for its result.
func (e *ended) judge(name, complaint string) ([]byte, error) {
	switch status, _ := e.state.Sys().(syscall.WaitStatus); {
	case e.more:
		return nil, &LimitError{Size}
	case e.err == nil:
		return e.result, nil
	case status.Signaled() && status.Signal() == syscall.SIGKILL || outOfMemory(complaint):
		return nil, &LimitError{Memory}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
	return nil, fmt.Errorf("%s: %w: %s", name, e.err, first)
}

// outOfMemory recognizes how Go's runtime ends a process that gets no memory, or no thread for want of it.
func outOfMemory(complaint string) bool {
	for _, sign := range []string{"out of memory", "cannot allocate memory", "stack exceeds", "failed to create new OS thread", "pthread_create failed"} {
		if strings.Contains(complaint, sign) {
			return true
		}
	}
	return false
}

// self returns the running program, which may have been replaced on disk since it was started.
func self() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// Enter limits this process to memory bytes of data, makes it the kernel's first choice when memory runs out, and reads
// the request, which is JSON. The process ends when the one that started it has ended.
func Enter(memory uint64) (json.RawMessage, error) {
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		return nil, fmt.Errorf("read the limit of memory: %w", err)
	}
	limit.Cur = min(limit.Cur, memory)
	limit.Max = limit.Cur
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		return nil, fmt.Errorf("limit the memory: %w", err)
	}
	debug.SetMemoryLimit(int64(limit.Cur / 4 * 3))                      // collect garbage more often before it is reached
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644) // only Linux has it
	var request json.RawMessage                                         // a JSON text has an end, and the input stays open
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	return request, nil
}

// beginning keeps the beginning of what is written to it.
type beginning struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (b *beginning) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Write(p[:min(len(p), maxComplaint-b.kept.Len())])
	return len(p), nil
}

func (b *beginning) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept.String()
}
