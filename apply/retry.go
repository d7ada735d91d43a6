package apply

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/eltrain/eltrain/providers"
)

// retry is how it stands with what is tried until it succeeds: when it is tried again, and what was told of its failures.
// It is a plain value: the time is an argument, and so is the jitter, from 0 to 1. It begins as zero, and is zero again
// once it has succeeded.
type retry struct {
	begun    time.Time // the first attempt since the last failure that was told; zero before
	quiet    int       // failures since, of which none was told
	tries    int       // of these, those that count: the others were turned away
	failures int       // those that were told
	until    time.Time // not again before
	err      error     // of the last that was told, or of one before it that it repeats
}

const (
	// A failure that may pass by itself is told once it persists, or has lasted for quietFor.
	quietFor = callTimeout
	// Pauses after failures double from the first to the most, with up to a quarter of jitter: those after failures that are
	// not told, and those after failures that are. Providers have their own pace, which admits no more than is good for them.
	quietPauseFirst = 100 * time.Millisecond
	quietPauseMost  = time.Second
	pauseFirst      = 500 * time.Millisecond
	pauseMost       = 30 * time.Second
)

// begin is before an attempt.
func (r retry) begin(now time.Time) retry {
	if r.begun.IsZero() {
		r.begun = now
	}
	return r
}

// next is after an attempt that failed. tell reports whether somebody is to hear of it.
func (r retry) next(now time.Time, err error, jitter float64) (next retry, tell bool) {
	r = r.begin(now)
	passing, transient := errors.AsType[*providers.TransientError](err)
	if !transient {
		return r.fail(now, err, jitter), true
	}
	if !passing.Busy {
		r.tries++
	}
	if r.tries >= providers.Persists || now.Sub(r.begun) >= quietFor {
		return r.fail(now, err, jitter), true
	}
	r.until = now.Add(pauseAfter(r.quiet, quietPauseFirst, quietPauseMost, jitter))
	r.quiet++
	return r, false
}

// fail is after a failure that is told. An error that repeats the one before is left out: with each attempt it would be
// another reason, to be stored and told.
func (r retry) fail(now time.Time, err error, jitter float64) retry {
	if repeats(err, r.err) {
		err = r.err
	}
	return retry{failures: r.failures + 1, until: now.Add(pauseAfter(r.failures, pauseFirst, pauseMost, jitter)), err: err}
}

func pauseAfter(failures int, first, most time.Duration, jitter float64) time.Duration {
	pause := min(first<<min(failures, 10), most)
	return pause + time.Duration(jitter*float64(pause)/4)
}

// insist calls until that succeeds, or fails in a way that is to be told: then it gives the error, and how it stands. The
// pauses obey the context.
func insist(ctx context.Context, clock func() time.Time, r retry, call func() error) (retry, error) {
	for {
		r = r.begin(clock())
		err := call()
		if err == nil {
			return retry{}, nil
		}
		now, jitter := clock(), rand.Float64()
		next, tell := r.next(now, err, jitter)
		if tell {
			return next, err
		}
		if !sleep(ctx, next.until.Sub(now)) {
			return r.fail(now, err, jitter), err
		}
		r = next
	}
}

// Publish tells a provider's agents where the service is.
func Publish(ctx context.Context, p providers.Provider, s providers.Service) error {
	_, err := insist(ctx, time.Now, retry{}, func() error { return p.Publish(ctx, s) })
	return err
}
