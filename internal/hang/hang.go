// Package hang has the one bound of the tests that wait for real processes, files and clusters.
package hang

import "time"

// Bound is how long a test waits before it calls what it waits for hung. It only ends a hang: nothing is timed by it, and
// machines are shared and slow.
const Bound = 2 * time.Minute
