package agent

import (
	"os"
	"strings"
	"time"
)

// checkpointPoll is how often the checkpoint directory is looked at between the signal that asks for a
// checkpoint and the finished file. Polling sees what network file systems never notify of.
const checkpointPoll = 20 * time.Millisecond

// newest names the newest finished checkpoint of a directory.
type newest struct {
	name string
	at   time.Time
	size int64
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
