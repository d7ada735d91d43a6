package apply

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// refusals are what is tried again and again and fails, or does not come about. The plan knows nothing of them: it asks
// for what is refused.
func (r *Reconciler) refusals() []plan.Wait {
	return slices.Concat(r.preparations.refusals(), r.flights.refusals(), r.delays())
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

// failing are the slots, by number, of which a change has failed and is tried again. Of a job itself it is slot 0.
func (f *flights) failing() map[refused][]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	indices := map[refused][]int{}
	for t, b := range f.begun {
		if err := f.paused[t].err; err != nil {
			r := refused{b.change.Job, t.slot.Role, whatFails(&b.change), f.r.o.Sealer.Text(reasonOf(err))}
			indices[r] = append(indices[r], t.slot.Index)
		}
	}
	return indices
}

// failures are the notices of what fails now and did not when they were asked for last: each slot once for as long as it
// fails for one reason, however often it is tried.
func (r *Reconciler) failures(now time.Time) []job.Notice {
	failing := r.flights.failing()
	for _, w := range r.preparations.refusals() {
		for _, why := range w.Reasons {
			failing[refused{job: w.Job, what: why.Code, reason: why.Args["message"]}] = []int{0}
		}
	}
	var notices []job.Notice
	for _, f := range slices.SortedFunc(maps.Keys(failing), compareRefused) {
		known := make(map[int]bool, len(r.failing[f]))
		for _, i := range r.failing[f] {
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
		n := job.Notice{Time: now, Type: "refused", Address: "job." + f.job, Reason: why}
		if f.role != "" {
			n.Address += "." + job.Fold(f.role, fresh)
		}
		notices = append(notices, n)
	}
	r.failing = failing
	return notices
}

// refusals are the changes that have failed and are tried again, in the words of the first attempt that failed as the last
// one did, for as long as none succeeds: what was refused by a quota, say, or by a webhook.
func (f *flights) refusals() []plan.Wait { return refusedWaits(f.failing()) }

// refusedWaits tells of slots, by number, that do not succeed: those of a role that fail alike as one.
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
func (r *Reconciler) enterRefusals(p *plan.Plan) {
	why := map[job.Address]string{}
	for f, indices := range r.flights.failing() {
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
			case s.Phase != job.Scheduling, r.live[incarnationOf(rec.UID, s.Address, s.Incarnation)] != nil:
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
func (ps *preparations) refusals() []plan.Wait {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var waits []plan.Wait
	for _, p := range ps.jobs {
		if p.pause.err != nil {
			waits = append(waits, plan.Wait{Job: p.newest.Name, Reasons: []job.Reason{job.Because(PreparationRefused, "job", p.newest.Name, "message", ps.r.o.Sealer.Text(p.pause.err.Error()))}})
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

// repeats tells whether an error says the same as the one before, if there was one.
func repeats(err, before error) bool {
	return before != nil && Wording(err.Error()) == Wording(before.Error())
}

// variable is what of a text changes without being news: which slots, how many, and any number, such as a port or what a
// quota has left.
var variable = regexp.MustCompile(`\[[\d,…-]*\](?: \(\d+ slots\))?|\d+(?:\.\d+)?`)

// Wording is a text without the numbers in it. Two that differ in nothing else are the same news.
func Wording(text string) string { return variable.ReplaceAllString(text, "#") }

// reasonOf is an error without the slot that do puts before it: what others of its role hear as well.
func reasonOf(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return err.Error()
}
