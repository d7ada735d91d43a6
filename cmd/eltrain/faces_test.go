package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
)

// -json-into truncates only a file of such lines. It refuses the state and the job's files; it writes to a pipe.
func TestJSONIntoDestroysNoFile(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "empty": ""})
	if err := os.Symlink("main.hcl", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	before := map[string]string{}
	for _, name := range []string{workspace.DefaultState, "main.hcl", "link"} {
		before[name] = read(t, filepath.Join(dir, name))
	}
	for name, text := range before {
		eltrain(t, dir, "plan", "-json-into="+name).check(t, exitError, "Cannot write the JSON", "exists and")
		eltrain(t, dir, "plan", "-out="+name).check(t, exitError, "Cannot save the plan", "exists and")
		if read(t, filepath.Join(dir, name)) != text {
			t.Errorf("%s was written to", name)
		}
	}
	eltrain(t, dir, "plan", "-out=/dev/stdout").check(t, exitError, `"/dev/stdout" is not a regular file`) // a pipe
	for _, name := range []string{"new", "new", "empty"} {
		eltrain(t, dir, "plan", "-json-into="+name).check(t, exitDone)
		if lines := read(t, filepath.Join(dir, name)); strings.Count(lines, `"type":"version"`) != 1 {
			t.Errorf("%s has %s", name, lines)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // O_RDWR: the open does not block
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	eltrain(t, dir, "plan", "-json-into=pipe").check(t, exitDone)
	begin := make([]byte, len(view.StreamBegin))
	if _, err := reader.Read(begin); err != nil || string(begin) != view.StreamBegin {
		t.Errorf("the pipe gives %q, %v", begin, err)
	}
}

// Lost output is an error of the command, even if it succeeded otherwise.
func TestLostOutputIsAnError(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "ugly/main.hcl": "a=1\n"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "plan", "-out=p").check(t, exitDone)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no output that is full: %v", err)
	}
	defer full.Close()
	for _, line := range []string{
		"plan", "plan -detailed-exitcode", "plan -json", "plan -markdown", "apply -auto-approve", "state list", "state show job.tiny", "state pull",
		"show", "show -json", "show p", "show -json p", "show -markdown p", "status", "status -json", "validate", "validate -json", "events", "replay", "replay -json", "graph",
		"providers schema -json", "import -- torchrun train.py", "fmt -diff ugly", "console",
	} {
		cmd := commandIn(dir, strings.Fields(line)...)
		var errs strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("1\n"), full, &errs
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitError || !strings.Contains(errs.String(), "no space left") || strings.Count(errs.String(), "Error:") != 1 {
			t.Errorf("%s on a full disk: %v; %s", line, err, errs.String())
		}
	}
}

// An apply whose reader closes the pipe, at any point, ends as after an interrupt: nothing is left half done or locked, and
// the next apply continues from there.
func TestAnApplyWhoseReaderLeavesEndsInOrder(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	for _, args := range [][]string{{"apply", "-auto-approve"}, {"apply", "-auto-approve", "-json"}} {
		for _, read := range []int{0, 1, 600} { // bytes
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := commandIn(dir, args...)
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = writer, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			_, err = io.ReadFull(reader, make([]byte, read))
			reader.Close()
			if waited := cmd.Wait(); err != nil || cmd.ProcessState.ExitCode() < 0 || strings.Contains(errs.String(), "panic") {
				t.Errorf("%v, of which %d bytes are read: %v, %v\n%s", args, read, err, waited, &errs)
			}
			eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
			eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone)
			eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
		}
	}
}
