// Package hang has the common time limit of tests that wait for real processes, files and clusters.
package hang

import "time"

// Bound is how long a test waits before it considers something hung. Nothing is measured by it: machines are shared and slow.
const Bound = 2 * time.Minute

// Wait waits for training to progress. The zero value starts with the first call of Hung.
type Wait struct {
	step  int64
	since time.Time
}

// Hung reports whether the job has stayed at this step for Bound.
func (w *Wait) Hung(step int64) bool {
	if w.since.IsZero() || step != w.step {
		w.step, w.since = step, time.Now()
	}
	return time.Since(w.since) > Bound
}
