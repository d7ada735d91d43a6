package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
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

// procStat is the part of /proc/PID/stat that is used here (proc(5)).
type procStat struct {
	pid, parent, group int
	zombie             bool
	ticks              uint64 // user and system
	start              uint64
	rss                int64 // pages
}

func parseStat(text []byte) (procStat, bool) {
	// The name is in parentheses and may contain anything, including parentheses.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, false
	}
	fields := strings.Fields(string(text[end+1:])) // starting with field 3, the state
	if len(fields) < 22 {
		return procStat{}, false
	}
	field := func(n int) uint64 {
		v, _ := strconv.ParseUint(fields[n-3], 10, 64)
		return v
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:open])))
	return procStat{
		pid: pid, parent: int(field(4)), group: int(field(5)), zombie: fields[0] == "Z" || fields[0] == "X",
		ticks: field(14) + field(15), start: field(22), rss: int64(field(24)),
	}, true
}

func readStat(pid int) (procStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
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
	children := map[int][]procStat{}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, ok := readStat(n); ok {
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
	return slices.ContainsFunc(descendants(os.Getpid()), func(st procStat) bool { return st.group == group && !st.zombie })
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

// maxStrays bounds the record of descendants.
const maxStrays = 1000

// usage measures the descendants of this agent.
type usage struct {
	before map[processID]uint64 // ticks
	at     time.Time
}

// read returns the CPU time per time since the last call, and resident memory; shared pages count for each process. It reaps
// adopted processes that have exited; reaps reports which processes are not adopted. has reports which lead the groups of the
// training processes: strays are the first descendants outside of these groups, at most maxStrays.
func (u *usage) read(now time.Time, has, reaps func(pid int) bool) (cpu job.CPU, memory job.Bytes, strays []processID) {
	self := os.Getpid()
	ticks := map[processID]uint64{}
	var spent uint64
	var pages int64
	for _, st := range descendants(self) {
		if st.zombie {
			if st.parent == self && !reaps(st.pid) {
				unix.Wait4(st.pid, nil, unix.WNOHANG, nil)
			}
			continue
		}
		id := processID{st.pid, st.start}
		if !has(st.group) && len(strays) < maxStrays {
			strays = append(strays, id)
		}
		ticks[id] = st.ticks
		spent += st.ticks - min(u.before[id], st.ticks)
		pages += st.rss
	}
	elapsed := now.Sub(u.at).Seconds()
	first := u.before == nil
	u.before, u.at = ticks, now
	memory = job.Bytes(pages * int64(os.Getpagesize()))
	if !first && elapsed > 0 {
		cpu = job.CPU(float64(spent) / ticksPerSecond / elapsed * 1000)
	}
	return cpu, memory, strays
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

// oomFiles are the files that may have the counter, from /proc/self/cgroup. Inside a container the path may be the host's,
// which is not mounted there; its own cgroup is then the root of the mount.
func oomFiles(cgroups string) []string {
	var files []string
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "":
			for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
				files = append(files, filepath.Join(root, parts[2], "memory.events"), filepath.Join(root, "memory.events"))
			}
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			files = append(files, filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.oom_control"), "/sys/fs/cgroup/memory/memory.oom_control")
		}
	}
	return files
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
