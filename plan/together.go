package plan

import (
	"maps"

	"github.com/eltrain/eltrain/job"
)

// holdings are what all jobs hold together, and what is promised to those that are being placed.
type holdings struct {
	known bool // it is computed on demand
	sum   job.Resources
}

// counts reports whether a slot counts towards limits: one that succeeded no longer holds anything.
func counts(s *job.Slot) bool { return holds(s) && s.Phase.Live() }

func (h *holdings) add(r job.Resources, times int) {
	if !h.known {
		return
	}
	h.sum.CPU += r.CPU * job.CPU(times)
	h.sum.Memory += r.Memory * job.Bytes(times)
	for name, n := range r.Devices {
		h.sum.Devices[name] += n * times
	}
}

// together computes what all jobs hold, those at rest included.
func (p *pass) together() *holdings {
	h := &p.holdings
	if h.known {
		return h
	}
	h.known, h.sum = true, job.Resources{Devices: map[string]int{}}
	for _, w := range p.jobs {
		if w.rest != nil {
			for i := range w.rec.Slots {
				if s := &w.rec.Slots[i]; counts(s) {
					h.add(s.Reserved, 1)
				}
			}
			continue
		}
		for _, s := range w.slots {
			if counts(s) {
				h.add(s.Reserved, 1)
			}
		}
	}
	return h
}

// allows reports whether the directory's limits allow the slots added, once those freed are given up.
func (p *pass) allows(added, freed []*job.Slot) bool {
	limits := p.in.Directory.Limits
	if limits == nil {
		return true
	}
	then := holdings{known: true, sum: p.together().sum}
	then.sum.Devices = maps.Clone(then.sum.Devices)
	for _, s := range added {
		then.add(s.Reserved, 1)
	}
	for _, s := range freed {
		if counts(s) {
			then.add(s.Reserved, -1)
		}
	}
	return then.sum.Within(limits)
}

// within reports whether the job and the directory stay within their limits with the slots added.
func (p *pass) within(w *work, added []*job.Slot) bool {
	return w.within(added) && p.allows(added, nil)
}

// exceeds reports whether the slots alone are more than the directory's limits allow.
func (p *pass) exceeds(slots []*job.Slot) bool {
	alone := holdings{known: true, sum: job.Resources{Devices: map[string]int{}}}
	for _, s := range slots {
		alone.add(s.Reserved, 1)
	}
	return !alone.sum.Within(p.in.Directory.Limits)
}

// shrinkTogether shrinks elastic roles until all jobs together are within the directory's limits, the most fulfilled first; never
// below min.
func (p *pass) shrinkTogether() {
	if p.in.Directory.Limits == nil || p.allows(nil, nil) {
		return
	}
	p.wakeAll()
	for !p.allows(nil, nil) {
		w, role := p.mostFulfilled(func(w *work, _ *job.Role) bool { return w.admitted() })
		if w == nil {
			return
		}
		p.shrinkTo(w, role, w.sizes(role).Floor(len(w.heldSlots(role.Name))-1), nobody, job.Because(DirectoryLimits))
	}
}
