package main

import (
	"strings"
	"testing"
)

// Jobs that -prune=false leaves are named only by the plan and the apply with that flag.
func TestWhatPruneLeavesIsNamed(t *testing.T) {
	t.Parallel()
	dir, _ := started(t, sleeper("a", ""))
	rewrite(t, dir, strings.ReplaceAll(sleeper("b", ""), "replicas   = 2", "replicas   = 1"))
	eltrain(t, dir, "plan").check(t, exitDone, "1 to add, 0 to change, 2 to destroy")
	const left = "job.a is no longer in the files"
	eltrain(t, dir, "plan", "-prune=false").unwrapped().check(t, exitDone, "1 to add, 0 to change, 0 to destroy", "Left unchanged", left)
	eltrain(t, dir, "plan", "-prune=false", "-markdown").unwrapped().check(t, exitDone, "Left unchanged", left)
	eltrain(t, dir, "plan", "-prune=false", "-out=p").check(t, exitDone)
	eltrain(t, dir, "show", "-json", "p").check(t, exitDone, `"left":`)
	eltrain(t, dir, "apply", "p").check(t, exitDone, "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.")
	applied := eltrain(t, dir, "apply", "-prune=false", "-auto-approve").unwrapped().check(t, exitDone, left, "apart from jobs that -prune=false keeps")
	if strings.Contains(applied.out, "What is running matches the configuration.") || strings.Count(applied.out, left) != 1 {
		t.Errorf("apply says\n%s", applied.out)
	}
	eltrain(t, dir, "events").unwrapped().check(t, exitDone, "left job.a", "only because of -prune=false")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "0 added, 0 changed, 2 destroyed")
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
}
