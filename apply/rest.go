package apply

import "time"

// rest is the pause after a turn, in which news coalesce: as long as the turn was at work, and longer once turns take more
// than their share of the time, or while changes wait to be carried out. So a burst of 10,000 pods costs some turns more, and
// not a core; what comes alone is decided at once.
type rest struct {
	debt  time.Duration // what turns took beyond their share
	at    time.Time     // as of when
	until time.Time     // no turn begins before
}

const (
	// restFree is what turns may take beyond their share: that is an incident of a job of 1,000 slots that comes alone, a
	// fault, what follows from it, and each change that ends.
	restFree  = 200 * time.Millisecond
	restShare = 6 // one part in so many of the time is the turns' share
	// restStored is which part counts of what a turn takes to store: the most of it is waiting, for a disk or an API server
	// that others need as well. Counted whole, what follows from one lost node in ten delayed the decision on the next.
	restStored = 3
	// restQueued is restShare from the first turn on while changes wait for others to be carried out, up to a rest of
	// restWhileQueued: what a turn would add waits behind them, but for what heals, and its processor time is theirs.
	restQueued      = 12
	restWhileQueued = 250 * time.Millisecond
	restCap         = time.Second
)

// worked records how long the loop was at work. queued says that changes wait for others.
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

// after is how long to rest at a time, after work that took so long, and so long again to store.
func (r *rest) after(now time.Time, took, stored time.Duration, queued bool) time.Duration {
	left := max(r.debt-now.Sub(r.at)/restShare, 0)
	r.debt, r.at = min(left+took+stored/restStored, restFree+restCap/restShare), now // no more than the longest rest makes up for
	pause := max(took, (r.debt-restFree)*restShare)
	if queued {
		pause = max(pause, min(took*restQueued, restWhileQueued))
	}
	return min(pause, restCap)
}
