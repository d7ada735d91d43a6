package apply

import (
	"cmp"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// waits returns what a plan's jobs wait for, and what keeps failing.
func (l *Loop) waits(p *plan.Plan) []plan.Wait { return slices.Concat(p.Waits, l.refusals()) }

// refusals returns waits for what keeps failing and is retried, or is delayed. The plan does not know of them: it asks
// for the changes again.
func (l *Loop) refusals() []plan.Wait {
	return slices.Concat(l.groups.refusals(), l.exec.failing().waits(), l.delays())
}

// refused identifies changes of one role that fail for one reason.
type refused struct {
	job, role string
	what      job.Code
	reason    string
}

func compareRefused(a, b refused) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.role, b.role), cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason))
}

// failing returns the slots with a change that has failed and is retried.
func (e *executor) failing() failing {
	of := failing{}
	for t, r := range e.retries {
		if x := e.asked[t]; x != nil && r.err != nil {
			of.add(refused{x.change.Job, t.slot.Role, whatFails(&x.change), r.err.Error()}, t.slot.Index)
		}
	}
	return of
}

// waits returns the failing changes as waits, grouped by role and error. The error is worded as it was first reported, for
// instance the refusal of a quota or webhook.
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

// refusals returns the jobs that cannot be prepared, with the reason.
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

// whatFails returns the code for the failure of a change.
func whatFails(c *plan.Change) job.Code {
	switch {
	case isForget(c):
		return RemovalRefused
	case c.Launch == nil:
		return StopRefused
	case c.Action == plan.Update:
		return RepairRefused
	}
	return LaunchRefused
}

// delays returns the jobs with objects that take long to create. To the plan such objects are merely in progress.
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

// unstoredJobs returns all jobs that have not ended, while decisions cannot be stored or journaled and hence nothing is healed.
func (l *Loop) unstoredJobs() []plan.Wait {
	trouble, holds := l.holds.Get(aboutStore, NotStored)
	if !holds {
		trouble, holds = l.holds.Get(aboutJournal, NotJournaled)
	}
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

// checks tracks which of the files' conditions do not hold.
type checks struct {
	unmet    map[string]string // details of the last result by summary; nil before the first check
	due      bool              // check even if no record has changed
	inFlight bool
	again    bool // records have changed since the check in flight began
}

// hold raises the files' conditions that do not hold. While a provider cannot be observed, that is unknown.
func (c *checks) hold(l *Loop) {
	if l.sight.incomplete() {
		c.due = true // check again afterwards
		return
	}
	c.settle(l)
}

// run checks the files' conditions on records, after the check in flight if there is one.
func (c *checks) run(l *Loop, records job.Records) {
	c.again, c.due = c.inFlight, false
	if !c.inFlight {
		c.inFlight = true
		l.do(Check{l.number(), maps.Clone(records)})
	}
}

// ended handles the result of a check.
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

// settle raises a condition for each condition in the files that does not hold, once they have been checked.
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
