package apply

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// groups tracks the preparation of jobs: what providers create for them besides their slots. A job's launches wait for its
// first preparation. If the number of a role's slots that start together grows, its launches wait until the job is prepared
// with the new number; if it shrinks, its permanent stops wait. Otherwise a scheduler would place an incomplete gang, or
// consider the rest of one broken.
type groups struct {
	jobs map[string]*group // by UID
}

// group is the preparation of one job.
type group struct {
	provider string
	token    string
	done     bool      // prepared at least once: token is known
	group    job.Group // what it was last prepared with
	newest   job.Group // what it is to be prepared with
	begun    time.Time // when the last attempt began
	tried    job.Group // what that attempt used
	deleted  time.Time // the newest deletion of a slot that was known at that attempt, by the clock of its finder
	found    time.Time // the newest that is known now
	record   *job.Record
	asked    bool // the newest plan asks for it
	lapsed   bool // some of its objects may be missing: launches wait until it is prepared again
	inFlight bool
	awaited  bool // a turn waits for its outcome, even if nothing changes
	retry    retry
}

func newGroups() groups { return groups{jobs: map[string]*group{}} }

// plan begins a plan, which has asked for nothing yet.
func (g *groups) plan() {
	for _, p := range g.jobs {
		p.asked = false
	}
}

// ask returns the job's token if it was prepared, and prepares the job if that is due.
func (g *groups) ask(l *Loop, rec *job.Record, newest job.Group) (token string, prepared bool) {
	if l.exec.forgets(rec.UID) {
		return "", false // it is being forgotten and was declared again: it is recreated after that
	}
	p := g.jobs[rec.UID]
	if p == nil {
		p = &group{}
		g.jobs[rec.UID] = p
	}
	p.provider, p.newest, p.asked = rec.Spec.Provider, newest, true
	// Its objects may have been deleted together with a slot.
	if p.record != rec {
		p.record, p.found = rec, deletedAt(rec)
	}
	p.lapsed = p.lapsed || p.done && !p.found.IsZero() && !p.found.Equal(p.deleted)
	if p.retry.err != nil && !reflect.DeepEqual(p.tried, newest) {
		p.retry = retry{failures: p.retry.failures} // no pause for another group; failures stays, so that a success clears the condition
	}
	p.prepare(l)
	return p.token, p.done
}

// prepare prepares the job if that is due. It is repeated every Rescan, since the job's objects may have been deleted
// unnoticed.
func (p *group) prepare(l *Loop) {
	current := p.done && !p.lapsed && p.retry.failures == 0 && reflect.DeepEqual(p.group, p.newest)
	if p.inFlight || current && l.now.Sub(p.begun) < Rescan || l.now.Before(p.retry.until) || l.end.stopped() {
		return
	}
	p.inFlight, p.begun, p.tried, p.deleted = true, l.now, p.newest, p.found
	launched := p.newest
	launched.Name = l.book.names.launched(launched.UID, launched.Name)
	l.do(Prepare{p.provider, launched})
}

// refresh prepares the jobs of the newest plan that are due.
func (g *groups) refresh(l *Loop) {
	for _, uid := range slices.Sorted(maps.Keys(g.jobs)) {
		if p := g.jobs[uid]; p.asked && !l.exec.forgets(uid) {
			p.prepare(l)
		}
	}
}

// ended handles the outcome of a preparation. It reports whether to plan again: if nothing changed, a turn, which looks at
// every slot, is not worth it.
func (g *groups) ended(l *Loop, e Prepare, o Outcome) (news bool) {
	p := g.jobs[e.Group.UID]
	if p == nil {
		return false
	}
	awaited := p.awaited
	p.inFlight, p.awaited = false, false
	if o.Err != nil {
		if o.Err == ErrDropped {
			return awaited
		}
		var tell bool
		p.retry, tell = p.retry.next(l.now, o.Err, l.setup.Jitter())
		switch {
		case !tell && l.end.stopped(): // not retried
			return awaited
		case !tell:
			p.inFlight, p.awaited = true, awaited
			l.again(e, p.retry.until)
			return false
		}
		return true
	}
	token, _ := o.Result.(string)
	confirms := p.done && p.retry.failures == 0 && !p.lapsed && token == p.token &&
		reflect.DeepEqual(p.tried, p.group) && reflect.DeepEqual(p.tried, p.newest)
	p.token, p.done, p.lapsed, p.group, p.retry = token, true, false, p.tried, retry{}
	return awaited || !confirms
}

