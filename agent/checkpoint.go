package agent

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// checkpointPoll is how often the checkpoint directory is looked at between the signal that asks for a
// checkpoint and the finished file. Polling sees what network file systems never notify of.
const checkpointPoll = 20 * time.Millisecond

// A file that is written in place is there before it is whole: a pointer file often is, and a SIGTERM then would leave it
// empty, so that nothing could be resumed from. It counts as finished once it stayed as it is for so long. One that was moved
// to its place is whole, unless it is empty.
const (
	checkpointStill = 100 * time.Millisecond
	emptyStill      = time.Second // a pointer that is about to be written, or a mark that has nothing in it
)

// newest names the newest finished checkpoint of a directory.
type newest struct {
	name string
	at   time.Time
	size int64
}

// arrival waits for a checkpoint that was asked for.
type arrival struct {
	before newest // when it was asked for
	seen   newest
	since  time.Time // when seen was first seen as it is
}

// finished records what the newest checkpoint is by now, and reports whether it is the one that was asked for, and whole.
func (a *arrival) finished(seen newest, moved bool, now time.Time) bool {
	if seen != a.seen {
		a.seen, a.since = seen, now
	}
	still := checkpointStill
	if seen.size == 0 {
		still = emptyStill
	}
	// Not only another: an older file is the newest if the one that was is moved away or deleted before the next is written.
	newer := seen.at.After(a.before.at)
	return newer && (moved && seen.size > 0 || now.Sub(a.since) >= still)
}

// moved reports whether a file's status changed after its last write, as a renaming changes it on Linux's file systems (rename(3p)
// leaves it open).
func moved(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Ctim.Nano() > st.Mtim.Nano()
}

// newestCheckpoint looks at the regular files directly in dir. Names with ".tmp" are unfinished: writers
// rename when they are done. Checkpoints that are directories are seen by the pointer file ("latest") that
// is written after them. An unreadable directory holds none.
func newestCheckpoint(dir string) newest {
	var best newest
	entries, err := os.ReadDir(dir)
	if err != nil {
		return best
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.Contains(e.Name(), ".tmp") {
			continue
		}
		info, err := e.Info()
		if err == nil && info.ModTime().After(best.at) {
			best = newest{e.Name(), info.ModTime(), info.Size()}
		}
	}
	return best
}
