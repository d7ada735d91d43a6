package kubernetes

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
)

// A gang without a scheduler that knows gangs: pods are created under a scheduling gate, and it is lifted once,
// of every role of their job, the least that starts together exist. So the scheduler never sees half a gang that
// could not be made; it may still place only half of one. A pod that comes when its gang is whole has no gate.

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
	for {
		select {
		case <-pause.C:
		case <-p.ctx.Done():
			return
		}
		if p.liftWhole() {
			pause.Reset(gatePause)
		} else {
			pause.Reset(gateRetry)
			continue
		}
		select {
		case <-changes:
		case <-p.jobs.changed:
		case <-p.ctx.Done():
			return
		}
	}
}

// liftWhole lifts what may be lifted now. False: some gate could not be lifted.
func (p *Provider) liftWhole() bool {
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
			p.log.Warn("A scheduling gate cannot be lifted; it is tried again.", "error", err)
			return false
		}
	}
	return true
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
	err = p.pacer.do(ctx, gated.key.uid+" patch pods", func(ctx context.Context) (err error) {
		lifted, err = p.client.CoreV1().Pods(p.namespace).Patch(ctx, gated.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another has its name
		p.index.deleted(gated.key, gated.uid)
		return nil
	case err != nil:
		return explain(err)
	}
	p.index.put(lifted)
	return nil
}
