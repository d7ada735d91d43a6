package kubernetes

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// gates are a gang without a scheduler that knows gangs: pods are created under a scheduling gate, and it is removed
// once, of every role of their job, the least that starts together exist. So the scheduler never sees half a gang that
// could not be made; it may still place only half of one. A pod that comes when its gang is whole has no gate.
type gates struct {
	p *Provider

	ended chan struct{} // gets a value when a pass over a job's pods has ended

	mu     sync.Mutex
	passes map[string]bool   // by UID of the job: one is under way
	failed map[string]string // by UID of the job: why gates of it cannot be removed
	fails  map[string]int    // by UID of the job: passes in a row that failed
}

// newGates begins to lift gates.
func newGates(s Site) (Gang, error) {
	g := &gates{p: s.p, ended: make(chan struct{}, 1), passes: map[string]bool{}, failed: map[string]string{}, fails: map[string]int{}}
	s.Go(g.lift)
	return g, nil
}

// Ready implements Gang: the pods are all there is to know.
func (*gates) Ready(context.Context) error { return nil }

// Can implements Gang.
func (*gates) Can(c *job.Capabilities) {
	c.Caveats = append(c.Caveats, "Gangs use scheduling gates: pods are released to the scheduler together once the minimum that can train exists. That is weaker than gang scheduling: the scheduler may still place only some of them.")
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
			inc.Waiting = "its gang exists, but its scheduling gate cannot be removed: " + why
		}
	}
}

// Forget implements Gang.
func (g *gates) Forget(_ context.Context, j Job) error {
	g.note(j.Group.UID, "")
	return nil
}

const (
	// gatePause is the least time between two looks at the gates: many pods change at once.
	gatePause = 50 * time.Millisecond
	// gateRetry is when a gate that cannot be removed is retried.
	gateRetry = time.Second
	// gateTimeout bounds one attempt.
	gateTimeout = 30 * time.Second
)

// liveByRole counts pods of a job.
type liveByRole map[string]int

// whole reports whether, of every role, the least that starts together exist.
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

// lift removes the gates of whole gangs until ctx ends, of each job by itself: one whose pods are slow to write holds up no
// other. It goes by what there is, not by what happened, so a next master continues where this one ended.
func (g *gates) lift(ctx context.Context) {
	p := g.p
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	var passes sync.WaitGroup
	defer passes.Wait()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		for _, j := range p.jobs.all() {
			uid, gated := j.group.UID, p.index.releasable(j.group)
			switch {
			case len(gated) == 0:
				g.note(uid, "")
			case g.begin(uid):
				passes.Go(func() {
					defer g.end(uid)
					g.pass(ctx, uid, gated)
				})
			}
		}
		pause.Reset(gatePause)
		select {
		case <-changes:
		case <-g.ended:
		case <-ctx.Done():
			return
		}
	}
}

// begin has a job's pods to the caller alone until end; false if another has them.
func (g *gates) begin(uid string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passes[uid] {
		return false
	}
	g.passes[uid] = true
	return true
}

func (g *gates) end(uid string) {
	g.mu.Lock()
	delete(g.passes, uid)
	g.mu.Unlock()
	wake(g.ended)
}

// pass removes the gates of a job's pods, and ends after a while where it could not: then it is retried. What may pass by
// itself is reported once it persists.
func (g *gates) pass(ctx context.Context, uid string, gated []*pod) {
	before := g.failsOf(uid)
	var lifting errgroup.Group
	lifting.SetLimit(g.p.config.parallelism())
	var told atomic.Bool
	for _, one := range gated {
		lifting.Go(func() error {
			err := g.p.lift(ctx, one)
			if err != nil && ctx.Err() == nil && (!providers.MayPass(err) || before+1 >= providers.Persists) {
				told.Store(true)
				g.note(uid, err.Error())
			}
			return err
		})
	}
	if lifting.Wait() == nil {
		g.note(uid, "")
		return
	}
	g.fail(uid)
	pause := fallFirst
	if told.Load() {
		pause = gateRetry
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

func (g *gates) failsOf(uid string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fails[uid]
}

func (g *gates) fail(uid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails[uid]++
}

// note records why gates of a job cannot be removed, "" if they can, and tells whoever looks.
func (g *gates) note(uid, why string) {
	g.mu.Lock()
	before := g.failed[uid]
	if why != "" {
		g.failed[uid] = why
	} else {
		delete(g.failed, uid)
		delete(g.fails, uid)
	}
	g.mu.Unlock()
	if why == before {
		return
	}
	g.p.index.signal()
	switch {
	case before == "":
		g.p.log.Warn("Cannot remove scheduling gates; retrying.", "job", uid, "error", why)
	case why == "":
		g.p.log.Info("Scheduling gates can be removed again.", "job", uid)
	}
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
		return p.pacer.do(ctx, class{gated.key.uid, "remove the scheduling gates of pods"}, func(ctx context.Context) error {
			core := p.client.CoreV1()
			return core.Patch(types.StrategicMergePatchType).Namespace(p.namespace).Resource("pods").Name(gated.name).
				VersionedParams(&metav1.PatchOptions{FieldManager: FieldManager}, core.Parameters).
				SetHeader("Accept", metadataAlone).Body(patch).Do(ctx).Into(&answer)
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
