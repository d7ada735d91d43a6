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
	// What a master knows of 10,000 slots is some 75 MB, and with 100 % that is 200 MB at the worst moment. The ballast
	// makes up for a third of the processor time that it would take to bring up the first thousands.
	masterGarbage = garbage{percent: 25, ballast: 96 << 20}
)

// bound bounds the garbage until release is called, unless the user's GOGC says how much there may be.
func (s *session) bound(g garbage) (release func()) {
	if s.getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(g.percent)
	ballast := make([]byte, g.ballast)
	return func() {
		debug.SetGCPercent(before)
		runtime.KeepAlive(ballast)
	}
}
