package kubernetes

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

const testUID = "0b0e9c52-6a8e-4f0e-9a53-6a4f0f6f2d11"

func TestNames(t *testing.T) {
	long := strings.Repeat("very-", 12) + "big"
	tests := []struct {
		slot                 job.Address
		incarnation          int
		group, pod, hostname string
	}{
		{job.Address{Job: "gpt", Role: "worker", Index: 3}, 2, "gpt-0b0e9", "gpt-0b0e9-e2-worker-3", "worker-3"},
		{job.Address{Job: "7b", Role: "ps", Index: 0}, 1, "j7b-0b0e9", "j7b-0b0e9-e1-ps-0", "ps-0"},
		{job.Address{Job: "GPT", Role: "data_loader", Index: 12}, 1, "gpt-2c4e6f-0b0e9", "gpt-2c4e6f-0b0e9-e1-data-loader-a79bfb-12", "data-loader-6af1f6-12"},
		{job.Address{Job: long, Role: "worker", Index: 10000}, 3,
			"very-very-very-very-very-very-very-very-very-very-0b0e9", "very-very-very-very-very-very-very-very-very-very-10000", "worker-10000"},
	}
	for _, test := range tests {
		group, pod, host := groupName(testUID, test.slot.Job), podName(testUID, test.slot, test.incarnation), hostName(test.slot)
		if strings.HasPrefix(test.slot.Job, "very") { // their hashes do not matter, only their form
			group, pod = unhashed(group), unhashed(pod)
		}
		if group != test.group || pod != test.pod || host != test.hostname {
			t.Errorf("%s incarnation %d:\n%s, %s, %s\nwant\n%s, %s, %s", test.slot, test.incarnation, group, pod, host, test.group, test.pod, test.hostname)
		}
	}
}

// Each role has its own PodDisruptionBudget, whatever it and its job are called.
func TestBudgetNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"gpt", "GPT", "7b", strings.Repeat("very-", 12) + "big"} {
		for _, role := range []string{"worker", "Worker", "data_loader", "0", strings.Repeat("role-", 12) + "a", strings.Repeat("role-", 12) + "b"} {
			budget := budgetName(testUID, name, role)
			if why := validation.IsDNS1123Label(budget); len(why) > 0 || seen[budget] != "" {
				t.Errorf("%s.%s: %q, which is that of %q: %v", name, role, budget, seen[budget], why)
			}
			seen[budget] = name + "." + role
		}
	}
}

// unhashed drops the last part but one.
func unhashed(name string) string {
	parts := strings.Split(name, "-")
	return strings.Join(append(parts[:len(parts)-2], parts[len(parts)-1]), "-")
}

// A name that the API server rejects, or that two incarnations share, would keep a job from running.
func TestEveryNameIsValidAndItsOwn(t *testing.T) {
	names := rapid.StringMatching(`[a-zA-Z0-9]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?`)
	slots := rapid.Custom(func(t *rapid.T) job.Address {
		return job.Address{Job: names.Draw(t, "job"), Role: names.Draw(t, "role"), Index: rapid.IntRange(0, 100_000).Draw(t, "index")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := slots.Draw(t, "a"), slots.Draw(t, "b")
		uid := rapid.SampledFrom([]string{testUID, "A-b", "x"}).Draw(t, "uid")
		n, m := rapid.IntRange(1, 1000).Draw(t, "n"), rapid.IntRange(1, 1000).Draw(t, "m")
		if err := checkNames(a); err != nil {
			t.Fatal(err)
		}
		if why := validation.IsDNS1035Label(groupName(uid, a.Job)); len(why) > 0 {
			t.Fatalf("Service %q: %s", groupName(uid, a.Job), why)
		}
		for _, name := range []string{podName(uid, a, n), hostName(a)} {
			if why := validation.IsDNS1123Label(name); len(why) > 0 {
				t.Fatalf("%q: %s", name, why)
			}
		}
		for name, value := range podLabels(uid, a, n) {
			if why := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(why) > 0 {
				t.Fatalf("label %s=%q: %s", name, value, why)
			}
		}
		if (a != b || n != m) && podName(uid, a, n) == podName(uid, b, m) {
			t.Fatalf("%s incarnation %d and %s incarnation %d are both %s", a, n, b, m, podName(uid, a, n))
		}
		if k, slot, ours := keyOf(podLabels(uid, a, n)); !ours || slot != a || k != (key{uid, a.Role, a.Index, n}) {
			t.Fatalf("%s incarnation %d is read back as %+v of %s", a, n, k, slot)
		}
	})
}

func TestNamesThatCannotBeLabels(t *testing.T) {
	for _, slot := range []job.Address{{Job: "gpt-", Role: "worker"}, {Job: "gpt", Role: "worker_"}, {Job: "", Role: "w"}, {Job: "gpt", Role: "w", Index: -1}} {
		if checkNames(slot) == nil {
			t.Errorf("%+v was taken", slot)
		}
	}
	if err := checkNames(job.Address{Job: "gpt-", Role: "w"}); err == nil || !strings.Contains(err.Error(), "end it with a letter or digit") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}
