// Package jobtest builds jobs, roles and nodes for tests, with the language's defaults, so that a test only sets what
// matters to it.
package jobtest

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// Epoch is the start time of tests.
var Epoch = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// Job returns a job on provider "local" with the given roles.
func Job(name string, roles ...job.Role) job.Job {
	return job.Job{
		Name:       name,
		Provider:   "local",
		Roles:      roles,
		Rendezvous: job.Rendezvous{Settle: job.Duration(5 * time.Second), Timeout: job.Duration(10 * time.Minute)},
		Detect:     job.Detect{Lease: job.Duration(15 * time.Second)},
		Heal:       job.Heal{Budget: job.Budget{Restarts: 10, Window: job.Duration(24 * time.Hour)}},
	}
}

// Role returns a ranked role of fixed size with n slots, each with one process and one core, modified by the options.
func Role(name string, n int, options ...RoleOption) job.Role {
	r := job.Role{
		Name:      name,
		Replicas:  n,
		Processes: 1,
		Ranked:    true,
		Program:   job.Program{Command: []string{"train"}, WorkingDir: "."},
		StopGrace: job.Duration(30 * time.Second),
		Resources: job.Resources{CPU: 1000},
	}
	for _, change := range options {
		change(&r)
	}
	return r
}

// RoleOption modifies a role.
type RoleOption func(*job.Role)

// Elastic sets the role's min and max; it starts with its replicas.
func Elastic(min, max int) RoleOption {
	return func(r *job.Role) { r.Scaling = &job.Scaling{Min: min, Max: max, Step: 1} }
}

// Step makes multiples of n the legal sizes of an elastic role.
func Step(n int) RoleOption { return func(r *job.Role) { r.Scaling.Step = n } }

// Sizes lists the legal sizes of an elastic role.
func Sizes(sizes ...int) RoleOption { return func(r *job.Role) { r.Scaling.Sizes = sizes } }

// Unranked makes the role unranked.
func Unranked(r *job.Role) { r.Ranked = false }

// After makes the role depend on others.
func After(roles ...string) RoleOption { return func(r *job.Role) { r.DependsOn = roles } }

// Command replaces the program.
func Command(args ...string) RoleOption { return func(r *job.Role) { r.Command = args } }

// Needs replaces the resources that each slot reserves.
func Needs(res job.Resources) RoleOption { return func(r *job.Role) { r.Resources = res } }

// Node returns a node of provider "local".
func Node(name string, capacity job.Resources) job.Node {
	return job.Node{Name: name, Provider: "local", Capacity: capacity}
}

// Cores returns an amount of CPU only.
func Cores(n float64) job.Resources {
	c, err := job.Cores(n)
	if err != nil {
		panic(err)
	}
	return job.Resources{CPU: c}
}

// GPUs returns n devices "example.com/gpu" with a core each.
func GPUs(n int) job.Resources {
	return job.Resources{CPU: job.CPU(n) * 1000, Devices: map[string]int{"example.com/gpu": n}}
}
