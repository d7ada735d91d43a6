package agent

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// Outside Linux there is no PDEATHSIG, no subreaper and no /proc: processes outlive an agent that is killed until the provider
// kills their groups (processes.json), and no figures are reported.

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adoptOrphans() error { return nil }

// awaitExit returns once pid, a child, has exited, and leaves it a zombie. See the version for Linux.
func awaitExit(pid int) { exits(pid, nil) }

// hasExited reports whether pid, a child that was not reaped, has exited.
func hasExited(pid int) bool { return exits(pid, &unix.Timespec{}) }

// exits reports whether a child has exited, and waits for that; not longer than within, if that is not nil.
func exits(pid int, within *unix.Timespec) bool {
	kq, err := unix.Kqueue()
	if err != nil {
		return within == nil
	}
	defer unix.Close(kq)
	exit := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&exit, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	for {
		// An error other than EINTR means that it has already exited.
		if n, err := unix.Kevent(kq, []unix.Kevent_t{exit}, make([]unix.Kevent_t, 1), within); err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

func identify(pid int) processID { return processID{PID: pid} }

func bootID() string { return "" }

func killStrays() {}

func reapOrphans() {}

// groupLives is unknown here: a group ends with its leader.
func groupLives(int) bool { return false }

// sampler reads nothing here.
type sampler struct{}

func newSampler() *sampler { return &sampler{} }

func (*sampler) read(time.Time, []processID, func(int) bool) figures { return figures{} }

func (*sampler) glimpse(int) glimpse { return glimpse{} }

func (*sampler) close() {}

const ticksPerSecond = 100

// evidenceOf finds nothing here.
func evidenceOf([]subject) []job.RankEvidence { return nil }

func oomKills() (uint64, bool) { return 0, false }

// onMainThread matters only with PDEATHSIG.
func onMainThread() bool { return false }

// handles is unknown here: a process is taken to handle what it is asked with.
func handles(int, unix.Signal) bool { return true }

// cpuTime runs a function and returns how long it took: what of that is processor time is not known.
func cpuTime(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}
