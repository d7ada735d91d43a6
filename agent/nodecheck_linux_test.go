package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// orderCheck orders a check of the node.
func (s *fakeService) orderCheck(number int, bound time.Duration, command ...string) {
	s.give(elastic.Order{Do: elastic.Wait, Check: &elastic.Check{Number: number, Seconds: bound.Seconds(), Command: command}})
}

func (s *fakeService) awaitCheck(t *testing.T, number int) elastic.Report {
	t.Helper()
	return s.await(t, "the check", func(r elastic.Report) bool { return r.Check != nil && r.Check.Number == number })
}

func TestNodeIsCheckedBeforeTraining(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	a := b.launch(t, "PATH=/nowhere") // without a driver of GPUs
	b.service.awaitState(t, job.MemberWaiting, 0)
	if can := b.service.register[0].Can; can[len(can)-1] != job.CanCheck {
		t.Errorf("it can %v", can)
	}
	b.service.orderCheck(1, patience)
	if r := b.service.awaitCheck(t, 1); r.Check.Failed != "" || r.Check.Unknown || r.Check.Seconds <= 0 || r.State != job.MemberWaiting {
		t.Errorf("%+v", r.Check)
	}
	a.usedAtMost(t, 48<<20)
}

// usedAtMost checks how much memory the agent has ever used.
func (a *runningAgent) usedAtMost(t *testing.T, most int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if peak := parsePeak(string(status)); peak > most {
		t.Errorf("the agent has used %d MiB", peak>>20)
	}
}

// A program of the user's has the user's environment, the slot's and the node's, but no place in a world. What it leaves is killed
// before the outcome is reported, even outside of its group.
func TestNodeIsCheckedByAProgram(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t, "MINE=yes", "RANK=7")
	b.service.orderCheck(1, patience, "sh", "-c", `setsid sleep 300 & echo $! > "`+b.dir+`/child"; echo "$MINE $ELTRAIN_SLOT on $ELTRAIN_NODE, rank [$RANK]"; exit 1`)
	r := b.service.awaitCheck(t, 1)
	if r.Check.Failed != job.CheckCommand || r.Check.Message != "yes worker[3] on n7, rank []" {
		t.Errorf("%+v", r.Check)
	}
	if child := b.pidIn(t, "child"); alive(child) {
		unix.Kill(child, unix.SIGKILL)
		t.Error("what the program has left still runs")
	}
	if log := b.read("log"); !strings.Contains(log, "failed: command: yes worker[3] on n7") {
		t.Errorf("the log has %q", log)
	}
	b.service.run(1, 1)
	if r := b.service.awaitState(t, job.MemberRunning, 1); r.Check == nil || r.Check.Number != 1 {
		t.Errorf("another master is not told of the check: %+v", r.Check)
	}
}

// A check that hangs ends at its bound, and one that is not wanted any more at once. Nothing of either runs beside training.
func TestNodeChecksThatHang(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t)
	script := `trap '' TERM; sleep 300 & echo $! > "` + b.dir + `/child"; echo slow disk; while :; do wait; done`
	b.service.orderCheck(1, 3*time.Second, "sh", "-c", script)
	if r := b.service.awaitCheck(t, 1); r.Check.Failed != job.CheckTime || r.Check.Message != "slow disk" {
		t.Errorf("%+v", r.Check)
	}
	if alive(b.pidIn(t, "child")) {
		t.Error("it still runs")
	}
	b.write(t, "child", "")
	b.service.orderCheck(2, time.Hour, "sh", "-c", script)
	eventually(t, "the check runs", func() bool { return strings.TrimSpace(b.read("child")) != "" })
	second := b.pidIn(t, "child")
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	if alive(second) {
		t.Error("it runs beside training")
	}
}

// A program that prints without end costs the agent no memory, and one that is missing is the job's fault, not the node's.
func TestNodeChecksThatMisbehave(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	a := b.launch(t)
	b.service.orderCheck(1, patience, "sh", "-c", "echo bad; head -c 1073741824 /dev/zero; exit 1")
	if r := b.service.awaitCheck(t, 1); r.Check.Failed != job.CheckCommand || r.Check.Message != "bad" {
		t.Errorf("%+v", r.Check)
	}
	a.usedAtMost(t, 64<<20)
	b.service.orderCheck(2, patience, "no-such-program")
	r := b.service.awaitState(t, job.MemberFailed, 0)
	if r.Exit == nil || !strings.Contains(r.Exit.NotStarted, "no-such-program") || r.Exit.Cause() != job.StartFailed {
		t.Errorf("%+v", r.Exit)
	}
}

// An agent that is asked to stop does not wait for a check.
func TestNodeCheckEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	a := b.launch(t)
	b.service.orderCheck(1, time.Hour, "sh", "-c", `echo $$ > "`+b.dir+`/child"; exec sleep 300`)
	eventually(t, "the check runs", func() bool { return strings.TrimSpace(b.read("child")) != "" })
	a.signal(t, unix.SIGTERM)
	if code := a.code(t); code != ExitLeft {
		t.Errorf("it exits with %d", code)
	}
	if alive(b.pidIn(t, "child")) {
		t.Error("the program still runs")
	}
}
