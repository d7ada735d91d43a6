package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scripted is a role whose program is a file.
const scripted = `job "tiny" {
  role "worker" {
    command    = ["sh", "train.sh"]
    source     = ["train.sh", "lib/**"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// An edit of a script shows in the plan, which names the file, and a watch takes it up; so it does a file that is new where a
// pattern looks.
func TestAnEditOfASourceFileIsTakenUp(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": scripted, "train.sh": "echo first; exec sleep 300", "lib/a.sh": "true"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	printed := func(line string) func() bool {
		return func() bool { return strings.Contains(eltrain(t, dir, "logs", "job.tiny").out, line) }
	}
	eltrain(t, dir, "plan").check(t, exitDone, `+ source["lib/a.sh"]`, `+ source["train.sh"]`)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")

	write("train.sh", "echo second; exec sleep 300")
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitChanges, "job.tiny.worker[0] must be replaced", `~ source["train.sh"]`, "# forces replacement")
	w := startWatch(t, dir)
	eventually(t, "the edit runs", printed("second"))
	eltrain(t, dir, "plan", "-detailed-exitcode").check(t, exitDone, "No changes.")

	write("train.sh", "echo third; exec sleep 300")
	eventually(t, "the edit made meanwhile runs", printed("third"))
	write("lib/b.sh", "true")
	eventually(t, "the new file is known", func() bool { return strings.Contains(w.out.String(), `its declaration changed: source["lib/b.sh"]`) })
	write("train.sh", "echo fourth; exec sleep 300")
	eventually(t, "it still follows", printed("fourth"))
}

// A saved plan approves the files that it was made with, and no others.
func TestASavedPlanIsOfTheSourceFiles(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": scripted, "train.sh": "exec sleep 300", "lib/a.sh": "true"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "plan", "-out=saved").check(t, exitDone)
	script := filepath.Join(dir, "train.sh")
	if err := os.WriteFile(script, []byte("exec sleep 301"), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "apply", "saved").check(t, exitError, "Saved plan is stale", "because the source file", `"train.sh" of job.tiny.worker has changed`)
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "apply", "saved").check(t, exitError, `no file matches "train.sh"`, "Saved plan is stale")
	if err := os.WriteFile(script, []byte("exec sleep 300"), 0o644); err != nil {
		t.Fatal(err)
	}
	eltrain(t, dir, "apply", "saved").check(t, exitDone, "Apply complete!")
}
