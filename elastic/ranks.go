package elastic

import (
	"cmp"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// keepRanks orders slots by the ranks they get when no topology is asked for: whoever was in the previous
// world keeps its rank as far as density allows, and a hole is filled from the top: the highest rank moves
// into the lowest hole. A slot that comes back takes its own old rank if that is free; the others
// take what is left, in the order given. The result is dense: index is rank.
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
	seat(func(s *slot) int { return s.rank }) // of the previous world: no two share one
	seat(func(s *slot) int { return s.Rank }) // of some world before

	slices.SortStableFunc(rest, func(a, b *slot) int { return cmp.Compare(b.rank, a.rank) })
	for i := range byRank {
		if byRank[i] == nil {
			byRank[i], rest = rest[0], rest[1:]
		}
	}
	return byRank
}

// find enters the levels of slots by the nodes that their members say they are on. The plan may have meant another: a
// scheduler need not follow it, and members may be here before it has heard of that. It is asked of those that do not say.
func (r *Rendezvous) find(chosen []*slot) {
	for _, s := range chosen {
		s.levels = nil
		for _, label := range r.want.RankBy {
			s.levels = append(s.levels, r.nodes[cmp.Or(s.node, s.Node)][label])
		}
	}
}

// rankByTopology orders slots so that those which share a value of a level, and of all wider ones, have
// contiguous ranks. Groups go by their first slot in the order given, and so do slots within a group.
func rankByTopology(chosen []*slot) []*slot { return groupByLevel(chosen, 0) }

func groupByLevel(like []*slot, level int) []*slot {
	groups := map[string][]*slot{}
	var names []string // by first appearance
	deeper := false
	for _, s := range like {
		name := "" // a node without the label is in a group with its kind
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

// placesOf gives each member's place, by rank: processes are ranked by the sum of those before, over the
// whole world and within the role.
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
		}
		base += m.Processes
		roleBase[m.Slot.Role] += m.Processes
	}
	return places
}
