package apply

import (
	"strconv"
	"sync"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// teller passes on to the view what is to be told, one call at a time and in order. While a run continues it does so from
// a goroutine of its own: a terminal that takes nothing must not keep the loop from healing.
type teller struct {
	view    View
	calling sync.Mutex // one call of the view at a time

	mu      sync.Mutex
	running *telling // nil outside of a run: calls are made at once
}

// telling is what is told during one run.
type telling struct {
	queue   []untold
	dropped int           // since the queue was empty last
	news    chan struct{} // gets a value when there is something in the queue
	ending  chan struct{} // closed when nothing more comes
	ended   chan struct{} // closed when all was told
}

// untold is one waiting call.
type untold struct {
	call  func(View)
	since time.Time
}

const (
	// untoldMost is how long a call waits for those before it. Whoever reads takes nothing then, or far too slowly, and what
	// comes after is left out: it is in the journal.
	untoldMost = 30 * time.Second
	// flushMost is how long the end of a run waits for what was not told yet: the lock is another's to take.
	flushMost = 10 * time.Second
)

// tell calls the view, now or later. It never waits for the view during a run.
func (t *teller) tell(call func(View)) {
	t.mu.Lock()
	r := t.running
	if r == nil {
		t.mu.Unlock()
		t.calling.Lock()
		defer t.calling.Unlock()
		call(t.view)
		return
	}
	defer t.mu.Unlock()
	now := time.Now()
	if len(r.queue) > 0 && now.Sub(r.queue[0].since) > untoldMost {
		r.dropped++
		return
	}
	r.queue = append(r.queue, untold{call, now})
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// begin starts the goroutine, until end.
func (t *teller) begin() {
	r := &telling{news: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	t.mu.Lock()
	t.running = r
	t.mu.Unlock()
	go func() {
		defer close(r.ended)
		for {
			select {
			case <-r.news:
			case <-r.ending:
				t.drain(r)
				return
			}
			t.drain(r)
		}
	}()
}

// drain tells all that is in the queue. What is being told stays in it, so that its age shows.
func (t *teller) drain(r *telling) {
	for {
		t.mu.Lock()
		if len(r.queue) == 0 {
			t.mu.Unlock()
			return
		}
		call := r.queue[0].call
		t.mu.Unlock()
		t.calling.Lock()
		call(t.view)
		t.calling.Unlock()
		t.mu.Lock()
		r.queue[0] = untold{} // what was told may be a plan of many slots, and the queue's memory lives on
		r.queue = r.queue[1:]
		if n := r.dropped; len(r.queue) == 0 && n > 0 {
			r.dropped = 0
			r.queue = append(r.queue, untold{func(v View) { v.Condition(leftOut(n)) }, time.Now()})
		}
		t.mu.Unlock()
	}
}

// leftOut says that the output took nothing for a while.
func leftOut(lines int) conditions.Change {
	return conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{
		About: aboutOutput, Reason: job.Because(OutputLeftOut, "count", strconv.Itoa(lines)), Since: time.Now()}}
}

// end waits until all was told, for flushMost at most: a write that is blocked cannot be ended. What is not told by then
// is dropped.
func (t *teller) end() {
	t.mu.Lock()
	r := t.running
	t.mu.Unlock()
	close(r.ending)
	timer := time.NewTimer(flushMost)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.queue, r.dropped = r.queue[:min(len(r.queue), 1)], 0
	t.running = nil
}
