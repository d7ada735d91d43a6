package apply

import (
	"cmp"
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// delays are the jobs of which something is being made and does not come about. The plan knows nothing of that: to it
// they are under way.
func (r *Reconciler) delays() []plan.Wait {
	r.mu.Lock()
	defer r.mu.Unlock()
	var waits []plan.Wait
	for name, rec := range r.state.Jobs {
		if why := r.delayed[rec.UID]; why != "" {
			waits = append(waits, plan.Wait{Job: name, Passing: true, Reasons: []job.Reason{job.Because(Delayed, "message", why)}})
		}
	}
	slices.SortFunc(waits, func(a, b plan.Wait) int { return cmp.Compare(a.Job, b.Job) })
	return waits
}

// enterStored takes in whether the turn could be stored.
func (r *Reconciler) enterStored(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unstored = ""
	if err != nil {
		r.unstored = err.Error()
	}
}

// unstoredJobs are all that have not ended, while their state cannot be stored: nothing of them is healed. r.mu is held.
func (r *Reconciler) unstoredJobs() []plan.Wait {
	if r.unstored == "" {
		return nil
	}
	var waits []plan.Wait
	for _, name := range slices.Sorted(maps.Keys(r.state.Jobs)) {
		if !r.state.Jobs[name].Phase.Ended() {
			waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{job.Because(NotStored, "message", r.unstored)}})
		}
	}
	return waits
}

// enterDelays takes in what the providers that answered say of it. What others said last stays.
func (r *Reconciler) enterDelays() {
	now := map[string]string{}
	for name := range r.known {
		for uid, why := range r.known[name].Delayed {
			now[uid] = r.o.Sealer.Text(why)
		}
	}
	r.mu.Lock()
	r.delayed = now
	r.mu.Unlock()
}

// tellDelays warns of what does not come about, once for as long as it is so for one reason.
func (r *Reconciler) tellDelays() {
	now := map[string]string{}
	for _, w := range r.delays() {
		summary, why := "Job "+w.Job+" is held up", w.Reasons[0].Args["message"]
		now[summary] = why
		if r.toldDelays[summary] != why {
			r.view(func(v View) { v.Warned(summary, why) })
		}
	}
	for _, summary := range slices.Sorted(maps.Keys(r.toldDelays)) {
		if now[summary] == "" {
			r.view(func(v View) { v.Recovered(summary) })
		}
	}
	r.toldDelays = now
}
