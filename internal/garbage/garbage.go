// Package garbage bounds how much memory is garbage between collections.
package garbage

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Bound is how much a heap may grow between collections: by percent of the live heap, plus slack. With a small percentage
// alone a small heap would be collected every few MB.
type Bound struct {
	percent uint64
	slack   uint64 // bytes
}

var (
	// Plan is for a command that ends. Go's default of 100 % takes 2 MiB more (33 in all) for a plan of 1,000 slots and 11 more (86 in all) for 10,000, and
	// saves no measurable time.
	Plan = Bound{percent: 50}
	// Master is for one that leads. A master of 10,000 slots peaked at 200 MB with 100 %, and at 169 with 50 % and no slack, where collections took a third
	// of a profile's samples while 3,000 pods were created. With 25 % and a slack of 24 MiB it peaked at 217, with these
	// values at 138 and 184. Newer results: bench/results.md.
	Master = Bound{percent: 25, slack: 12 << 20}
)

// Set sets the limits of g until release is called. It does nothing if the user's environment has GOGC, or GOMEMLIMIT, of which the slack
// would take a part.
func (g Bound) Set(getenv func(string) string) (release func()) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(int(g.percent))
	ended := make(chan struct{})
	var follower sync.WaitGroup
	if g.slack > 0 {
		follower.Go(func() { g.follow(ended) })
	}
	return func() {
		close(ended)
		follower.Wait()
		debug.SetGCPercent(before)
	}
}

// minHeap is the collector's minimum heap, from which it computes the growth that it allows before the first collection.
const minHeap = 4 << 20

const (
	// followInterval is how often follow checks for a new collection: in that time a master allocates a few MB at most.
	followInterval = 50 * time.Millisecond
	// followQuiet is the number of checks without a new collection after which the interval is followIdle: an idle master
	// should rarely wake.
	followQuiet = 20
	followIdle  = 250 * time.Millisecond
)

// follow converts the slack to percent, the only unit the collector takes, after each collection until ended is closed.
// Alternatives that do not work: a ballast, because the runtime clears it, and so touches it, if it reuses memory; a
// finalizer to notice collections, because on a busy machine it may run only after the next one.
func (g Bound) follow(ended <-chan struct{}) {
	timer := time.NewTimer(followInterval)
	defer timer.Stop()
	of, quiet := uint64(0), 0
	for {
		if live := max(liveHeap(), minHeap); live != of {
			of, quiet = live, 0
			debug.SetGCPercent(int(g.percent + 100*g.slack/live))
		}
		if quiet++; quiet < followQuiet {
			timer.Reset(followInterval)
		} else {
			timer.Reset(followIdle)
		}
		select {
		case <-ended:
			return
		case <-timer.C:
		}
	}
}

// liveHeap returns the live heap in bytes as of the last collection; 0 before the first.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
