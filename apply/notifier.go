package apply

import (
	"strconv"
	"sync"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// notifier calls the view, one call at a time and in order. During a run it does so from a goroutine of its own: a blocked
// terminal must not keep the loop from healing.
type notifier struct {
	view    View
	calling sync.Mutex // serializes calls of the view

	mu      sync.Mutex
	running *callQueue // nil outside of a run: calls are made at once
}

// callQueue is the call queue of one run.
type callQueue struct {
	queue   []queuedCall
	dropped int           // calls dropped since the queue was last empty
	news    chan struct{} // receives a value when the queue is not empty
	ending  chan struct{} // closed when no more calls come
	ended   chan struct{} // closed when all calls have been made
}

// queuedCall is a queued call.
type queuedCall struct {
	call  func(View)
	since time.Time
}

const (
	// maxCallAge is the age of the oldest queued call from which on new calls are dropped: the output is blocked, or far too
	// slow. What is dropped is in the journal.
	maxCallAge = 30 * time.Second
	// maxFlush is how long the end of a run waits for queued calls: others may be waiting for the lock.
	maxFlush = 10 * time.Second
)

// tell calls the view, during a run asynchronously.
func (t *notifier) tell(call func(View)) {
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
	if len(r.queue) > 0 && now.Sub(r.queue[0].since) > maxCallAge {
		r.dropped++
		return
	}
	r.queue = append(r.queue, queuedCall{call, now})
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// begin starts the goroutine, until end.
func (t *notifier) begin() {
	r := &callQueue{news: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
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

// drain makes all queued calls. The current call stays in the queue, so that its age counts.
func (t *notifier) drain(r *callQueue) {
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
		r.queue[0] = queuedCall{} // release its arguments, perhaps a large plan: the backing array lives on
		r.queue = r.queue[1:]
		if n := r.dropped; len(r.queue) == 0 && n > 0 {
			r.dropped = 0
			r.queue = append(r.queue, queuedCall{func(v View) { v.Condition(leftOut(n)) }, time.Now()})
		}
		t.mu.Unlock()
	}
}

// leftOut reports that the output was blocked for a while.
func leftOut(lines int) conditions.Change {
	return conditions.Change{Type: conditions.Raised, Condition: conditions.Condition{
		About: aboutOutput, Reason: job.Because(OutputLeftOut, "count", strconv.Itoa(lines)), Since: time.Now()}}
}

// end waits for the queued calls, for maxFlush at most, since a blocked write cannot be interrupted. The rest is dropped.
func (t *notifier) end() {
	t.mu.Lock()
	r := t.running
	t.mu.Unlock()
	close(r.ending)
	timer := time.NewTimer(maxFlush)
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
