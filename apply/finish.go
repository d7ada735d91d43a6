package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/plan"
)

// finish sees to it, after the end of a run, that what it told to leave has left: what does not in its time is stopped, as
// the run would have done. Nothing else is begun. What came of it is stored, for the next plan and for whoever asks how the
// jobs are. A stop that has failed is not tried again: that is told, and it is the next run's.
func (r *Reconciler) finish(acting context.Context, wakes <-chan struct{}) error {
	if !r.flights.stopping() {
		return nil
	}
	still := time.NewTicker(progressEvery)
	defer still.Stop()
	var rest rest
	for {
		begun := time.Now()
		r.flights.look()
		r.observe(acting)
		in := r.input(r.o.Clock())
		due, left := r.flights.finish(acting, r.o.Clock())
		if acting.Err() != nil {
			return lockLost(r.o.Lock)
		}
		if !left {
			r.flights.tellFailed()
			return r.settle(acting, in)
		}
		sleep(acting, rest.after(time.Now(), time.Since(begun), 0, false))
		timer := time.NewTimer(r.untilDue(due))
		select {
		case <-acting.Done():
		case <-wakes:
		case <-r.o.Service.Wake():
		case <-r.flights.landed:
		case <-timer.C:
		case <-still.C:
			r.flights.tellStill(r.o.Clock())
		}
		timer.Stop()
	}
}

// settle brings the records up to what is seen, and decides nothing.
func (r *Reconciler) settle(ctx context.Context, in plan.Input) error {
	in.Refresh, in.Destroy = true, false
	p := plan.Make(in)
	if err := r.commit(ctx, in, &p); err != nil {
		return err
	}
	r.view(func(v View) {
		for _, n := range p.Notices {
			v.Noticed(n)
		}
	})
	return nil
}

// isStop tells whether a change only ends incarnations, which are told to leave and have a time for it.
func isStop(c *plan.Change) bool { return c.Launch == nil && len(c.Stop) > 0 }

// stopping tells whether anything was told to leave of which the records do not say yet that it has.
func (f *flights) stopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.begun {
		if isStop(&b.change) {
			return true
		}
	}
	return false
}

// unfinished tells whether a change was begun and neither done nor found to fail. f.mu is held.
func (f *flights) unfinished(t target, b *begun) bool {
	return b.flying || !b.done && f.paused[t].failures == 0
}

// finish goes on with what is on its way out, and with nothing else: what has left is done, and what had its time is
// stopped. due is when the next has had it; left tells whether any is not done yet.
func (f *flights) finish(ctx context.Context, now time.Time) (due time.Time, left bool) {
	var news []func(View)
	var stop []*begun
	f.mu.Lock()
	for t, b := range f.begun {
		c := &b.change
		if isStop(c) && b.done && b.seen >= f.turn {
			left = true // what was observed may not show it yet
		}
		if !isStop(c) || !f.unfinished(t, b) {
			continue
		}
		if !b.flying && f.r.hasLeft(c) {
			news = append(news, b.finished(now, nil))
			b.done = true
			continue
		}
		left = true
		switch until := b.since.Add(leaveTime(c)); {
		case b.flying:
		case now.Before(until) && (!f.r.answered(c.Provider) || f.r.leavesByItself(c)):
			due = earliest(due, until)
		default:
			b.flying, b.finishing = true, true
			stop = append(stop, b)
		}
	}
	f.mu.Unlock()
	f.tell(news)
	f.enqueue(ctx, stop)
	return due, left
}

// tellFailed tells of what could not be stopped.
func (f *flights) tellFailed() {
	f.mu.Lock()
	var slots []string
	var why error
	for t, b := range f.begun {
		if isStop(&b.change) && !b.done && f.paused[t].failures > 0 {
			slots, why = append(slots, t.slot.String()), f.paused[t].err
		}
	}
	f.mu.Unlock()
	if len(slots) == 0 {
		return
	}
	slices.Sort(slots)
	which := slots[0]
	if len(slots) > 1 {
		which = fmt.Sprintf("%s, first of %d", which, len(slots))
	}
	f.r.view(func(v View) {
		v.Warned("What was told to leave could not be stopped", fmt.Sprintf("%s: %v. The next run tries it again.", which, why))
	})
}

// hasLeft tells whether nothing is seen any more of what a change stops.
func (r *Reconciler) hasLeft(c *plan.Change) bool {
	if !r.answered(c.Provider) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range c.Stop {
		if r.live[incarnationOf(c.UID, c.Slot, n)] != nil {
			return false
		}
	}
	return true
}
