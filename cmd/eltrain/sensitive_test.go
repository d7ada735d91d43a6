package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// A sensitive truth value or short number cannot be told from others by what it is: it is hidden in its place, in text, in
// JSON, in the state and in a saved plan. The same value elsewhere is shown.
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
