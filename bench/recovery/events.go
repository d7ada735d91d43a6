//go:build linux

package main

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/eltrain/eltrain/internal/trainlog"
)

// An event is a line that a training process wrote to its --events file.
type event struct {
	Ev    string
	T     float64 // s, CLOCK_MONOTONIC
	PID   int
	Rank  int
	World int
	Top   float64 // for "start": when the script's first line ran
}

// monotonic reads the clock of the events' timestamps, in seconds. Go's time package does not
// export it.
func monotonic() float64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno) // cannot fail with a valid clock and pointer
	}
	return time.Duration(ts.Nano()).Seconds()
}

// readEvents returns the events so far; none if the file does not exist yet.
func readEvents(path string) ([]event, error) {
	all, err := trainlog.Read[event](path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return all, err
}

// formed is a world in which every rank has done a step.
type formed struct {
	Size   int
	At     float64 // when the last rank finished its first step
	Import float64 // seconds from the script's first line to the end of its imports, in the slowest rank
	PIDs   []int   // by rank
}

// firstFormed finds the first world of a wanted size in which every rank did its first step
// after the given time.
func firstFormed(events []event, after float64, wanted func(size int) bool) (formed, bool) {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.T, b.T) })
	started, imported := map[int]float64{}, map[int]float64{}
	forming := map[int]map[int]event{} // by size of the world and rank
	for _, e := range events {
		switch e.Ev {
		case "start":
			started[e.PID] = e.Top
		case "imported":
			imported[e.PID] = e.T - started[e.PID]
		case "first_step":
			if e.T <= after || !wanted(e.World) {
				continue
			}
			ranks := forming[e.World]
			if _, twice := ranks[e.Rank]; ranks == nil || twice { // an earlier world broke at its first step
				ranks = map[int]event{}
				forming[e.World] = ranks
			}
			ranks[e.Rank] = e
			if len(ranks) < e.World {
				continue
			}
			f := formed{Size: e.World, At: e.T, PIDs: make([]int, e.World)}
			for rank, first := range ranks {
				f.PIDs[rank] = first.PID
				f.Import = max(f.Import, imported[first.PID])
			}
			return f, true
		}
	}
	return formed{}, false
}
