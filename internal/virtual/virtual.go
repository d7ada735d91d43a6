// Package virtual is a clock that moves from event to event, for simulations: nothing waits, and nothing reads the real time.
package virtual

import (
	"cmp"
	"container/heap"
	"time"
)

// Clock runs events in the order of their times, and those of one time in the order in which they were scheduled. Everything happens on
// the goroutine of its caller.
type Clock struct {
	now   time.Time
	queue queue
	seq   int
}

// New returns a clock that stands at a time.
func New(now time.Time) *Clock { return &Clock{now: now} }

// Now is the virtual time.
func (c *Clock) Now() time.Time { return c.now }

// After schedules do at d from now; one that is negative is 0.
func (c *Clock) After(d time.Duration, do func()) {
	c.seq++
	heap.Push(&c.queue, event{c.now.Add(max(d, 0)), c.seq, do})
}

// At schedules do at a time; one that has passed is now.
func (c *Clock) At(at time.Time, do func()) { c.After(at.Sub(c.now), do) }

// Step runs the next event, if it is due until t, and reports whether it was.
func (c *Clock) Step(t time.Time) bool {
	if len(c.queue) == 0 || c.queue[0].at.After(t) {
		return false
	}
	e := heap.Pop(&c.queue).(event)
	if e.at.After(c.now) {
		c.now = e.at
	}
	e.do()
	return true
}

// Due reports whether another event is due now.
func (c *Clock) Due() bool { return len(c.queue) > 0 && !c.queue[0].at.After(c.now) }

// MoveTo moves the clock on to t, past events that are due before.
func (c *Clock) MoveTo(t time.Time) {
	if t.After(c.now) {
		c.now = t
	}
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(q[i].at.Compare(q[j].at), cmp.Compare(q[i].seq, q[j].seq)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last], *q = event{}, (*q)[:last]
	return e
}
