package job

import (
	"slices"
	"strings"
)

// Layout divides the ranks of a world into parallel groups: its dimensions, from the one in which neighboring ranks differ to the one
// that changes last. It has at most one without a size, the data dimension, which takes what the others leave; without one, data
// changes last. The empty Layout is of data alone.
type Layout []Dimension

// Dimension is one way in which ranks divide the work.
type Dimension struct {
	Name string `hcl:"name,label" doc:"The dimension's name, like \"tensor\" or \"pipeline\"."`
	Size int    `hcl:"size,optional" change:"update" json:",omitempty" doc:"The number of ranks in each of its groups. Of data it is left out: all that the others leave."`
}

// DataDimension is the name of the data dimension where the layout has none without a size.
const DataDimension = "data"

// RankGroup is ranks of a world that differ in some dimensions only: the tensor group 1, or the ranks of pipeline stage 0.
type RankGroup struct {
	Dimensions []string // in which they differ, as in the layout
	Index      int      // among the groups of these dimensions, by their lowest ranks
	Ranks      []int    // ascending
}

// Name is that of its dimensions.
func (g RankGroup) Name() string { return strings.Join(g.Dimensions, "+") }

// Unit is how many ranks share one position in the data dimension: worlds are multiples of it.
func (l Layout) Unit() int {
	unit := 1
	for _, d := range l {
		unit *= max(1, d.Size)
	}
	return unit
}

// Fits reports whether a world of so many ranks can be divided.
func (l Layout) Fits(world int) bool { return world > 0 && world%l.Unit() == 0 }

// in returns the dimensions of a world, all with their sizes, and which one is data. The world fits.
func (l Layout) in(world int) (all Layout, data int) {
	all = slices.Clone(l)
	if data = slices.IndexFunc(all, func(d Dimension) bool { return d.Size == 0 }); data < 0 {
		data, all = len(all), append(all, Dimension{Name: DataDimension})
	}
	all[data].Size = world / l.Unit()
	return all, data
}

// coordinates are a rank's positions in dimensions that all have a size.
func (l Layout) coordinates(rank int) []int {
	at := make([]int, len(l))
	for i, d := range l {
		at[i], rank = rank%d.Size, rank/d.Size
	}
	return at
}

// indexOf is the index of the group whose ranks differ in the given dimensions, and have these coordinates in the others.
func (l Layout) indexOf(at []int, differ []bool) int {
	index := 0
	for i := range slices.Backward(l) {
		if !differ[i] {
			index = index*l[i].Size + at[i]
		}
	}
	return index
}

// Peers returns by rank which of a world's ranks are data-parallel peers: those with equal numbers are at the same place in all
// dimensions but data, so that they do the same at the same time, and hold the same state. All are peers in a world that does not fit.
func (l Layout) Peers(world int) []int {
	peers := make([]int, world)
	if !l.Fits(world) {
		return peers
	}
	all, data := l.in(world)
	differ := make([]bool, len(all))
	differ[data] = true
	for rank := range peers {
		peers[rank] = all.indexOf(all.coordinates(rank), differ)
	}
	return peers
}

// Common returns the smallest group that has all of the given ranks: they share a position in each dimension that is not one of its own.
// There is none for a single rank, for ranks that share no position, or in a world that does not fit.
func (l Layout) Common(ranks []int, world int) (RankGroup, bool) {
	if len(ranks) < 2 || !l.Fits(world) {
		return RankGroup{}, false
	}
	all, _ := l.in(world)
	first := all.coordinates(ranks[0])
	differ := make([]bool, len(all))
	for _, rank := range ranks {
		for i, c := range all.coordinates(rank) {
			differ[i] = differ[i] || c != first[i]
		}
	}
	g := RankGroup{Index: all.indexOf(first, differ)}
	shared := false
	for i, d := range all {
		if differ[i] {
			g.Dimensions = append(g.Dimensions, d.Name)
		}
		shared = shared || !differ[i] && d.Size > 1
	}
	if !shared {
		return RankGroup{}, false
	}
	for rank := range world {
		if all.indexOf(all.coordinates(rank), differ) == g.Index {
			g.Ranks = append(g.Ranks, rank)
		}
	}
	return g, true
}
