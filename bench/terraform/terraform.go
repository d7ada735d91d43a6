//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// terraform creates directories of terraform_data objects, and measures the real program in them.
type terraform struct{ program string }

func (t terraform) name() string { return "terraform" }

// configuration returns n objects with as much data as a slot each. Their type is built in, so no provider process starts.
func configuration(n int) string {
	return fmt.Sprintf(`resource "terraform_data" "slot" {
  count = %d
  input = {
    job     = %q
    role    = %q
    index   = count.index
    command = ["sleep", "36000"]
    cpu     = 1
  }
}
`, n, jobName, roleName)
}

func (t terraform) in(dir string, want int, args ...string) command {
	return command{program: t.program, args: args, dir: dir, want: want, env: []string{
		"CHECKPOINT_DISABLE=1",             // no version check over the network
		"TF_CLI_CONFIG_FILE=" + os.DevNull, // without the user's settings
	}}
}

func (t terraform) write(dir string, n int) error {
	return os.WriteFile(filepath.Join(dir, "main.tf"), []byte(configuration(n)), 0o644)
}

func (t terraform) prepare(ctx context.Context, dir string, n int) error {
	if err := t.write(dir, n); err != nil {
		return err
	}
	return t.in(dir, 0, "init").run(ctx)
}

// settle makes a state of n objects: one is really applied, and then copied n times. Applying all would take terraform
// 40 s for 1,000, and time grows quadratically.
func (t terraform) settle(ctx context.Context, dir string, n int) error {
	if err := t.prepare(ctx, dir, 1); err != nil {
		return err
	}
	if err := t.in(dir, 0, "apply", "-auto-approve").run(ctx); err != nil {
		return err
	}
	path := filepath.Join(dir, "terraform.tfstate")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if text, err = multiplyObjects(text, n); err != nil {
		return fmt.Errorf("copy the object in the state: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return t.write(dir, n)
}

func (t terraform) unsettle(context.Context, string) error { return nil }

// multiplyObjects turns the only object in a state into n.
func multiplyObjects(text []byte, n int) ([]byte, error) {
	type value struct {
		Value map[string]any  `json:"value"`
		Type  json.RawMessage `json:"type"`
	}
	type attributes struct {
		ID       string          `json:"id"`
		Input    value           `json:"input"`
		Output   value           `json:"output"`
		Triggers json.RawMessage `json:"triggers_replace"`
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	var resources []map[string]json.RawMessage
	if err := json.Unmarshal(whole["resources"], &resources); err != nil {
		return nil, err
	}
	if len(resources) != 1 {
		return nil, fmt.Errorf("there are %d resources", len(resources))
	}
	var instances []map[string]json.RawMessage
	if err := json.Unmarshal(resources[0]["instances"], &instances); err != nil {
		return nil, err
	}
	if len(instances) != 1 {
		return nil, fmt.Errorf("there are %d objects", len(instances))
	}
	var only attributes
	if err := json.Unmarshal(instances[0]["attributes"], &only); err != nil {
		return nil, err
	}
	all := make([]map[string]json.RawMessage, n)
	for i := range all {
		all[i] = map[string]json.RawMessage{}
		for name, v := range instances[0] {
			all[i][name] = v
		}
		one := only
		one.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		one.Input.Value["index"] = i // the objects share the rest, which is the same for all
		one.Output.Value["index"] = i
		text, err := json.Marshal(one)
		if err != nil {
			return nil, err
		}
		all[i]["attributes"], all[i]["index_key"] = text, json.RawMessage(strconv.Itoa(i))
	}
	var err error
	if resources[0]["instances"], err = json.Marshal(all); err != nil {
		return nil, err
	}
	if whole["resources"], err = json.Marshal(resources); err != nil {
		return nil, err
	}
	return json.MarshalIndent(whole, "", "  ") // as terraform writes it
}

func (t terraform) command(dir string, f figure, n int) command {
	switch f {
	case noop:
		return t.in(dir, 0, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	case full:
		return t.in(dir, 2, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	}
	return t.in(dir, 0, "validate", "-no-color")
}
