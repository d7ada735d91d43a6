package apply

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/providers"
)

// hopeless is how often something is told to fail before a run that does not watch stops waiting for it.
const hopeless = 5

// repeats reports whether an error says the same as the one before, if there was one.
func repeats(err, before error) bool {
	return before != nil && conditions.Wording(err.Error()) == conditions.Wording(before.Error())
}

// retry is the state of something that is tried until it succeeds: when it is retried, and what was told of its failures.
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
	// A failure that may pass by itself is reported once it persists, or has lasted for quietFor.
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
