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
	return slices.Concat(l.groups.refusals(), l.exec.refusals(), l.delays())
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

// failing are the slots, by number, of which a change has failed and is retried. Of a job itself it is slot 0.
func (e *executor) failing() map[refused][]int {
	indices := map[refused][]int{}
	for t, r := range e.retries {
		if x := e.asked[t]; x != nil && r.err != nil {
			f := refused{x.change.Job, t.slot.Role, whatFails(&x.change), r.err.Error()}
			indices[f] = append(indices[f], t.slot.Index)
		}
	}
	return indices
}

// failures are the notices of what fails now and did not when they were asked for last: each slot once for as long as it
// fails for one reason, however often it is tried.
func (l *Loop) failures() []job.Notice {
	failing := l.exec.failing()
	for _, w := range l.groups.refusals() {
		for _, why := range w.Reasons {
			failing[refused{job: w.Job, what: why.Code, reason: why.Args["message"]}] = []int{0}
		}
	}
	var notices []job.Notice
	for _, f := range slices.SortedFunc(maps.Keys(failing), compareRefused) {
		known := make(map[int]bool, len(l.exec.told[f]))
		for _, i := range l.exec.told[f] {
			known[i] = true
		}
		fresh := slices.DeleteFunc(slices.Clone(failing[f]), func(i int) bool { return known[i] })
		if len(fresh) == 0 {
			continue
		}
		why := job.Because(f.what, "message", f.reason)
		if f.what == PreparationRefused {
			why = job.Because(f.what, "job", f.job, "message", f.reason)
		}
		n := job.Notice{Time: l.turn.decided.Input.Now, Type: "refused", Address: "job." + f.job, Reason: why}
		if f.role != "" {
			n.Address += "." + job.Fold(f.role, fresh)
		}
		notices = append(notices, n)
	}
	l.exec.told = failing
	return notices
}

// refusals are the changes that have failed and are retried, in the words of the first attempt that failed as the last
// one did, for as long as none succeeds: what was refused by a quota, say, or by a webhook.
func (e *executor) refusals() []plan.Wait { return refusedWaits(e.failing()) }

// refusedWaits reports slots, by number, that do not succeed: those of a role that fail alike as one.
func refusedWaits(indices map[refused][]int) []plan.Wait {
	var waits []plan.Wait
	for _, r := range slices.SortedFunc(maps.Keys(indices), compareRefused) {
		why := job.Because(r.what, "job", r.job, "message", r.reason)
		if r.role != "" {
			why = job.Because(r.what, "slots", job.Fold(r.role, indices[r]), "message", r.reason)
		}
		if last := len(waits) - 1; last >= 0 && waits[last].Job == r.job && waits[last].Role == r.role {
			waits[last].Reasons = append(waits[last].Reasons, why)
			continue
		}
		waits = append(waits, plan.Wait{Job: r.job, Role: r.role, Reasons: []job.Reason{why}})
	}
	return waits
}

// enterRefusals has the records say which launches have failed, for whoever asks when this master is gone.
func (e *executor) enterRefusals(l *Loop, p *plan.Plan) {
	why := map[job.Address]string{}
	for f, indices := range e.failing() {
		for _, i := range indices {
			if f.what == LaunchRefused {
				why[job.Address{Job: f.job, Role: f.role, Index: i}] = f.reason
			}
		}
	}
	for name, rec := range p.Records {
		refused := func(s *job.Slot) string {
			switch {
			case why[s.Address] != "":
				return why[s.Address]
			case s.Phase != job.Scheduling, l.sight.live[incarnationOf(rec.UID, s.Address, s.Incarnation)] != nil:
				return "" // it is launched, or is to be no more
			}
			return s.Refused // by a run before, and this one has not tried it
		}
		if !slices.ContainsFunc(rec.Slots, func(s job.Slot) bool { return s.Refused != refused(&s) }) {
			continue
		}
		told := *rec // of a job that the plan left alone it is the stored one, which others read
		told.Slots = slices.Clone(rec.Slots)
		for i := range told.Slots {
			told.Slots[i].Refused = refused(&told.Slots[i])
		}
		p.Records[name], p.Dirty = &told, true
	}
}

// recordedRefusals are the launches that had failed when a master last stored the records, and of which nothing is seen.
func recordedRefusals(records job.Records, seen *job.Snapshot) []plan.Wait {
	there := map[incarnation]bool{}
	for i := range seen.Incarnations {
		there[keyOf(&seen.Incarnations[i])] = true
	}
	indices := map[refused][]int{}
	for name, rec := range records {
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if s.Refused == "" || there[incarnationOf(rec.UID, s.Address, s.Incarnation)] {
				continue
			}
			r := refused{name, s.Address.Role, LaunchRefused, s.Refused}
			indices[r] = append(indices[r], s.Address.Index)
		}
	}
	return refusedWaits(indices)
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

// holdDelays holds a condition of each job that is delayed.
func (l *Loop) holdDelays() {
	var now []conditions.Condition
	for _, w := range l.delays() {
		now = append(now, conditions.Condition{About: "job." + w.Job, Reason: w.Reasons[0]})
	}
	l.holds.Settle(l.now, byDelays, now)
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
	unmet    map[string]string // by summary, with the detail, as it was found last
	due      bool              // they are to be checked though no record has changed
	inFlight bool
	again    bool // records have changed since
}

// hold holds what the files ask for and must not be done, and what of their conditions is not so. While something
// cannot be observed neither is known.
func (c *checks) hold(l *Loop, p *plan.Plan) {
	if l.sight.troubled() {
		c.due = true // they are checked again afterwards
		return
	}
	var now []conditions.Condition
	for _, r := range p.Refusals {
		now = append(now, conditions.Condition{About: "job." + r.Job, Reason: r.Reason})
	}
	l.holds.Settle(l.now, byRefusals, now)
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

// settle holds a condition of each condition in the files that does not hold.
func (c *checks) settle(l *Loop) {
	var now []conditions.Condition
	for _, summary := range slices.Sorted(maps.Keys(c.unmet)) {
		now = append(now, conditions.Condition{About: summary, Reason: job.Because(CheckFailed, "message", c.unmet[summary])})
	}
	l.holds.Settle(l.now, byChecks, now)
}
