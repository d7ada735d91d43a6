package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

const (
	// maxStackProcesses bounds the processes of a slot whose stacks are taken.
	maxStackProcesses = 64
	// pySpyWait bounds one run of py-spy, faulthandlerWait how long a signalled process may take to begin to write its stacks, pythonWait
	// how long the hook's thread may wait for the interpreter, and faulthandlerQuiet is how long nothing more must come until they are whole.
	pySpyWait         = 5 * time.Second
	faulthandlerWait  = 2 * time.Second
	pythonWait        = time.Second
	faulthandlerQuiet = 100 * time.Millisecond
	// maxStackFile bounds the stacks of one process.
	maxStackFile = 4 << 20
)

// stacksSignal makes faulthandler write stacks, if the script has registered it.
const stacksSignal = unix.SIGUSR2

// printStacks prints the stacks of the training processes of the slot whose environment this process has, and of what they
// started, as JSON.
func printStacks(to io.Writer) error {
	own := identityOf(os.Environ())
	all := trainees(func(env []string) bool { return slices.Equal(identityOf(env), own) })
	if len(all) == 0 {
		return errIdle
	}
	var stacks []job.ProcessStacks
	for _, t := range all {
		for _, pid := range append([]int{t.pid}, below(t.pid)...) {
			if len(stacks) == maxStackProcesses {
				break
			}
			s := stacksOf(pid, t.variable(job.StacksVariable))
			s.Rank, s.LocalRank, s.Child = t.number("RANK"), t.number("LOCAL_RANK"), pid != t.pid
			if len(s.Threads) > 0 { // otherwise it has ended
				stacks = append(stacks, s)
			}
		}
	}
	return json.NewEncoder(to).Encode(stacks)
}

// identityOf returns the variables that tell the processes of one incarnation and world. A copied job directory has the same names,
// and another path of the token.
func identityOf(env []string) (own []string) {
	for _, name := range []string{"TORCHELASTIC_RUN_ID", "ELTRAIN_JOB", "ELTRAIN_SLOT", "ELTRAIN_INCARNATION", "ELTRAIN_GENERATION", "ELTRAIN_TOKEN_FILE"} {
		for _, kv := range env {
			if strings.HasPrefix(kv, name+"=") {
				own = append(own, kv)
			}
		}
	}
	return own
}

// below are the live descendants of a process.
func below(pid int) (all []int) {
	for _, st := range descendants(pid) {
		if !st.ended() {
			all = append(all, st.pid)
		}
	}
	return all
}

// stacksOf takes the stacks of a process from the best source that it has.
func stacksOf(pid int, file string) job.ProcessStacks {
	s := job.ProcessStacks{PID: pid, Name: nameOf(pid)}
	try := func(source job.StackSource, threads []job.ThreadStack, err error) bool {
		switch {
		case err != nil:
			s.Failed = append(s.Failed, fmt.Sprintf("%s: %v", source, err))
		case len(threads) > 0:
			s.Source, s.Threads = source, threads
		}
		return len(s.Threads) > 0
	}
	// One that is stopped answers no signal and no tracer, and healing soon ends those who wait for it.
	stopped := strings.HasPrefix(statusOf(fmt.Sprintf("/proc/%d/status", pid), "State"), "T")
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && !stopped && strings.Contains(filepath.Base(program), "python") {
		threads, err := pySpy(pid)
		if try(job.StacksPySpy, withoutHook(threads), err) {
			return s
		}
		threads, err = faulthandler(pid, file)
		if try(job.StacksFaulthandler, threads, err) {
			return s
		}
	}
	try(job.StacksKernel, kernelStacks(pid), nil)
	return s
}

func nameOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
}

// pySpy runs py-spy; without it there is no error, and nothing.
func pySpy(pid int) ([]job.ThreadStack, error) {
	program, err := exec.LookPath("py-spy")
	if err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pySpyWait)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "dump", "-j", "--pid", strconv.Itoa(pid))
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", pySpyWait)
		}
		return nil, errors.Join(err, lastLine(errs.String()))
	}
	return parsePySpy(out.Bytes())
}

