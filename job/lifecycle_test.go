package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIgnoresAPathAndWhatIsBelow(t *testing.T) {
	l := Lifecycle{IgnoreChanges: []string{"priority", "role.worker.env", `role.ps.env["A"]`, "heal"}}
	for path, want := range map[string]bool{
		"priority":                true,
		"priority_class":          false,
		"role.worker.env":         true,
		`role.worker.env["NCCL"]`: true,
		"role.worker.environment": false,
		"role.worker.replicas":    false,
		`role.ps.env["A"]`:        true,
		`role.ps.env["AB"]`:       false,
		"role.ps.env":             false,
		"heal.budget.restarts":    true,
		"role.workers.env":        false,
	} {
		if got := l.Ignores(path); got != want {
			t.Errorf("Ignores(%s) = %v", path, got)
		}
	}
}

func settledJobs() (declared, applied Job) {
	make := func(n int, text string) Job {
		return Job{
			Name: "j", Priority: n, Limits: &Limits{Devices: map[string]int{"gpu": n}},
			Roles: []Role{{
				Name: "worker", Replicas: n, Scaling: &Scaling{Min: 1, Max: n},
				Program: Program{Command: []string{text}, Env: map[string]string{"A": text, "B": text}},
			}},
		}
	}
	return make(4, "new"), make(2, "old")
}

// Ignored arguments must neither appear in the diff nor replace slots; all others must stay as declared.
func TestSettledKeepsWhatIsIgnored(t *testing.T) {
	for _, c := range []struct {
		ignore []string
		left   []string // paths that still differ
	}{
		{nil, []string{"priority", `limits.devices["gpu"]`, "role.worker.replicas", "role.worker.scaling.max", "role.worker.command", `role.worker.env["A"]`, `role.worker.env["B"]`}},
		{[]string{"priority", "limits"}, []string{"role.worker.replicas", "role.worker.scaling.max", "role.worker.command", `role.worker.env["A"]`, `role.worker.env["B"]`}},
		{[]string{"role.worker.scaling.max", `role.worker.env["A"]`}, []string{"priority", `limits.devices["gpu"]`, "role.worker.replicas", "role.worker.command", `role.worker.env["B"]`}},
		{[]string{"role", "priority", "limits"}, nil},
	} {
		declared, applied := settledJobs()
		declared.Lifecycle.IgnoreChanges, applied.Lifecycle.IgnoreChanges = c.ignore, c.ignore
		settled := declared.Settled(&applied)
		var left []string
		for _, d := range Diff(applied, settled) {
			left = append(left, d.Path)
		}
		if diff := cmp.Diff(c.left, left); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.ignore, diff)
		}
		untouched, _ := settledJobs()
		untouched.Lifecycle.IgnoreChanges = c.ignore
		if diff := cmp.Diff(untouched, declared); diff != "" {
			t.Errorf("%v: the declaration was written to:\n%s", c.ignore, diff)
		}
	}
}

// Programs that differ between slots are settled per slot, or every slot would be replaced.
func TestSettledKeepsProgramsOfSlots(t *testing.T) {
	declared, applied := settledJobs()
	for i, j := range []*Job{&declared, &applied} {
		role := &j.Roles[0]
		role.Replicas, role.Scaling = 3-i, nil
		for range role.Replicas {
			role.PerSlot = append(role.PerSlot, Program{Command: role.Command, Env: role.Env})
		}
	}
	declared.Lifecycle.IgnoreChanges = []string{"role.worker.command"}
	role := declared.Settled(&applied).Roles[0]
	for i, want := range []string{"old", "old", "old"} {
		if got := role.For(i); got.Command[0] != want || got.Env["A"] != "new" {
			t.Errorf("slot %d runs %+v", i, got)
		}
	}
}

func TestSettledLeavesNewRolesAlone(t *testing.T) {
	declared, applied := settledJobs()
	declared.Lifecycle.IgnoreChanges = []string{"role"}
	applied.Roles = nil
	if diff := cmp.Diff(declared, declared.Settled(&applied)); diff != "" {
		t.Error(diff)
	}
}
