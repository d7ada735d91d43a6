package plan

import (
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// Size is the number of slots of an elastic role that had started before this plan. The declared replicas are only its initial
// size: from then on its scaling owns the number. A role that has the declared number, and keeps it, has no Size.
//
// A role that follows another one has a Size, too.
type Size struct {
	Job      string `json:"job"`
	Role     string `json:"role"`
	Replicas int    `json:"replicas"` // as declared
	Before   int    `json:"before"`   // before this plan
	Now      int    `json:"now"`      // with this plan
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	// Reasons are why it shrinks, or who asked for more. Other growth has none: there is room.
	Reasons []job.Reason `json:"reasons,omitempty"`
}

// Changes reports whether the plan makes the role larger or smaller.
func (s *Size) Changes() bool { return s.Before != s.Now }

// Resizes reports whether the plan makes an elastic role larger or smaller.
func (p *Plan) Resizes() bool {
	return slices.ContainsFunc(p.Sizes, func(s Size) bool { return s.Changes() })
}

// sizes are the numbers of slots that a role may have: as declared, up to what an operator asked for, or what policies decided. The
// declared ones by themselves only say which addresses there are.
func (w *work) sizes(r *job.Role) job.Sizes {
	if r.Follows != nil {
		return w.sizesAt(r, len(w.heldSlots(r.Follows.Role)))
	}
	sizes := r.Sizes()
	if n := w.askedSize(r); n > 0 {
		sizes.Max = n
	} else if n := w.policySize(r); n > 0 {
		sizes.Max = n
	}
	return sizes
}

// askedSize is the number of slots of an elastic role that an operator asked for; 0 if scaling decides.
func (w *work) askedSize(r *job.Role) int {
	if len(w.rec.Overrides) == 0 || r.Scaling == nil {
		return 0
	}
	if o := w.rec.Override(sizePath(r.Name)); o != nil {
		return o.Slots()
	}
	return 0
}

// initialSize is the legal size of an elastic role for what an operator asked for, or else for its declared replicas.
func (w *work) initialSize(r *job.Role) int {
	sizes, n := w.sizes(r), r.Replicas
	if asked := w.askedSize(r); asked > 0 {
		n = asked
	}
	return max(sizes.Floor(n), sizes.Min)
}

// whyMost is why an elastic role has no more slots than its sizes allow.
func (w *work) whyMost(r *job.Role) job.Reason {
	if r.Follows != nil {
		return whyFollows(r)
	}
	if w.askedSize(r) > 0 {
		return w.whyAsked(r)
	}
	if w.policySize(r) > 0 {
		return w.whyScaled(r)
	}
	return job.Because(RoleMax, "most", strconv.Itoa(w.sizes(r).Max))
}

// paused reports whether an operator has paused the role's scaling.
func (w *work) paused(r *job.Role) bool {
	o := w.rec.Override(sizePath(r.Name))
	return o != nil && o.Value == job.PausedSize
}

// whyAsked is the request for the role's size.
func (w *work) whyAsked(r *job.Role) job.Reason {
	o := w.rec.Override(sizePath(r.Name))
	if o.Value == job.PausedSize {
		return job.Because(ScalingPaused, "by", o.By, "size", strconv.Itoa(o.Size), "why", o.Why)
	}
	return job.Because(ScaleAsked, "by", o.By, "size", o.Value, "why", o.Why)
}

// size records the number of slots of a role if it differs from the declaration or changes.
func (p *pass) size(w *work, r *job.Role, now int) {
	old := p.in.Records[w.name]
	if r.Scaling == nil && r.Follows == nil || !w.active() || old == nil || old.UID != w.rec.UID {
		return
	}
	before := old.Counts[r.Name]
	asked := w.askedSize(r)
	if before == 0 || before == now && (now == r.Replicas || asked > 0 || r.Follows != nil) {
		return
	}
	least, most := r.Bounds()
	s := Size{Job: w.name, Role: r.Name, Replicas: r.Replicas, Before: before, Now: now, Min: least, Max: most}
	switch {
	case r.Follows != nil:
		s.Reasons = []job.Reason{whyFollows(r)}
	case now < before:
		s.Reasons = w.reasonsToGo(r.Name)
	case now > before && asked > 0:
		s.Reasons = []job.Reason{w.whyAsked(r)}
	case now > before && w.policySize(r) > 0:
		s.Reasons = []job.Reason{w.whyScaled(r)}
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
		return (r.Scaling != nil || r.Follows != nil) && c.Path == "role."+r.Name+".replicas"
	})
}
