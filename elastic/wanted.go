package elastic

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// wanted applies the plan's desired state.
func (r *Rendezvous) wanted(d Desired) {
	first := !r.started
	r.started = true
	waited := !r.now.Before(r.settleFrom.Add(r.want.Settle.Std()))
	released := r.want.Hold && !d.Want.Hold
	r.want, r.nodes = d.Want, d.Nodes
	r.generation = max(r.generation, d.World.Generation)

	lostMember := r.setSlots(d.Slots)
	added, removed := r.assign()
	r.assignActs()
	r.assignChecks()
	if first {
		r.adopting = r.now.Add(max(leaseOf(d.Want), d.News))
		r.claimUntil = r.adopting
		r.restoreWorld(d.World)
	}
	if first || added || removed || released {
		r.settleFrom = r.now
	}
	switch {
	case lostMember && r.trains():
		r.breakWorld(false)
	case r.trains() && r.hasUnwantedMember():
		r.breakWorld(true)
		r.settled = waited && !added
	case added:
		r.settled = false
	}
	for _, s := range r.slots {
		r.refresh(s)
	}
}

// assignActs sets what each member is to do.
func (r *Rendezvous) assignActs() {
	for addr, s := range r.slots {
		s.acts = nil
		if len(r.want.Acts) == 0 {
			continue
		}
		short := addr.Short()
		for _, a := range r.want.Acts {
			if a.Slots[short] == s.Incarnation {
				s.acts = append(s.acts, a.Act)
			}
		}
	}
}

// setSlots updates r.slots to the desired slots. A newer incarnation starts without a report and fences the older. It reports
// whether the world lost a member.
func (r *Rendezvous) setSlots(desired []DesiredSlot) (lostMember bool) {
	listed := make(map[job.Address]bool, len(desired))
	for _, d := range desired {
		listed[d.Address] = true
		s := r.slots[d.Address]
		if s == nil {
			r.slots[d.Address] = &slot{DesiredSlot: d, rank: -1}
			continue
		}
		if s.Rank >= 0 {
			d.Rank = s.Rank // from a world that the record may not have yet
		}
		switch {
		case d.Incarnation < s.Incarnation:
			d.Incarnation, d.InPlace = s.Incarnation, s.InPlace
		case d.Incarnation > s.Incarnation:
			lostMember = r.dismiss(s) || lostMember
		}
		s.DesiredSlot = d
	}
	for addr, s := range r.slots {
		if !listed[addr] {
			lostMember = r.dismiss(s) || lostMember
			delete(r.slots, addr)
		}
	}
	return lostMember
}

// dismiss drops a slot's incarnation, and reports whether the world loses a member. It keeps what belongs to the slot: its
// rank, and the order that the next incarnation's has to differ from.
func (r *Rendezvous) dismiss(s *slot) (missed bool) {
	missed = s.member && s.report.State != job.MemberSucceeded
	r.changes++
	r.orders = append(r.orders, s.Address)
	r.checks.Drop(r.now, s.Address)
	if r.claim != nil && r.claim.ranks[s.report.Rank] == s {
		r.voidClaim()
	}
	*s = slot{DesiredSlot: s.DesiredSlot, rank: s.rank, wanted: s.wanted, order: s.order, version: s.version}
	return missed
}

// assign sets every slot's role, and reports whether slots were added to those wanted in the next world, or removed.
func (r *Rendezvous) assign() (added, removed bool) {
	r.roles = nil
	byName := make(map[string]*role, len(r.want.Roles))
	for _, w := range r.want.Roles {
		ro := &role{WantRole: w, desired: len(w.Slots)}
		r.roles, byName[w.Role] = append(r.roles, ro), ro
	}
	for addr, s := range r.slots {
		was := s.wanted
		s.role, s.named, s.unranked = byName[addr.Role], false, nil
		if s.role == nil {
			s.class = none
		} else {
			s.role.count[s.class]++
			_, s.named = slices.BinarySearch(s.role.Slots, addr.Index)
		}
		if s.named && s.Leave && !s.Return {
			s.role.desired--
		}
		s.wanted = s.named && !s.Leave
		added = added || s.wanted && !was
		removed = removed || !s.wanted && was
	}
	r.assignUnranked()
	return added, removed
}

// assignUnranked numbers the unranked slots that may start, by role.
func (r *Rendezvous) assignUnranked() {
	byRole := map[string][]*slot{}
	for _, addr := range r.want.Unranked {
		if s := r.slots[addr]; s != nil && s.role == nil {
			byRole[addr.Role] = append(byRole[addr.Role], s)
		}
	}
	for _, like := range byRole {
		slices.SortFunc(like, bySlot)
		processes := 0
		for i, s := range like {
			s.unranked = &Place{GroupRank: i, GroupSize: len(like), RankBase: processes, RoleRankBase: processes}
			processes += max(s.Processes, 1)
		}
		for _, s := range like {
			s.unranked.WorldSize, s.unranked.RoleWorldSize = processes, processes
		}
	}
}

// restoreWorld restores the recorded world. It trains unless the record says otherwise or one of its members was replaced; its
// members are awaited for as long as their lease would have lasted.
func (r *Rendezvous) restoreWorld(w job.World) {
	if w.Generation == 0 {
		return
	}
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s == nil || s.Incarnation != m.Incarnation {
			w.Broken = true
		}
	}
	r.setWorld(w)
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s != nil {
			s.awaited = s.member
		}
	}
}

// hasUnwantedMember reports whether the training world has a member that is not wanted in the next one.
func (r *Rendezvous) hasUnwantedMember() bool {
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil && r.isUnwantedMember(s) {
			return true
		}
	}
	return false
}

// isUnwantedMember reports whether a slot requires a planned end of the world. A member that succeeded may leave without effect on the
// others; an absent one may have succeeded under the previous master, and reports it when it registers.
func (r *Rendezvous) isUnwantedMember(s *slot) bool {
	return s.member && s.role != nil && !s.wanted && s.present && s.report.State != job.MemberSucceeded
}
