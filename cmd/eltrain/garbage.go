package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
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
	// collections were a third of the samples of a profile while 3,000 pods were made. With these two it is 164 to 172
	// (bench/results.md), and a tenth of the samples while 5,000 were.
	masterGarbage = garbage{percent: 25, slack: 24 << 20}
)

// bound bounds the garbage until release is called, unless the user's GOGC says how much there may be, or GOMEMLIMIT, of
// which a slack would take a part.
func (s *session) bound(g garbage) (release func()) {
	if s.getenv("GOGC") != "" || s.getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	b := &bounding{garbage: g, before: debug.SetGCPercent(int(g.percent))}
	b.collected()
	return b.release
}

// leastHeap is what the collector takes a heap to be at least: it lets one grow to as many percent of that before the first
// collection, whatever lives in it.
const leastHeap = 4 << 20

// bounding turns the slack into percent, which is all that the collector takes, anew after each collection. (A ballast, an
// allocation that is never touched, would say it once, but for the runtime, which clears one that it lays over memory that
// was used before.)
type bounding struct {
	garbage
	before int // percent

	mu       sync.Mutex
	released bool
}

// collected is called after each collection.
func (b *bounding) collected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released || b.slack == 0 {
		return
	}
	debug.SetGCPercent(int(b.percent + 100*b.slack/max(living(), leastHeap)))
	// The next collection finds that nothing refers to this. Smaller ones share a block, which lives as long as any of them.
	runtime.AddCleanup(new([64]byte), (*bounding).collected, b)
}

func (b *bounding) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
	debug.SetGCPercent(b.before)
}

// living is how many bytes of the heap the last collection found in use; 0 before the first.
func living() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
