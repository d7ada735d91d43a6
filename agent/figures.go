package agent

import (
	"encoding/json"

	"github.com/eltrain/eltrain/job"
)

// maxRanks bounds the ranks of a report as JSON: the service accepts requests of up to 64 KiB, of which an exit takes up to half.
const maxRanks = 16 << 10

// figures are what was read of the training processes at one moment. The zero value is what is known where none run, or where
// nothing can be read.
type figures struct {
	cpu    job.CPU     // recent use
	memory job.Bytes   // resident
	strays []processID // descendants outside of the training processes' groups, at most maxStrays
	ranks  []job.RankReport
	slot   *job.SlotFigures
}

// maxStrays bounds the record of descendants.
const maxStrays = 1000

// fitRanks leaves out what does not fit into so many bytes of JSON: of the last ranks first, and figures before progress.
func fitRanks(ranks []job.RankReport, most int) {
	const empty = len("{},")
	most -= empty * len(ranks)
	for i := range ranks {
		for _, smaller := range []job.RankReport{ranks[i], {Progress: ranks[i].Progress}, {}} {
			ranks[i] = smaller
			text, err := json.Marshal(smaller)
			if err == nil && len(text)-len("{}") <= most {
				most -= len(text) - len("{}")
				break
			}
		}
	}
}

// total follows a counter that is summed over processes: it stays as it was when one ends without having been waited for, or when
// the kernel's counter wraps.
type total struct {
	last uint64
	lost uint64 // by processes that ended
}

func (t *total) follow(now uint64) uint64 {
	if now < t.last {
		t.lost += t.last - now
	}
	t.last = now
	return t.lost + now
}
