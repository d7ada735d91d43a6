package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// identity identifies one process of this boot forever. A pid alone does not: it is reused. Nothing is ever
// signaled unless both match.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_time"` // clock ticks since boot: field 22 of /proc/PID/stat
}

// process is one process held by a pidfd: signals through it cannot reach another process with a reused pid.
type process struct {
	identity
	done chan struct{} // closed once it has ended

	mu  sync.Mutex
	fd  int       // pidfd; -1 once it has ended
	end *job.Exit // how it ended, if it was a child of ours; set before done is closed
}

var errNotRunning = errors.New("the process has ended")

// openProcess opens the process that id identifies. It returns errNotRunning if that has ended, even if its pid was
// reused.
func openProcess(id identity) (*process, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", id.PID, err)
	}
	// The pidfd pins the process that has the pid now; the start time identifies it as the right one. It has to be alive
	// after that was read, or another might have taken the pid in between.
	st, err := readStat(id.PID)
	if err != nil || st.start != id.Start || ended(fd) {
		unix.Close(fd)
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("read the start time of process %d: %w", id.PID, err)
		}
		return nil, errNotRunning
	}
	return &process{identity: id, fd: fd, done: make(chan struct{})}, nil
}

// ended reports whether the process of a pidfd has ended; a zombie has.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n == 1
}

// signal sends s to the process unless it has ended.
func (p *process) signal(s unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(p.fd, s, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// exit is how it ended, once done is closed; nil if it was not our child, as then its status is unknown.
func (p *process) exit() *job.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// finish reaps a child and releases the pidfd. The process must have ended.
func (p *process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = reap(p.fd)
	p.release()
	close(p.done)
}

// release releases the pidfd. p.mu is held.
func (p *process) release() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// childInfo is the kernel's siginfo_t as waitid fills it in for a child (sigaction(2)): unix.Siginfo does not export
// these fields.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

// reap collects the exit status of an ended child, so that no zombie is left; nil if it is not a child of this process.
func reap(pidfd int) *job.Exit {
	var info childInfo
	err := unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG, nil)
	if err != nil || info.pid == 0 {
		return nil
	}
	const exited = 1 // CLD_EXITED; otherwise it was killed by a signal
	if info.code == exited {
		return &job.Exit{Code: int(info.status), At: time.Now()}
	}
	s := unix.Signal(info.status)
	return &job.Exit{Code: 128 + int(info.status), Signal: s.String(), At: time.Now()}
}

// stat is the part of /proc/PID/stat that is read.
type stat struct {
	stopped       bool // by a signal
	ppid, session int
	start         uint64
}

// readStat reads one process's stat. gone reports whether its error means that there is no such process.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	// The second field is the program's name in brackets, which may contain anything: start after its last bracket.
	_, rest, ok := cutLast(string(b), ")")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return stat{}, fmt.Errorf("cannot parse /proc/%d/stat: %q", pid, b)
	}
	ppid, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return stat{}, fmt.Errorf("cannot parse /proc/%d/stat: %w", pid, err)
	}
	return stat{stopped: f[0] == "T", ppid: ppid, session: session, start: start}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// gone reports whether an error of reading below /proc/PID means that there is no such process.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// processTable reads all processes, including zombies.
func processTable() (map[int]stat, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	table := make(map[int]stat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the process table: %w", err)
		}
		table[pid] = st
	}
	return table, nil
}

// bootID identifies this boot of the machine: pids and start times of other boots mean nothing.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
