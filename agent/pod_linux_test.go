package agent

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// An agent is the first process of its container: it has no parent, and it is the container's init.

// asInit makes a command PID 1 of a PID namespace with its own /proc.
var asInit = []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}

func needNamespaces(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(asInit[0], append(slices.Clone(asInit[1:]), "true")...).CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %v: %s", err, out)
	}
}

// initOf is the only child of unshare, by its pid outside of the namespace.
func initOf(t *testing.T, unshare int) int {
	t.Helper()
	var pid int
	eventually(t, "unshare has a child", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", unshare, unshare))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	return pid
}

func TestAgentIsTheInitOfItsContainer(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	// Its first child exits at once, and leaves a child that exits a little later and is in its own session, so that the end of
	// the group does not end it.
	b := newBench(t, 300*time.Millisecond, "sh", "-c", `
		trap 'echo asked; exit 0' TERM
		echo "agent is $PPID, proc has $(cat /proc/1/comm)"
		(setsid sh -c 'echo $$ >"$DIR/orphan.new"; mv "$DIR/orphan.new" "$DIR/orphan"; sleep 0.3; echo over >"$DIR/over"' &)
		while :; do sleep 0.05; done`)
	b.inPod(t)
	b.under = asInit
	a := b.launch(t, "DIR="+b.dir)
	agent := initOf(t, a.cmd.Process.Pid)
	b.service.awaitState(t, job.MemberWaiting, 0)

	// Before it has any processes of its own: what `kubectl exec` leaves behind.
	out, err := exec.Command("nsenter", "--target", strconv.Itoa(agent), "--pid", "--mount",
		"sh", "-c", "(sleep 0.1 & echo $!)").CombinedOutput()
	if err != nil {
		t.Fatalf("nsenter: %v: %s", err, out)
	}
	inside, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || inside < 2 {
		t.Fatalf("output of nsenter: %q", out)
	}
	eventually(t, "the agent has collected the orphan of an exec", func() bool { return len(descendants(agent)) == 0 })

	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "the orphan has ended", func() bool { return b.read("over") != "" })
	eventually(t, "it was collected", func() bool {
		return !slices.ContainsFunc(descendants(agent), func(st procStat) bool { return st.ended() && st.parent == agent })
	})
	if r := b.service.awaitState(t, job.MemberRunning, 1); len(r.PIDs) != 1 {
		t.Errorf("reported %+v", r)
	}

	if err := unix.Kill(agent, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := a.code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{"[rank 0] agent is 1, proc has agent.test\n", "[rank 0] asked\n"} {
		if !strings.Contains(a.stdout.String(), line) {
			t.Errorf("%q is not in the pod's log:\n%s", line, &a.stdout)
		}
	}
	if w := b.lastWord(t); w.Reason != job.EndLeft || w.State != job.MemberLeaving {
		t.Errorf("the last word is %+v", w)
	}
}

// The kernel kills a whole PID namespace with its init; the outcome of the processes is reported before.
func TestInitTellsHowItsProcessesFailed(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	b := newBench(t, 10*time.Minute, "sh", "-c", "echo boom; kill -SEGV $$")
	b.inPod(t)
	b.under = asInit
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberFailed, 1)
	unix.Kill(initOf(t, a.cmd.Process.Pid), unix.SIGTERM)
	if code := a.code(t); code != 128+int(unix.SIGSEGV) {
		t.Errorf("exit code %d", code)
	}
	if w := b.lastWord(t); w.Reason != job.EndFailed || w.Exit == nil || w.Exit.Signal != "segmentation fault" || strings.Join(w.Exit.Tail, "") != "boom" {
		t.Errorf("the last word is %+v", w)
	}
}
