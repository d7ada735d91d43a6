//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
)

// eltrain creates job directories, and measures the built program in them.
type eltrain struct{ program string }

func (e eltrain) name() string { return "eltrain" }

// jobName and roleName are the job and role of the slots.
const (
	jobName  = "gpt"
	roleName = "worker"
)

// declaration returns a job of n slots, and a node with room for them. A slot has the same data as an object in main.tf.
func declaration(n int) string {
	return fmt.Sprintf(`provider "local" {
  node "n" { cpu = %d }
}
job %q {
  role %q {
    replicas = %d
    command  = ["sleep", "36000"]
    resources { cpu = 1 }
  }
}
`, n, jobName, roleName, n)
}

func (e eltrain) in(dir string, want int, args ...string) command {
	return command{program: e.program, args: args, dir: dir, want: want}
}

// write writes the job file.
func (e eltrain) write(dir string, n int) error {
	return os.WriteFile(filepath.Join(dir, "job.hcl"), []byte(declaration(n)), 0o644)
}

func (e eltrain) prepare(ctx context.Context, dir string, n int) error { return e.write(dir, n) }

// settle makes n slots that run as declared. Only one is really applied; then its record in the state, and the files by which
// the local provider finds it, are copied n times. All slots share the one running agent, since n agents would not fit on
// the machine. A plan reads and checks each slot as usual.
func (e eltrain) settle(ctx context.Context, dir string, n int) error {
	if err := e.write(dir, 1); err != nil {
		return err
	}
	if err := e.in(dir, 0, "apply", "-auto-approve").run(ctx); err != nil {
		return err
	}
	if err := e.write(dir, n); err != nil {
		return err
	}
	uid, err := multiplyState(ctx, filepath.Join(dir, "eltrain.state"), n)
	if err != nil {
		return fmt.Errorf("copy the slot in the state: %w", err)
	}
	if err := multiplyRun(filepath.Join(dir, ".eltrain", "jobs", uid, "slots"), n); err != nil {
		return fmt.Errorf("copy the slot in the run directory: %w", err)
	}
	return nil
}

// unsettle stops what settle started. The copies have no processes of their own.
func (e eltrain) unsettle(ctx context.Context, dir string) error {
	return e.in(dir, 0, "destroy", "-auto-approve").run(ctx)
}

// multiplyState turns the only slot into n, and returns the job's UID.
func multiplyState(ctx context.Context, path string, n int) (uid string, err error) {
	store, err := file.New(path, file.Options{})
	if err != nil {
		return "", err
	}
	lock, err := store.Lock(ctx, state.LockInfo{Operation: "bench"}, 0)
	if err != nil {
		return "", err
	}
	stored, err := store.Read(ctx)
	if err != nil {
		return "", err
	}
	rec := stored.Jobs[jobName]
	if rec == nil || len(rec.Slots) != 1 {
		return "", fmt.Errorf("the state is not that of one slot: %+v", stored.Jobs)
	}
	multiply(rec, n)
	if err := store.Write(ctx, stored.Next(stored.Jobs), lock); err != nil {
		return "", err
	}
	return rec.UID, lock.Unlock(ctx)
}

func multiply(rec *job.Record, n int) {
	only := rec.Slots[0]
	rec.Slots = make([]job.Slot, n)
	for i := range rec.Slots {
		s := only
		s.Address.Index, s.Rank = i, i
		rec.Slots[i] = s
	}
	rec.Spec.Roles[0].Replicas = n
	rec.Counts[roleName] = n
}

// multiplyRun copies the first slot's directory n times. Each launch record has its own slot; the files that the agent wrote
// are the same in all.
func multiplyRun(slots string, n int) error {
	first := filepath.Join(slots, roleName+"-0", "1")
	content := map[string][]byte{"agent.json": nil, "launch.json": nil, "processes.json": nil}
	for name := range content {
		text, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			return err
		}
		content[name] = text
	}
	var launch map[string]any
	if err := json.Unmarshal(content["launch.json"], &launch); err != nil {
		return err
	}
	delete(launch, "cgroups") // belong to the running slot only
	content["lock"] = nil
	for i := 1; i < n; i++ {
		dir := filepath.Join(slots, roleName+"-"+strconv.Itoa(i), "1")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		launch["slot"] = job.Address{Job: jobName, Role: roleName, Index: i}
		text, err := json.Marshal(launch)
		if err != nil {
			return err
		}
		content["launch.json"] = text
		for name, text := range content {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e eltrain) command(dir string, f figure, n int) command {
	switch f {
	case noop:
		return e.in(dir, 0, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	case full:
		return e.in(dir, 2, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	}
	return e.in(dir, 0, "validate", "-no-color")
}
