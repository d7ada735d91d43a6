package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/cmd/workspace"
)

// A pipe or a link in place of one of eltrain's own files ends a command with the file's name; none is waited for or followed.
func TestIrregularFilesEndACommand(t *testing.T) {
	t.Parallel()
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	link := func(path string) error { return os.Symlink("/dev/zero", path) }
	run := func(name string) string { return filepath.Join(workspace.RunDirectory, name) }
	for _, c := range []struct {
		path  string
		place func(string) error
		args  []string
		told  string
	}{
		{workspace.DefaultState, pipe, []string{"plan"}, "eltrain.state is a named pipe, not a regular file: move it away"},
		{workspace.DefaultState, link, []string{"plan"}, "/dev/zero is a device, not a regular file"},
		{run("eltrain.state.lock"), pipe, []string{"apply", "-auto-approve"}, "eltrain.state.lock is a named pipe"},
		{run("eltrain.state.key"), pipe, []string{"apply", "-auto-approve"}, "eltrain.state.key is a named pipe"},
		{run("observation.json"), pipe, []string{"plan", "-refresh=false"}, "observation.json is a named pipe"},
		{run("observation.json"), link, []string{"plan", "-refresh=false"}, "observation.json is a symbolic link"},
		{"more.hcl", pipe, []string{"fmt"}, "more.hcl is a named pipe"},
		{"more.hcl", pipe, []string{"validate"}, "more.hcl is a named pipe"},
	} {
		dir := directoryWith(t, map[string]string{"main.hcl": `variable "word" {
  default   = "correct horse"
  sensitive = true
}
job "tiny" {
  role "worker" {
    command = ["true", var.word]
  }
}
`})
		if err := os.Mkdir(filepath.Join(dir, workspace.RunDirectory), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := c.place(filepath.Join(dir, c.path)); err != nil {
			t.Fatal(err)
		}
		eltrain(t, dir, c.args...).unwrapped().check(t, exitError, c.told)
	}
}

// Whoever may write to the directory could replace the service's address, or a job's token.
func TestADirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	runs := filepath.Join(dir, workspace.RunDirectory)
	if err := os.Mkdir(runs, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o777, 0o720, 0o702, 0o755} {
		if err := os.Chmod(runs, mode); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"plan", "status"} {
			o := eltrain(t, dir, command).unwrapped()
			if mode == 0o755 { // to list it is harmless
				o.check(t, exitDone)
				continue
			}
			o.check(t, exitError, "Unsafe directory", "chmod 700 "+workspace.RunDirectory, "ELTRAIN_DATA_DIR")
		}
	}
}

// A directory that another user owns is rejected, even for root. So is a subdirectory, such as the one with the jobs' tokens.
func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	const other = 65534
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	runs := filepath.Join(dir, workspace.RunDirectory)
	if err := os.Mkdir(runs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jobs", "journal"} {
		below := filepath.Join(runs, name)
		if err := errors.Join(os.Mkdir(below, 0o700), os.Chmod(below, 0o777)); err != nil {
			t.Fatal(err)
		}
		eltrain(t, dir, "apply", "-auto-approve").unwrapped().check(t, exitError, name+" is writable by others, its mode is 0777", "chmod 700")
		if err := os.Remove(below); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(runs, other, other); err != nil {
		t.Skipf("only root can make a directory of another user: %v", err)
	}
	for _, command := range [][]string{{"plan"}, {"status"}, {"apply", "-auto-approve"}} {
		eltrain(t, dir, command...).unwrapped().check(t, exitError, "Unsafe directory", "owned by user 65534, not by user 0", "chown -R 0 "+workspace.RunDirectory, "ELTRAIN_DATA_DIR")
	}
}
