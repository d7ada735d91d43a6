package job

import (
	"fmt"
	"strings"
	"testing"
)

func twoJobs() Records {
	slots := func(name string) []Slot {
		return []Slot{{Address: Address{name, "ps", 0}}, {Address: Address{name, "worker", 0}}, {Address: Address{name, "worker", 1}}}
	}
	return Records{
		"a": {UID: "u-a", Spec: Job{Name: "a", Provider: "local"}, Slots: slots("a")},
		"b": {UID: "u-b", Spec: Job{Name: "b", Provider: "kubernetes"}, Slots: slots("b"), Launched: "old"},
	}
}

func TestMoveGivesAJobAnotherName(t *testing.T) {
	records := twoJobs()
	records["a"].Spec.Address = "module.m.job.a"
	moved, err := records.Move("a", "c")
	if err != nil {
		t.Fatal(err)
	}
	if moved["a"] != nil || moved["c"].UID != "u-a" || moved["c"].LaunchedAs("c") != "a" || moved["c"].Slots[2].Address.String() != "job.c.worker[1]" {
		t.Errorf("moved is %+v", moved["c"])
	}
	if at := moved["c"].Spec.Address; at != "" {
		t.Errorf("under its new name it still has the address %s", at)
	}
	if err := moved.Check(); err != nil {
		t.Error(err)
	}
	if records["a"] == nil || records["c"] != nil || records["a"].Slots[0].Address.Job != "a" {
		t.Error("the argument was modified")
	}
	for from, to := range map[string]string{"x": "c", "a": "b"} {
		if _, err := records.Move(from, to); err == nil {
			t.Errorf("%s moves to %s", from, to)
		}
	}
}

func TestForget(t *testing.T) {
	for address, want := range map[string]string{
		"job.a":             "[a] [job.a.ps[0] job.a.worker[0] job.a.worker[1]] map[u-a:{a a local}]",
		"job.b":             "[b] [job.b.ps[0] job.b.worker[0] job.b.worker[1]] map[u-b:{old b kubernetes}]",
		"job.a.worker":      "[] [job.a.worker[0] job.a.worker[1]] map[]",
		"job.a.worker[*]":   "[] [job.a.worker[0] job.a.worker[1]] map[]",
		"job.a.worker[1-5]": "[] [job.a.worker[1]] map[]",
		"job.x":             "[] [] map[]",
	} {
		sel, err := ParseSelector(address)
		if err != nil {
			t.Fatal(err)
		}
		records := twoJobs()
		left, gone := records.Forget([]Selector{sel})
		if got := fmt.Sprint(gone.Jobs, gone.Slots, gone.Released); got != want {
			t.Errorf("%s removes %s, want %s", address, got, want)
		}
		for _, rec := range left {
			if len(rec.Matching(sel)) > 0 {
				t.Errorf("%s is still there", address)
			}
		}
		if len(records) != 2 || len(records["a"].Slots) != 3 {
			t.Errorf("%s modified the argument", address)
		}
	}
}

func TestCheckOrdersSlotsAndRefusesNonsense(t *testing.T) {
	records := twoJobs()
	s := records["a"].Slots
	s[0], s[2] = s[2], s[0]
	if err := records.Check(); err != nil || s[0].Address.Role != "ps" {
		t.Errorf("%v, the first slot is %s", err, s[0].Address)
	}
	for why, edit := range map[string]func(Records){
		"is null":            func(r Records) { r["c"] = nil },
		"no uid":             func(r Records) { r["a"].UID = "" },
		"same uid":           func(r Records) { r["a"].UID = "u-b" },
		"cannot be the name": func(r Records) { r["../x"] = r["a"] },
		"specification":      func(r Records) { r["a"].Spec.Name = "z" },
		"has the slot":       func(r Records) { r["a"].Slots[0].Address.Job = "b" },
		"appears twice":      func(r Records) { r["a"].Slots[1].Address.Index = 1 },
	} {
		records := twoJobs()
		edit(records)
		if err := records.Check(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
