package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const someOutputs = `
job "tiny" {
  role "worker" {
    command = ["true"]
  }
}
output "slots" {
  value = job.tiny.role.worker.replicas
}
output "name" {
  value = "a <b>"
}
output "all" {
  value = { on = true, sizes = [1, 2] }
}
output "none" {
  value = null
}
output "token" {
  value     = "hunter2hunter2"
  sensitive = true
}
`

// The outputs are those that were applied last, whatever the files say since.
func TestOutput(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": someOutputs})
	eltrain(t, dir, "output").check(t, exitDone, "No outputs found")
	eltrain(t, dir, "output", "slots").check(t, exitError, `The state has no output "slots"`)
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Outputs:")
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{nil, exitDone, "all = {\n  \"on\" = true\n  \"sizes\" = [\n    1,\n    2,\n  ]\n}\nname = \"a <b>\"\nnone = null\nslots = 1\ntoken = <sensitive>\n"},
		{[]string{"name"}, exitDone, "\"a <b>\"\n"},
		{[]string{"-raw", "name"}, exitDone, "a <b>"},
		{[]string{"-raw", "slots"}, exitDone, "1"},
		{[]string{"-json", "all"}, exitDone, `{"on":true,"sizes":[1,2]}` + "\n"},
		{[]string{"-json", "none"}, exitDone, "null\n"},
	} {
		r := eltrain(t, dir, append([]string{"output"}, c.args...)...).check(t, c.code)
		if r.out != c.out {
			t.Errorf("output %v prints\n%s\nwant\n%s", c.args, r.out, c.out)
		}
	}
	all := eltrain(t, dir, "output", "-json").check(t, exitDone, `"value": 1`, `"token": {`, `"sensitive": true`)
	if strings.Contains(all.out, "hunter2") || strings.Contains(all.out, "(sensitive") {
		t.Errorf("a sensitive output has a value:\n%s", all.out)
	}
	if got := completions(t, dir, "eltrain output n"); !slices.Equal(got, []string{"name", "none"}) {
		t.Errorf("completed to %q", got)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"token"}, `The output "token" is sensitive: its value is not in the state`},
		{[]string{"-json", "token"}, "is sensitive"},
		{[]string{"-raw", "all"}, "its type is object"},
		{[]string{"-raw", "none"}, "it is null"},
		{[]string{"nam"}, `"name"`},
		{[]string{"-raw"}, "-raw prints one output: name it"},
		{[]string{"-raw", "-json", "name"}, "cannot be used together"},
		{[]string{"name", "slots"}, "slots"},
	} {
		eltrain(t, dir, append([]string{"output"}, c.args...)...).check(t, exitError, c.says)
	}
}
