package kubernetes

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// gates are a gang without a scheduler that knows gangs: pods are created under a scheduling gate, and it is lifted
// once, of every role of their job, the least that starts together exist. So the scheduler never sees half a gang that
// could not be made; it may still place only half of one. A pod that comes when its gang is whole has no gate.
type gates struct{ p *Provider }

// newGates begins to lift gates.
func newGates(s Site) (Gang, error) {
	s.p.owned.Go(s.p.liftGates)
	return gates(s), nil
}

// Ready implements Gang: the pods are all there is to know.
func (gates) Ready(context.Context) error { return nil }

// Can implements Gang.
func (gates) Can(c *job.Capabilities) {
	c.Caveats = append(c.Caveats, "A gang is kept by scheduling gates: its pods are let to the scheduler together, once the least that can train exist. That is weaker than a real gang: the scheduler may still place only some of them.")
}

// Prepare implements Gang: there is nothing beside the pods.
func (gates) Prepare(context.Context, Job) error { return nil }

// Schedule implements Gang.
func (g gates) Schedule(group job.Group, _ job.Address) Scheduling {
	made, _ := g.p.jobs.get(group.UID)
	return Scheduling{Gated: !made.whole.Load() && least(group) > 1}
}

// Complete implements Gang: pods say themselves that a gate holds them.
func (gates) Complete(*providers.Observation) {}

// Forget implements Gang.
func (gates) Forget(context.Context, Job) error { return nil }

const (
	// gatePause is the least time between two looks at the gates: while thousands of pods are created, each look
	// goes over all of them.
	gatePause = 50 * time.Millisecond
	// gateRetry is when a gate that could not be lifted is tried again.
	gateRetry = time.Second
	// gateTimeout bounds one attempt.
	gateTimeout = 30 * time.Second
)

// liveByRole counts a job's pods that run or will.
type liveByRole map[string]int

func live(pods []*pod) liveByRole {
	n := liveByRole{}
	for _, p := range pods {
		if !p.over() && !p.deleting {
			n[p.key.role]++
		}
	}
	return n
}

// whole tells whether, of every role, the least that starts together exist.
func whole(g job.Group, have liveByRole) bool {
	for _, r := range g.Roles {
		if have[r.Role] < r.Min {
			return false
		}
	}
	return true
}

// least is how many slots start together.
func least(g job.Group) int {
	n := 0
	for _, r := range g.Roles {
		n += r.Min
	}
	return n
}

// liftGates lifts the gates of whole gangs until the provider is closed. It goes by what there is, not by what
// happened, so a next master goes on where this one ended.
func (p *Provider) liftGates() {
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	pause := time.NewTimer(0)
	defer pause.Stop()
	failing := false
	for {
		select {
		case <-pause.C:
		case <-p.ctx.Done():
			return
		}
		err := p.liftWhole()
		if err != nil && !failing {
			p.log.Warn("A scheduling gate cannot be lifted; it is tried again.", "error", err)
		}
		if err == nil && failing {
			p.log.Info("Scheduling gates can be lifted again.")
		}
		if failing = err != nil; failing {
			pause.Reset(gateRetry)
			continue
		}
		pause.Reset(gatePause)
		select {
		case <-changes:
		case <-p.jobs.changed:
		case <-p.ctx.Done():
			return
		}
	}
}

// liftWhole lifts what may be lifted now. The error is of one of those that could not be.
func (p *Provider) liftWhole() error {
	var gated []*pod
	for _, j := range p.jobs.all() {
		pods := p.index.ofJob(j.group.UID)
		j.whole.Store(whole(j.group, live(pods)))
		if !j.whole.Load() {
			continue
		}
		for _, one := range pods {
			if one.gated && !one.over() && !one.deleting {
				gated = append(gated, one)
			}
		}
	}
	next := make(chan *pod)
	failed := make(chan error, len(gated))
	var workers sync.WaitGroup
	for range min(p.config.parallelism(), len(gated)) {
		workers.Go(func() {
			for one := range next {
				failed <- p.lift(one)
			}
		})
	}
	for _, one := range gated {
		next <- one
	}
	close(next)
	workers.Wait()
	close(failed)
	for err := range failed {
		if err != nil && p.ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// lift takes our gate off one pod and leaves others' on it.
func (p *Provider) lift(gated *pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": gated.uid},
		"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": gangGate}}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, gateTimeout)
	defer cancel()
	var lifted *corev1.Pod
	gone, err := p.insist(ctx, gated, func() error {
		return p.pacer.do(ctx, gated.key.uid+" patch pods", func(ctx context.Context) (err error) {
			lifted, err = p.client.CoreV1().Pods(p.namespace).Patch(ctx, gated.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
			return err
		})
	})
	switch {
	case gone:
		p.index.deleted(gated.key, gated.uid)
		return nil
	case err != nil:
		return explain(err)
	}
	p.index.put(lifted)
	return nil
}
