package kubernetes

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// A headless Service and a PodDisruptionBudget cost their controllers work with every pod that they select and that
// changes: while 10,000 pods come up, more than the scheduler needs for them. So both are there from the beginning, and
// select nothing until the job's pods are up. A world may form before, at once when the last wanted slot joins: agents meet
// by addresses and need no names, and a drain can interrupt only what has just begun.

const (
	// calm is for how long no pod has come up when a job that has enough of them counts as up. It is less than a world
	// waits for more slots to join by default (job.Rendezvous.Settle).
	calm = time.Second
	// readinessMost is the most that names and budgets wait for, from when enough pods are up.
	readinessMost = time.Minute
)

// readiness is how the pods of a job come up, until they are.
type readiness struct {
	up     int       // pods that are
	last   time.Time // when one came up last
	enough time.Time // since when, of every role, the least that can train are up; zero if they are not
}

// risen reports whether a job's pods are up: those that it needs are, and no other is on its way, or none came up for a
// while. If not, it is worth to ask again at due; zero is when a pod has changed.
func (a *readiness) risen(now time.Time, g job.Group, pods []*pod) (done bool, due time.Time) {
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
	due = a.last.Add(calm)
	if most := a.enough.Add(readinessMost); most.Before(due) {
		due = most
	}
	return !coming || !now.Before(due), due
}

// anyUp reports whether a pod of the job runs.
func anyUp(pods []*pod) bool {
	for _, p := range pods {
		if p.seen.State == job.Up {
			return true
		}
	}
	return false
}

const (
	// readinessPause is the least time between two looks at the pods that come up: each goes over all of them.
	readinessPause = 250 * time.Millisecond
	// readinessRetry is when what could not be written is retried.
	readinessRetry = 5 * time.Second
	// readinessWrite bounds one such write: a Prepare of the job waits for it.
	readinessWrite = time.Minute
)

// awaken lets Services and budgets select the pods of their jobs once these are up, until the provider is closed. It
// goes by what there is: for a job whose pods were up before this process began, Prepare has done it.
func (p *Provider) awaken() {
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
		later := p.awakenRisen()
		pause.Reset(readinessPause)
		select {
		case <-later:
		case <-changes:
		case <-p.ctx.Done():
			return
		}
	}
}

// awakenRisen looks at every job that is asleep. later fires when it is time to look again though nothing changes.
func (p *Provider) awakenRisen() (later <-chan time.Time) {
	now := time.Now()
	var next time.Time
	for _, j := range p.jobs.all() {
		if j.awake.Load() {
			continue
		}
		risen, due := j.readiness.risen(now, j.group, p.index.ofJob(j.group.UID))
		if risen {
			j.awake.Store(true) // before it is written: a Prepare that comes later is not to put them to sleep again
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

// activate has a job's Service and budgets select its pods. It is tried until they do, the job was forgotten, or the provider
// is closed.
func (p *Provider) activate(j prepared) {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(p.ctx, readinessWrite)
		err := p.surround(ctx, j)
		cancel()
		if err == nil || p.ctx.Err() != nil {
			return
		}
		pause := fallFirst
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

// surround makes the Service and the budgets of a job, as it was asked for last, or brings them up to date.
func (p *Provider) surround(ctx context.Context, j prepared) error {
	select {
	case j.around <- struct{}{}:
		defer func() { <-j.around }()
	case <-ctx.Done():
		return ctx.Err()
	}
	j = *j.newest.Load()      // whoever writes last writes what is so
	var making errgroup.Group // what is refused of one is not to keep the others from being made
	making.Go(func() error {
		return p.write(ctx, j.group, "the Service", func(ctx context.Context) error {
			_, err := p.client.CoreV1().Services(p.namespace).Apply(ctx, serviceOf(j), applyAs)
			return err
		})
	})
	budgets := p.client.PolicyV1().PodDisruptionBudgets(p.namespace)
	for _, r := range j.group.Roles {
		making.Go(func() error {
			return p.write(ctx, j.group, "the PodDisruptionBudget", func(ctx context.Context) error {
				_, err := budgets.Apply(ctx, budgetOf(j, r), applyAs)
				return err
			})
		})
	}
	return making.Wait()
}
