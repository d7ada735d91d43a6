// Package nodecheck judges nodes by what the agents on them find out before they join a world.
//
// It is pure: it uses no clock, and time is an argument. It must not know who asks, nor how the work is done; for that see
// nodecheck/probe.
package nodecheck

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// A node is slow if it takes slowFactor times the median of at least leastCompared nodes, and leastExcess more: what takes
// milliseconds varies by more than that.
const (
	slowFactor    = 2
	leastCompared = 3
	leastExcess   = 500 * time.Millisecond
)

// WorkBound is how long a node may take for what it does alone, of the bound of a whole check.
func WorkBound(timeout time.Duration) time.Duration { return timeout / 2 }

// ExchangeBound is how long each of the two exchanges may take.
func ExchangeBound(timeout time.Duration) time.Duration { return timeout / 8 }

// roundBound is until when its outcome has to be there.
func roundBound(timeout time.Duration) time.Duration { return timeout * 3 / 16 }

// reportBound is until when its report has to be there: agents end their own work in time, so one that says nothing is stuck.
func reportBound(timeout time.Duration) time.Duration { return timeout * 5 / 8 }

// gatherTime is how long a check waits for others that begin a little later: agents register one after the other, with a later master
// too, which some of them tell at once what they have found out.
func gatherTime(timeout time.Duration) time.Duration { return min(2*time.Second, timeout/8) }

// Checks are the checks of one job's members. Those that run at the same time are judged together. A member waits for the others
// no longer than it may have taken itself.
type Checks struct {
	of      map[job.Address]*check
	working int       // how many have not reported
	waiting int       // how many have, and wait for the others
	due     time.Time // no bound ends before; zero if none runs
	sets    []*set
	changed []job.Address
}

// Place is where a member is.
type Place struct{ Host, Node string }

// Pair is an exchange that a member is to do.
type Pair struct {
	Set   int64
	Round int
	Peer  job.Address
	Host  string // of the partner, if this member connects to it
	Port  int    // 0 if the partner connects
}

// check is the newest check of one member.
type check struct {
	slot    job.Address
	place   Place
	timeout time.Duration
	exchanging
	report  *job.Checked // nil until its own work is done
	gather  time.Time    // until when it waits for others to begin
	by      time.Time    // until when it may work, and waits for others that do
	outcome job.CheckOutcome
}

// Ask begins a check of a member, unless it has or had one of this number or a later one.
func (c *Checks) Ask(now time.Time, slot job.Address, place Place, number int, timeout time.Duration) {
	if x := c.of[slot]; x != nil && x.outcome.Number >= number {
		return
	}
	c.Drop(now, slot)
	if c.of == nil {
		c.of = map[job.Address]*check{}
	}
	x := &check{
		slot: slot, place: place, timeout: timeout, gather: now.Add(gatherTime(timeout)), by: now.Add(reportBound(timeout)),
		outcome: job.CheckOutcome{Number: number, Verdict: job.CheckRuns, At: now},
	}
	c.of[slot] = x
	c.working++
	c.await(x.by)
	c.changed = append(c.changed, slot)
}

// Report takes what a member has found out. What does not belong to its check is ignored. One that was late is judged by itself.
func (c *Checks) Report(now time.Time, slot job.Address, r *job.Checked) {
	x := c.of[slot]
	if x == nil || r == nil || r.Number < x.outcome.Number {
		return
	}
	if x.report != nil {
		if x.set != nil {
			x.take(r)
			c.advance(now)
		}
		return
	}
	x.report = r
	late := x.outcome.Verdict != job.CheckRuns
	if !late {
		c.working--
	}
	switch {
	case r.Failed != "":
		c.conclude(now, x, job.CheckOutcome{Verdict: job.CheckFaulty, Part: r.Failed, Message: r.Message, Seconds: r.Seconds})
	case late:
		c.judge(now, []*check{x})
	default:
		c.waiting++
	}
	c.advance(now)
}

// Drop forgets a member's check: it runs no more, or another incarnation has the slot.
func (c *Checks) Drop(now time.Time, slot job.Address) {
	x := c.of[slot]
	if x == nil {
		return
	}
	if x.outcome.Verdict == job.CheckRuns {
		switch {
		case x.set != nil:
			x.leave()
		case x.report == nil:
			c.working--
		default:
			c.waiting--
		}
	}
	delete(c.of, slot)
	c.changed = append(c.changed, slot)
	c.advance(now)
}

// Tick ends what is overdue.
func (c *Checks) Tick(now time.Time) {
	if !c.due.IsZero() && !now.Before(c.due) {
		c.advance(now)
	}
}