// lastLine is the last line of a program's errors, as an error; nil if it wrote none.
func lastLine(text string) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if line := strings.TrimSpace(lines[len(lines)-1]); line != "" {
		return errors.New(line)
	}
	return nil
}

// parsePySpy reads the output of py-spy dump -j.
func parsePySpy(text []byte) ([]job.ThreadStack, error) {
	var threads []struct {
		ID       uint64 `json:"thread_id"`
		Name     string `json:"thread_name"`
		System   uint64 `json:"os_thread_id"`
		Active   bool   `json:"active"`
		OwnsLock bool   `json:"owns_gil"`
		Frames   []struct {
			Name     string `json:"name"`
			Filename string `json:"filename"`
			Line     int    `json:"line"`
		} `json:"frames"`
	}
	if err := json.Unmarshal(text, &threads); err != nil {
		return nil, err
	}
	var all []job.ThreadStack
	for _, t := range threads {
		s := job.ThreadStack{ID: strconv.FormatUint(cmp.Or(t.System, t.ID), 10), Name: t.Name, State: "idle"}
		if t.Active {
			s.State = "active"
		}
		if t.OwnsLock {
			s.State += "+gil"
		}
		for _, f := range t.Frames {
			s.Frames = append(s.Frames, fmt.Sprintf("%s (%s:%d)", f.Name, f.Filename, f.Line))
		}
		all = append(all, s)
	}
	return all, nil
}

// faulthandler lets the process write its stacks: the hook's thread if it has one, otherwise what handles stacksSignal. A process is
// signalled only if it has the file open and takes the signal, which would kill it otherwise. The hook's thread alone gets a signal: in any
// other it would end a sleep, a poll or a select of a C library, which are not restarted and which libraries take for a failure.
func faulthandler(pid int, file string) ([]job.ThreadStack, error) {
	if file == "" || !hasOpen(pid, file) {
		return nil, nil
	}
	hooked := hookThread(pid)
	send := func(s unix.Signal) error { return unix.Tgkill(pid, hooked, s) }
	first, second := askSignal, dumpSignal
	if hooked == 0 {
		if !handles(pid, stacksSignal) {
			return nil, nil
		}
		send = func(s unix.Signal) error { return unix.Kill(pid, s) }
		first, second = stacksSignal, stacksSignal
	}
	before, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if err := send(first); err != nil {
		return nil, err
	}
	size, changed := before.Size(), time.Now()
	for begun := time.Now(); ; time.Sleep(faulthandlerQuiet / 10) {
		now, err := os.Stat(file)
		switch {
		case err != nil:
			return nil, err
		case now.Size() != size:
			size, changed = now.Size(), time.Now()
		case size == before.Size() && first != second && time.Since(begun) > pythonWait: // the interpreter is held in C
			if err := send(second); err != nil {
				return nil, err
			}
			first, begun = second, time.Now()
		case size == before.Size() && time.Since(begun) > faulthandlerWait:
			return nil, fmt.Errorf("nothing was written within %s of the signal", faulthandlerWait)
		}
		if size != before.Size() && time.Since(changed) > faulthandlerQuiet || size-before.Size() > maxStackFile || time.Since(begun) > pySpyWait {
			break
		}
	}
	f, err := regular.Open(file, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, before.Size(), maxStackFile))
	if err != nil {
		return nil, err
	}
	return withoutHook(parseFaulthandler(string(text))), nil
}

// hookThread is the thread of a process that the hook started to write stacks; 0 if there is none.
func hookThread(pid int) int {
	if !handles(pid, askSignal) || !handles(pid, dumpSignal) {
		return 0
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		if statusOf(task+"/status", "Name") != stacksThread {
			continue
		}
		if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
			return tid
		}
	}
	return 0
}

