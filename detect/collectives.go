package detect

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// entries are where ranks are in the collectives of one process group.
type entries struct {
	name    string
	members []*rank
	places  map[*rank]*job.Collective
	first   int64   // the oldest collective in which a member waits; 0 if none does
	waiting []*rank // in a collective
	missing []*rank // have not entered first
}

// oddCollectives is the finding about ranks that others wait for, by what the ranks themselves have recorded of their collectives. A
// rank that waits in one group is late in the others because of that, so those count that wait nowhere; only if all wait, as in a
// deadlock of two groups, those that are late in one of them.
func (d *Detector) oddCollectives() finding {
	groups, waits, known := d.collectives()
	var idle []*rank
	for _, r := range d.ranks {
		if known[r] && !waits[r] {
			idle = append(idle, r)
		}
	}
	if len(idle) == len(known) {
		return finding{} // nobody waits
	}
	if f := d.late(groups, func(r *rank) bool { return !waits[r] }); len(f.ranks) > 0 {
		return f
	}
	if len(idle) > 0 && 2*len(idle) <= len(known) {
		return finding{ranks: idle, evidence: []job.Reason{d.because(RankNotInvolved, idle, "waiting", strconv.Itoa(len(waits)))}}
	}
	for i, g := range groups { // the one in which most wait comes first
		if n := len(g.missing); n > 0 && 2*n <= len(g.members) {
			return d.late(groups[i:i+1], func(*rank) bool { return true })
		}
	}
	return d.otherCalls(groups)
}

// collectives groups what ranks have recorded, and says which wait, of those that have.
func (d *Detector) collectives() (groups []*entries, waits, known map[*rank]bool) {
	byName := map[string]*entries{}
	waits, known = map[*rank]bool{}, map[*rank]bool{}
	for _, r := range d.ranks {
		if r.Evidence == nil {
			continue
		}
		for i := range r.Evidence.Collectives {
			c := &r.Evidence.Collectives[i]
			known[r] = true
			if c.Waiting() {
				waits[r] = true
			}
			g := byName[c.Group]
			if g == nil {
				g = &entries{name: c.Group, places: map[*rank]*job.Collective{}}
				byName[c.Group] = g
			}
			g.members, g.places[r] = append(g.members, r), c
			if c.Waits > 0 {
				g.waiting = append(g.waiting, r)
				if g.first == 0 || c.Waits < g.first {
					g.first = c.Waits
				}
			}
		}
	}
	for _, g := range byName {
		for _, r := range g.members {
			if g.places[r].Entered < g.first {
				g.missing = append(g.missing, r)
			}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *entries) int {
		return cmp.Or(cmp.Compare(len(b.waiting), len(a.waiting)), cmp.Compare(a.name, b.name))
	}), waits, known
}

// late is the finding about ranks that have not entered a collective in which others wait, of those that count.
func (d *Detector) late(groups []*entries, counts func(*rank) bool) (f finding) {
	named := map[*rank]bool{}
	for _, g := range groups {
		late := slices.DeleteFunc(slices.Clone(g.missing), func(r *rank) bool { return !counts(r) })
		if len(late) == 0 {
			continue
		}
		for _, r := range late {
			if !named[r] {
				named[r], f.ranks = true, append(f.ranks, r)
			}
		}
		if len(f.evidence) < mostQuoted {
			at := g.places[g.waiting[0]]
			for _, r := range g.waiting {
				if g.places[r].Waits == g.first {
					at = g.places[r]
				}
			}
			f.evidence = append(f.evidence, d.because(RankNotEntered, late, "group", titleOf(at), "number", strconv.FormatInt(g.first, 10), "call", at.Op,
				"waiting", strconv.Itoa(len(g.waiting))))
		}
	}
	slices.SortFunc(f.ranks, byNumber)
	return f
}

// otherCalls is the finding about ranks that are in another collective than most, under the same number of the same group.
func (d *Detector) otherCalls(groups []*entries) finding {
	for _, g := range groups {
		call := func(r *rank) string {
			if c := g.places[r]; c != nil && c.Waits == g.first {
				return c.Op
			}
			return ""
		}
		odd, most := minority(g.waiting, call)
		if len(odd) > 0 && 2*len(odd) < len(g.waiting) {
			return finding{ranks: odd, evidence: []job.Reason{d.because(RankOtherCall, odd, "group", titleOf(g.places[odd[0]]),
				"number", strconv.FormatInt(g.first, 10), "call", call(odd[0]), "others", most)}}
		}
	}
	return finding{}
}

// titleOf is what the program calls a group, or else its name.
func titleOf(c *job.Collective) string {
	if c.Title == "" || c.Title == "undefined" {
		return c.Group
	}
	return c.Title
}

func byNumber(a, b *rank) int { return cmp.Compare(a.number, b.number) }

// logOf is where a rank is in the collectives of its groups.
func (d *Detector) logOf(r *rank) (facts []job.Reason) {
	for i := range r.Evidence.Collectives {
		c := &r.Evidence.Collectives[i]
		if c.Entered == 0 && !c.Waiting() {
			continue
		}
		args := []string{"group", titleOf(c), "entered", strconv.FormatInt(c.Entered, 10), "state", "complete"}
		if c.Waiting() {
			args[len(args)-1] = "waits"
		}
		if c.Waits > 0 || c.Peer == "" {
			args = append(args, "call", c.Op, "number", strconv.FormatInt(cmp.Or(c.Waits, c.Entered), 10), "sizes", c.Sizes)
		} else {
			args = append(args, "call", c.Peer)
		}
		facts = append(facts, d.because(RankCollective, []*rank{r}, args...))
	}
	return facts
}
