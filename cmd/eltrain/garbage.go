package main

import (
	"runtime"
	"runtime/debug"
)

// garbage is how much a heap may grow between collections: by percent of what lives in it, and of a ballast that is never
// touched and so takes no memory. With a small percentage alone a small heap would be collected every few MB.
type garbage struct {
	percent int
	ballast int // bytes
}

var (
	// Go's default of 100 % takes 2 of 33 MiB more for a plan of 1,000 slots and 11 of 86 for 10,000, and saves no time
	// that could be measured.
	planGarbage = garbage{percent: 50}
	// A master of 10,000 slots came to 200 MB at the worst moment with 100 %, and to 169 with 50 and no ballast, where
	// collections were a third of the samples of a profile while 3,000 pods were made. With these two it is 164 to 172
	// (bench/results.md), and a tenth of the samples while 5,000 were.
	masterGarbage = garbage{percent: 25, ballast: 96 << 20}
)

// bound bounds the garbage until release is called, unless the user's GOGC says how much there may be, or GOMEMLIMIT, of
// which a ballast would take a part.
func (s *session) bound(g garbage) (release func()) {
	if s.getenv("GOGC") != "" || s.getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(g.percent)
	ballast := make([]byte, g.ballast)
	return func() {
		debug.SetGCPercent(before)
		runtime.KeepAlive(ballast)
	}
}
