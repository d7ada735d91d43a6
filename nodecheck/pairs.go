package nodecheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// rounds is how often each member exchanges data, with another partner each time if there is one.
const rounds = 2

// set are members that exchange data in pairs. The first round pairs members of different nodes, the second slow with fast ones: whoever
// fails with both of its partners, one of them a good one, is faulty itself.
type set struct {
	id      int64
	members []*check
	round   int
	by      time.Time // until when the outcomes of the round have to be there
}

// exchanging is a member's part in a set.
type exchanging struct {
	set      *set // nil outside
	partner  *check
	dials    bool
	got      *job.Exchanged // of this round
	passed   bool           // an exchange succeeded
	failed   []*check       // the partners with whom it failed
	why      string         // the last one failed
	took     []float64      // seconds of those that succeeded
	satOut   bool           // it had no partner in the last round
	lastTook float64
}

// Pair returns the exchange that a member is to do; false if it is to do none.
func (c *Checks) Pair(slot job.Address) (Pair, bool) {
	x := c.of[slot]
	if x == nil || x.set == nil || x.partner == nil {
		return Pair{}, false
	}
	p := Pair{Set: x.set.id, Round: x.set.round, Peer: x.partner.slot}
	if x.dials {
		p.Host, p.Port = x.partner.place.Host, x.partner.report.Port
	}
	return p, true
}

// take takes the outcome of the round.
func (x *check) take(r *job.Checked) {
	for i := range r.Exchanges {
		if got := &r.Exchanges[i]; got.Set == x.set.id && got.Round == x.set.round {
			x.got = got
		}
	}
}

// leave takes a member out of its set. Its partner has none in this round.
func (x *check) leave() {
	if x.partner != nil {
		x.partner.partner = nil
	}
	x.set.members = slices.DeleteFunc(x.set.members, func(m *check) bool { return m == x })
}

// pairUp begins the exchanges of members that have done their own work, or ends their checks if there are no two that can.
func (c *Checks) pairUp(now time.Time, ready []*check) {
	reachable := slices.DeleteFunc(slices.Clone(ready), func(x *check) bool { return x.report.Port == 0 })
	if len(reachable) < 2 {
		c.judge(now, ready)
		return
	}
	s := &set{id: now.UnixNano(), members: ready} // a member may still tell of exchanges that another master asked for
	for _, x := range ready {
		x.exchanging = exchanging{set: s}
	}
	// Those of one node are apart by half the number, unless it has more than half.
	slices.SortStableFunc(reachable, func(a, b *check) int { return cmp.Compare(a.place.Node, b.place.Node) })
	half := len(reachable) / 2
	for i := range half {
		s.pair(reachable[i], reachable[i+half])
	}
	c.sets = append(c.sets, s)
	c.beginRound(now, s)
}

func (s *set) pair(a, b *check) {
	a.partner, b.partner, a.dials, b.dials = b, a, true, false
}

// beginRound begins the next round of a set whose members are paired.
func (c *Checks) beginRound(now time.Time, s *set) {
	s.round++
	bound := time.Duration(0)
	for _, x := range s.members {
		bound = max(bound, roundBound(x.timeout))
		x.got, x.satOut = nil, x.partner == nil
		c.changed = append(c.changed, x.slot)
	}
	s.by = now.Add(bound)
}

// endRounds ends the rounds whose outcomes are there, or are late, and reports whether there were any.
func (c *Checks) endRounds(now time.Time) (ended bool) {
	c.sets = slices.DeleteFunc(c.sets, func(s *set) bool {
		awaited := slices.ContainsFunc(s.members, func(x *check) bool { return x.partner != nil && x.got == nil })
		if awaited && now.Before(s.by) {
			return false
		}
		ended = true
		s.count()
		if s.round < rounds && len(s.members) > 0 {
			s.pairSlowWithFast()
			c.beginRound(now, s)
			return false
		}
		c.judge(now, s.members)
		return true
	})
	return ended
}

// count counts the outcomes of a round. An exchange has succeeded if both sides say so.
func (s *set) count() {
	for _, x := range s.members {
		x.lastTook = 0
		y := x.partner
		if y == nil {
			continue
		}
		if x.got != nil && y.got != nil && x.got.Failed == "" && y.got.Failed == "" {
			x.passed, x.lastTook = true, max(x.got.Seconds, y.got.Seconds)
			x.took = append(x.took, x.lastTook)
			continue
		}
		x.failed = append(x.failed, y)
		switch {
		case x.got != nil && x.got.Failed != "":
			x.why = y.slot.Short() + ": " + x.got.Failed
		case x.why == "":
			x.why = y.slot.Short()
		}
	}
	for _, x := range s.members {
		x.partner = nil
	}
}

// pairSlowWithFast pairs the members of a round anew. One that sat out counts as fast, so that it does not sit out again.
func (s *set) pairSlowWithFast() {
	reachable := slices.DeleteFunc(slices.Clone(s.members), func(x *check) bool { return x.report.Port == 0 })
	slow := func(x *check) float64 { // failed is slower than anything
		if len(x.failed) > 0 {
			return 1e9
		}
		return x.lastTook
	}
	slices.SortStableFunc(reachable, func(a, b *check) int {
		if a.satOut != b.satOut {
			return map[bool]int{true: -1, false: 1}[a.satOut]
		}
		return cmp.Compare(slow(a), slow(b))
	})
	for i, j := 0, len(reachable)-1; i < j; i, j = i+1, j-1 {
		s.pair(reachable[i], reachable[j])
	}
}

// fastest is the time of a member's fastest exchange; false if it had fewer partners than rounds: a single one may have been what was
// slow.
func (x *check) fastest() (seconds float64, told bool) {
	if len(x.took) < rounds {
		return 0, false
	}
	return slices.Min(x.took), true
}

// faulty are the members that never passed an exchange, except those whose failure their partner explains, which failed more often. If
// they are more than half, or no exchange has succeeded, it is rather something that they have in common, such as a closed port.
func faulty(members []*check) []*check {
	if !slices.ContainsFunc(members, func(x *check) bool { return x.passed }) {
		return nil
	}
	never := slices.DeleteFunc(slices.Clone(members), func(x *check) bool { return x.passed || len(x.failed) == 0 })
	blamed := slices.DeleteFunc(slices.Clone(never), func(x *check) bool {
		return !slices.ContainsFunc(x.failed, func(y *check) bool { return y.passed || len(y.failed) <= len(x.failed) })
	})
	if 2*len(blamed) > len(members) {
		return nil
	}
	return blamed
}
