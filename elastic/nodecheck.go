package elastic

import (
	"net"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck"
)

// A member whose node is to be checked joins no world before it has passed. While it is checked the others wait for it, as for one
// that is about to join: no longer than the check's own bound. A node is not checked beside a world that trains on it.

// assignChecks sets which check each member has to pass.
func (r *Rendezvous) assignChecks() {
	for addr, s := range r.slots {
		s.check = 0
		if w := r.want.Check; w != nil {
			if w.All {
				s.check = 1
			}
			if len(w.Slots) > 0 {
				s.check = max(s.check, w.Slots[addr.Short()])
			}
		}
		r.updateCheck(s)
	}
}

// updateCheck begins, continues or ends a member's check. A member of a version that knows none joins without.
func (r *Rendezvous) updateCheck(s *slot) {
	switch o := r.checks.Outcome(s.Address); {
	case s.check > 0 && s.present && !s.Leave && s.report.State == job.MemberWaiting && slices.Contains(s.can, job.CanCheck):
		r.checks.Ask(r.now, s.Address, nodecheck.Place{Host: s.host, Node: s.node}, s.check, r.want.Check.Timeout.Std())
		r.checks.Report(r.now, s.Address, s.report.Check)
	case o != nil && o.Verdict == job.CheckRuns:
		r.checks.Drop(r.now, s.Address)
	}
}

// followChecks updates the orders of the members whose check has changed.
func (r *Rendezvous) followChecks() {
	for _, addr := range r.checks.Changed() {
		r.changes++
		if s := r.slots[addr]; s != nil {
			r.refresh(s)
		}
	}
}

// isChecked reports whether a member may join as far as its node is concerned.
func (r *Rendezvous) isChecked(s *slot) bool {
	return r.want.Check.Admits(r.checks.Outcome(s.Address))
}

// isRejected reports whether a member has been checked, and may not join.
func (r *Rendezvous) isRejected(s *slot) bool {
	o := r.checks.Outcome(s.Address)
	return o != nil && o.Verdict != job.CheckRuns && !r.isChecked(s)
}

// checkOf is what a member is to check; nil for nothing.
func (r *Rendezvous) checkOf(s *slot) *Check {
	o := r.checks.Outcome(s.Address)
	if o == nil || o.Verdict != job.CheckRuns || r.want.Check == nil {
		return nil
	}
	w := r.want.Check
	c := &Check{Number: o.Number, Seconds: nodecheck.WorkBound(w.Timeout.Std()).Seconds(), Command: w.Command}
	if p, is := r.checks.Pair(s.Address); is {
		c.Pair = &Pair{Set: p.Set, Round: p.Round, Peer: p.Peer.Short(), Seconds: nodecheck.ExchangeBound(w.Timeout.Std()).Seconds()}
		if p.Port > 0 {
			c.Pair.Address = net.JoinHostPort(p.Host, strconv.Itoa(p.Port))
		}
	}
	return c
}

// outcomeOf is a copy of the state of a member's check; nil if it has none.
func (r *Rendezvous) outcomeOf(s *slot) *job.CheckOutcome {
	o := r.checks.Outcome(s.Address)
	if o == nil {
		return nil
	}
	out := *o
	return &out
}

// equal compares checks.
func (c *Check) equal(d *Check) bool {
	if c == nil || d == nil {
		return c == d
	}
	samePair := c.Pair == nil && d.Pair == nil || c.Pair != nil && d.Pair != nil && *c.Pair == *d.Pair
	return samePair && c.Number == d.Number && c.Seconds == d.Seconds && slices.Equal(c.Command, d.Command)
}
