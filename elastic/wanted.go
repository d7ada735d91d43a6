package elastic

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// wanted records what the plan wants.
func (r *Rendezvous) wanted(d Desired) {
	first := !r.started
	r.started = true
	waited := !r.now.Before(r.settleFrom.Add(r.want.Settle.Std()))
	released := r.want.Hold && !d.Want.Hold
	r.want, r.nodes = d.Want, d.Nodes
	r.generation = max(r.generation, d.World.Generation)

	torn := r.list(d.Slots)
	added, removed := r.assign()
	if first {
		r.claimUntil = r.now.Add(leaseOf(d.Want))
		r.remember(d.World)
	}
	if first || added || removed || released {
		r.settleFrom = r.now
	}
	switch {
	case torn && r.trains():
		r.breakWorld(false)
	case r.trains() && r.outgrown():
		r.breakWorld(true)
		r.settled = waited && !added
	case added:
		r.settled = false
	}
	for _, s := range r.slots {
		r.refresh(s)
	}
}

// list makes r.slots what is desired. A newer incarnation starts with nothing known of it and fences the older.
// It reports whether the world lost a member by that.
func (r *Rendezvous) list(desired []DesiredSlot) (torn bool) {
	listed := make(map[job.Address]bool, len(desired))
	for _, d := range desired {
		listed[d.Address] = true
		s := r.slots[d.Address]
		if s == nil {
			r.slots[d.Address] = &slot{DesiredSlot: d, rank: -1}
			continue
		}
		if s.Rank >= 0 {
			d.Rank = s.Rank // of a world that the record may not know yet
		}
		switch {
		case d.Incarnation < s.Incarnation:
			d.Incarnation, d.InPlace = s.Incarnation, s.InPlace
		case d.Incarnation > s.Incarnation:
			torn = r.dismiss(s) || torn
		}
		s.DesiredSlot = d
	}
	for addr, s := range r.slots {
		if !listed[addr] {
			torn = r.dismiss(s) || torn
			delete(r.slots, addr)
		}
	}
	return torn
}

// dismiss drops a slot's incarnation, and reports whether the world misses it. What the slot itself owns stays:
// its rank, and the order that the next incarnation's has to differ from.
func (r *Rendezvous) dismiss(s *slot) (missed bool) {
	missed = s.member && s.report.State != job.MemberSucceeded
	r.changes++
	r.orders = append(r.orders, s.Address)
	if r.claim != nil && r.claim.ranks[s.report.Rank] == s {
		r.voidClaim()
	}
	*s = slot{DesiredSlot: s.DesiredSlot, rank: s.rank, wanted: s.wanted, order: s.order, version: s.version}
	return missed
}

// assign gives every slot its role, and reports whether slots came to those wanted in the next world, or went.
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

// assignUnranked numbers the slots that may start without a rank, role by role.
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

// remember takes up the world that the record knows. It trains unless the record says otherwise or a member
// of it was replaced; its members are awaited for as long as their lease would have held.
func (r *Rendezvous) remember(w job.World) {
	if w.Generation == 0 {
		return
	}
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s == nil || s.Incarnation != m.Incarnation {
			w.Broken = true
		}
	}
	r.enter(w)
	for _, m := range w.Members {
		if s := r.slots[m.Slot]; s != nil {
			s.awaited = s.member
		}
	}
}

// outgrown reports whether a member of the world that trains is not to be in the next one.
func (r *Rendezvous) outgrown() bool {
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil && r.outgrows(s) {
			return true
		}
	}
	return false
}

// outgrows reports whether a slot is a reason for the world to end on purpose. One that succeeded may go without
// the others noticing; one that is not here may have done so under the last master, and says so if it comes.
func (r *Rendezvous) outgrows(s *slot) bool {
	return s.member && s.role != nil && !s.wanted && s.here && s.report.State != job.MemberSucceeded
}
