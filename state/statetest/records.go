package statetest

import (
	"fmt"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Records is one job with the given number of worker slots and every kind of value that a store has to keep: times, sizes,
// maps, nested pointers, text that JSON has to escape.
func Records(slots int) job.Records {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)
	cpu := job.CPU(1500)
	r := &job.Record{
		UID:     "7f6d1c9e-0000-4000-8000-000000000001",
		Created: at,
		Phase:   job.JobRunning,
		Spec: job.Job{
			Name:     "gpt",
			Provider: "local",
			Priority: -3,
			Limits:   &job.Limits{CPU: &cpu, Devices: map[string]int{"nvidia.com/gpu": 16}},
			Roles: []job.Role{{
				Name:      "worker",
				Replicas:  slots,
				Scaling:   &job.Scaling{Min: 1, Max: slots, Step: 1},
				Processes: 8,
				Ranked:    true,
				Program:   job.Program{Command: []string{"python3", "train.py", "--name=<a & b>\u2028\"ü\""}, Env: map[string]string{"NCCL_DEBUG": "WARN"}},
				Resources: job.Resources{CPU: 8000, Memory: 64 << 30, Devices: map[string]int{"nvidia.com/gpu": 8}},
				Pod:       map[string]any{"spec": map[string]any{"hostNetwork": true, "priority": 0.5, "list": []any{"a", nil}}},
			}},
			Checkpoint: &job.Checkpoint{Dir: "ckpt", Signal: "SIGUSR1", Pattern: "saved (?P<step>\\d+)"},
			Detect:     job.Detect{Lease: job.Duration(15 * time.Second)},
			Source:     job.Source{File: "main.hcl", Line: 12},
		},
		Counts:    map[string]int{"worker": slots},
		Charges:   []time.Time{at.Add(time.Hour)},
		Incidents: []job.Incident{{Time: at, Cause: job.OutOfMemory, Culprits: []job.Address{{Job: "gpt", Role: "worker"}}, Action: job.RestartInPlace, Evidence: []job.Reason{job.Because("exit_signal", "slot", "worker[0]", "signal", "killed")}, Confidence: 0.9}},
		Goodput:   job.Goodput{Wall: 100.25, Productive: 99.125, Lost: job.LostTime{Restart: 1.125}, Reached: 510, Saved: job.Saved{Step: 500, Generation: 2}},
		World:     job.World{Generation: 3, Formed: at, MasterAddr: "10.0.0.1", MasterPort: 29500},
	}
	for i := range slots {
		a := job.Address{Job: "gpt", Role: "worker", Index: i}
		r.Slots = append(r.Slots, job.Slot{
			Address: a, Phase: job.Running, Incarnation: 2, Node: fmt.Sprintf("node-%05d", i/8), Rank: i, Restarts: 1, Since: at,
			Reserved: r.Spec.Roles[0].Resources, Fingerprint: "0123456789abcdef",
			Exit: &job.Exit{Code: 137, Signal: "killed", At: at},
		})
		r.World.Members = append(r.World.Members, job.WorldMember{Slot: a, Incarnation: 2, Rank: i, Processes: 8})
	}
	return job.Records{"gpt": r}
}
