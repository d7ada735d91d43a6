package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Size is the number of slots of an elastic role that had started before this plan. The declared replicas are only its initial
// size: from then on its scaling owns the number. A role that has the declared number, and keeps it, has no Size.
type Size struct {
	Job      string `json:"job"`
	Role     string `json:"role"`
	Replicas int    `json:"replicas"` // as declared
	Before   int    `json:"before"`   // before this plan
	Now      int    `json:"now"`      // with this plan
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	// Reasons are why it shrinks. Growth has none: there is room.
	Reasons []job.Reason `json:"reasons,omitempty"`
}

// Changes reports whether the plan makes the role larger or smaller.
func (s *Size) Changes() bool { return s.Before != s.Now }

// Resizes reports whether the plan makes an elastic role larger or smaller.
func (p *Plan) Resizes() bool {
	return slices.ContainsFunc(p.Sizes, func(s Size) bool { return s.Changes() })
}

// size records the number of slots of a role if it differs from the declaration or changes.
func (p *pass) size(w *work, r *job.Role, now int) {
	old := p.in.Records[w.name]
	if r.Scaling == nil || !w.active() || old == nil || old.UID != w.rec.UID {
		return
	}
	before := old.Counts[r.Name]
	if before == 0 || before == now && now == r.Replicas {
		return
	}
	s := Size{Job: w.name, Role: r.Name, Replicas: r.Replicas, Before: before, Now: now, Min: r.Scaling.Min, Max: r.Scaling.Max}
	if now < before {
		s.Reasons = w.reasonsToGo(r.Name)
	}
	p.out.Sizes = append(p.out.Sizes, s)
}

// reasonsToGo are the distinct reasons why slots of the role are given up in this pass.
func (w *work) reasonsToGo(role string) []job.Reason {
	var reasons []job.Reason
	for _, s := range w.slots {
		d := w.decisions[s]
		if s.Address.Role != role || holds(s) || d == nil || len(d.reasons) == 0 || slices.ContainsFunc(reasons, d.reasons[0].Equal) {
			continue
		}
		if len(reasons) == textsNamed {
			return append(reasons, job.Because(MoreReasons))
		}
		reasons = append(reasons, d.reasons[0])
	}
	return reasons
}

// onlyInitialSize reports whether a declared change concerns only the initial size of a role that has started: it has no
// effect.
func (w *work) onlyInitialSize(c job.FieldChange) bool {
	return w.started() && slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool {
		return r.Scaling != nil && c.Path == "role."+r.Name+".replicas"
	})
}
