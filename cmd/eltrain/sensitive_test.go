package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/internal/filetest"
)

// A sensitive bool or short number cannot be recognized by its value: it is hidden by its place, in text, in JSON, in the
// state and in a saved plan. The same value elsewhere is shown.
func TestSensitiveNumbersAreHiddenInTheirPlace(t *testing.T) {
	t.Chdir(t.TempDir())
	const src = `
job "s" {
  role "worker" {
    command = ["sleep", sensitive(57), 57]
    env     = { ON = sensitive(true), PLAIN = true, LONG = sensitive(987654) }
    resources { cpu = 1 }
  }
}

provider "local" {
  node "n1" {
    cpu    = 4
    memory = "8GiB"
  }
}
`
	if err := os.WriteFile("job.hcl", []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		s := newScreenless("")
		if code := s.run(args); code != exitDone {
			t.Fatalf("%v ends with %d: %s%s", args, code, s.out.String(), s.err.String())
		}
		if strings.Contains(s.out.String()+s.err.String(), "987654") {
			t.Errorf("%v shows the number: %s%s", args, s.out.String(), s.err.String())
		}
		return s.out.String()
	}
	text := run("plan", "-out=saved")
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "ON") && strings.Contains(line, "true") {
			t.Errorf("the plan shows %q", line)
		}
	}
	if saved, err := os.ReadFile("saved"); err != nil || strings.Contains(string(saved), "987654") || strings.Contains(string(saved), `"ON":"true"`) {
		t.Errorf("the saved plan has it in clear: %v", err)
	}
	run("plan", "-json")
	out := run("show", "-json", "saved")
	var model struct {
		ResourceChanges []struct {
			Address string
			Change  struct {
				After          map[string]any
				AfterSensitive map[string]any `json:"after_sensitive"`
			}
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(out), &model); err != nil {
		t.Fatal(err)
	}
	slots := 0
	for _, c := range model.ResourceChanges {
		env, is := c.Change.After["env"].(map[string]any)
		if !is {
			continue
		}
		slots++
		command := c.Change.After["command"].([]any)
		marks, _ := c.Change.AfterSensitive["env"].(map[string]any)
		words, _ := c.Change.AfterSensitive["command"].([]any)
		if env["ON"] != "(sensitive value)" || env["LONG"] != "(sensitive value)" || env["PLAIN"] != "true" || marks["ON"] != true || marks["LONG"] != true || marks["PLAIN"] != nil {
			t.Errorf("env %v, marked %v", env, marks)
		}
		if command[1] != "(sensitive value)" || command[2] != "57" || len(words) != 3 || words[1] != true || words[2] != false {
			t.Errorf("command %v, marked %v", command, words)
		}
	}
	if slots == 0 {
		t.Errorf("no slot in %s", out)
	}
}

// logs hides the current sensitive values. If the job runs with different ones, logs warns.
func TestLogsSayWhatTheyAreNotSearchedFor(t *testing.T) {
	t.Parallel()
	const secret, other = "correct-horse-battery", "another-horse-battery"
	variable := "variable \"pw\" {\n  type      = string\n  sensitive = true\n}\n"
	dir := directoryWith(t, map[string]string{"main.hcl": variable + `job "tiny" {
  role "worker" {
    command    = ["sh", "-c", "echo the password is $PW; exec sleep 300"]
    env        = { PW = "p:${var.pw}" }
    stop_grace = "1s"
  }
}
job "plain" {
  role "worker" {
    command    = ["sh", "-c", "echo nothing to hide; exec sleep 300"]
    stop_grace = "1s"
  }
}
`})
	with := func(value string, args ...string) outcome {
		t.Helper()
		cmd := commandIn(dir, args...)
		if value != "" {
			cmd.Env = clean("ELTRAIN_VAR_pw=" + value)
		}
		return run(t, cmd)
	}
	t.Cleanup(func() { with(secret, "destroy", "-auto-approve") })
	with(secret, "apply", "-auto-approve").check(t, exitDone)
	eventually(t, "it writes", func() bool { return strings.Contains(with(secret, "logs", "job.tiny").out, "the password is") })

	const warned = "Sensitive values may be visible"
	if o := with(secret, "logs", "job.tiny").check(t, exitDone, "the password is (sensitive value)"); strings.Contains(o.err, warned) {
		t.Errorf("with the value that runs: %s", o.err)
	}
	with("", "logs", "job.tiny").check(t, exitDone, warned, "No value for the sensitive variable pw", "so it is not hidden")
	o := with(other, "logs", "job.tiny").check(t, exitDone, warned, "was started with differs from the current")
	if strings.Contains(o.err, secret) || strings.Contains(o.err, other) {
		t.Errorf("the warning has a value: %s", o.err)
	}
	if o := with("", "logs", "job.plain"); strings.Contains(o.err, warned) {
		t.Errorf("of a job that has none: %s", o.err)
	}
	filetest.Put(t, filepath.Join(dir, "main.hcl"), variable) // the job keeps running, but is no longer declared
	if o := with("p:"+secret, "logs", "job.tiny").check(t, exitDone, "the password is (sensitive value)"); strings.Contains(o.err, warned) {
		t.Errorf("with the value that runs, of a job that is not declared: %s", o.err)
	}
}
