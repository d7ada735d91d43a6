package plan

import (
	"maps"
	"slices"

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

// allowsReplaced reports whether the directory's limits allow that the job's outdated slots are replaced by larger ones: its elastic
// roles, and those of jobs that are not served before it, may shrink for that.
func (p *pass) allowsReplaced(w *work) bool {
	enlarged := func(s *job.Slot) bool {
		now := w.replacedSize(s)
		return now.CPU > s.Reserved.CPU || now.Memory > s.Reserved.Memory || moreDevices(now.Devices, s.Reserved.Devices)
	}
	if p.in.Directory.Limits == nil || !slices.ContainsFunc(w.outdated, enlarged) || p.allows(w.asReplaced(), w.outdated) {
		return true
	}
	p.wakeAll()
	freed := slices.Clone(w.outdated)
	var added []*job.Slot
	spare := map[*job.Slot]bool{}
	for _, v := range p.servingOrder {
		if v != w && (ahead(v, w) < 0 || !v.admitted()) {
			continue
		}
		for _, e := range v.elastic() {
			for _, s := range e.held[:max(0, len(e.held)-e.sizes.Least())] {
				spare[s] = true
				if !slices.Contains(w.outdated, s) {
					freed = append(freed, s)
				}
			}
		}
	}
	for i, s := range w.asReplaced() {
		if !spare[w.outdated[i]] {
			added = append(added, s)
		}
	}
	return p.allows(added, freed)
}

// moreDevices reports whether there are more of any kind.
func moreDevices(now, before map[string]int) bool {
	for name, n := range now {
		if n > before[name] {
			return true
		}
	}
	return false
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
