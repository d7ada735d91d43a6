package apply

import (
	"context"
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
// place what runs on it. A job's launches wait until it was prepared once. While more of a role are to start together
// than its provider was told, the role's launches wait for that, and while fewer are, what of it is stopped for good:
// else a scheduler would place what is not whole, or take what is left for broken.
//
// How a preparation ended is taken up at one place of a turn: what a plan shows and what is begun rest on the same.
type preparations struct {
	r *Reconciler

	mu     sync.Mutex
	jobs   map[string]*preparation        // by UID
	asked  map[string]bool                // of these, what the newest turn asked for
	places map[*queue]*semaphore.Weighted // by what bounds the changes of the job's provider
}

// preparation is one job's.
type preparation struct {
	token   string
	done    bool      // at least once: token is known
	group   job.Group // what it was prepared with last
	newest  job.Group // what it is to be prepared with
	begun   time.Time // when it was prepared last, or begun to be
	tried   job.Group // with what then
	lapsed  bool      // something of it may be missing since: launches wait until it was prepared again
	flying  bool
	awaited bool     // a turn waits for its end, whatever that is
	landed  *landing // how it ended, until a turn takes it up: it is flying as long
	pause   retry    // after failures
}

// landing is how a preparation ended.
type landing struct {
	group  job.Group // what it was prepared with
	token  string
	err    error
	pause  retry // with err
	lapsed bool  // something of it was found missing since
}

// take takes up how the preparation ended, if it did.
func (p *preparation) take() {
	l := p.landed
	if l == nil {
		return
	}
	p.landed, p.flying, p.awaited = nil, false, false
	if l.err != nil {
		p.pause = l.pause
		return
	}
	p.token, p.done, p.lapsed, p.group, p.pause = l.token, true, l.lapsed, l.group, retry{}
}

// confirms tells whether a preparation ended with what was known before, and nothing is to be done about it.
func (p *preparation) confirms(l *landing) bool {
	return l.err == nil && p.done && p.pause.failures == 0 && !p.lapsed && l.token == p.token &&
		reflect.DeepEqual(l.group, p.group) && reflect.DeepEqual(l.group, p.newest)
}

func newPreparations(r *Reconciler) *preparations {
	return &preparations{r: r, jobs: map[string]*preparation{}, asked: map[string]bool{}, places: map[*queue]*semaphore.Weighted{}}
}

// placesOf bounds how many jobs of a provider are prepared at the same time: as many as it takes changes, or the user lets
// it. With fewer, a hundred gangs that come at once would wait for each other behind the pods of the first.
func (ps *preparations) placesOf(provider string) *semaphore.Weighted {
	q := ps.r.flights.queueOf(provider)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.places[q] == nil {
		ps.places[q] = semaphore.NewWeighted(int64(q.most))
	}
	return ps.places[q]
}

// turn begins a turn: nothing was asked for yet.
func (ps *preparations) turn() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.jobs {
		p.take()
	}
	ps.asked = map[string]bool{}
}