// withoutHook leaves out the threads of the hook.
func withoutHook(threads []job.ThreadStack) []job.ThreadStack {
	return slices.DeleteFunc(threads, func(t job.ThreadStack) bool {
		return slices.ContainsFunc(t.Frames, func(frame string) bool { return strings.HasPrefix(frame, "_serve_eltrain (") })
	})
}

// faultHead begins a thread in faulthandler's output (Python/traceback.c); newer versions have the thread's name.
var faultHead = regexp.MustCompile(`^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])?.* \(most recent call first\):$`)

// parseFaulthandler reads the first stack of each thread: a second caller at the same time adds a second dump to the file.
func parseFaulthandler(text string) []job.ThreadStack {
	var all []job.ThreadStack
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		if head := faultHead.FindStringSubmatch(line); head != nil {
			if slices.ContainsFunc(all, func(t job.ThreadStack) bool { return t.ID == head[1] }) {
				break
			}
			all = append(all, job.ThreadStack{ID: head[1], Name: head[2]})
			inside = true
			continue
		}
		if inside = inside && strings.HasPrefix(line, "  "); inside {
			last := &all[len(all)-1]
			last.Frames = append(last.Frames, pythonFrame(strings.TrimSpace(line)))
		}
	}
	return all
}

var faultFrame = regexp.MustCompile(`^File "(.*)", line (\S+) in (.*)$`)

// pythonFrame is a frame of faulthandler in the form of those of py-spy.
func pythonFrame(line string) string {
	if f := faultFrame.FindStringSubmatch(line); f != nil {
		return fmt.Sprintf("%s (%s:%s)", f[3], f[1], f[2])
	}
	return line
}

// hasOpen reports whether a process has a file open.
func hasOpen(pid int, file string) bool {
	want, err := os.Stat(file)
	if err != nil {
		return false
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		open, err := os.Stat(fd)
		return err == nil && os.SameFile(open, want)
	})
}

// kernelStacks is what /proc tells of each thread. The kernel stack, and mostly the place where a thread waits, are for root alone.
func kernelStacks(pid int) []job.ThreadStack {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	slices.SortFunc(tasks, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	var all []job.ThreadStack
	for _, task := range tasks {
		_, state, _ := strings.Cut(strings.TrimSuffix(statusOf(task+"/status", "State"), ")"), "(")
		if state == "" || state == "zombie" || statusOf(task+"/status", "Name") == stacksThread {
			continue
		}
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(task, name))
			return strings.TrimSpace(string(text))
		}
		s := job.ThreadStack{ID: filepath.Base(task), Name: read("comm"), State: state}
		call, _, _ := strings.Cut(read("syscall"), " ")
		place := read("wchan")
		if number, err := strconv.Atoi(call); err == nil && number >= 0 {
			s.Waits = cmp.Or(systemCalls[number], "system call "+call)
		}
		if place != "" && place != "0" {
			s.Waits = strings.TrimSpace(s.Waits + " " + place)
		}
		for line := range strings.Lines(read("stack")) {
			_, frame, _ := strings.Cut(strings.TrimSpace(line), " ") // after [<0>]
			frame, _, _ = strings.Cut(frame, "+")                    // without the offset
			s.Frames = append(s.Frames, frame)
		}
		all = append(all, s)
	}
	return all
}

// systemCalls are the names of those in which training processes wait, of all architectures.
var systemCalls = map[int]string{
	unix.SYS_ACCEPT4: "accept4", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_CONNECT: "connect", unix.SYS_EPOLL_PWAIT: "epoll_pwait",
	unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync", unix.SYS_FUTEX: "futex", unix.SYS_IOCTL: "ioctl",
	unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_OPENAT: "openat", unix.SYS_PPOLL: "ppoll", unix.SYS_PREAD64: "pread64", unix.SYS_PSELECT6: "pselect6",
	unix.SYS_PWRITE64: "pwrite64", unix.SYS_READ: "read", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDMSG: "sendmsg",
	unix.SYS_SENDTO: "sendto", unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev",
}
