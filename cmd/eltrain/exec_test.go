package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseExec(t *testing.T) {
	for line, want := range map[string]string{
		"job.a.w[0] -- ls -l":       "false false job.a.w[0] [ls -l]",
		"-it job.a.w[0] -- sh":      "true true job.a.w[0] [sh]",
		"-i job.a.w -- sh -c -- x":  "true false job.a.w [sh -c -- x]",
		"job.a.w[0] -t -- -odd":     "false true job.a.w[0] [-odd]",
		"job.a.w[0] ls":             "error: a command is missing: write exec job.a.w[0] -- COMMAND",
		"job.a.w[0] --":             "error: a command is missing: write exec job.a.w[0] -- COMMAND",
		"-- ls":                     "error: an address is missing: write job.NAME.ROLE[3]",
		"job.a.w[0] job.b.w -- ls":  `error: a command runs in one slot: "job.b.w" is not expected here`,
		"w[0] -- ls":                `error: "w[0]" is not an address`,
		"-x job.a.w[0] -- ls -l -a": "error: unknown flag -x",
	} {
		a, err := parsed[execArgs](&newScreenless("").session, manyArguments, strings.Fields(line))
		got := fmt.Sprint(a.input, a.terminal, " ", a.selector, " ", a.command)
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// execJob is a job that runs; its directory has a long path.
func execJob(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(directoryWith(t, nil), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "main.hcl"), twoWorkers)
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	return dir
}

func TestExec(t *testing.T) {
	t.Parallel()
	dir := execJob(t)
	const slot = "job.tiny.worker[1]"
	o := eltrain(t, dir, "exec", slot, "--", "sh", "-c", `echo "$ELTRAIN_JOB $ELTRAIN_SLOT rank $RANK of $WORLD_SIZE in $(pwd -P)"; echo wrong >&2; exit 7`)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(o.out, "tiny worker[1] rank ") || !strings.HasSuffix(o.out, " of 2 in "+real+"\n") || o.err != "wrong\n" || o.code != 7 {
		t.Errorf("exit code %d, output %q, errors %q", o.code, o.out, o.err)
	}

	// Its limits are those of the slot.
	_, _, pids := status(t, dir)
	if got, want := eltrain(t, dir, "exec", slot, "--", "cat", "/proc/self/cgroup").out, read(t, fmt.Sprintf("/proc/%d/cgroup", pids[1])); got != want {
		t.Errorf("it is in the cgroups\n%s\nand its agent in\n%s", got, want)
	}

	// Without -i the input is empty; with it, it is that of eltrain, whatever it contains.
	large := bytes.Repeat([]byte("\x00\xff\r\n0123456789"), 300_000)
	cmd := commandIn(dir, "exec", slot, "--", "cat")
	cmd.Stdin = bytes.NewReader(large)
	if o := run(t, cmd); o.code != 0 || o.out != "" {
		t.Errorf("without -i: exit code %d, output %.100q", o.code, o.out)
	}
	cmd = commandIn(dir, "exec", "-i", slot, "--", "cat")
	cmd.Stdin = bytes.NewReader(large)
	if o := run(t, cmd); o.code != 0 || sha256.Sum256([]byte(o.out)) != sha256.Sum256(large) {
		t.Errorf("with -i: exit code %d, %d bytes of %d", o.code, len(o.out), len(large))
	}

	eltrain(t, dir, "exec", slot, "--", "no-such-command").check(t, 127, "eltrain-agent: exec: ", "no-such-command")
	eltrain(t, dir, "exec", slot, "--", "sh", "-c", "kill -9 $$").check(t, 137)
	eltrain(t, dir, "exec", "job.tiny", "--", "true").check(t, exitError, "names 2 slots", "job.tiny.worker[0]")
	eltrain(t, dir, "exec", "job.tiny.worker[7]", "--", "true").check(t, exitError, "names no slot", "worker[0-1]")
	eltrain(t, dir, "exec", "job.tyni", "--", "true").check(t, exitError, `Did you mean "tiny"?`)
	eltrain(t, dir, "exec", "-it", slot, "--", "sh").check(t, exitError, "needs a terminal as the standard input")

	if err := os.Rename(filepath.Join(dir, "eltrain.state"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "exec", slot, "--", "true").check(t, exitDone) // as observed
	if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "eltrain.state")); err != nil {
		t.Fatal(err)
	}

	eltrain(t, dir, "suspend", "job.tiny").check(t, exitDone)
	eltrain(t, dir, "exec", slot, "--", "true").check(t, exitError, "Cannot run the command", slot+": it is ")
}

