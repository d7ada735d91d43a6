package agent

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc: 100 on every architecture that Go supports.
const ticksPerSecond = 100

// attributes makes a process lead its own group and die with the agent. Pdeathsig applies to this child only, and is sent when
// the *thread* that forked it exits: see forker.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of orphaned descendants, so that they are found and killed even if they have left
// their process group.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// awaitExit returns once pid has exited, and leaves it a zombie: until it is reaped, neither its pid nor its group's number can
// be reused.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// hasExited reports whether pid, a child that was not reaped, has exited.
func hasExited(pid int) bool {
	for {
		var info unix.Siginfo // stays empty while it runs
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err != nil || info.Signo != 0
		}
	}
}

// procStat is the part of /proc/PID/stat that is used here (proc_pid_stat(5)).
type procStat struct {
	pid, parent, group int
	state              byte
	ticks              uint64 // user and system
	reapedTicks        uint64 // of children that it waited for, and theirs
	threads            int
	start              uint64
	rss                int64 // pages
}

// ended reports whether it has exited.
func (st procStat) ended() bool { return st.state == 'Z' || st.state == 'X' }

func (st procStat) id() processID { return processID{st.pid, st.start} }

// The fields of /proc/PID/stat, counted from 1.
const (
	statState = 3
	statLast  = 24 // that is read
)

func parseStat(text []byte) (st procStat, ok bool) {
	// The name is in parentheses and may contain anything, including parentheses.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, false
	}
	var fields [statLast + 1]uint64
	n := statState - 1
	for word := range bytes.FieldsSeq(text[end+1:]) {
		if n++; n == statState {
			st.state = word[0]
			continue
		}
		fields[n] = decimal(word)
		if n == statLast {
			break
		}
	}
	if n < statLast {
		return procStat{}, false
	}
	st.pid, st.parent, st.group = int(decimal(bytes.TrimSpace(text[:open]))), int(fields[4]), int(fields[5])
	st.ticks, st.reapedTicks, st.threads = fields[14]+fields[15], fields[16]+fields[17], int(fields[20])
	st.start, st.rss = fields[22], int64(fields[24])
	return st, true
}

// decimal is a number of decimal digits; 0 for anything else, such as a negative number, and for one that does not fit.
func decimal(digits []byte) (n uint64) {
	for _, d := range digits {
		digit := uint64(d - '0')
		if d < '0' || d > '9' || n > (math.MaxUint64-digit)/10 {
			return 0
		}
		n = n*10 + digit
	}
	return n
}

// maxProc is how much of a file in /proc is read. What is read here is shorter.
const maxProc = 8 << 10

// readProc reads a file of the kernel's into a buffer, and returns the part that it fills. An os.File takes twice as long.
func readProc(path string, buf []byte) ([]byte, error) {
	again := func(call func() (int, error)) (n int, err error) {
		for {
			if n, err = call(); err != unix.EINTR {
				return n, err
			}
		}
	}
	fd, err := again(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	read := 0
	for read < len(buf) {
		n, err := again(func() (int, error) { return unix.Read(fd, buf[read:]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		read += n
	}
	return buf[:read], nil
}

func readStat(pid int) (procStat, bool) {
	return readStatOf("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, maxProc))
}

func readStatOf(path string, buf []byte) (procStat, bool) {
	text, err := readProc(path, buf)
	if err != nil {
		return procStat{}, false
	}
	return parseStat(text)
}

func identify(pid int) processID {
	st, _ := readStat(pid)
	return processID{PID: pid, StartTime: st.start}
}

func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// descendants are the processes below pid, from one scan of /proc.
func descendants(pid int) []procStat {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}
	children, buf := map[int][]procStat{}, make([]byte, maxProc)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if st, ok := readStatOf("/proc/"+name+"/stat", buf); ok {
			children[st.parent] = append(children[st.parent], st)
		}
	}
	below := children[pid]
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i].pid]...)
	}
	return below
}

// groupLives reports whether a process of a child's process group still runs.
func groupLives(group int) bool {
	return slices.ContainsFunc(descendants(os.Getpid()), func(st procStat) bool { return st.group == group && !st.ended() })
}

// killStrays kills what training processes left behind: descendants of this agent outside their groups. It reaps those that this
// process adopted.
func killStrays() {
	// The children of a killed process become this process's, so one scan may not find all. A process that keeps forking can
	// outrun this; its cgroup, if it has one, is the provider's to kill.
	for range 10 {
		below := descendants(os.Getpid())
		if len(below) == 0 {
			return
		}
		for _, st := range below {
			unix.Kill(st.pid, unix.SIGKILL)
		}
		for _, st := range below {
			reapSoon(st.pid)
		}
	}
}

// reapOrphans reaps adopted processes that have exited. No process of the agent's own may exist: it would be reaped too.
func reapOrphans() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && err != unix.EINTR {
			return
		}
	}
}

// reapSoon reaps an adopted child that was killed. One that cannot die (it waits for a device) is left after a short while, to
// be reaped by init when the agent exits.
func reapSoon(pid int) {
	for range 50 {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if got == pid || err != nil && err != unix.EINTR {
			return // reaped, or the child of another process that was just killed
		}
		time.Sleep(time.Millisecond)
	}
}

// oomKills is how often the kernel has killed for memory in this agent's memory cgroup; ok is false if unknown. v2:
// memory.events, v1: memory.oom_control.
func oomKills() (n uint64, ok bool) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for _, file := range oomFiles(string(text)) {
		events, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, ok := parseOOMKills(string(events)); ok {
			return n, true
		}
	}
	return 0, false
}

// oomFiles are the files that may have the counter.
func oomFiles(cgroups string) (files []string) {
	for _, dir := range memoryCgroups(cgroups) {
		name := "memory.events"
		if dir.v1 {
			name = "memory.oom_control"
		}
		files = append(files, filepath.Join(dir.path, name))
	}
	return files
}

// cgroup is a directory that may be a cgroup's.
type cgroup struct {
	root string // of its hierarchy
	path string
	v1   bool
}

// memoryCgroups are the directories that may be the memory cgroup of this process, from its /proc/self/cgroup. Inside a container the
// path may be the host's, which is not mounted there; its own cgroup is then the root of the mount.
func memoryCgroups(cgroups string) (dirs []cgroup) {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var roots []string
		v1 := parts[1] != ""
		switch {
		case !v1:
			roots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			roots = []string{"/sys/fs/cgroup/memory"}
		}
		for _, root := range roots {
			dirs = append(dirs, cgroup{root, filepath.Join(root, parts[2]), v1}, cgroup{root, root, v1})
		}
	}
	return dirs
}

func parseOOMKills(events string) (uint64, bool) {
	for line := range strings.Lines(events) {
		var n uint64
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			return n, true
		}
	}
	return 0, false
}

// onMainThread reports whether the calling thread is the process's first.
func onMainThread() bool { return unix.Gettid() == unix.Getpid() }

// handles reports whether a process has a handler for a signal (SigCgt in proc_pid_status(5)).
func handles(pid int, s unix.Signal) bool {
	mask, err := strconv.ParseUint(statusOf(fmt.Sprintf("/proc/%d/status", pid), "SigCgt"), 16, 64)
	return err == nil && mask&(1<<(s-1)) != 0
}

// statusOf is a field of a status file in /proc.
func statusOf(path, field string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, is := strings.CutPrefix(line, field+":"); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// cpuTime runs a function and returns the processor time that it took.
func cpuTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Rusage
		if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	do()
	return used() - before
}
