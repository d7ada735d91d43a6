package elastic

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// claim is a running world that the record does not know: its members register one by one, and once all
// ranks are there the world is adopted.
type claim struct {
	generation int
	size       int
	ranks      map[int]*slot
}

// claimedWorld is the one that its members say they run in.
func (r *Rendezvous) claimedWorld() job.World {
	byRank := make([]*slot, r.claim.size)
	for rank, s := range r.claim.ranks {
		byRank[rank] = s
	}
	w := r.worldOf(r.claim.generation, byRank)
	w.Adopted = true
	return w
}

// takeClaim looks whether a member says that it runs in a world that is not known here: the record was lost,
// or is older than the world. Until all its ranks are there, or the lease has passed, it is left running.
func (r *Rendezvous) takeClaim(s *slot) {
	claims := s.here && s.wanted && s.report.State == job.MemberRunning && s.report.WorldSlots > 0 &&
		s.report.Generation > r.world.Generation && !r.trains() && r.now.Before(r.claimUntil) &&
		(r.proposed == nil || r.claim != nil && s.report.Generation == r.claim.generation)
	c := r.claim
	if c != nil && s.place != nil && s.place.Generation == c.generation {
		if claims && s.report.Generation == c.generation && s.report.Rank == s.place.GroupRank {
			return
		}
		r.endClaims() // it stopped, or went: the claimed world is broken
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

// voidClaim tells everyone who claims to wait.
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
