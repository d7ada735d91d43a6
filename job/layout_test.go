package job

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCommonGroup(t *testing.T) {
	outer := Layout{{Name: "tensor", Size: 4}, {Name: "pipeline", Size: 2}}      // 16 ranks: tensor, pipeline, data
	middle := Layout{{Name: "tp", Size: 2}, {Name: "dp"}, {Name: "pp", Size: 2}} // Megatron's order: data in between
	for _, c := range []struct {
		layout Layout
		world  int
		ranks  []int
		want   string
	}{
		{outer, 16, []int{4, 5, 6, 7}, "tensor 1: [4 5 6 7]"},
		{outer, 16, []int{5, 7}, "tensor 1: [4 5 6 7]"},
		{outer, 16, []int{9, 13}, "pipeline 5: [9 13]"},
		{outer, 16, []int{2, 10}, "data 2: [2 10]"},
		{outer, 16, []int{4, 13}, "tensor+data 1: [4 5 6 7 12 13 14 15]"},   // the second stage
		{outer, 16, []int{0, 1, 6}, "tensor+pipeline 0: [0 1 2 3 4 5 6 7]"}, // the first replica
		{outer, 16, []int{0, 15}, ""},
		{outer, 16, []int{3}, ""},
		{outer, 12, []int{4, 5}, ""}, // does not fit
		{outer, 8, []int{4, 5, 6, 7}, "tensor 1: [4 5 6 7]"},
		{outer, 8, []int{0, 5}, ""}, // data is of size 1, which is nothing to share
		{middle, 8, []int{0, 2}, "dp 0: [0 2]"},
		{middle, 8, []int{5, 7}, "dp 3: [5 7]"},
		{middle, 8, []int{1, 5}, "pp 1: [1 5]"},
		{middle, 8, []int{4, 7}, "tp+dp 1: [4 5 6 7]"},
		{nil, 8, []int{1, 2}, ""},
	} {
		got := ""
		if g, ok := c.layout.Common(c.ranks, c.world); ok {
			got = fmt.Sprintf("%s %d: %v", g.Name(), g.Index, g.Ranks)
		}
		if got != c.want {
			t.Errorf("%v of %d: %q, want %q", c.ranks, c.world, got, c.want)
		}
	}
}

func TestDataParallelPeers(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		world  int
		want   []int
	}{
		{nil, 3, []int{0, 0, 0}},
		{Layout{{Name: "tensor", Size: 2}}, 6, []int{0, 1, 0, 1, 0, 1}},
		{Layout{{Name: "tensor", Size: 2}}, 5, []int{0, 0, 0, 0, 0}},
		{Layout{{Name: "dp"}, {Name: "pp", Size: 2}}, 6, []int{0, 0, 0, 1, 1, 1}},
	} {
		if got := c.layout.Peers(c.world); !slices.Equal(got, c.want) {
			t.Errorf("%v of %d: %v, want %v", c.layout, c.world, got, c.want)
		}
	}
}

// Whatever the layout, peers and groups divide a world into equal parts, and a group has the ranks that it was asked for.
func TestGroupsDivideTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Layout
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 4), 0, 4).Draw(t, "sizes") {
			l = append(l, Dimension{fmt.Sprint("d", i), size})
		}
		if n := len(l); n > 0 && rapid.Bool().Draw(t, "data is declared") {
			l[rapid.IntRange(0, n-1).Draw(t, "data")].Size = 0
		}
		replicas := rapid.IntRange(1, 4).Draw(t, "replicas")
		world := l.Unit() * replicas
		of := map[int]int{}
		for _, p := range l.Peers(world) {
			of[p]++
		}
		if len(of) != l.Unit() {
			t.Fatalf("%d classes of peers, not %d", len(of), l.Unit())
		}
		for p, n := range of {
			if n != replicas || p < 0 || p >= l.Unit() {
				t.Fatalf("class %d has %d peers", p, n)
			}
		}
		ranks := rapid.SliceOfNDistinct(rapid.IntRange(0, world-1), 1, min(world, 3), rapid.ID[int]).Draw(t, "ranks")
		g, ok := l.Common(ranks, world)
		if !ok {
			return
		}
		if len(g.Ranks) == world || world%len(g.Ranks) != 0 || g.Index < 0 || g.Index >= world/len(g.Ranks) {
			t.Fatalf("%+v of %d", g, world)
		}
		for _, r := range ranks {
			if !slices.Contains(g.Ranks, r) {
				t.Fatalf("%+v lacks %d", g, r)
			}
		}
	})
}