// A command has a terminal of its own: with a size, an end, and Ctrl-C.
func TestExecOnATerminal(t *testing.T) {
	t.Parallel()
	dir := execJob(t)
	const slot = "job.tiny.worker[0]"
	// Not a terminal itself: what the command prints to either stream is in one.
	o := eltrain(t, dir, "exec", "-t", slot, "--", "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo out && echo err >&2; exit 5`)
	if o.code != 5 || o.out != "out\r\nerr\r\n" || o.err != "" {
		t.Errorf("exit code %d, output %q, errors %q", o.code, o.out, o.err)
	}
	// What it prints last is not lost, also if it leaves a process that holds the terminal.
	o = eltrain(t, dir, "exec", "-t", slot, "--", "sh", "-c", `setsid sleep 30 & seq 200000; echo end`)
	if !strings.HasSuffix(o.out, "\r\n200000\r\nend\r\n") || o.code != 0 {
		t.Errorf("exit code %d, the output ends with %q", o.code, o.out[max(0, len(o.out)-100):])
	}

	// It ends when nobody reads what it prints.
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	unread := commandIn(dir, "exec", "-t", slot, "--", "yes")
	unread.Stdout = writer
	_ = unread.Run() // its exit code is in ProcessState
	writer.Close()
	if code := unread.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("without a reader: exit code %d", code)
	}

	cmd := commandIn(dir, "exec", "-it", slot, "--", "sh")
	cmd.Env = append(cmd.Env, "TERM=xterm-odd", "PS1=ready> ")
	fresh, end := openTerminal(t)
	defer fresh.Close()
	defer end.Close()
	cooked := settings(t, fresh) // as that of the shell before eltrain changes it
	sh := startShell(t, cmd)
	resize(t, sh.screen, 70, 20)
	sh.types("PS1='ready''> '\r")
	sh.shows("ready> ")
	sh.types("stty size; echo term $TERM\r")
	sh.shows("\n20 70\r\nterm xterm-odd\r\n")
	resize(t, sh.screen, 90, 30)
	sh.types("until [ \"$(stty size)\" = '30 90' ]; do sleep 0.02; done; echo now $(stty size)\r")
	sh.shows("\nnow 30 90\r\n")
	// The command itself says that it runs: before its process is the terminal's foreground, Ctrl-C goes to the shell alone.
	sh.types("sh -c 'echo begun; exec sleep 300'; echo not reached\r")
	sh.shows("\nbegun\r\n")
	sh.types("\x03")
	sh.shows("ready> ")
	sh.types("exit $((40 + 2))\r")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 42 {
		t.Errorf("exit code %d", code)
	}
	if after := settings(t, sh.screen); after != cooked {
		t.Errorf("the terminal was left as %+v; before it was %+v", after, cooked)
	}
}

func resize(t *testing.T, terminal *os.File, columns, lines uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		t.Fatal(err)
	}
}

func settings(t *testing.T, terminal *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// The command ends with eltrain, however that ends.
func TestExecEndsItsCommand(t *testing.T) {
	t.Parallel()
	dir := execJob(t)
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: exitInterrupted, syscall.SIGTERM: exitInterrupted, syscall.SIGKILL: -1} {
		file := filepath.Join(dir, "pid"+signal.String())
		cmd := commandIn(dir, "exec", "job.tiny.worker[0]", "--", "sh", "-c", `echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 300`, file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		eventually(t, "the command runs", func() bool {
			text, _ := os.ReadFile(file)
			_, err := fmt.Sscan(string(text), &pid)
			return err == nil
		})
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d", signal, got)
		}
		eventually(t, signal.String()+" ends the command", func() bool { return !alive(pid) })
	}
}
