// Package hang has the one bound of the tests that wait for real processes, files and clusters.
package hang

import "time"

// Bound is how long a test waits before it calls what it waits for hung. It only ends a hang: nothing is timed by it, and
// machines are shared and slow.
const Bound = 2 * time.Minute

// Wait is one wait for what training steps are to lead to. The zero value begins at the first look.
type Wait struct {
	step  int64
	since time.Time
}

// Hung reports, at each look, whether the job has stayed at this step for Bound.
func (w *Wait) Hung(step int64) bool {
	if w.since.IsZero() || step != w.step {
		w.step, w.since = step, time.Now()
	}
	return time.Since(w.since) > Bound
}
