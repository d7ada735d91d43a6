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

// gates implements gangs for schedulers without them: pods are created with a scheduling gate, which is removed once the
// minimum of every role exists. So the scheduler never sees part of a gang that could not be created; it may still place
// only part of one. A pod created after its gang is whole has no gate.
type gates struct {
	p *Provider

	ended chan struct{} // gets a value when a pass ends

	mu     sync.Mutex
	passes map[string]bool   // by UID of the job: in progress
	failed map[string]string // by UID of the job: why its gates cannot be removed
	fails  map[string]int    // by UID of the job: passes in a row that failed
}

// newGates starts lifting gates.
func newGates(s Site) (Gang, error) {
	g := &gates{p: s.p, ended: make(chan struct{}, 1), passes: map[string]bool{}, failed: map[string]string{}, fails: map[string]int{}}
	s.Go(g.lift)
	return g, nil
}

// Ready implements Gang: the gates know only the pods.
func (*gates) Ready(context.Context) error { return nil }

// Can implements Gang.
func (*gates) Can(c *job.Capabilities) {
	c.Caveats = append(c.Caveats, "Gangs use scheduling gates: pods are released to the scheduler together once the minimum that can train exists. That is weaker than gang scheduling: the scheduler may still place only some of them.")
}

// Prepare implements Gang: there are no objects besides the pods.
func (*gates) Prepare(context.Context, Job) error { return nil }

// Schedule implements Gang.
func (g *gates) Schedule(group job.Group, _ job.Address) Scheduling {
	_, known := g.p.jobs.get(group.UID)
	return Scheduling{Gated: least(group) > 1 && !(known && g.p.index.whole(group))}
}

// Complete implements Gang: a pod shows that a gate holds it; this adds why the gate cannot be removed.
func (g *gates) Complete(o *providers.Observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) == 0 {
		return
	}
	for inc := range o.Incarnations.All() {
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
	// gatePause is the least time between two checks of the gates: many pods change at once.
	gatePause = 50 * time.Millisecond
	// gateRetry is when removing a gate is retried.
	gateRetry = time.Second
	// gateTimeout bounds one attempt.
	gateTimeout = 30 * time.Second
)

// liveByRole counts a job's live pods by role.
type liveByRole map[string]int

// whole reports whether the minimum of every role exists.
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

// lift removes the gates of whole gangs until ctx ends, each job's in its own goroutine: slow writes of one delay no other. It
// acts on state, not on events, so the next master continues where this one stopped.
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

// begin gives the caller a job's pods exclusively until end; false if another pass has them.
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

// pass removes the gates of a job's pods. After a failure it pauses before it ends, and the pass is retried. An error that
// may pass by itself is reported once it persists.
func (g *gates) pass(ctx context.Context, uid string, gated []*pod) {
	before := g.failsOf(uid)
	var lifting errgroup.Group
	lifting.SetLimit(g.p.config.parallelism())
	var reported atomic.Bool
	for _, one := range gated {
		lifting.Go(func() error {
			err := g.p.lift(ctx, one)
			if err != nil && ctx.Err() == nil && (!providers.MayPass(err) || before+1 >= providers.Persists) {
				reported.Store(true)
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
	pause := backoffFirst
	if reported.Load() {
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

// note records why gates of a job cannot be removed, "" if they can, and signals a change.
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

// lift removes our gate from one pod, and no other's.
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
	gone, err := p.retryConflicts(ctx, gated, func() error {
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
