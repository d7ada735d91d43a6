package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Hold is what the locks of all stores have in common, for them to embed: who holds it, whether and why it was lost, and
// the goroutine that renews it where that is needed. It is safe for concurrent use.
type Hold struct {
	info LockInfo

	once sync.Once
	lost chan struct{}
	why  error // set before lost is closed

	failed atomic.Pointer[error] // of the last renewal, if it failed

	mu   sync.Mutex // of what follows
	stop context.CancelFunc
	done chan struct{} // closed when the renewing goroutine has ended
	// expiry fires when the lease is up. It is a timer of its own because a renewal can hang.
	expiry *time.Timer
}

// NewHold is a lock that was just taken. It is not renewed until Keep.
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

// Lose closes Lost. The first reason stands.
func (h *Hold) Lose(why error) {
	h.once.Do(func() {
		h.why = why
		close(h.lost)
	})
}

// Renewal says how a lock is kept.
type Renewal struct {
	Lease time.Duration // how long the lock outlives its last renewal
	Every time.Duration // how long after the begin of one renewal the next begins
	// Renew renews once. ErrFenced says that the lock is another's; after other errors it is retried until the lease
	// is up.
	Renew func(ctx context.Context) error
	// Place is what renewals go to, for people: "the file system".
	Place string
}

// Keep renews the lock until Halt, or until it is lost. The lease counts from began, a time before the lock was taken:
// nobody can have seen it earlier. Between two calls there must be a Halt.
func (h *Hold) Keep(r Renewal, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.done = cancel, make(chan struct{})
	h.expiry = time.AfterFunc(r.Lease-time.Since(began), func() { h.expire(r) })
	go h.renew(ctx, r, began, h.expiry, h.done)
}

// Halt ends what Keep began and waits for it, until ctx ends. The lock is as it is: not given back, and not lost.
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

// expire is when the lease is up.
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
			// The lease counts from before the renewal. If it was up already, it stays so.
			if expiry.Stop() {
				expiry.Reset(r.Lease - time.Since(began))
			}
		case h.failed.Load() == nil || !errors.Is(err, context.DeadlineExceeded): // one that says why stands
			h.failed.Store(&err)
		}
	}
}
