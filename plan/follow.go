package plan

import (
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// sizesAt is the one size that a role has that follows another one, while that has count slots.
func (w *work) sizesAt(r *job.Role, count int) job.Sizes {
	n := r.Follows.At(count)
	return job.Sizes{Min: n, Max: n}
}

// freshWith returns n fresh slots of an elastic role that has count, and after them those that its followers then need. It is not
// complete if some of them are still being stopped.
func (p *pass) freshWith(w *work, r *job.Role, count, n int) (slots []*job.Slot, complete bool) {
	slots = p.fresh(w, r, n)
	complete = len(slots) == n
	for _, f := range w.spec.Followers(r.Name) {
		missing := w.sizesAt(f, count+n).Min - len(w.heldSlots(f.Name))
		if missing <= 0 || w.succeeded(f.Name) || !w.resizable(f.Name) {
			continue
		}
		more := p.fresh(w, f, missing)
		slots, complete = append(slots, more...), complete && len(more) == missing
	}
	return slots, complete
}

// followDown gives up slots of roles that follow r and now need fewer. Those that others depend on stop after these; see stopWave.
func (p *pass) followDown(w *work, r *job.Role) {
	for _, f := range w.spec.Followers(r.Name) {
		if n := w.sizes(f).Max; n < len(w.heldSlots(f.Name)) && !w.succeeded(f.Name) && w.resizable(f.Name) {
			p.shrinkTo(w, f, n, nobody, whyFollows(f))
		}
	}
}

// whyFollows is why a role that follows another one has as many slots as it has.
func whyFollows(r *job.Role) job.Reason { return job.Because(FollowsRole, "role", r.Follows.Role) }

// paired reports whether the number of the role's slots follows another role's, or another's this one.
func (w *work) paired(role string) bool {
	return slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool {
		return r.Follows != nil && (r.Name == role || r.Follows.Role == role)
	})
}

// sameFollows reports whether the numbers of slots follow each other as before: Diff compares only where they start.
func sameFollows(a, b []job.Role) bool {
	return slices.EqualFunc(a, b, func(x, y job.Role) bool { return reflect.DeepEqual(x.Follows, y.Follows) })
}
