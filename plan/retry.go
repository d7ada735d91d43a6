package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// A job that failed and is declared as before starts again with an explicit apply, if there is room. It takes places from jobs
// of a lower priority but, unlike a new job, not from those of its own: a job whose program exits at once would make them
// shrink and grow again with every apply, and train nothing itself.

// postpone notes that there is no room for a job to start again. It stays ended.
func (p *pass) postpone(w *work, gang []*job.Slot) {
	why := job.Because(RetryWaits, "job", w.name, "phase", string(p.in.Records[w.name].Phase)).With(p.noRoomYet(w, gang))
	p.postponed = append(p.postponed, Wait{Job: w.name, Reasons: []job.Reason{why}})
}

// withoutPostponed plans again with in, the input of this pass, but without rerunning the postponed jobs: their records, with
// the evidence of why they failed, stay.
func (p *pass) withoutPostponed(in Input) Plan {
	in.Rerun = maps.Clone(in.Rerun)
	in.Refused = maps.Clone(in.Refused)
	if in.Refused == nil {
		in.Refused = map[string]job.Reason{}
	}
	for _, w := range p.postponed {
		for _, r := range in.Requests {
			if r.Verb == job.AskApply && slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == w.Job }) {
				in.Refused[r.ID] = w.Reasons[0]
			}
		}
		delete(in.Rerun, w.Job)
		delete(in.Rerun, p.movedFrom[w.Job])
	}
	out := Make(in)
	out.Waits = append(out.Waits, p.postponed...)
	return out
}
