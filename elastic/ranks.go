package elastic

import (
	"cmp"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// keepRanks assigns ranks when no topology is configured: members of the previous world keep their ranks as far as density
// allows, and the highest ranks move into the lowest gaps. A returning slot takes its old rank if that is free; the others take
// the remaining ranks in the given order. The result is dense: index is rank.
func keepRanks(chosen []*slot) []*slot {
	byRank := make([]*slot, len(chosen))
	rest := slices.Clone(chosen)
	seat := func(rankOf func(*slot) int) {
		rest = slices.DeleteFunc(rest, func(s *slot) bool {
			rank := rankOf(s)
			if rank < 0 || rank >= len(byRank) || byRank[rank] != nil {
				return false
			}
			byRank[rank] = s
			return true
		})
	}
	seat(func(s *slot) int { return s.rank }) // in the previous world: unique
	seat(func(s *slot) int { return s.Rank }) // in some earlier world

	slices.SortStableFunc(rest, func(a, b *slot) int { return cmp.Compare(b.rank, a.rank) })
	for i := range byRank {
		if byRank[i] == nil {
			byRank[i], rest = rest[0], rest[1:]
		}
	}
	return byRank
}

// setLevels sets the levels of slots by the nodes that their members report. The planned node counts only if a member reports none:
// a scheduler may have chosen another, and members may register before the plan knows.
func (r *Rendezvous) setLevels(chosen []*slot) {
	for _, s := range chosen {
		s.levels = nil
		for _, label := range r.want.RankBy {
			s.levels = append(s.levels, r.nodes[cmp.Or(s.node, s.Node)][label])
		}
	}
}

// rankByTopology orders slots so that those with the same value of a level, and of all wider ones, have contiguous ranks.
// Groups are ordered by their first slot in the given order, and so are slots within a group.
func rankByTopology(chosen []*slot) []*slot { return groupByLevel(chosen, 0) }

func groupByLevel(like []*slot, level int) []*slot {
	groups := map[string][]*slot{}
	var names []string // by first appearance
	deeper := false
	for _, s := range like {
		name := "" // nodes without the label form a group
		if level < len(s.levels) {
			name, deeper = s.levels[level], true
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], s)
	}
	if !deeper {
		return like
	}
	var out []*slot
	for _, name := range names {
		out = append(out, groupByLevel(groups[name], level+1)...)
	}
	return out
}

// placesOf returns each member's place, by rank: process ranks are cumulative over the whole world and within the role.
func placesOf(w job.World) []Place {
	size, roleSize := 0, map[string]int{}
	for _, m := range w.Members {
		size += m.Processes
		roleSize[m.Slot.Role] += m.Processes
	}
	places := make([]Place, len(w.Members))
	base, roleBase := 0, map[string]int{}
	for i, m := range w.Members {
		places[i] = Place{
			Generation:    w.Generation,
			GroupRank:     m.Rank,
			GroupSize:     len(w.Members),
			RankBase:      base,
			WorldSize:     size,
			RoleRankBase:  roleBase[m.Slot.Role],
			RoleWorldSize: roleSize[m.Slot.Role],
			MasterAddr:    w.MasterAddr,
			MasterPort:    w.MasterPort,
			RestartCount:  w.Generation - 1,
			ResumeStep:    w.ResumeStep,
		}
		base += m.Processes
		roleBase[m.Slot.Role] += m.Processes
	}
	return places
}
