package main

import (
	"slices"
	"testing"
)

// The JSON stream reports an observation once for each job in the state, whatever its number of slots: for a plan, once for an
// apply, and not if no provider is asked.
func TestALookAtWhatRunsIsTold(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	told := func(args ...string) (started, completed []string) {
		t.Helper()
		lines := linesOf(t, eltrain(t, dir, args...).check(t, exitDone).out)
		addresses := func(kind string) (out []string) {
			for _, l := range lines[kind] {
				hook := l["hook"].(map[string]any)
				resource := hook["resource"].(map[string]any)
				if hook["id_key"] != "uid" || hook["id_value"] == "" || resource["resource_type"] != "eltrain_job" || resource["implied_provider"] != "local" {
					t.Errorf("%v has the line %v", args, l)
				}
				out = append(out, resource["addr"].(string))
			}
			return out
		}
		return addresses("refresh_start"), addresses("refresh_complete")
	}
	for _, step := range []struct {
		args []string
		want []string
	}{
		{[]string{"apply", "-auto-approve", "-json"}, nil}, // nothing is in the state yet
		{[]string{"plan", "-json"}, []string{"job.tiny"}},
		{[]string{"plan", "-json", "-refresh-only"}, []string{"job.tiny"}},
		{[]string{"plan", "-json", "-refresh=false"}, nil},
		{[]string{"apply", "-auto-approve", "-json"}, []string{"job.tiny"}},
		{[]string{"apply", "-auto-approve", "-json", "-refresh-only"}, []string{"job.tiny"}},
	} {
		if started, completed := told(step.args...); !slices.Equal(started, step.want) || !slices.Equal(completed, step.want) {
			t.Errorf("%v reports the start for %v and the end for %v", step.args, started, completed)
		}
	}
}
