package e2e

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/soak"
)

// demo runs examples/demo.sh as `make demo` does, with its own temporary directory, which it must leave empty. interrupt gets
// what was printed so far, and returns true when to press Ctrl-C.
func demo(t *testing.T, interrupt func(printed string) bool) (printed string, code int) {
	t.Helper()
	site.NotShort(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, "../examples/demo.sh", programs.Eltrain)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to the whole group, and to no one else
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = site.Bound
	out := &site.Lines{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState has the result
	}()
	var silent hang.Wait
	for look := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-ended:
			look.Stop()
			left, err := os.ReadDir(temp)
			if err != nil || len(left) > 0 {
				t.Errorf("the demo left %v in its temporary directory: %v", left, err)
			}
			if running := site.ProcessesIn(temp); len(running) > 0 {
				t.Errorf("the demo left these processes: %v", running)
			}
			return out.String(), cmd.ProcessState.ExitCode()
		case <-look.C:
			if silent.Hung(int64(len(out.String()))) {
				cancel()
			}
			if interrupt(out.String()) {
				interrupt = never
				if err := cmd.Cancel(); err != nil {
					t.Errorf("interrupt the demo: %v", err)
				}
			}
		}
	}
}

func never(string) bool { return false }

func TestDemoTellsTheWholeStory(t *testing.T) {
	t.Parallel()
	printed, code := demo(t, never)
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, printed)
	}
	for _, line := range []string{
		`Plan: 3 to add, 0 to change, 0 to destroy\.`,
		`Healed: three train again, generation 2`,
		`process killed in worker\[1\](, then \d+ more exits?)? -> restart in place`,
		`Healed: three train again, generation 3`,
		`agent gone in worker\[2\](, then \d+ more exits?)? -> restart same node`,
		`Four train together, generation 4`,
		`healed run: +loss \S+ at step 1500, 150 losses printed`,
		`The very same loss\.`,
		`Nothing is left`,
	} {
		if !regexp.MustCompile(line).MatchString(printed) {
			t.Errorf("the demo does not say %q", line)
		}
	}
	if t.Failed() {
		t.Log(printed)
	}
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	printed, code := demo(t, func(printed string) bool { return strings.Contains(printed, "Healed: three train again") })
	if code != 130 {
		t.Errorf("exit code %d, want 130:\n%s", code, printed)
	}
	if !strings.Contains(printed, "Ending what the demo has started.") {
		t.Errorf("the demo does not tell that it ends things:\n%s", printed)
	}
}
