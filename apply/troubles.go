package apply

import (
	"cmp"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// refusals are what is retried and keeps failing, or is delayed. The plan knows nothing of them: it asks
// for what is refused.
func (l *Loop) refusals() []plan.Wait {
	return slices.Concat(l.groups.refusals(), l.exec.failing().waits(), l.delays())
}

// refused is what of one role does not succeed, for one reason.
type refused struct {
	job, role string
	what      job.Code
	reason    string
}

func compareRefused(a, b refused) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.role, b.role), cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason))
}

// failing are the slots of which a change has failed and is tried again.
func (e *executor) failing() failing {
	of := failing{}
	for t, r := range e.retries {
		if x := e.asked[t]; x != nil && r.err != nil {
			of.add(refused{x.change.Job, t.slot.Role, whatFails(&x.change), r.err.Error()}, t.slot.Index)
		}
	}
	return of
}

// waits are the changes that have failed and are tried again, in the words of the first attempt that failed as the last
// one did, for as long as none succeeds: what was refused by a quota, say, or by a webhook. Those of a role that fail alike
// are told as one.
func (f failing) waits() []plan.Wait {
	var waits []plan.Wait
	for _, r := range slices.SortedFunc(maps.Keys(f), compareRefused) {
		why := job.Because(r.what, "job", r.job, "message", r.reason)
		if r.role != "" {
			why = job.Because(r.what, "slots", job.Fold(r.role, f[r]), "message", r.reason)
		}
		if last := len(waits) - 1; last >= 0 && waits[last].Job == r.job && waits[last].Role == r.role {
			waits[last].Reasons = append(waits[last].Reasons, why)
			continue
		}
		waits = append(waits, plan.Wait{Job: r.job, Role: r.role, Reasons: []job.Reason{why}})
	}
	return waits
}

// refusals are the jobs that cannot be prepared, with the reason.
func (g *groups) refusals() []plan.Wait {
	var waits []plan.Wait
	for _, p := range g.jobs {
		if p.retry.err != nil {
			waits = append(waits, plan.Wait{Job: p.newest.Name, Reasons: []job.Reason{job.Because(PreparationRefused, "job", p.newest.Name, "message", p.retry.err.Error())}})
		}
	}
	slices.SortFunc(waits, func(a, b plan.Wait) int { return cmp.Compare(a.Job, b.Job) })
	return waits
}

// whatFails is what cannot be done.
func whatFails(c *plan.Change) job.Code {
	switch {
	case isForget(c):
		return RemovalRefused
	case c.Launch == nil:
		return StopRefused
	case c.Action == plan.Update:
		return MendingRefused
	}
	return LaunchRefused
}

// delays are the jobs of which something is being created and is delayed. The plan knows nothing of that: to it
// they are under way.
func (l *Loop) delays() []plan.Wait {
	delayed := l.sight.delayed()
	var waits []plan.Wait
	for name, rec := range l.book.state.Jobs {
		if why := delayed[rec.UID]; why != "" {
			waits = append(waits, plan.Wait{Job: name, Passing: true, Reasons: []job.Reason{job.Because(Delayed, "message", why)}})
		}
	}
	slices.SortFunc(waits, func(a, b plan.Wait) int { return cmp.Compare(a.Job, b.Job) })
	return waits
}

// unstoredJobs are all that have not ended, while their state cannot be stored: nothing of them is healed.
func (l *Loop) unstoredJobs() []plan.Wait {
	trouble, holds := l.holds.Get(aboutStore, NotStored)
	if !holds {
		return nil
	}
	var waits []plan.Wait
	for _, name := range slices.Sorted(maps.Keys(l.book.state.Jobs)) {
		if !l.book.state.Jobs[name].Phase.Ended() {
			waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{trouble.Reason}})
		}
	}
	return waits
}

// checks is what of the files' conditions does not hold.
type checks struct {
	unmet    map[string]string // by summary, with the detail, as it was found last; nil before the first time
	due      bool              // they are to be checked though no record has changed
	inFlight bool
	again    bool // records have changed since
}

// hold holds what of the files' conditions is not so. While something cannot be observed that is not known.
func (c *checks) hold(l *Loop) {
	if l.sight.troubled() {
		c.due = true // they are checked again afterwards
		return
	}
	c.settle(l)
}

// run has the files' conditions checked of records, once the check under way has ended.
func (c *checks) run(l *Loop, records job.Records) {
	c.again, c.due = c.inFlight, false
	if !c.inFlight {
		c.inFlight = true
		l.do(Check{l.number(), maps.Clone(records)})
	}
}

// ended handles the result of checking the files' conditions.
func (c *checks) ended(l *Loop, o Outcome) {
	c.inFlight = false
	if unmet, is := o.Result.(map[string]string); is && o.Err == nil {
		c.unmet = unmet
		c.settle(l)
	} else {
		c.due = true
	}
	if c.again {
		c.run(l, l.book.state.Jobs)
	}
}

// settle holds a condition of each condition in the files that does not hold, once they were checked.
func (c *checks) settle(l *Loop) {
	if c.unmet == nil {
		return
	}
	var now []conditions.Condition
	for _, summary := range slices.Sorted(maps.Keys(c.unmet)) {
		now = append(now, conditions.Condition{About: summary, Reason: job.Because(CheckFailed, "message", c.unmet[summary])})
	}
	l.holds.Settle(l.now, func(k conditions.Key) bool { return k.Code == CheckFailed }, now)
}
