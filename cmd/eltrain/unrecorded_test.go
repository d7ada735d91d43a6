package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The sensitive values that a job without a record was started with are unknown: logs hides the current ones, and warns that
// there may be others.
func TestLogsOfAJobWithoutARecordSayWhatTheyAreSearchedFor(t *testing.T) {
	t.Parallel()
	const token = "hunter2hunter2"
	files := strings.ReplaceAll(withToken(sensitiveWorkers), "echo step $RANK", "echo $TOKEN")
	dir := directoryWith(t, map[string]string{"main.hcl": files})
	set, unset := []string{"ELTRAIN_VAR_token=" + token}, []string{"ELTRAIN_VAR_token=another"}
	t.Cleanup(func() {
		in(t, dir, set, "apply", "-auto-approve")
		in(t, dir, set, "destroy", "-auto-approve")
	})
	in(t, dir, set, "apply", "-auto-approve").check(t, exitDone)
	const doubt = "The sensitive values it was started with are unknown: only those in the current files and variables are hidden."
	if o := in(t, dir, set, "logs", "job.tiny").unwrapped().check(t, exitDone, "worker[0] [rank 0] (sensitive value)"); strings.Contains(o.err, doubt) {
		t.Errorf("of a job with a record it says %s", o.err)
	}
	in(t, dir, set, "state", "rm", "job.tiny").check(t, exitDone)
	writeFile(t, filepath.Join(dir, "back.hcl"), importOf(t, in(t, dir, set, "status")))
	in(t, dir, set, "logs", "job.tiny").unwrapped().check(t, exitDone, "worker[0] [rank 0] (sensitive value)", "The state has no record of job.tiny", doubt)
	in(t, dir, unset, "logs", "job.tiny").unwrapped().check(t, exitDone, "worker[0] [rank 0] "+token, doubt)
}

// importOf returns the import block in a status, which brings a forgotten job back.
func importOf(t *testing.T, status outcome) string {
	t.Helper()
	_, block, found := strings.Cut(status.out, "import {")
	block, _, closed := strings.Cut(block, "}")
	if !found || !closed {
		t.Fatalf("no import is advised:\n%s", status.out)
	}
	return "import {" + block + "}\n"
}

// The block that status shows recovers a forgotten job, even if another job has its name by now.
func TestWhatWasForgottenIsHadBackUnderAnotherName(t *testing.T) {
	t.Parallel()
	dir, back := directoryWith(t, map[string]string{"main.hcl": twoWorkers}), ""
	t.Cleanup(func() {
		eltrain(t, dir, "destroy", "-auto-approve")
		if t.Failed() { // the forgotten job may still run, and its name is free now
			writeFile(t, filepath.Join(dir, "back.hcl"), back)
			eltrain(t, dir, "apply", "-auto-approve")
			eltrain(t, dir, "destroy", "-auto-approve")
		}
	})
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "state", "rm", "job.tiny").check(t, exitDone)
	back = importOf(t, eltrain(t, dir, "status").check(t, exitDone, "to = job.tiny\n"))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "2 added")
	status := eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Running", "Another job has its name now", "to = job.OTHER\n")
	writeFile(t, filepath.Join(dir, "back.hcl"), strings.ReplaceAll(importOf(t, status)+twoWorkers, `job "tiny"`, `job "OTHER"`))
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "1 imported, 0 added")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone, "4 destroyed")
}

// "No jobs" in the status does not mean that nothing was ever applied.
func TestNoJobIsLeftIsNotNothingWasApplied(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "status", "job.tiny").unwrapped().check(t, exitError, `There is no job "tiny": the state is empty, and nothing is running without a record.`)
	eltrain(t, dir, "logs", "job.tiny").check(t, exitDone, "job.tiny is gone", "step 0")
}
