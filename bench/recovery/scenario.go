//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// A scenario is an incident, and the world that should step again after it.
type scenario struct {
	name   string
	title  string
	agents int // at the start
	// incident is nil if the start itself is measured. The victim is the job's last slot.
	incident func(ctx context.Context, j job, victim slot) error
	// wanted reports whether a world of that size ends the measurement.
	wanted func(size int) bool
}

const agents = 4

func all(size int) bool { return size == agents }

// rest accepts the remaining agents, or all of them if the launcher replaced the lost one.
func rest(size int) bool { return size >= agents-1 }

var scenarios = []scenario{
	{
		name: "cold-start", title: "cold start, 4 of 4", agents: agents, wanted: all,
	},
	{
		name: "worker-killed", title: "SIGKILL of a training process", agents: agents, wanted: all,
		incident: func(_ context.Context, _ job, v slot) error { return kill(syscall.SIGKILL, v.Worker) },
	},
	{
		name: "node-lost", title: "SIGKILL of an agent and its training process", agents: agents, wanted: rest,
		incident: func(_ context.Context, _ job, v slot) error { return kill(syscall.SIGKILL, v.Agent, v.Worker) },
	},
	{
		name: "node-added", title: "a fourth node comes", agents: agents - 1, wanted: all,
		incident: func(ctx context.Context, j job, _ slot) error { return j.AddNode(ctx) },
	},
	{
		name: "drain", title: "SIGTERM of an agent", agents: agents, wanted: rest,
		incident: func(_ context.Context, _ job, v slot) error { return kill(syscall.SIGTERM, v.Agent) },
	},
	{
		name: "agent-killed", title: "SIGKILL of an agent alone", agents: agents, wanted: rest,
		incident: func(_ context.Context, _ job, v slot) error { return kill(syscall.SIGKILL, v.Agent) },
	},
	{
		name: "silent-host", title: "SIGSTOP of an agent and its training process", agents: agents, wanted: rest,
		incident: func(_ context.Context, _ job, v slot) error { return kill(syscall.SIGSTOP, v.Agent, v.Worker) },
	},
}

// kill signals the processes in turn. All but the first may already have exited as a
// consequence.
func kill(s syscall.Signal, pids ...int) error {
	for i, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && (i == 0 || err != syscall.ESRCH) {
			return fmt.Errorf("signal %d to process %d: %w", s, pid, err)
		}
	}
	return nil
}

// A sample is one measurement.
type sample struct {
	total    float64 // seconds from the incident to the last rank's first step; -1: not within the bound
	launcher float64 // total minus the slowest rank's import
	size     int     // of the world that stepped again
	memory   memory  // of the agents, before the incident
}

// measure runs a scenario once.
func measure(ctx context.Context, l launcher, sc scenario, cfg config) (_ sample, err error) {
	r, err := newRun(cfg.python, cfg.script, cfg)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, %s: %w\n%s", l.Name(), sc.name, err, r.logs())
		}
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
	}()

	began := monotonic()
	j, err := l.Start(ctx, r, sc.agents)
	if err != nil {
		return sample{}, err
	}
	first, err := await(ctx, r, began, cfg.bound, func(size int) bool { return size == sc.agents })
	if err != nil {
		return sample{}, err
	}
	if first.Size == 0 {
		return sample{}, fmt.Errorf("no world of %d within %v of the start", sc.agents, cfg.bound)
	}
	slots, err := j.Slots(ctx)
	if err != nil {
		return sample{}, err
	}
	if len(slots) != sc.agents {
		return sample{}, fmt.Errorf("%d of %d slots have a process", len(slots), sc.agents)
	}
	s := sample{size: first.Size, memory: measureMemory(j, slots)}
	if sc.incident == nil {
		s.took(first, began)
		return s, nil
	}

	select {
	case <-ctx.Done():
		return sample{}, ctx.Err()
	case <-time.After(time.Second + rand.N(cfg.phase)):
	}
	// Launchers may have restarted processes since (torchrun does if its world formed early).
	if slots, err = j.Slots(ctx); err != nil {
		return sample{}, err
	}
	if len(slots) != sc.agents {
		return sample{}, fmt.Errorf("%d of %d slots have a process", len(slots), sc.agents)
	}
	at := monotonic()
	if err := sc.incident(ctx, j, slots[len(slots)-1]); err != nil {
		return sample{}, err
	}
	again, err := await(ctx, r, at, cfg.bound, sc.wanted)
	if err != nil {
		return sample{}, err
	}
	s.size = again.Size
	s.took(again, at)
	return s, nil
}

// ended reports whether a world stepped again within the bound.
func (s sample) ended() bool { return s.total >= 0 }

func (s *sample) took(f formed, since float64) {
	if f.Size == 0 {
		s.total, s.launcher = -1, -1
		return
	}
	s.total = f.At - since
	s.launcher = s.total - f.Import
}

// await polls the events for a formed world. If there is none within the bound, it returns formed{} and no error.
func await(ctx context.Context, r *run, after float64, bound time.Duration, wanted func(int) bool) (formed, error) {
	for end := time.Now().Add(bound); time.Now().Before(end); {
		events, err := readEvents(r.events())
		if err != nil {
			return formed{}, err
		}
		if f, ok := firstFormed(events, after, wanted); ok {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return formed{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return formed{}, nil
}
