package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Errors have a summary and a detail, as everywhere, and their own exit code; files that were not written are not listed.
func TestFmtTellsErrorsFromFilesThatDoNotParse(t *testing.T) {
	dir := directoryWith(t, map[string]string{"ugly.hcl": "a=1\n", "bad/bad.hcl": "job {"})
	none := eltrain(t, dir, "fmt", "nofile").check(t, exitError, "Error: Cannot format nofile\n\nThe file or directory nofile does not exist.")
	eltrain(t, dir, "fmt", "bad").check(t, exitParse, "Error: ")
	// A dangling link is listed, but cannot be read.
	if err := os.Symlink("nowhere", filepath.Join(dir, "bad", "link.hcl")); err != nil {
		t.Fatal(err)
	}
	both := eltrain(t, dir, "fmt", "bad").check(t, exitError, "Error: Cannot format bad/link.hcl\n\n")
	if strings.Count(both.err, "Error:") != 2 || none.out != "" {
		t.Errorf("of two errors it says\n%s", both.err)
	}
	// With a limit of 0 bytes the temporary file can be created but not written, as on a full disk.
	cmd := exec.Command("sh", "-c", `ulimit -f 0; trap "" XFSZ; exec "$@"`, "sh", binary, "fmt")
	cmd.Dir, cmd.Env = dir, clean()
	if full := run(t, cmd).check(t, exitError, "Error: Cannot format ugly.hcl\n\n", "file too large"); full.out != "" {
		t.Errorf("what was not written is listed:\n%s", full.out)
	}
	if read(t, filepath.Join(dir, "ugly.hcl")) != "a=1\n" {
		t.Error("the file is another")
	}
	eltrain(t, dir, "fmt").check(t, exitDone, "ugly.hcl\n")
}

// In a file of variables that does not parse, it is unknown what is sensitive.
func TestFmtQuotesNoFileOfVariables(t *testing.T) {
	dir := directoryWith(t, map[string]string{"eltrain.vars": "n = 1\ntoken = \"hunter2\" x\n", "more.tfvars": "token = \"hunter2\" x\n"})
	for _, args := range [][]string{{"fmt"}, {"fmt", "-check"}, {"fmt", "more.tfvars"}} {
		if o := eltrain(t, dir, args...).check(t, exitParse, "Missing newline after argument", " line "); strings.Contains(o.out+o.err, "hunter2") {
			t.Errorf("%v quotes it:\n%s", args, o.err)
		}
	}
}
