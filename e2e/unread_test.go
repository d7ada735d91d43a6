package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/e2e/site"
)

// What a watch reads may take more than it has: memory, or all time.

const lastValid = "The configuration has errors; the last valid one stays in effect"

// Each of these took more than a gigabyte.
func TestFilesThatTakeTooMuchMemoryLeaveTheMasterAlone(t *testing.T) {
	for name, c := range map[string]struct{ hcl, csv string }{
		"a large table":          {`locals { x = csvdecode(file("big.txt")) }`, "a,b\n" + strings.Repeat("1,2\n", 2_000_000)},
		"matches in a long text": {`locals { x = regexall(".", file("big.txt")) }`, strings.Repeat("x", 9<<20)},
		"a large file":           {strings.Repeat("locals {\n  a = 1\n}\n", 15<<20/19), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := sleeping(t)
			m := s.Watch()
			before := s.AwaitWorld(2, 1)
			s.Write("big.txt", c.csv)
			s.Write("big.hcl", c.hcl)
			m.AwaitOutput("Reading the files takes more than 512MiB of memory.")
			site.Kill(t, syscall.SIGKILL, before.Slot("worker[0]").PID)
			s.Await("healing", func(j site.Job) bool {
				return j.Phase == "Degraded" && j.WorldSize == 2 && j.Generation > before.Generation && j.Says("512MiB")
			})
			if !s.HasMaster() {
				t.Error("status says that no master is running")
			}
			s.OK(os.Remove(filepath.Join(s.Dir, "big.hcl")))
			m.AwaitOutput("Resolved: " + lastValid)
			s.AwaitWorld(2, before.Generation+1)

			// Nor does it take down the next start.
			m.Interrupt()
			s.Write("big.hcl", c.hcl)
			out, code := s.Run("apply", "-watch", "-auto-approve")
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			site.Has(t, out, "Cannot read the files") // on a busy machine perhaps for the time that it takes
			s.OK(os.Remove(filepath.Join(s.Dir, "big.hcl")))
		})
	}
}

// Whoever opens a file waits for fanotify's listener as for a dead server: it does not answer.
func TestAFileThatDoesNotAnswerHoldsUpNothing(t *testing.T) {
	s := sleeping(t)
	m := s.Watch()
	before := s.AwaitWorld(2, 1)
	s.Write("held.txt", "text")
	listener, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if errors.Is(err, unix.EPERM) {
		t.Skip("only root may listen")
	}
	s.OK(err)
	defer unix.Close(listener)
	s.OK(unix.FanotifyMark(listener, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, filepath.Join(s.Dir, "held.txt")))
	s.Write("more.hcl", `locals { x = file("held.txt") }`)
	site.Until(t, "it is being opened", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	site.Kill(t, syscall.SIGKILL, before.Slot("worker[0]").PID)
	s.Await("healing", func(j site.Job) bool { return j.WorldSize == 2 && j.Generation > before.Generation })
	m.AwaitOutput("a file does not answer")
	s.OK(os.Remove(filepath.Join(s.Dir, "more.hcl")))
	m.AwaitOutput("Resolved: " + lastValid)
	s.AwaitWorld(2, before.Generation+1)
}