// Next is when a Tick is due; zero for never.
func (c *Checks) Next() time.Time { return c.due }

// Extend moves all bounds: the service did not run for a while.
func (c *Checks) Extend(by time.Duration) {
	for _, x := range c.of {
		x.gather, x.by = x.gather.Add(by), x.by.Add(by)
	}
	for _, s := range c.sets {
		s.by = s.by.Add(by)
	}
	if !c.due.IsZero() {
		c.due = c.due.Add(by)
	}
}

// Outcome is the state of a member's newest check; nil if it has none.
func (c *Checks) Outcome(slot job.Address) *job.CheckOutcome {
	if x := c.of[slot]; x != nil {
		return &x.outcome
	}
	return nil
}

// Changed returns the members whose check has changed, once.
func (c *Checks) Changed() []job.Address {
	changed := c.changed
	c.changed = nil
	slices.SortFunc(changed, job.Address.Compare)
	return slices.Compact(changed)
}

func (c *Checks) await(t time.Time) {
	if c.due.IsZero() || t.Before(c.due) {
		c.due = t
	}
}

// advance ends the work that is overdue, and judges members that wait for no other, or have done so for long enough.
func (c *Checks) advance(now time.Time) {
	over := !c.due.IsZero() && !now.Before(c.due)
	ended := c.endRounds(now)
	if !over && !ended && (c.working > 0 || c.waiting == 0) {
		return
	}
	var ready []*check
	var gather time.Time
	late := false
	for _, x := range c.of {
		switch {
		case x.outcome.Verdict != job.CheckRuns || x.set != nil:
		case x.report != nil:
			ready = append(ready, x)
			late = late || !now.Before(x.by)
			if x.gather.After(gather) {
				gather = x.gather
			}
		case !now.Before(x.by):
			c.working--
			c.conclude(now, x, job.CheckOutcome{Verdict: job.CheckFaulty, Part: job.CheckTime, Seconds: now.Sub(x.outcome.At).Seconds()})
		}
	}
	together := c.working == 0 && !now.Before(gather)
	if len(ready) > 0 && (together || late) {
		c.waiting -= len(ready)
		slices.SortFunc(ready, func(a, b *check) int { return a.slot.Compare(b.slot) })
		c.pairUp(now, ready)
	}
	c.due = time.Time{}
	if c.waiting > 0 && c.working == 0 {
		c.await(gather)
	}
	for _, x := range c.of {
		if x.outcome.Verdict == job.CheckRuns && x.set == nil {
			c.await(x.by)
		}
	}
	for _, s := range c.sets {
		c.await(s.by)
	}
}

// judge ends the checks of members that did their work at the same time.
func (c *Checks) judge(now time.Time, ready []*check) {
	if len(ready) == 0 {
		return
	}
	var works, exchanges []float64
	for _, x := range ready {
		if !x.report.Unknown {
			works = append(works, x.report.Seconds)
		}
		if fastest, told := x.fastest(); told {
			exchanges = append(exchanges, fastest)
		}
	}
	work, exchange := median(works), median(exchanges)
	cutOff := faulty(ready)
	for _, x := range ready {
		took := x.report.Seconds
		exchanged, told := x.fastest()
		o := job.CheckOutcome{Verdict: job.CheckPassed, Seconds: took}
		switch {
		case slices.Contains(cutOff, x):
			o = job.CheckOutcome{Verdict: job.CheckFaulty, Part: job.CheckExchange, Message: x.why, Seconds: took}
		case x.report.Unknown:
			o.Verdict, o.Message = job.CheckUnknown, x.report.Message
		case isSlow(len(works), took, work):
			o = job.CheckOutcome{Verdict: job.CheckStraggler, Seconds: took, Median: work}
		case told && isSlow(len(exchanges), exchanged, exchange):
			o = job.CheckOutcome{Verdict: job.CheckStraggler, Part: job.CheckExchange, Seconds: exchanged, Median: exchange}
		}
		x.set = nil
		c.conclude(now, x, o)
	}
}

// isSlow reports whether a node took too long among so many.
func isSlow(nodes int, took, median float64) bool {
	return nodes >= leastCompared && took > slowFactor*median && took-median > leastExcess.Seconds()
}

func (c *Checks) conclude(now time.Time, x *check, o job.CheckOutcome) {
	o.Number, o.At = x.outcome.Number, now
	x.outcome = o
	c.changed = append(c.changed, x.slot)
}

// median is the median of times; 0 of none.
func median(times []float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	half := len(times) / 2
	if len(times)%2 == 1 {
		return times[half]
	}
	return (times[half-1] + times[half]) / 2
}
