package lang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Results of conditions are kept for each instance, by its declared name, but not for placeholders.
func TestConditionsAreKept(t *testing.T) {
	const assert = "check \"lang\" {\n  assert {\n    condition     = %s\n    error_message = \"No.\"\n  }\n}\n"
	held := inJob("for_each = toset([\"k\"])\nlifecycle {\n  precondition {\n    condition     = true\n    error_message = \"Never.\"\n  }\n}")
	dir := writeTree(t, map[string]string{
		"job.hcl": inJob("") + "module \"x\" {\n  source   = \"./m\"\n  for_each = toset([\"de\"])\n}\n" +
			"module \"none\" {\n  source   = \"./m\"\n  for_each = {}\n}\n" + fmt.Sprintf(assert, `jsondecode("{").a`) +
			"output \"n\" {\n  value = 1\n  precondition {\n    condition     = true\n    error_message = \"Never.\"\n  }\n}\n",
		"m/job.hcl": held + fmt.Sprintf(assert, "1 > 2"),
	})
	cfg, diags := Load(dir, options())
	if diags.HasErrors() {
		t.Fatal(render(cfg, diags))
	}
	var got []string
	for _, c := range cfg.Checked {
		got = append(got, strings.Join(append([]string{c.Kind, c.Module, c.Name, c.Key, c.Status}, c.Problems...), "/"))
	}
	slices.Sort(got)
	want := []string{`check//lang//error`, `check/module.x["de"]/lang//fail/No.`, `job/module.x["de"]/j/k/pass`, `output//n//pass`}
	if !slices.Equal(got, want) {
		t.Errorf("kept results are %q", got)
	}
	cfg.CheckObserved(map[string]map[string]int{"j": {"worker": 2}})
	if len(cfg.Checked) != len(want) {
		t.Errorf("results of running jobs were added to those of declared ones: %+v", cfg.Checked)
	}
}
