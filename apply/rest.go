package apply

import "time"

// rest is the pause after a turn, in which events coalesce: as long as the turn took, and longer once turns take more
// than their share of the time, or while changes are queued. So a burst of 10,000 pods costs a few more turns instead of
// a core, and a single event is handled at once.
type rest struct {
	debt  time.Duration // what turns took beyond their share, as of at
	at    time.Time
	until time.Time // no turn begins before
}

const (
	// restFree is what turns may take beyond their share without a longer pause: enough for a single incident of a job of
	// 1,000 slots, that is the fault, its consequences, and the outcome of each change.
	restFree  = 200 * time.Millisecond
	restShare = 6 // turns' share of the time is one part in this many
	// restStored is the divisor of the time that storing takes, most of which is waiting for a shared disk or API server.
	// Counted in full, the consequences of one lost node in ten delayed the decision on the next.
	restStored = 3
	// restQueued is the pause as a multiple of a turn while changes are queued, from the first turn on and up to
	// restWhileQueued: what another turn adds, except healing, would only queue behind them and take their processor time.
	restQueued      = 12
	restWhileQueued = 250 * time.Millisecond
	restCap         = time.Second
)

// worked records how long the loop took to process events, and whether changes are queued.
func (r *rest) worked(now time.Time, took time.Duration, queued bool) {
	r.pause(now, r.after(now, took, 0, queued))
}

// stored records how long the last turn took to store.
func (r *rest) stored(now time.Time, took time.Duration) { r.pause(now, r.after(now, 0, took, false)) }

func (r *rest) pause(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(r.until) {
		r.until = until
	}
}

// after returns how long to rest after work that took this long, and storing that took this long.
func (r *rest) after(now time.Time, took, stored time.Duration, queued bool) time.Duration {
	left := max(r.debt-now.Sub(r.at)/restShare, 0)
	r.debt, r.at = min(left+took+stored/restStored, restFree+restCap/restShare), now // no more than the longest rest pays off
	pause := max(took, (r.debt-restFree)*restShare)
	if queued {
		pause = max(pause, min(took*restQueued, restWhileQueued))
	}
	return min(pause, restCap)
}
