package apply

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// groups is what providers make for jobs beside their slots. A job's launches wait until it was prepared once. While more
// of a role are to start together than its provider was told, the role's launches wait for that, and while fewer are, what
// of it is stopped permanently: else a scheduler would place what is not whole, or take what is left for broken.
type groups struct {
	jobs map[string]*group // by UID
}

// group is one job's.
type group struct {
	provider string
	token    string
	done     bool      // at least once: token is known
	group    job.Group // what it was prepared with last
	newest   job.Group // what it is to be prepared with
	begun    time.Time // when it was prepared last, or begun to be
	tried    job.Group // with what then
	deleted  time.Time // when the newest slot was deleted that was known then, by the clock of whoever found it
	found    time.Time // and that is known now
	asked    bool      // the newest plan asks for it
	lapsed   bool      // something of it may be missing since: launches wait until it was prepared again
	inFlight bool
	awaited  bool // a turn waits for its end, whatever that is
	retry    retry
}

func newGroups() groups { return groups{jobs: map[string]*group{}} }

// plan begins a plan: nothing was asked for yet.
func (g *groups) plan() {
	for _, p := range g.jobs {
		p.asked = false
	}
}

// ask returns the job's token, if it was prepared, and has it prepared if that is due.
func (g *groups) ask(l *Loop, rec *job.Record, newest job.Group) (token string, prepared bool) {
	if l.exec.forgets(rec.UID) {
		return "", false // it was wanted no more, and is again: it is recreated once that has ended
	}
	p := g.jobs[rec.UID]
	if p == nil {
		p = &group{}
		g.jobs[rec.UID] = p
	}
	p.provider, p.newest, p.asked = rec.Spec.Provider, newest, true
	// What it needs may have been deleted with a slot, as by the deletion of all that the job owns.
	p.found = deletedAt(rec)
	p.lapsed = p.lapsed || p.done && !p.found.IsZero() && !p.found.Equal(p.deleted)
	if p.retry.err != nil && !reflect.DeepEqual(p.tried, newest) {
		p.retry = retry{failures: p.retry.failures} // for another group; that it failed was told, and is over once one succeeds
	}
	p.prepare(l)
	return p.token, p.done
}

// prepare has the job prepared, if that is due. What it needs may have been deleted unnoticed: it is looked at again every
// Rescan.
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

// refresh has those prepared again that the newest plan asks for and that are due.
func (g *groups) refresh(l *Loop) {
	for _, uid := range slices.Sorted(maps.Keys(g.jobs)) {
		if p := g.jobs[uid]; p.asked && !l.exec.forgets(uid) {
			p.prepare(l)
		}
	}
}

// ended handles the outcome of a preparation. It reports whether to plan again: one that confirms what is known is no
// reason for a turn, which looks at every slot.
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
		case !tell && l.end.stopped(): // it is not tried again
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

// cease ends the pause of a job that is not to be prepared as things are: that it failed is over, and nothing of it is due.
func (g *groups) cease(l *Loop, uid string) {
	if p := g.jobs[uid]; p != nil && !p.inFlight && p.retry.failures > 0 {
		p.retry, l.turn.dirty = retry{}, true
	}
}

// deletedAt is when the newest slot was found deleted that is to be started again for it; zero if none is.
func deletedAt(rec *job.Record) (at time.Time) {
	for i := range rec.Slots {
		if s := &rec.Slots[i]; s.Cause == job.Deletion && s.Phase == job.Scheduling && s.Since.After(at) {
			at = s.Since
		}
	}
	return at
}

// lapse has the job prepared again at once: something of it is missing.
func (g *groups) lapse(uid string) {
	if p := g.jobs[uid]; p != nil {
		p.lapsed = true
	}
}

// holds reports whether a change has to wait for its job's preparation: a launch for the first, and for the one by
// which more start together; a permanent stop for the one by which fewer do; and forgetting the job for one that is
// under way, which would leave something behind.
func (g *groups) holds(c *plan.Change) bool {
	p := g.jobs[c.UID]
	if c.Slot == (job.Address{}) {
		if !isForget(c) || p == nil || !p.inFlight { // what else is done to a job is done by storing it
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

// open reports whether a preparation is under way, or failed and may still succeed soon.
func (g *groups) open() (open bool) {
	for _, p := range g.jobs {
		p.awaited = p.inFlight
		open = open || p.inFlight || p.retry.failures > 0 && p.retry.failures < hopeless
	}
	return open
}

// failing reports whether a job could not be prepared.
func (g *groups) failing() bool {
	for _, p := range g.jobs {
		if p.retry.failures > 0 {
			return true
		}
	}
	return false
}

// due is when the next one that failed is retried; zero is never. One that was not asked for, as while its provider
// cannot be observed, is tried by no turn.
func (g *groups) due() (at time.Time) {
	for _, p := range g.jobs {
		if p.asked && !p.inFlight && p.retry.failures > 0 {
			at = earliest(at, p.retry.until)
		}
	}
	return at
}

// keep drops what is known of all other jobs: they were forgotten.
func (g *groups) keep(uids map[string]bool) {
	for uid, p := range g.jobs {
		if !uids[uid] && !p.inFlight {
			delete(g.jobs, uid)
		}
	}
}