// resetRetries resets the retries of a job that is not to be prepared now, which clears its failure.
func (g *groups) resetRetries(l *Loop, uid string) {
	if p := g.jobs[uid]; p != nil && !p.inFlight && p.retry.failures > 0 {
		p.retry, l.turn.dirty = retry{}, true
	}
}

// deletedAt is when the newest deletion was found of a slot that is to be started again; zero if there is none.
func deletedAt(rec *job.Record) (at time.Time) {
	for i := range rec.Slots {
		if s := &rec.Slots[i]; s.Cause == job.Deletion && s.Phase == job.Scheduling && s.Since.After(at) {
			at = s.Since
		}
	}
	return at
}

// lapse makes the job's launches wait for another preparation: some of its objects are missing.
func (g *groups) lapse(uid string) {
	if p := g.jobs[uid]; p != nil {
		p.lapsed = true
	}
}

// holds reports whether a change must wait for its job's preparation: a launch for the first one, and for one with more
// slots that start together; a launch or a replacement for one with its source files; a permanent stop for one with fewer; and
// forgetting the job for one that is in flight, which would leave objects behind.
func (g *groups) holds(c *plan.Change) bool {
	p := g.jobs[c.UID]
	if c.Slot == (job.Address{}) {
		if !isForget(c) || p == nil || !p.inFlight { // a job's other changes are done when they are stored
			return false
		}
		p.awaited = true
		return true
	}
	if p == nil || !p.done || p.lapsed {
		return c.Launch != nil
	}
	known, next := together(p.group, c.Slot.Role), together(p.newest, c.Slot.Role)
	starts := c.Launch != nil || c.Action == plan.Replace // which may only stop it at first
	if starts && sourceOf(p.group, c.Slot.Role) != sourceOf(p.newest, c.Slot.Role) {
		return true
	}
	if c.Launch != nil {
		return next > known
	}
	return c.Action == plan.Delete && next < known
}

// together returns how many slots of a role start together.
func together(g job.Group, role string) int {
	for _, r := range g.Roles {
		if r.Role == role {
			return r.Min
		}
	}
	return 0
}

// sourceOf returns the digest of a role's source files; "" if it has none.
func sourceOf(g job.Group, role string) string {
	for _, r := range g.Roles {
		if r.Role == role && r.Source != nil {
			return r.Source.Digest
		}
	}
	return ""
}

// open reports whether a preparation is in flight, or failed and may still succeed soon.
func (g *groups) open() (open bool) {
	for _, p := range g.jobs {
		p.awaited = p.inFlight
		open = open || p.inFlight || p.retry.failures > 0 && p.retry.failures < maxFailures
	}
	return open
}

// failing reports whether any job could not be prepared.
func (g *groups) failing() bool {
	for _, p := range g.jobs {
		if p.retry.failures > 0 {
			return true
		}
	}
	return false
}

// due is when the next failed preparation is retried; zero is never. Preparations that the newest plan does not ask for, for
// instance because their provider cannot be observed, are not retried.
func (g *groups) due() (at time.Time) {
	for _, p := range g.jobs {
		if p.asked && !p.inFlight && p.retry.failures > 0 {
			at = earliest(at, p.retry.until)
		}
	}
	return at
}

// keep drops all other jobs, which are no longer recorded.
func (g *groups) keep(uids map[string]bool) {
	for uid, p := range g.jobs {
		if !uids[uid] && !p.inFlight {
			delete(g.jobs, uid)
		}
	}
}
