package kubernetes

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// A headless Service and a PodDisruptionBudget make their controllers work for every change of every pod that they select:
// while 10,000 pods start, more than the scheduler does. So both exist from the beginning, but select nothing until the
// job's pods are up. A world may form earlier, at once when the last wanted slot joins: agents use addresses and need no
// names, and a drain can interrupt only what has just begun.

const (
	// quietPeriod: a job with enough pods up counts as up when none has come up for this long. It is less than a world waits for more
	// slots to join by default (job.Rendezvous.Settle).
	quietPeriod = time.Second
	// readinessLimit is the longest that names and budgets wait once enough pods are up.
	readinessLimit = time.Minute
)

// readiness follows the pods of a job until they are up.
type readiness struct {
	up     int       // how many pods are
	last   time.Time // when one last came up
	enough time.Time // since when the minimum of every role is up; zero if it is not
}

// allUp reports whether a job's pods are up: the minimum is, and no other is starting, or none came up for a while. If
// not, check again at due; zero is when a pod has changed.
func (a *readiness) allUp(now time.Time, g job.Group, pods []*pod) (done bool, due time.Time) {
	up, coming := liveByRole{}, false
	for _, p := range pods {
		switch {
		case !p.live():
		case p.seen.State == job.Up:
			up[p.key.role]++
		default:
			coming = true
		}
	}
	n := 0
	for _, ofRole := range up {
		n += ofRole
	}
	if n > a.up {
		a.last = now
	}
	a.up = n
	if n == 0 || !whole(g, up) {
		a.enough = time.Time{}
		return false, time.Time{}
	}
	if a.enough.IsZero() {
		a.enough = now
	}
	due = a.last.Add(quietPeriod)
	if most := a.enough.Add(readinessLimit); most.Before(due) {
		due = most
	}
	return !coming || !now.Before(due), due
}

// anyUp reports whether any pod runs.
func anyUp(pods []*pod) bool {
	for _, p := range pods {
		if p.seen.State == job.Up {
			return true
		}
	}
	return false
}

const (
	// readinessPause is the least time between two checks: each iterates over all pods.
	readinessPause = 250 * time.Millisecond
	// readinessRetry is when a failed write is retried.
	readinessRetry = 5 * time.Second
	// readinessWrite bounds one write: a Prepare of the job waits for it.
	readinessWrite = time.Minute
)

// activateLoop lets Services and budgets select the pods of their jobs once these are up, until the provider is closed. It acts
// on state: for a job whose pods were up before this process started, Prepare has done it.
func (p *Provider) activateLoop() {
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
		later := p.activateJobs()
		pause.Reset(readinessPause)
		select {
		case <-later:
		case <-changes:
		case <-p.ctx.Done():
			return
		}
	}
}

// activateJobs checks every job that is asleep. later fires when it is time to check again even without a change.
func (p *Provider) activateJobs() (later <-chan time.Time) {
	now := time.Now()
	var next time.Time
	for _, j := range p.jobs.all() {
		if j.awake.Load() {
			continue
		}
		allUp, due := j.readiness.allUp(now, j.group, p.index.ofJob(j.group.UID))
		if allUp {
			j.awake.Store(true) // before the write: a later Prepare must not put them to sleep again
			p.owned.Go(func() { p.activate(j) })
			continue
		}
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// activate lets a job's Service and budgets select its pods. It retries until that succeeds, the job is forgotten, or the
// provider is closed.
func (p *Provider) activate(j prepared) {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(p.ctx, readinessWrite)
		err := p.writeObjects(ctx, j)
		cancel()
		if err == nil || p.ctx.Err() != nil {
			return
		}
		pause := backoffFirst
		if !providers.MayPass(err) || attempt >= providers.Persists {
			p.log.Warn("Cannot write a job's Services or PodDisruptionBudgets; retrying.", "job", j.group.Name, "error", err)
			pause = readinessRetry
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return
		}
		if now, known := p.jobs.get(j.group.UID); !known || now.awake != j.awake {
			return
		}
	}
}

// writeObjects creates or updates the Service and the budgets of a job, for its latest group.
func (p *Provider) writeObjects(ctx context.Context, j prepared) error {
	select {
	case j.writeLock <- struct{}{}:
		defer func() { <-j.writeLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	j = *j.newest.Load()      // the last write has the latest group
	var making errgroup.Group // not WithContext: one refusal must not keep the others from being written
	making.Go(func() error {
		return p.write(ctx, j.group, "the Service", func(ctx context.Context) error {
			_, err := p.client.CoreV1().Services(p.namespace).Apply(ctx, serviceOf(j), applyOptions)
			return err
		})
	})
	budgets := p.client.PolicyV1().PodDisruptionBudgets(p.namespace)
	for _, r := range j.group.Roles {
		making.Go(func() error {
			return p.write(ctx, j.group, "the PodDisruptionBudget", func(ctx context.Context) error {
				_, err := budgets.Apply(ctx, budgetOf(j, r), applyOptions)
				return err
			})
		})
	}
	return making.Wait()
}