// ask gives the job's token, if it was prepared, and begins to prepare it if that is due.
func (ps *preparations) ask(ctx context.Context, rec *job.Record, g job.Group) (token string, prepared bool) {
	prov := ps.r.o.Providers[rec.Spec.Provider]
	if prov == nil {
		ps.cease(rec.UID)
		return "", false // the plan says that it is not configured
	}
	if ps.r.flights.forgets(rec.UID) {
		return "", false // it was wanted no more, and is again: it is made anew once that has ended
	}
	if ps.begin(rec.UID, g, deletedAt(rec)) {
		places := ps.placesOf(rec.Spec.Provider)
		ps.r.flights.wg.Add(1)
		ps.r.o.Spawn(func() {
			defer ps.r.flights.wg.Done()
			ps.prepare(ctx, places, prov, g)
		})
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[rec.UID]
	p.take()
	return p.token, p.done
}

// begin tells whether the job is to be prepared now. What it needs beside its slots may have been deleted: with a slot of
// it, as by the deletion of all that it owns, or unnoticed, for which it is looked at again every Rescan.
func (ps *preparations) begin(uid string, g job.Group, deleted time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[uid]
	if p == nil {
		p = &preparation{}
		ps.jobs[uid] = p
	}
	p.newest = g
	ps.asked[uid] = true
	now := ps.r.o.Clock()
	p.lapsed = p.lapsed || p.done && p.begun.Before(deleted)
	if p.flying {
		return false
	}
	if p.pause.err != nil && !reflect.DeepEqual(p.tried, g) {
		p.pause = retry{failures: p.pause.failures} // for another group; that it failed was told, and is over once one succeeds
	}
	current := p.done && !p.lapsed && p.pause.failures == 0 && reflect.DeepEqual(p.group, g)
	if current && now.Sub(p.begun) < Rescan || now.Before(p.pause.until) {
		return false
	}
	p.flying, p.begun, p.tried = true, now, g
	return true
}

// cease ends the pause of a job that is not to be prepared as things are: that it failed is over, and nothing of it is due.
// One that is under way ends first.
func (ps *preparations) cease(uid string) {
	ps.mu.Lock()
	p := ps.jobs[uid]
	if p == nil || p.flying || p.pause.failures == 0 {
		ps.mu.Unlock()
		return
	}
	p.pause = retry{}
	summary := cannotPrepare(p.newest.Name)
	ps.mu.Unlock()
	ps.r.view(func(v View) { v.Recovered(summary) })
}

func cannotPrepare(name string) string { return "Job " + name + " cannot be prepared" }

// deletedAt is when the newest slot was found deleted that is to be started again for it; zero if none is.
func deletedAt(rec *job.Record) (at time.Time) {
	for i := range rec.Slots {
		if s := &rec.Slots[i]; s.Cause == job.Deletion && s.Phase == job.Scheduling && s.Since.After(at) {
			at = s.Since
		}
	}
	return at
}

// lapse has the job prepared again at once: its provider says that something is missing.
func (ps *preparations) lapse(uid string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.jobs[uid]; p != nil {
		p.lapsed = true
		if p.landed != nil {
			p.landed.lapsed = true
		}
	}
}

// prepare waits for its turn and prepares the job.
func (ps *preparations) prepare(ctx context.Context, places *semaphore.Weighted, prov providers.Provider, g job.Group) {
	if places.Acquire(ctx, 1) != nil {
		ps.leave(g.UID)
		return
	}
	defer places.Release(1)
	if ps.r.flights.grounded() {
		ps.leave(g.UID)
		return
	}
	if acting := ps.r.flights.acting; acting != nil {
		ctx = acting
	}
	before := ps.pauseOf(g.UID)
	var token string
	failed, err := insist(ctx, ps.r.o.Clock, before, func() (err error) {
		token, err = prepareOnce(ctx, prov, g)
		return err
	})
	summary := cannotPrepare(g.Name)
	switch { // before it can be taken up: another turn may say that this is over
	case err != nil && !repeats(err, before.err):
		ps.r.view(func(v View) { v.Warned(summary, err.Error()) })
	case err == nil && before.failures > 0:
		ps.r.view(func(v View) { v.Recovered(summary) })
	}
	ps.land(&landing{group: g, token: token, err: err, pause: failed})
}

func prepareOnce(ctx context.Context, prov providers.Provider, g job.Group) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return prov.Prepare(ctx, g)
}

// leave ends a preparation that was not begun: the run ends.
func (ps *preparations) leave(uid string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.jobs[uid].flying = false
}

// pauseOf is the pause before the job's preparation that is under way.
func (ps *preparations) pauseOf(uid string) retry {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.jobs[uid].pause
}

// land ends a preparation. One that confirms what is known is no reason for a turn, which looks at every slot: of a job at
// rest that is each one.
func (ps *preparations) land(l *landing) {
	ps.mu.Lock()
	p := ps.jobs[l.group.UID]
	p.landed = l
	quiet := !p.awaited && p.confirms(l)
	if quiet {
		p.take()
	}
	ps.mu.Unlock()
	if !quiet {
		ps.r.flights.wake()
	}
}

// holds tells whether a change has to wait for its job's preparation: a launch for the first, and for the one by
// which more start together; a stop for good for the one by which fewer do; and forgetting the job for one that is
// under way, which would leave something behind.
func (ps *preparations) holds(c *plan.Change) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.jobs[c.UID]
	if c.Slot == (job.Address{}) {
		if !isForget(c) || p == nil || !p.flying { // what else is done to a job is done by storing it
			return false
		}
		p.awaited = true
		return true
	}
	if p == nil || !p.done || p.lapsed {
		return c.Launch != nil
	}
	known, next := together(p.group, c.Slot.Role), together(p.newest, c.Slot.Role)
	if c.Launch != nil {
		return next > known
	}
	return c.Action == plan.Delete && next < known
}

// together is how many slots of a role start together.
func together(g job.Group, role string) int {
	for _, r := range g.Roles {
		if r.Role == role {
			return r.Min
		}
	}
	return 0
}

// open tells whether a preparation is under way, or failed and may still succeed soon.
func (ps *preparations) open() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.jobs {
		p.awaited = p.flying
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

// due is when the next one that failed is tried again; zero is never. One that was not asked for, as while its provider
// cannot be observed, is tried by no turn.
func (ps *preparations) due() (at time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for uid, p := range ps.jobs {
		if ps.asked[uid] && !p.flying && p.pause.failures > 0 {
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
