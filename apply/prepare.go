package apply

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// preparations prepares jobs with their providers, and again when what a provider is told of one has changed.
// It does so beside the loop: an infrastructure that does not answer must not keep the loop from healing in
// place what runs on it. A job's launches wait until it was prepared once.
type preparations struct {
	r      *Reconciler
	places *semaphore.Weighted

	mu   sync.Mutex
	jobs map[string]*preparation // by UID
}

// preparation is one job's.
type preparation struct {
	token  string
	done   bool      // at least once: token is known
	group  job.Group // what it was prepared with last
	flying bool
	pause  pause // after failures
}

// preparedAtOnce bounds how many jobs are prepared at the same time: each takes a handful of calls.
const preparedAtOnce = 8

func newPreparations(r *Reconciler) *preparations {
	return &preparations{r: r, places: semaphore.NewWeighted(preparedAtOnce), jobs: map[string]*preparation{}}
}

// ask gives the job's token, if it was prepared, and begins to prepare it if that is due.
func (ps *preparations) ask(ctx context.Context, rec *job.Record, g job.Group) (token string, prepared bool) {
	prov := ps.r.o.Providers[rec.Spec.Provider]
	if prov == nil {
		return "", false // the plan says that it is not configured
	}
	if ps.begin(rec.UID, g) {
		ps.r.flights.wg.Add(1)
		ps.r.o.Spawn(func() {
			defer ps.r.flights.wg.Done()
			ps.prepare(ctx, prov, g)
		})
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[rec.UID]
	return p.token, p.done
}

func (ps *preparations) begin(uid string, g job.Group) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[uid]
	if p == nil {
		p = &preparation{}
		ps.jobs[uid] = p
	}
	current := p.done && p.pause.failures == 0 && reflect.DeepEqual(p.group, g)
	if p.flying || current || ps.r.o.Clock().Before(p.pause.until) {
		return false
	}
	p.flying = true
	return true
}

// prepare waits for its turn and prepares the job.
func (ps *preparations) prepare(ctx context.Context, prov providers.Provider, g job.Group) {
	if ps.places.Acquire(ctx, 1) != nil {
		ps.land(g, func(*preparation) {})
		return
	}
	token, err := ps.call(ctx, prov, g)
	ps.places.Release(1)
	summary := "Job " + g.Name + " cannot be prepared"
	failures := 0
	ps.land(g, func(p *preparation) {
		failures = p.pause.failures
		if err != nil {
			p.pause = p.pause.next(ps.r.o.Clock())
			return
		}
		p.token, p.done, p.group, p.pause = token, true, g, pause{}
	})
	switch {
	case err != nil && failures == 0:
		ps.r.view(func(v View) { v.Warned(summary, err.Error()) })
	case err == nil && failures > 0:
		ps.r.view(func(v View) { v.Recovered(summary) })
	}
}

func (ps *preparations) call(ctx context.Context, prov providers.Provider, g job.Group) (string, error) {
	if acting := ps.r.flights.acting; acting != nil {
		ctx = acting
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return prov.Prepare(ctx, g)
}

func (ps *preparations) land(g job.Group, enter func(*preparation)) {
	ps.mu.Lock()
	p := ps.jobs[g.UID]
	p.flying = false
	enter(p)
	ps.mu.Unlock()
	ps.r.flights.wake()
}

// holds tells whether a change has to wait for its job's preparation: a launch for the first, and forgetting
// the job for one that is under way, which would leave something behind.
func (ps *preparations) holds(c *plan.Change) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[c.UID]
	if c.Slot == (job.Address{}) {
		return p != nil && p.flying
	}
	return c.Launch != nil && (p == nil || !p.done)
}

// open tells whether a preparation is under way, or failed and may still succeed soon.
func (ps *preparations) open() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.jobs {
		if p.flying || p.pause.failures > 0 && p.pause.failures < hopeless {
			return true
		}
	}
	return false
}

// failing tells whether a job could not be prepared.
func (ps *preparations) failing() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.jobs {
		if p.pause.failures > 0 {
			return true
		}
	}
	return false
}

// due is when the next one that failed is tried again; zero is never.
func (ps *preparations) due() (at time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.jobs {
		if !p.flying && p.pause.failures > 0 {
			at = earliest(at, p.pause.until)
		}
	}
	return at
}

// keep drops what is known of all other jobs: they were forgotten.
func (ps *preparations) keep(uids map[string]bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for uid, p := range ps.jobs {
		if !uids[uid] && !p.flying {
			delete(ps.jobs, uid)
		}
	}
}

// next is the pause after one failure more: doubling, with up to a quarter of jitter.
func (p pause) next(now time.Time) pause {
	wait := min(pauseFirst<<min(p.failures, 10), pauseMost)
	return pause{p.failures + 1, now.Add(wait + rand.N(wait/4))}
}
