package elastic

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// claim is a running world that the record does not have: its members register one by one, and once all ranks are present the
// world is adopted.
type claim struct {
	generation int
	size       int
	ranks      map[int]*slot
}

// claimedWorld is the world that the members report running in.
func (r *Rendezvous) claimedWorld() job.World {
	byRank := make([]*slot, r.claim.size)
	for rank, s := range r.claim.ranks {
		byRank[rank] = s
	}
	w := r.worldOf(r.claim.generation, byRank)
	w.Adopted, w.ResumeStep = true, 0 // how it started is not known any more
	return w
}

// updateClaim checks whether a member reports running in a world unknown here: the record was lost, or is older than the world.
// The world is left running until all its ranks are present or the lease has passed.
func (r *Rendezvous) updateClaim(s *slot) {
	most := 0 // a larger world could never be complete
	for _, ro := range r.roles {
		most += ro.desired
	}
	claims := s.present && s.wanted && s.report.State == job.MemberRunning && s.report.WorldSlots > 0 && s.report.WorldSlots <= most &&
		s.report.Generation > r.world.Generation && !r.trains() && r.now.Before(r.claimUntil) &&
		(r.writing.world == nil || r.claim != nil && s.report.Generation == r.claim.generation)
	c := r.claim
	if c != nil && s.place != nil && s.place.Generation == c.generation {
		if claims && s.report.Generation == c.generation && s.report.Rank == s.place.GroupRank {
			return
		}
		r.endClaims() // it stopped, or was lost: the claimed world is broken
		return
	}
	if !claims || c != nil && s.report.Generation < c.generation {
		return
	}
	if c != nil && s.report.Generation > c.generation {
		r.voidClaim()
		c = nil
	}
	if c == nil {
		c = &claim{generation: s.report.Generation, size: s.report.WorldSlots, ranks: map[int]*slot{}}
		r.claim = c
	}
	if s.report.WorldSlots != c.size || c.ranks[s.report.Rank] != nil {
		return
	}
	c.ranks[s.report.Rank] = s
	s.place = &Place{Generation: c.generation, GroupRank: s.report.Rank, GroupSize: c.size}
}

func (r *Rendezvous) endClaims() {
	r.voidClaim()
	r.claimUntil = time.Time{}
}

// voidClaim orders all claiming members to wait.
func (r *Rendezvous) voidClaim() {
	if r.claim == nil {
		return
	}
	ranks := r.claim.ranks
	r.claim = nil
	for _, s := range ranks {
		s.place = nil
		r.refresh(s)
	}
}
