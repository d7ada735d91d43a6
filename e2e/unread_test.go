package e2e

import (
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

// A process waits for a file under a lease as for one on a dead server: the lease's holder does not answer.
func TestAFileThatDoesNotAnswerHoldsUpNothing(t *testing.T) {
	s := sleeping(t)
	m := s.Watch()
	before := s.AwaitWorld(2, 1)
	s.Write("held.txt", "text")
	held, err := os.Open(filepath.Join(s.Dir, "held.txt"))
	s.OK(err)
	defer held.Close()
	_, err = unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	s.OK(err)
	s.Write("more.hcl", `locals { x = file("held.txt") }`)
	site.Until(t, "it is being opened", func() bool {
		lease, err := unix.FcntlInt(held.Fd(), unix.F_GETLEASE, 0)
		return err != nil || lease != unix.F_WRLCK
	})
	site.Kill(t, syscall.SIGKILL, before.Slot("worker[0]").PID)
	s.Await("healing", func(j site.Job) bool { return j.WorldSize == 2 && j.Generation > before.Generation })
	m.AwaitOutput("a file does not answer")
	s.OK(os.Remove(filepath.Join(s.Dir, "more.hcl")))
	m.AwaitOutput("Resolved: " + lastValid)
	s.AwaitWorld(2, before.Generation+1)
}
