package sim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// goodput is where the time of each job went until now, as the leader shows it. It fails if the journal, recomputed, says otherwise, or
// if the parts are not the whole.
func (w *world) goodput() string {
	m := w.leader()
	if m == nil {
		return "nobody leads\n"
	}
	var entries []goodput.Entry
	for _, e := range w.journal.read() {
		if e.Kind != state.GoodputEntry {
			continue
		}
		var entry goodput.Entry
		if err := json.Unmarshal(e.Data, &entry); err != nil {
			w.fail("entry %d of the journal: %v", e.Seq, err)
		}
		entries = append(entries, entry)
	}
	recomputed := goodput.Recompute(entries)
	live := m.l.Live(m.now(), w.suspect(m.c.Observe())).Records
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(live)) {
		shown := live[name].Goodput
		recorded, journaled := m.l.Records()[name].Goodput, recomputed[live[name].UID]
		recorded.Saved = job.Saved{}
		if !sameLedger(recorded, journaled) {
			w.fail("the ledger of job.%s is %+v, and its journal says %+v", name, recorded, journaled)
		}
		parts := shown.Lost.Parts()
		parts["productive"], parts["unknown"] = shown.Productive, shown.Unknown
		fmt.Fprintf(&b, "job.%s %.1fs:", name, shown.Wall)
		sum := 0.0
		for _, part := range slices.Sorted(maps.Keys(parts)) {
			if sum += parts[part]; parts[part] >= 0.05 {
				fmt.Fprintf(&b, " %s %.1fs", part, parts[part])
			}
		}
		b.WriteByte('\n')
		if math.Abs(sum-shown.Wall) > 1e-6 {
			w.fail("the parts of the time of job.%s sum to %v of %v", name, sum, shown.Wall)
		}
	}
	return b.String()
}

// sameLedger compares ledgers as they are written.
func sameLedger(a, b job.Goodput) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
