package main

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

const onLinux = runtime.GOOS == "linux"

const busyJob = `job "busy" {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo step 3 loss 0.5; while :; do :; done"]
    stop_grace = "1s"
  }
  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }
  detect {
    lease = "3s"
  }
}
`

// TestTop shows what real processes use, beside a watch, with a history.
func TestTop(t *testing.T) {
	if !onLinux {
		t.Skip("no figures here")
	}
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": busyJob})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "top").check(t, exitError, "No master is running")
	first := startWatch(t, dir)
	eventually(t, "the watch leads", func() bool { return eltrain(t, dir, "top").code == exitDone })
	top := func(args ...string) (m view.TopModel) {
		t.Helper()
		o := eltrain(t, dir, append([]string{"top", "-json"}, args...)...).check(t, exitDone)
		if err := json.Unmarshal([]byte(o.out), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	eventually(t, "both use a processor", func() bool {
		for _, j := range top().Jobs {
			busy := 0
			for _, r := range j.Ranks {
				if r.CPU != nil && *r.CPU > 0.05 && r.Process.State == job.ThreadRuns && r.Step == 3 {
					busy++
				}
			}
			if busy == 2 {
				return true
			}
		}
		return false
	})
	eventually(t, "the history of one of them has that too", func() bool {
		var ranks []view.TopRank
		for _, j := range top("-history=1h", "job.busy.worker[1]").Jobs {
			ranks = append(ranks, j.Ranks...)
		}
		if len(ranks) != 1 || ranks[0].Address != "job.busy.worker[1]" {
			t.Fatalf("the history is %+v", ranks)
		}
		p := ranks[0].Process
		if p.RSS == nil || *p.RSS <= 0 || p.Threads != 1 || ranks[0].Figures == nil || len(ranks[0].History) < 2 {
			return false
		}
		last := ranks[0].History[len(ranks[0].History)-1]
		return last.CPU != nil && last.Step == 3 && last.RSS != nil
	})
	first.cmd.Process.Kill()
	<-first.done
	killed := time.Now()
	startWatch(t, dir)
	eventually(t, "the next master knows what was before it", func() bool {
		o := eltrain(t, dir, "top", "-json", "-history=1h", "job.busy.worker[1]")
		var m view.TopModel
		if o.code != exitDone || json.Unmarshal([]byte(o.out), &m) != nil || len(m.Jobs) == 0 || len(m.Jobs[0].Ranks) == 0 {
			return false
		}
		points := m.Jobs[0].Ranks[0].History
		return len(points) > 0 && points[0].At.Before(killed.Add(-history.Fine))
	})
	eltrain(t, dir, "top", "job.busy").check(t, exitDone, "job.busy  generation 1", "WAITS IN", "worker[1]")
	eltrain(t, dir, "top", "job.busy.worker[7]").check(t, exitError, "job.busy.worker[7] names no slot with an agent")
	eltrain(t, dir, "top", "-history=1h").check(t, exitError, "-history needs ADDRESSes")
	eltrain(t, dir, "top", "-history=25h", "job.busy").check(t, exitError, "it must be between 0 and 24h")
}
