package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
)

// outcome is the result of a run of the binary.
type outcome struct {
	code     int
	out, err string
}

// clean returns an environment without variables that change eltrain's behavior.
func clean(extra ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "ELTRAIN_") && !strings.HasPrefix(pair, "NO_COLOR=") && !strings.HasPrefix(pair, "TERM=") {
			env = append(env, pair)
		}
	}
	return append(append(env, "TERM=xterm"), extra...)
}

// eltrain runs the binary in dir.
func eltrain(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	return run(t, commandIn(dir, args...))
}

func commandIn(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = dir, clean()
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func (o outcome) check(t *testing.T, code int, texts ...string) outcome {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d; out:\n%s\nerr:\n%s", o.code, code, o.out, o.err)
	}
	for _, text := range texts {
		if !strings.Contains(o.out+o.err, text) {
			t.Errorf("%q is missing in\n%s%s", text, o.out, o.err)
		}
	}
	return o
}

// directoryWith makes a job directory.
func directoryWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const twoWorkers = `job "tiny" {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo step $RANK; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"version"}, {"-version"}, {"--version"}, {"-v"}} {
		o := eltrain(t, dir, args...).check(t, exitDone)
		if !strings.HasPrefix(o.out, "eltrain v"+version+"\n") {
			t.Errorf("%v prints %q", args, o.out)
		}
	}
	var v map[string]string
	if err := json.Unmarshal([]byte(eltrain(t, dir, "version", "-json").check(t, exitDone).out), &v); err != nil {
		t.Fatal(err)
	}
	if v["eltrain_version"] != version || v["platform"] != runtime.GOOS+"_"+runtime.GOARCH {
		t.Errorf("the JSON is %v", v)
	}
	eltrain(t, dir, "version", "extra").check(t, exitError, `"extra" is not expected`)
}

func TestHelpAndTypos(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"-help"}, {"--help"}, {"-h"}} {
		eltrain(t, dir, args...).check(t, exitDone, "Main commands:", "All other commands:")
	}
	if o := eltrain(t, dir).check(t, exitError, "Usage: eltrain"); o.out != "" {
		t.Error("without a command the usage goes to the standard output")
	}
	o := eltrain(t, dir, "plan", "-help").check(t, exitDone, "-detailed-exitcode")
	if !strings.HasPrefix(o.out, "Usage: eltrain [global options] plan") {
		t.Errorf("plan -help is %q", o.out)
	}
	eltrain(t, dir, "plna").check(t, exitError, `eltrain has no command named "plna". Did you mean "plan"?`, "eltrain -help")
	eltrain(t, dir, "frobnicate").check(t, exitError, `eltrain has no command named "frobnicate".`)
	eltrain(t, dir, "status", "-jsn").check(t, exitError, `Unknown flag -jsn. Did you mean "-json"?`, "eltrain status -help")
	eltrain(t, dir, "-json", "plan").check(t, exitError, "Unknown global flag -json", "eltrain -help")
	eltrain(t, dir, "state", "lst").check(t, exitError, `eltrain state has no command named "lst". Did you mean "list"?`, "eltrain state -help")
	for _, args := range [][]string{{"plan", "-json", "-h"}, {"-help", "plan"}} {
		if again := eltrain(t, dir, args...).check(t, exitDone); again.out != o.out {
			t.Errorf("%v shows other help than plan -help:\n%s", args, again.out)
		}
	}
	eltrain(t, dir, "fmt", "--", "-h").check(t, exitError, "-h")
	subcommands := eltrain(t, dir, "state", "-help").check(t, exitDone, "    list    List what is in the state", "    mv      Rename")
	if o := eltrain(t, dir, "state").check(t, exitError); o.out != "" || o.err != subcommands.out {
		t.Errorf("state alone shows %q and %q", o.out, o.err)
	}
	for _, flag := range []string{"-v", "-version", "--version"} {
		eltrain(t, dir, flag).check(t, exitDone, "eltrain v"+version)
	}
}

func TestValidate(t *testing.T) {
	good := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	if o := eltrain(t, good, "validate").check(t, exitDone); o.out != "Success! The configuration is valid.\n" || o.err != "" {
		t.Errorf("out %q, err %q", o.out, o.err)
	}
	eltrain(t, t.TempDir(), "-chdir="+good, "validate").check(t, exitDone)

	bad := directoryWith(t, map[string]string{"main.hcl": `job "tiny" {
  role "worker" {
    replica = 2
    command = ["true"]
    resources {
      memory = "1 horse"
    }
  }
}
`})
	o := eltrain(t, bad, "validate").check(t, exitError, "on main.hcl line 3, in job \"tiny\"", "   3:     replica = 2", `"replicas"`, "main.hcl line 6")
	if o.out != "" || strings.Contains(o.err, "\x1b") {
		t.Errorf("diagnostics belong on the standard error, without colours off a terminal: out %q, err %q", o.out, o.err)
	}
	var v struct {
		FormatVersion string `json:"format_version"`
		Valid         bool   `json:"valid"`
		ErrorCount    int    `json:"error_count"`
		Diagnostics   []struct {
			Severity, Summary string
			Range             struct{ Filename string }
		} `json:"diagnostics"`
	}
	if err := json.Unmarshal([]byte(eltrain(t, bad, "validate", "-json").check(t, exitError).out), &v); err != nil {
		t.Fatal(err)
	}
	if v.FormatVersion != "1.0" || v.Valid || v.ErrorCount < 2 || len(v.Diagnostics) != v.ErrorCount || v.Diagnostics[0].Range.Filename != "main.hcl" {
		t.Errorf("the JSON is %+v", v)
	}
	eltrain(t, t.TempDir(), "validate").check(t, exitError)
	if _, err := os.Stat(filepath.Join(bad, workspace.RunDirectory)); err == nil {
		t.Error("validate leaves files behind")
	}
}

func TestVariables(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": `variable "n" { type = number }
` + strings.Replace(twoWorkers, "replicas   = 2", "replicas   = var.n", 1), "n.vars": "n = 3\n"})
	eltrain(t, dir, "validate").check(t, exitDone)
	eltrain(t, dir, "plan").check(t, exitError, `"n"`)
	eltrain(t, dir, "validate", "-var", "n=1").check(t, exitDone)
	eltrain(t, dir, "validate", "-var=n=x").check(t, exitError)
	eltrain(t, dir, "validate", "-var-file=n.vars").check(t, exitDone)
	cmd := commandIn(dir, "plan")
	cmd.Env = clean("ELTRAIN_VAR_n=2", "ELTRAIN_CLI_ARGS_plan=-var 'n=3'")
	run(t, cmd).check(t, exitDone, "Plan: 3 to add, 0 to change, 0 to destroy.")
	cmd = commandIn(dir, "plan", "-var", "n=1")
	cmd.Env = clean("ELTRAIN_CLI_ARGS_plan=-var 'n=3'")
	run(t, cmd).check(t, exitDone, "Plan: 1 to add, 0 to change, 0 to destroy.")
}

func TestSensitiveValuesAreNotShown(t *testing.T) {
	const secret = "correct-horse-battery"
	dir := directoryWith(t, map[string]string{"main.hcl": `variable "token" {
  type      = string
  sensitive = true
}
job "tiny" {
  role "worker" {
    command = ["sleep", "300"]
    env     = { TOKEN = "Bearer ${var.token}" }
  }
}
`})
	o := eltrain(t, dir, "plan", "-var=token="+secret).check(t, exitDone, "(sensitive value)")
	if strings.Contains(o.out+o.err, secret) {
		t.Errorf("the plan shows the secret:\n%s", o.out)
	}
}

func TestFmt(t *testing.T) {
	const ugly, pretty = "a=1\nlong   = 2", "a    = 1\nlong = 2\n"
	dir := directoryWith(t, map[string]string{"main.hcl": ugly, "good.hcl": pretty, "eltrain.vars": ugly, "other.txt": ugly, "sub/below.hcl": ugly})

	eltrain(t, dir, "fmt", "-check").check(t, exitUnclean, "main.hcl\n", "eltrain.vars\n")
	if read(t, filepath.Join(dir, "main.hcl")) != ugly {
		t.Error("-check changes a file")
	}
	o := eltrain(t, dir, "fmt", "-diff", "-write=false").check(t, exitDone, "--- old/main.hcl", "+++ new/main.hcl", "-a=1", "+a    = 1")
	if strings.Contains(o.out, "good.hcl") || strings.Contains(o.out, "below.hcl") || strings.Contains(o.out, "other.txt") {
		t.Errorf("it lists what does not change:\n%s", o.out)
	}
	if err := os.Chmod(filepath.Join(dir, "main.hcl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := eltrain(t, dir, "fmt").check(t, exitDone); o.out != "eltrain.vars\nmain.hcl\n" {
		t.Errorf("it lists %q", o.out)
	}
	info, err := os.Stat(filepath.Join(dir, "main.hcl"))
	if err != nil || info.Mode().Perm() != 0o600 || read(t, filepath.Join(dir, "main.hcl")) != pretty {
		t.Errorf("main.hcl is %v with %q", info.Mode(), read(t, filepath.Join(dir, "main.hcl")))
	}
	if read(t, filepath.Join(dir, "other.txt")) != ugly || read(t, filepath.Join(dir, "sub/below.hcl")) != ugly {
		t.Error("it changes what it should not")
	}
	eltrain(t, dir, "fmt", "-check").check(t, exitDone)
	eltrain(t, dir, "fmt", "-recursive", "-list=false").check(t, exitDone)
	if read(t, filepath.Join(dir, "sub/below.hcl")) != pretty {
		t.Error("-recursive leaves what is below")
	}

	cmd := commandIn(dir, "fmt", "-")
	cmd.Stdin = strings.NewReader(ugly)
	if o := run(t, cmd).check(t, exitDone); o.out != pretty {
		t.Errorf("the standard input becomes %q", o.out)
	}
	cmd = commandIn(dir, "fmt", "-check", "-")
	cmd.Stdin = strings.NewReader(ugly)
	run(t, cmd).check(t, exitUnclean)

	if err := os.WriteFile(filepath.Join(dir, "broken.hcl"), []byte("a = {"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(ugly), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "fmt").check(t, exitParse, "on broken.hcl line 1", "a = {")
	if read(t, filepath.Join(dir, "main.hcl")) != pretty || read(t, filepath.Join(dir, "broken.hcl")) != "a = {" {
		t.Error("only the file that does not parse should be unchanged")
	}
	eltrain(t, dir, "fmt", "missing.hcl").check(t, exitError, "missing.hcl")
}

func TestWrongEnvironment(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	cmd := commandIn(dir, "validate")
	cmd.Env = clean("ELTRAIN_LOG=loud")
	run(t, cmd).check(t, exitError, "ELTRAIN_LOG", `"loud" is not a level`)
	cmd = commandIn(dir, "validate")
	cmd.Env = clean("ELTRAIN_CLI_ARGS='")
	run(t, cmd).check(t, exitError, "ELTRAIN_CLI_ARGS")
	eltrain(t, dir, "-chdir=/does/not/exist", "validate").check(t, exitError, "/does/not/exist")
}

func TestPlanExitCodes(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	eltrain(t, dir, "plan").check(t, exitDone, "  # job.tiny.worker[0-1] will be created", "  + create\n", "Plan: 2 to add, 0 to change, 0 to destroy.")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges)
	eltrain(t, dir, "plan", "-destroy", "-detailed-exitcode").check(t, exitDone, "No changes.")
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte("job {"), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitError, "Error: ")
	eltrain(t, dir, "plan", "-destroy", "-detailed-exitcode").check(t, exitDone, "No changes.")
	if _, err := os.Stat(filepath.Join(dir, "eltrain.state")); err == nil {
		t.Error("plan writes a state")
	}
}

func TestNothingAppliedYet(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
	eltrain(t, dir, "status", "job.tiny").check(t, exitError, `no job "tiny"`)
	eltrain(t, dir, "logs", "job.tiny").check(t, exitError, `no job "tiny"`)
	eltrain(t, dir, "logs").check(t, exitError, `no job "tiny"`)
	if o := eltrain(t, dir, "events", "-json").check(t, exitDone); o.out != "" {
		t.Errorf("events: %q", o.out)
	}
	eltrain(t, dir, "apply").check(t, exitError, "Approval not received", "-auto-approve")
}

// A reader that closes the pipe causes no stack trace.
func TestBrokenPipe(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	for _, args := range [][]string{{"validate"}, {"plan"}, {"-help"}, {"validate", "-json"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var errs bytes.Buffer
		cmd := commandIn(dir, args...)
		cmd.Stdout, cmd.Stderr = w, &errs
		_ = cmd.Run() // killed by SIGPIPE, as other tools are
		w.Close()
		if strings.Contains(errs.String(), "panic") || strings.Contains(errs.String(), "goroutine ") {
			t.Errorf("%v: %s", args, errs.String())
		}
	}
}

// openTerminal is a pseudo-terminal: the master's end, and the end for a process.
func openTerminal(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal runs the binary on a terminal, with input typed, and returns its exit code and the screen.
func onTerminal(t *testing.T, cmd *exec.Cmd, input string) outcome {
	t.Helper()
	master, slave := openTerminal(t)
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	if _, err := io.WriteString(master, input); err != nil {
		t.Fatal(err)
	}
	screen, _ := io.ReadAll(master) // ends with EIO when the last process releases the terminal
	_ = cmd.Wait()                  // its exit code is in ProcessState
	return outcome{code: cmd.ProcessState.ExitCode(), out: strings.ReplaceAll(string(screen), "\r\n", "\n")}
}

func TestColourOnATerminal(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "bad/main.hcl": "job {"})
	if o := onTerminal(t, commandIn(dir, "plan"), ""); !strings.Contains(o.out, "\x1b[32m") {
		t.Errorf("no colour on a terminal: %q", o.out)
	}
	if o := onTerminal(t, commandIn(dir, "-chdir=bad", "validate"), ""); !strings.Contains(o.out, "╷") || !strings.Contains(o.out, "╵") {
		t.Errorf("no box on a terminal: %q", o.out)
	}
	quiet := commandIn(dir, "plan")
	quiet.Env = clean("NO_COLOR=1")
	if o := onTerminal(t, quiet, ""); strings.Contains(o.out, "\x1b[") {
		t.Errorf("colour in spite of NO_COLOR: %q", o.out)
	}
	if o := onTerminal(t, commandIn(dir, "plan", "-no-color"), ""); strings.Contains(o.out, "\x1b[") {
		t.Errorf("colour in spite of -no-color: %q", o.out)
	}
}

// Output to a pipe has no colors or cursor movements, whatever terminal the user has.
func TestNoColourIntoPipes(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "bad/main.hcl": "job {"})
	for _, args := range [][]string{
		{"-help"}, {"plan"}, {"apply", "-auto-approve"}, {"status"}, {"show"}, {"state", "show", "job.tiny"}, {"events"}, {"console"},
		{"-chdir=bad", "validate"}, {"frobnicate"}, {"plan", "-destroy"}, {"destroy", "-auto-approve"},
	} {
		cmd := commandIn(dir, args...)
		cmd.Env = append(clean(), "TERM=xterm-256color", "COLORTERM=truecolor", "CLICOLOR=1")
		if o := run(t, cmd); strings.Contains(o.out+o.err, "\x1b") || o.out+o.err == "" && args[0] != "console" {
			t.Errorf("%v prints %q%q", args, o.out, o.err)
		}
	}
}

func TestApplyCancelled(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	onTerminal(t, commandIn(dir, "apply", "-no-color"), "no\n").check(t, exitError, "Plan: 2 to add", "Only 'yes' will be accepted to approve.", "Apply cancelled.")
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
	onTerminal(t, commandIn(dir, "apply", "-input=false"), "").check(t, exitError, "-input=false cannot prompt for approval")
	piped := func(answer string, args ...string) *exec.Cmd {
		cmd := commandIn(dir, args...)
		cmd.Stdin = strings.NewReader(answer)
		return cmd
	}
	run(t, piped("no\n", "apply")).check(t, exitError, "Plan: 2 to add", "Apply cancelled.")
	run(t, piped("", "apply")).check(t, exitError, "The input ended without an answer", "-auto-approve")
	run(t, piped("yes\n", "apply", "-input=false")).check(t, exitError, "-input=false")
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
	run(t, piped("yes\n", "apply")).check(t, exitDone, "Apply complete!")
	run(t, piped("no\n", "destroy")).check(t, exitError, "Destroy cancelled.")
	run(t, piped("yes\n", "destroy")).check(t, exitDone, "Destroy complete!")
}

// status reads `eltrain status -json`.
func status(t *testing.T, dir string) (phase string, running int, pids []int) {
	t.Helper()
	var m struct {
		Jobs []struct {
			Phase string
			Roles []struct{ Running int }
			Slots []struct {
				AgentPID int `json:"agent_pid"`
			}
		}
	}
	o := eltrain(t, dir, "status", "-json")
	if err := json.Unmarshal([]byte(o.out), &m); err != nil {
		t.Fatalf("%v: %s%s", err, o.out, o.err)
	}
	for _, j := range m.Jobs {
		phase = j.Phase
		for _, r := range j.Roles {
			running += r.Running
		}
		for _, s := range j.Slots {
			pids = append(pids, s.AgentPID)
		}
	}
	return phase, running, pids
}

// alive reports whether a process runs. A zombie does not count: init may not reap it.
func alive(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0
}

// The whole life of a job, by the command line alone.
func TestApplyStatusLogsWatchDestroy(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	apply := commandIn(dir, "apply")
	apply.Env = clean("ELTRAIN_CLI_ARGS=-no-color") // agents inherit it, and must ignore it
	onTerminal(t, apply, "yes\n").check(t, exitDone, "job.tiny.worker[0]: Creating...", "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")

	phase, running, before := status(t, dir)
	if phase != "Running" || running != 2 || len(before) != 2 || before[0] == 0 {
		t.Errorf("after apply the job is %s with %d running, agents %v", phase, running, before)
	}
	eltrain(t, dir, "status").check(t, exitDone, "No master is running: training is shown as last seen, and nothing heals it.")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes. What is running matches the configuration.")
	eltrain(t, dir, "logs", "job.tiny.worker[1]").check(t, exitDone, "[rank 1] step 1\n")
	eltrain(t, dir, "logs", "-rank=0", "job.tiny").check(t, exitDone, "[rank 0] step 0\n")
	for _, args := range []string{"logs job.tiny", "logs"} { // it is the only one
		eltrain(t, dir, strings.Fields(args)...).check(t, exitDone, "worker[0] [rank 0] step 0\n", "worker[1] [rank 1] step 1\n")
	}
	eltrain(t, dir, "events").check(t, exitDone, "world_formed", "job.tiny")

	followed := commandIn(dir, "events", "-f", "-json")
	lines, err := followed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := followed.Start(); err != nil {
		t.Fatal(err)
	}
	var first map[string]any
	if err := json.NewDecoder(lines).Decode(&first); err != nil || first["type"] == nil {
		t.Errorf("events -f begins with %v, %v", first, err)
	}
	if err := followed.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := followed.Wait(); err != nil {
		t.Errorf("an interrupted events -f: %v", err)
	}

	watch := commandIn(dir, "apply", "-watch", "-auto-approve")
	var out bytes.Buffer
	watch.Stdout, watch.Stderr = &out, &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	watching := func() bool {
		return strings.Contains(eltrain(t, dir, "status").out, fmt.Sprintf("(pid %d)", watch.Process.Pid))
	}
	for deadline := time.Now().Add(hang.Bound); !watching(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("status never shows the master")
		}
	}
	eltrain(t, dir, "apply", "-auto-approve", "-lock-timeout=600ms").check(t, exitError,
		"Acquiring state lock.", "Waiting for it, up to 600ms", "Cannot lock the state", "apply -watch")
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("a watch that is asked to end: %v\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if !stamped.MatchString(line) {
			t.Errorf("the watch wrote a line without the time to a file: %q", line)
		}
	}
	if !strings.Contains(out.String(), "Interrupt received.") {
		t.Errorf("the watch said\n%s", out.String())
	}
	if _, _, after := status(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the agents were %v and are %v: an interrupt must leave jobs running", before, after)
	}

	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "  # job.tiny.worker[0-1] will be destroyed", "Destroy complete! Resources: 2 destroyed.")
	for _, pid := range before {
		if alive(pid) {
			t.Errorf("agent %d lives on after destroy", pid)
		}
	}
	eltrain(t, dir, "status").check(t, exitDone, "No jobs.")
}

func TestFailedJobIsAnError(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": `job "bug" {
  role "worker" {
    command = ["sh", "-c", "echo no data >&2; exit 3"]
    resources {
      cpu = 0.1
    }
  }
  heal {
    budget {
      restarts = 0
    }
  }
}
`})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	watch := commandIn(dir, "apply", "-watch", "-auto-approve")
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(hang.Bound); eltrain(t, dir, "status").code == exitDone; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("status never finds the job failed")
		}
	}
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("the watch: %v", err)
	}
	eltrain(t, dir, "status").check(t, exitError, "job.bug  Failed", "exit 3", "no data")
	eltrain(t, dir, "status", "-json").check(t, exitError)
	eltrain(t, dir, "events").check(t, exitDone, "incident", "no data")
}
