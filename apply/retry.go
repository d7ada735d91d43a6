package apply

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/providers"
)

// maxFailures is the number of reported failures after which a run that does not watch stops waiting for something.
const maxFailures = 5

// repeats reports whether an error is worded like the one before, if there was one.
func repeats(err, before error) bool {
	return before != nil && conditions.Wording(err.Error()) == conditions.Wording(before.Error())
}

// retry is the state of something that is tried until it succeeds: when it is retried, and which failures were reported.
// It is a plain value: the time and the jitter, from 0 to 1, are arguments. It is zero at first and after a success.
type retry struct {
	begun    time.Time // the first attempt since the last reported failure; zero before it
	quiet    int       // unreported failures since then
	tries    int       // those of them that count: not rejected because the provider was busy
	failures int       // reported failures
	until    time.Time // not again before
	err      error     // the last reported error, or the first in a row that it repeats
}

const (
	// A transient failure is reported once it persists, or has lasted for quietFor.
	quietFor = callTimeout
	// Pauses double from the first to the most, plus up to a quarter of jitter: quietPause after unreported failures, pause
	// after reported ones. Providers limit their own request rates in addition.
	firstQuietPause = 100 * time.Millisecond
	maxQuietPause   = time.Second
	firstPause      = 500 * time.Millisecond
	maxPause        = 30 * time.Second
)

// begin returns the state before an attempt.
func (r retry) begin(now time.Time) retry {
	if r.begun.IsZero() {
		r.begun = now
	}
	return r
}

// next returns the state after a failed attempt. tell says whether to report the failure.
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
	r.until = now.Add(pauseAfter(r.quiet, firstQuietPause, maxQuietPause, jitter))
	r.quiet++
	return r, false
}

// fail returns the state after a reported failure. An error that repeats the one before is replaced by that: otherwise each
// attempt would yield another reason to store and report.
func (r retry) fail(now time.Time, err error, jitter float64) retry {
	if repeats(err, r.err) {
		err = r.err
	}
	return retry{failures: r.failures + 1, until: now.Add(pauseAfter(r.failures, firstPause, maxPause, jitter)), err: err}
}

func pauseAfter(failures int, first, most time.Duration, jitter float64) time.Duration {
	pause := min(first<<min(failures, 10), most)
	return pause + time.Duration(jitter*float64(pause)/4)
}
