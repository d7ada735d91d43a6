package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const sleepers = `job "tiny" {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo $$ > pid.$RANK; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// What ended while no master was there is no secret of its agents: status and plan name it, and a plain apply heals it.
func TestAPlainApplyHealsWhatEndedUnseen(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": sleepers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Resources: 0 added, 0 changed, 0 destroyed.")
	var before []int
	for _, rank := range []string{"0", "1"} {
		pid := pidIn(t, filepath.Join(dir, "pid."+rank))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		before = append(before, pid)
	}
	healthy := func() bool { return strings.Contains(eltrain(t, dir, "status", "-json").out, `"healthy": true`) }
	for end := time.Now().Add(20 * time.Second); healthy(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("status never finds that nothing runs")
		}
	}
	const ended = "no process runs there any more"
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Degraded", ended)
	eltrain(t, dir, "plan").check(t, exitDone, "No changes for now.", ended)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "process killed in worker", "signal: killed", "Apply complete!")
	for i, rank := range []string{"0", "1"} {
		if pid := pidIn(t, filepath.Join(dir, "pid."+rank)); pid == before[i] || !alive(pid) {
			t.Errorf("rank %s is process %d and was %d", rank, pid, before[i])
		}
	}
	if !healthy() {
		t.Error("after the apply the job is not healthy")
	}
}

func pidIn(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
