package main

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// garbage is how much a heap may grow between collections: by percent of what lives in it, and by slack. With a small
// percentage alone a small heap would be collected every few MB.
type garbage struct {
	percent uint64
	slack   uint64 // bytes
}

var (
	// Go's default of 100 % takes 2 of 33 MiB more for a plan of 1,000 slots and 11 of 86 for 10,000, and saves no time
	// that could be measured.
	planGarbage = garbage{percent: 50}
	// A master of 10,000 slots came to 200 MB at the worst moment with 100 %, and to 169 with 50 and no slack, where
	// collections were a third of the samples of a profile while 3,000 pods were made. With 25 % and a slack of 24 MiB it
	// came to 217, with these two to 138 and 184; what it takes since is in bench/results.md.
	masterGarbage = garbage{percent: 25, slack: 12 << 20}
)

// bound bounds the garbage until release is called, unless the user's GOGC says how much there may be, or GOMEMLIMIT, of
// which a slack would take a part.
func (s *session) bound(g garbage) (release func()) {
	if s.getenv("GOGC") != "" || s.getenv("GOMEMLIMIT") != "" {
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

// leastHeap is what the collector takes a heap to be at least: it lets one grow to as many percent of that before the first
// collection, whatever lives in it.
const leastHeap = 4 << 20

const (
	// followEach is how often it is looked whether the heap was collected: in that time a master allocates a few MB at most.
	followEach = 50 * time.Millisecond
	// followQuiet is how many looks find nothing before they come seldom, every followSeldom: a master at rest is to wake
	// for little else than its watches.
	followQuiet  = 20
	followSeldom = 250 * time.Millisecond
)

// follow turns the slack into percent, which is all that the collector takes, anew after each collection, until ended is
// closed. (A ballast, an allocation that is never touched, would say it once, but for the runtime, which clears one that it
// lays over memory that was used before. A finalizer would tell of a collection, but on a busy machine not before the next.)
func (g garbage) follow(ended <-chan struct{}) {
	timer := time.NewTimer(followEach)
	defer timer.Stop()
	of, quiet := uint64(0), 0
	for {
		if live := max(living(), leastHeap); live != of {
			of, quiet = live, 0
			debug.SetGCPercent(int(g.percent + 100*g.slack/live))
		}
		if quiet++; quiet < followQuiet {
			timer.Reset(followEach)
		} else {
			timer.Reset(followSeldom)
		}
		select {
		case <-ended:
			return
		case <-timer.C:
		}
	}
}

// living is how many bytes of the heap the last collection found in use; 0 before the first.
func living() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
