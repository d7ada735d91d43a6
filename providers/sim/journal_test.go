package sim_test

import (
	"encoding/json"
	"os"

	"github.com/eltrain/eltrain/apply/replay"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// journal is the journal's directory, which all masters of a world share.
type journal struct {
	w   *world
	dir string
}

func newJournal(w *world) journal {
	dir, err := os.MkdirTemp("", "eltrain-sim-") // removed with its world: there may be a million of them
	if err != nil {
		w.t.Fatal(err)
	}
	return journal{w, dir}
}

func (j journal) remove() { os.RemoveAll(j.dir) }

// open makes a new master the writer. It fences the one before, if that one still has it open.
func (j journal) open(epoch uint64) (*state.Journal, error) {
	return state.OpenJournal(j.dir, state.JournalOptions{Epoch: epoch})
}

// read returns all entries.
func (j journal) read() (all []state.Entry) {
	r := state.Reader{Dir: j.dir, Damaged: func(d state.Damage) { j.w.fail("the journal is damaged: %v", d) }}
	if err := r.Read(1, func(e state.Entry) error { all = append(all, e); return nil }); err != nil {
		j.w.fail("read the journal: %v", err)
	}
	return all
}

func (j journal) entries() int { return len(j.read()) }

// replays checks that each decision of the journal, made again from its entry, comes out the same.
func (w *world) replays() {
	differs := func(d *replay.Difference) error {
		w.fail("replayed, decision %d differs in %v: then %+v, now %+v", d.Seq, d.Parts, d.Then, d.Now)
		return nil
	}
	skips := func(s replay.Skip) error {
		w.fail("decision %d cannot be replayed: %v", s.Seq, s.Err)
		return nil
	}
	if _, err := new(replay.Replay).Read(w.t.Context(), state.Reader{Dir: w.journal.dir}, differs, skips); err != nil {
		w.fail("replay: %v", err)
	}
}

// journaledOnce checks that whatever a master reported was journaled before, and that nothing is journaled twice
// unless an answer was lost.
func (w *world) journaledOnce() {
	journaled := map[string]bool{}
	for _, e := range w.journal.read() {
		if e.Kind != state.NoticeEntry {
			continue
		}
		var n job.Notice
		if err := json.Unmarshal(e.Data, &n); err != nil {
			w.fail("entry %d of the journal: %v", e.Seq, err)
			continue
		}
		if n.Type == phaseNotice || n.Type == notifyNotice || n.Condition != "" { // these may come back, also in no time
			continue
		}
		text := noticeKey(&n)
		if journaled[text] && !w.facts.unheard[text] {
			w.fail("%s %s is journaled twice", n.Address, n.Type)
		}
		journaled[text] = true
	}
	for text := range w.facts.notices {
		if !journaled[text] {
			w.fail("reported and not journaled: %s", text)
		}
	}
}
