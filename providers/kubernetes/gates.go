package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// gates are a gang without a scheduler that knows gangs: pods are created under a scheduling gate, and it is lifted
// once, of every role of their job, the least that starts together exist. So the scheduler never sees half a gang that
// could not be made; it may still place only half of one. A pod that comes when its gang is whole has no gate.
type gates struct {
	p *Provider

	mu     sync.Mutex
	failed map[string]string // by UID of the job: why gates of it could not be lifted the last time
}

// newGates begins to lift gates.
func newGates(s Site) (Gang, error) {
	g := &gates{p: s.p}
	s.Go(g.lift)
	return g, nil
}

// Ready implements Gang: the pods are all there is to know.
func (*gates) Ready(context.Context) error { return nil }

// Can implements Gang.
func (*gates) Can(c *job.Capabilities) {
	c.Caveats = append(c.Caveats, "A gang is kept by scheduling gates: its pods are let to the scheduler together, once the least that can train exist. That is weaker than a real gang: the scheduler may still place only some of them.")
}

// Prepare implements Gang: there is nothing beside the pods.
func (*gates) Prepare(context.Context, Job) error { return nil }

// Schedule implements Gang.
func (g *gates) Schedule(group job.Group, _ job.Address) Scheduling {
	_, known := g.p.jobs.get(group.UID)
	return Scheduling{Gated: least(group) > 1 && !(known && g.p.index.whole(group))}
}

// Complete implements Gang: pods say themselves that a gate holds them, and not why it still does where it cannot be
// lifted.
func (g *gates) Complete(o *providers.Observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) == 0 {
		return
	}
	for i := range o.Incarnations {
		inc := &o.Incarnations[i]
		if why := g.failed[inc.UID]; why != "" && inc.Waiting == heldTogether {
			inc.Waiting = "its gang exists, and its scheduling gate cannot be lifted: " + why
		}
	}
}

// Forget implements Gang.
func (*gates) Forget(context.Context, Job) error { return nil }

const (
	// gatePause is the least time between two looks at the gates: many pods change at once.
	gatePause = 50 * time.Millisecond
	// gateRetry is when a gate that could not be lifted is tried again.
	gateRetry = time.Second
	// gateTimeout bounds one attempt.
	gateTimeout = 30 * time.Second
)

// liveByRole counts pods of a job.
type liveByRole map[string]int

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

// lift lifts the gates of whole gangs until ctx ends. It goes by what there is, not by what happened, so a next master
// goes on where this one ended.
func (g *gates) lift(ctx context.Context) {
	p := g.p
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		failed := g.liftWhole(ctx)
		if ctx.Err() != nil {
			return
		}
		g.note(failed)
		if len(failed) > 0 {
			pause.Reset(gateRetry)
			continue
		}
		pause.Reset(gatePause)
		select {
		case <-changes:
		case <-p.jobs.changed:
		case <-ctx.Done():
			return
		}
	}
}

// note takes down of which jobs gates could not be lifted, and tells whoever looks.
func (g *gates) note(failed map[string]string) {
	g.mu.Lock()
	before := g.failed
	g.failed = failed
	g.mu.Unlock()
	if maps.Equal(before, failed) {
		return
	}
	g.p.index.signal()
	switch {
	case len(before) == 0:
		for uid, why := range failed {
			g.p.log.Warn("Scheduling gates cannot be lifted; it is tried again.", "job", uid, "error", why)
		}
	case len(failed) == 0:
		g.p.log.Info("Scheduling gates can be lifted again.")
	}
}

// liftWhole lifts what may be lifted now. It gives why it cannot, by job, for one pod of each that could not be let go.
func (g *gates) liftWhole(ctx context.Context) map[string]string {
	p := g.p
	var gated []*pod
	for _, j := range p.jobs.all() {
		gated = append(gated, p.index.releasable(j.group)...)
	}
	next := make(chan *pod)
	var mu sync.Mutex
	failed := map[string]string{}
	var workers sync.WaitGroup
	for range min(p.config.parallelism(), len(gated)) {
		workers.Go(func() {
			for one := range next {
				if err := p.lift(ctx, one); err != nil {
					mu.Lock()
					failed[one.key.uid] = err.Error()
					mu.Unlock()
				}
			}
		})
	}
	for _, one := range gated {
		next <- one
	}
	close(next)
	workers.Wait()
	return failed
}

// lift takes our gate off one pod and leaves others' on it.
func (p *Provider) lift(ctx context.Context, gated *pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": gated.uid},
		"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": gangGate}}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	var answer metav1.PartialObjectMetadata
	gone, err := p.insist(ctx, gated, func() error {
		return p.pacer.do(ctx, class{gated.key.uid, "lift the gates of pods"}, func(ctx context.Context) error {
			core := p.client.CoreV1()
			return core.Patch(types.StrategicMergePatchType).Namespace(p.namespace).Resource("pods").Name(gated.name).
				VersionedParams(&metav1.PatchOptions{FieldManager: FieldManager}, core.Parameters).
				SetHeader("Accept", metadataAlone).Body(patch).MaxRetries(0).Do(ctx).Into(&answer)
		})
	})
	switch {
	case gone:
		p.index.deleted(gated.key, gated.uid)
		return nil
	case err != nil:
		return explain(err)
	}
	p.index.released(answer.UID, answer.ResourceVersion)
	return nil
}
