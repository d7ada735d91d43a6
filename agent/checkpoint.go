package agent

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// checkpointPoll is how often the checkpoint directory is checked between the signal that requests a checkpoint and the
// finished file. Polling works on network file systems without notification.
const checkpointPoll = 20 * time.Millisecond

// A file written in place exists before it is complete: a pointer file often is, and a SIGTERM then would leave it empty, so
// that nothing could be resumed from it. It counts as finished once it has not changed for this long. A file that was renamed
// into place is complete, unless it is empty.
const (
	checkpointStill = 100 * time.Millisecond
	emptyStill      = time.Second // a pointer about to be written, or a marker file
)

// newest identifies the newest finished checkpoint of a directory.
type newest struct {
	name string
	at   time.Time
	size int64
}

// arrival waits for a requested checkpoint.
type arrival struct {
	before newest // at the time of the request
	seen   newest
	since  time.Time // when seen was first observed in this state
}

// finished updates the newest checkpoint, and reports whether it is the requested one, and complete.
func (a *arrival) finished(seen newest, moved bool, now time.Time) bool {
	if seen != a.seen {
		a.seen, a.since = seen, now
	}
	still := checkpointStill
	if seen.size == 0 {
		still = emptyStill
	}
	// Newer, not just different: if the newest was moved or deleted before the next is written, an older file becomes the
	// newest.
	newer := seen.at.After(a.before.at)
	return newer && (moved && seen.size > 0 || now.Sub(a.since) >= still)
}

// moved reports whether a file's status changed after its last write, as a rename does on Linux's file systems (rename(3p) does
// not require it).
func moved(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Ctim.Nano() > st.Mtim.Nano()
}

// unfinished reports whether a file is still being written, by its name.
func unfinished(name string) bool { return strings.Contains(name, ".tmp") }

// newestCheckpoint checks the regular files directly in dir. Names with ".tmp" are unfinished: writers rename them when done. A
// checkpoint that is a directory is found by the pointer file ("latest") written after it. An unreadable directory has none.
func newestCheckpoint(dir string) newest {
	var best newest
	entries, err := os.ReadDir(dir)
	if err != nil {
		return best
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || unfinished(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err == nil && info.ModTime().After(best.at) {
			best = newest{e.Name(), info.ModTime(), info.Size()}
		}
	}
	return best
}
