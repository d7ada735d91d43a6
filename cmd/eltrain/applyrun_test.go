package main

import (
	"context"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// An interrupted apply does not say that all jobs keep running if it has stopped slots, even to restart them.
func TestAnInterruptedApplySaysWhatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	at := job.Address{Job: "a", Role: "w"}
	for name, c := range map[string]struct {
		done []plan.Change
		want string
	}{
		"nothing was done":  {nil, "jobs keep running, and the next apply continues from here"},
		"one was added":     {[]plan.Change{{Action: plan.Create, Job: "a", Slot: at}}, "jobs keep running, and the next apply continues from here"},
		"one was stopped":   {[]plan.Change{{Action: plan.Replace, Job: "a", Slot: at, Incarnation: 1}}, "0 added, 0 changed, 1 destroyed before that; slots that were stopping have ended, the rest keeps running; the next apply continues from here"},
		"one was destroyed": {[]plan.Change{{Action: plan.Delete, Job: "a", Slot: at, Incarnation: 1}}, "1 destroyed before that; slots that were stopping have ended, the rest keeps running"},
	} {
		s := newScreenless("")
		m := newApply(&s.session, &workspace.Workspace{Config: new(lang.Config)}, applyArgs{})
		for i := range c.done {
			m.progress.Started(&c.done[i])
			m.progress.Finished(&c.done[i], 0, nil)
		}
		if code := m.conclude(ctx, plan.Plan{}, nil); code != exitError {
			t.Errorf("%s: exit code %d", name, code)
		}
		if said := strings.Join(strings.Fields(s.err.String()), " "); !strings.Contains(said, "Apply was interrupted") || !strings.Contains(said, c.want) {
			t.Errorf("%s: it says\n%s", name, said)
		}
	}
}

// What -max-destroy holds back is reported as held, not as waiting, in text and JSON: once by the plan and once by the run.
func TestWhatMaxDestroyHoldsBackIsToldOnceAndAsHeld(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoJobs})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	rewrite(t, dir, strings.Split(twoJobs, "job \"other\"")[0])
	o := eltrain(t, dir, "apply", "-auto-approve", "-max-destroy=0", "-json").check(t, exitError)
	lines := linesOf(t, o.out)
	if waits := lines["planned_wait"]; len(waits) != 1 || waits[0]["wait"].(map[string]any)["held"] != true {
		t.Errorf("got %v", waits)
	}
	if errs := lines["diagnostic"]; len(errs) != 1 || errs[0]["@message"] != "Error: job.other is Degraded" {
		t.Errorf("it ends with %v", errs)
	}
}
