//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// eltrain launches with the built binary: apply -watch in its own job directory, on nodes
// declared on this machine.
type eltrain struct {
	name     string
	binary   string
	version  string
	settings string // description for the report
	blocks   string // HCL, added to the job
}

// eltrains returns the variants: with defaults, and with a silent node lost after 3 s, as in
// torchrun's variant with keep-alive 1 s x 3.
func eltrains(ctx context.Context, binary string) ([]launcher, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s version: %w%s", binary, err, lastLine(err))
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	defaults := eltrain{name: "eltrain", binary: binary, version: version, settings: "defaults"}
	lease := defaults
	lease.name, lease.settings = "eltrain-3s", "lease 3 s, settle 1 s"
	lease.blocks = "  rendezvous {\n    settle = \"1s\"\n  }\n  detect {\n    lease = \"3s\"\n  }\n"
	return []launcher{defaults, lease}, nil
}

func (e eltrain) Name() string { return e.name }

func (e eltrain) Describe() string { return e.version + "; " + e.settings }

func (e eltrain) Start(_ context.Context, r *run, agents int) (job, error) {
	j := &eltrainJob{launcher: e, run: r, nodes: agents}
	if err := j.write(); err != nil {
		return nil, err
	}
	r.clear = func(ctx context.Context) error { return e.destroy(ctx, r.dir) }
	pid, err := r.start("apply", nil, e.binary, "apply", "-watch", "-auto-approve", "-no-color")
	j.service = pid
	return j, err
}

// destroy removes the cgroups of the killed agents, which would otherwise remain.
func (e eltrain) destroy(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, e.binary, "destroy", "-auto-approve")
	cmd.Dir = dir
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("eltrain destroy: %w%s", err, lastLine(err))
	}
	return nil
}

type eltrainJob struct {
	launcher eltrain
	run      *run
	nodes    int
	service  int // PID of apply -watch
}

// AddNode declares one more node, and a rank for it, in the job file.
func (j *eltrainJob) AddNode(context.Context) error {
	j.nodes++
	return j.write()
}

func (j *eltrainJob) Slots(ctx context.Context) ([]slot, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.launcher.binary, "status", "-json")
	cmd.Dir = j.run.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("eltrain status: %w%s", err, lastLine(err))
	}
	var status struct {
		Jobs []struct {
			Slots []struct {
				PID      int `json:"pid"`
				AgentPID int `json:"agent_pid"`
			}
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, fmt.Errorf("eltrain status: %w in %s", err, out)
	}
	var slots []slot
	for _, job := range status.Jobs {
		for _, s := range job.Slots {
			if s.PID > 0 && s.AgentPID > 0 {
				slots = append(slots, slot{Agent: s.AgentPID, Worker: s.PID})
			}
		}
	}
	return slots, nil
}

// Service returns the PID of the process that all agents report to, for measuring its memory.
func (j *eltrainJob) Service() int { return j.service }

// write writes the job file atomically, since apply -watch rereads it when it changes.
func (j *eltrainJob) write() error {
	var b strings.Builder
	b.WriteString("provider \"local\" {\n")
	for n := range j.nodes {
		fmt.Fprintf(&b, "  node \"n%d\" {\n    cpu    = 1\n    memory = \"512MiB\"\n  }\n", n+1)
	}
	command, err := json.Marshal(j.run.trainer) // JSON strings are valid HCL
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, `}

job "bench" {
  provider = "local"
  role "worker" {
    replicas   = %d
    command    = %s
    stop_grace = "5s"
    scaling {
      min = 1
      max = 4
    }
    resources {
      cpu    = 1
      memory = "256MiB"
    }
  }
  progress {
    pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
  }
  checkpoint {
    dir    = %q
    signal = "SIGUSR1"
  }
  heal {
    budget {
      restarts = 1000
      window   = "24h"
    }
  }
%s}
`, j.nodes, command, filepath.Join(j.run.dir, "ckpt"), j.launcher.blocks)
	path := filepath.Join(j.run.dir, "job.hcl")
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
