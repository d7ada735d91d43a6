package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/e2e/site"
)

// A step of a run is a system call with an effect outside the process: on a file, a directory, a lock, a process. The kernel
// stops a traced process before each system call (ptrace(2)), and the test kills it there. So what is left is exactly the effect
// of the earlier steps; the program is unmodified, and no timing decides what is tested.

// traceOptions trace new threads too, and kill the tracees with the test. Child processes are not traced: agents run on.
const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// syscallStop is the signal of a system-call stop, with PTRACE_O_TRACESYSGOOD.
const syscallStop = unix.SIGTRAP | 0x80

// tracedBound is how long a traced run may take: each system call stops it twice.
const tracedBound = 2 * site.Bound

// trace is a run of eltrain, stopped at its steps.
type trace struct {
	dir    string // only writes to files in it are steps
	leader int
	inside map[int]bool // threads between the beginning and the end of a system call
	steps  int          // number of steps so far
	last   string       // the last step
}

// killedBefore runs a command and kills it right before its n-th step, from 1. step describes that step; it is "" if the run
// ended before, which must be with success.
func (c *crashing) killedBefore(n int, args ...string) (step string) {
	c.T.Helper()
	step, err := traced(c.Site, n, args)
	if err != nil {
		c.T.Fatalf("eltrain %v, to be killed before step %d: %v", args, n, err)
	}
	return step
}

// traced runs traceUntil in its own thread: all ptrace requests must come from the same thread. The thread ends with this
// function.
func traced(s *site.Site, n int, args []string) (step string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		step, err = traceUntil(s, n, args)
	}()
	<-done
	return step, err
}

func traceUntil(s *site.Site, n int, args []string) (step string, err error) {
	out, err := os.CreateTemp("", "eltrain-traced")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	run, err := os.StartProcess(programs.Eltrain, append([]string{programs.Eltrain}, args...), &os.ProcAttr{
		Dir: s.Dir, Env: append(os.Environ(), "NO_COLOR=1", "PWD="+s.Dir),
		Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		return "", err
	}
	defer run.Release()
	late := time.AfterFunc(tracedBound, func() { run.Kill() })
	t := trace{dir: s.Dir, leader: run.Pid, inside: map[int]bool{}}
	step, status, err := t.run(n)
	if err != nil {
		run.Kill()
		t.reap()
	}
	text, _ := os.ReadFile(out.Name())
	switch {
	case !late.Stop():
		return "", fmt.Errorf("it had not ended after %s; the last of %d steps was to %s\n%s", tracedBound, t.steps, t.last, text)
	case err != nil:
		return "", fmt.Errorf("%w\n%s", err, text)
	case step == "" && (!status.Exited() || status.ExitStatus() != 0):
		return "", fmt.Errorf("it ended with %#x\n%s", int(status), text)
	}
	return step, nil
}

// wait takes the next event of the run's process group. This thread may have started other processes, for which others wait.
func (t *trace) wait(ws *unix.WaitStatus) (tid int, err error) {
	for {
		tid, err = unix.Wait4(-t.leader, ws, unix.WALL|unix.WNOTHREAD, nil)
		if err != unix.EINTR {
			return tid, err
		}
	}
}

// reap waits until all threads of a killed run are gone.
func (t *trace) reap() {
	for {
		if _, err := t.wait(nil); err != nil {
			return
		}
	}
}

// run resumes the process from stop to stop, and kills it before its n-th step. It returns when all of it is gone, or with an
// error.
func (t *trace) run(n int) (step string, status unix.WaitStatus, err error) {
	for begun := false; ; {
		var ws unix.WaitStatus
		tid, err := t.wait(&ws)
		switch {
		case err == unix.ECHILD:
			return step, status, nil
		case err != nil:
			return "", status, fmt.Errorf("wait for it: %w", err)
		case ws.Exited() || ws.Signaled():
			if delete(t.inside, tid); tid == t.leader {
				status = ws
			}
			continue
		}
		if !begun { // the stop at its exec
			begun = true
			if err := unix.PtraceSetOptions(tid, traceOptions); err != nil {
				return "", status, fmt.Errorf("trace it: %w", err)
			}
		} else if step == "" && ws.StopSignal() == syscallStop {
			if t.inside[tid] = !t.inside[tid]; t.inside[tid] {
				if what := t.step(tid); what != "" {
					t.steps, t.last = t.steps+1, what
					if t.steps == n {
						step = what
						unix.Kill(t.leader, unix.SIGKILL)
						continue
					}
				}
			}
		}
		if err := unix.PtraceSyscall(tid, forwarded(ws)); err != nil && err != unix.ESRCH { // ESRCH: it has been killed
			return "", status, fmt.Errorf("let it go on: %w", err)
		}
	}
}

// forwarded returns the signal to deliver to a stopped thread: the one that stopped it, if one did.
func forwarded(ws unix.WaitStatus) int {
	switch sig := ws.StopSignal(); sig {
	case unix.SIGTRAP, unix.SIGSTOP, syscallStop: // events of the trace, and the first stop of a thread
		return 0
	default:
		return int(sig)
	}
}

// step describes what a thread's system call is about to change; "" if nothing.
func (t *trace) step(tid int) string {
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) != nil {
		return ""
	}
	switch r.Orig_rax {
	case unix.SYS_OPENAT:
		return t.on("make", tid, r.Rsi, r.Rdx&unix.O_CREAT != 0)
	case unix.SYS_MKDIRAT:
		return t.on("make the directory", tid, r.Rsi, true)
	case unix.SYS_UNLINKAT:
		return t.on("remove", tid, r.Rsi, true)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		return t.on("put in place", tid, r.R10, true)
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE:
		// Terminal output does not matter; sockets and pipes are not files.
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, r.Rdi))
		if strings.HasPrefix(path, t.dir) {
			return "write " + path
		}
	case unix.SYS_CLONE:
		if r.Rdi&unix.CLONE_THREAD == 0 {
			return "start a process"
		}
	case unix.SYS_CLONE3:
		return "start a process" // Go creates threads with clone
	case unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		if r.Rsi != 0 {
			return fmt.Sprintf("send signal %d", r.Rsi)
		}
	}
	return ""
}

// on describes a step on a file whose path is in the process's memory.
func (t *trace) on(what string, tid int, address uint64, is bool) string {
	if !is {
		return ""
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.PtracePeekData(tid, uintptr(address), text)
	if err != nil && n == 0 {
		return what
	}
	end := slices.Index(text[:n], 0)
	return what + " " + string(text[:max(end, 0)])
}

// needTracing skips a test where processes cannot be traced, unless WITH_PTRACE is set: then it fails.
func needTracing(t *testing.T) {
	t.Helper()
	s := site.New(t, programs, "")
	if _, err := traced(s, 1<<30, []string{"version"}); err != nil {
		if os.Getenv("WITH_PTRACE") != "" {
			t.Fatalf("processes have to be traced here, and none can be: %v", err)
		}
		t.Skipf("no process can be traced here: %v", err)
	}
}
