package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Hold is the common part of the locks of all stores, for embedding: the holder, whether and why the lock was lost, and the
// goroutine that renews it if needed. It is safe for concurrent use.
type Hold struct {
	info LockInfo

	once sync.Once
	lost chan struct{}
	why  error // set before lost is closed

	failed atomic.Pointer[error] // the error of the last renewal; nil if it succeeded

	mu   sync.Mutex // guards what follows
	stop context.CancelFunc
	done chan struct{} // closed when the renewing goroutine has ended
	// expiry fires when the lease expires. It is a separate timer because a renewal can hang.
	expiry *time.Timer
}

// NewHold makes a lock that was just acquired. It is not renewed until Keep.
func NewHold(info LockInfo) *Hold { return &Hold{info: info, lost: make(chan struct{})} }

// Info implements Lock.
func (h *Hold) Info() LockInfo { return h.info }

// Lost implements Lock.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Why implements Lock.
func (h *Hold) Why() error {
	select {
	case <-h.lost:
		return h.why
	default:
		return nil
	}
}

// Lose closes Lost. Only the first reason counts.
func (h *Hold) Lose(why error) {
	h.once.Do(func() {
		h.why = why
		close(h.lost)
	})
}

// Renewal says how a lock is renewed.
type Renewal struct {
	Lease time.Duration // how long the lock outlives its last renewal
	Every time.Duration // the interval between the beginnings of renewals
	// Renew renews once. ErrFenced means that another holds the lock; other errors are retried until the lease
	// expires.
	Renew func(ctx context.Context) error
	// Place is where the lock is kept, for people: "the file system".
	Place string
}

// Keep renews the lock until Halt, or until it is lost. The lease counts from began, a time before the lock was acquired:
// nobody can have seen it earlier. Halt must come before another Keep.
func (h *Hold) Keep(r Renewal, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.done = cancel, make(chan struct{})
	h.expiry = time.AfterFunc(r.Lease-time.Since(began), func() { h.expire(r) })
	go h.renew(ctx, r, began, h.expiry, h.done)
}

// Halt stops what Keep started and waits for that, until ctx ends. The lock stays held.
func (h *Hold) Halt(ctx context.Context) error {
	h.mu.Lock()
	stop, done, expiry := h.stop, h.done, h.expiry
	h.mu.Unlock()
	stop()
	defer expiry.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expire is called when the lease expires.
func (h *Hold) expire(r Renewal) {
	why := fmt.Errorf("%s does not answer, or this process was paused", r.Place)
	if failed := h.failed.Load(); failed != nil {
		why = *failed
	}
	h.Lose(fmt.Errorf("not renewed for %v: %w", r.Lease, why))
}

func (h *Hold) renew(ctx context.Context, r Renewal, began time.Time, expiry *time.Timer, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.lost:
			return
		case <-time.After(r.Every - time.Since(began)):
		}
		began = time.Now()
		err := r.Renew(ctx)
		switch {
		case errors.Is(err, ErrFenced):
			h.Lose(err)
			return
		case err == nil:
			h.failed.Store(nil)
			// The lease counts from before the renewal. A lease that has expired stays so.
			if expiry.Stop() {
				expiry.Reset(r.Lease - time.Since(began))
			}
		case h.failed.Load() == nil || !errors.Is(err, context.DeadlineExceeded): // a timeout does not replace an error that has a reason
			h.failed.Store(&err)
		}
	}
}

// Silence measures how long one holder has not renewed its lock, as seen by this process alone. A version identifies one
// renewal of one holder.
type Silence[V comparable] struct {
	version V
	at      time.Time
	sum     time.Duration
}

// Observe records an observation of the lock and returns how long it has been seen unchanged. A gap between two observations
// counts for most at most: if this process was suspended together with the holder, or the store was away so that nobody could
// renew, nobody has watched meanwhile. It does count that much, as a slow store must not leave the jobs without a master.
func (s *Silence[V]) Observe(version V, now time.Time, most time.Duration) time.Duration {
	if s.at.IsZero() || version != s.version {
		*s = Silence[V]{version: version, at: now}
		return 0
	}
	s.sum += min(now.Sub(s.at), most)
	s.at = now
	return s.sum
}
