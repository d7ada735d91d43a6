package apply

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// refusals are what is tried again and again and fails, or does not come about. The plan knows nothing of them: it asks
// for what is refused.
func (r *Reconciler) refusals() []plan.Wait {
	return slices.Concat(r.preparations.refusals(), r.flights.refusals(), r.delays())
}

// refused is what of one role does not succeed, for one reason.
type refused struct{ job, role, what, reason string }

// refusals are the changes that have failed and are tried again, as the last attempt failed, for as long as none
// succeeds: what was refused by a quota, say, or by a webhook. Slots of a role that fail alike are told of as one.
func (f *flights) refusals() []plan.Wait {
	f.mu.Lock()
	indices := map[refused][]int{}
	for t, b := range f.begun {
		if err := f.paused[t].err; err != nil {
			r := refused{b.change.Job, t.slot.Role, whatFails(&b.change), f.r.o.Sealer.Text(reasonOf(err))}
			indices[r] = append(indices[r], t.slot.Index)
		}
	}
	f.mu.Unlock()
	order := slices.SortedFunc(maps.Keys(indices), func(a, b refused) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.role, b.role), cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason))
	})
	var waits []plan.Wait
	for _, r := range order {
		text := fmt.Sprintf("It %s: %s", r.what, r.reason)
		if r.role != "" {
			text = fmt.Sprintf("%s %s: %s", job.Fold(r.role, indices[r]), r.what, r.reason)
		}
		if last := len(waits) - 1; last >= 0 && waits[last].Job == r.job && waits[last].Role == r.role {
			waits[last].Reasons = append(waits[last].Reasons, text)
			continue
		}
		waits = append(waits, plan.Wait{Job: r.job, Role: r.role, Reasons: []string{text}})
	}
	return waits
}

// refusals are the jobs that cannot be prepared, with the last reason.
func (ps *preparations) refusals() []plan.Wait {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var waits []plan.Wait
	for _, p := range ps.jobs {
		if p.pause.err != nil {
			waits = append(waits, plan.Wait{Job: p.newest.Name, Reasons: []string{"It cannot be prepared: " + ps.r.o.Sealer.Text(p.pause.err.Error())}})
		}
	}
	slices.SortFunc(waits, func(a, b plan.Wait) int { return cmp.Compare(a.Job, b.Job) })
	return waits
}

// whatFails is what cannot be done, as a sentence that begins with the slot says it.
func whatFails(c *plan.Change) string {
	switch {
	case isForget(c):
		return "cannot be removed"
	case c.Launch == nil:
		return "cannot be stopped"
	case c.Action == plan.Update:
		return "cannot be mended"
	}
	return "cannot be launched"
}

// reasonOf is an error without the slot that do puts before it: what others of its role hear as well.
func reasonOf(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return err.Error()
}
