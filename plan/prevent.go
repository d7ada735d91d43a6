package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Refusal is a request that must not be carried out. A single plan then does nothing. A watching master does everything else,
// and the job stays as it is.
type Refusal struct {
	Job    string     `json:"job"`
	Reason job.Reason `json:"reason_code"`
}

func refusal(name string, code job.Code, args ...string) *Refusal {
	return &Refusal{Job: name, Reason: job.Because(code, append([]string{"job", name}, args...)...)}
}

func (p *pass) refuse(r Refusal) {
	p.refusedJobs[r.Job] = true
	p.out.Refusals = append(p.out.Refusals, r)
}

// prevented reports whether a recorded job that is to stop must not be destroyed, and if so adds the refusal. An ended job has
// nothing left to lose.
func (p *pass) prevented(name string, rec *job.Record) bool {
	prevent, said := p.in.Prevent[name]
	if !said {
		prevent = rec.Spec.Lifecycle.PreventDestroy
	}
	if !prevent || isOver(rec) {
		return false
	}
	code := PreventDestroy
	if !said {
		code = PreventDestroyUndeclared
	}
	p.refuse(*refusal(name, code))
	p.kept[name] = true
	return true
}

// preventedMove reports whether a declared job would have to be destroyed to start under another provider and must not be; if
// so it adds the refusal.
func (p *pass) preventedMove(spec *job.Job, rec *job.Record) bool {
	if !spec.Lifecycle.PreventDestroy || spec.Provider == rec.Spec.Provider || isOver(rec) {
		return false
	}
	p.refuse(*refusal(spec.Name, PreventDestroyMove, "from", rec.Spec.Provider, "to", spec.Provider))
	return true
}

// prevents reports whether the job must not be destroyed on request.
func (w *work) prevents(old *job.Record) bool {
	spec := w.spec
	if spec == nil {
		spec = &old.Spec
	}
	return spec.Lifecycle.PreventDestroy && !isOver(old)
}

// isOver reports whether the job has ended and none of its slots is live.
func isOver(rec *job.Record) bool {
	return rec.Phase.Ended() && !slices.ContainsFunc(rec.Slots, func(s job.Slot) bool { return s.Phase.Live() })
}
