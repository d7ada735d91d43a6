package apply

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Appender stores events and decisions.
type Appender interface {
	Append(entries ...state.Entry) error
}

// ChoiceFormat is the newest format of a Choice. Format 0 has neither UIDs nor Digests.
const ChoiceFormat = 1

// Choice is what the journal keeps of a decision: its input, and what was chosen. plan.Make derives the whole plan from the
// input, so the launches and records, which would be most of the entry with 10,000 slots, are left out; their digests are kept.
type Choice struct {
	Format  int           `json:"format,omitempty"`
	Input   plan.Input    `json:"input"`
	Changes []plan.Change `json:"changes"` // without Fields and Launch
	Waits   []plan.Wait   `json:"waits,omitempty"`
	// UIDs are what NewUID of the input returned, by name.
	UIDs map[string]string `json:"uids,omitempty"`
	// Digests are those of the plan's parts.
	Digests map[string]string `json:"digests,omitempty"`
}

func choiceOf(d *Decision) (Choice, error) {
	digests, err := d.Plan.Digests()
	return Choice{ChoiceFormat, d.Input, Brief(d.Plan.Changes), d.Plan.Waits, plan.NewUIDs(&d.Input, &d.Plan), digests}, err
}

// Brief returns changes as the journal keeps them.
func Brief(changes []plan.Change) []plan.Change {
	brief := slices.Clone(changes)
	for i := range brief {
		brief[i].Fields, brief[i].Launch = nil, nil
	}
	return brief
}

// AppendDecision appends a decision with its input.
func AppendDecision(journal Appender, d *Decision) error {
	kept, err := choiceOf(d)
	if err != nil {
		return err
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return journal.Append(state.Entry{Time: d.Input.Now, Kind: state.DecisionEntry, Data: data})
}

// AppendNotices appends events and changes of goodput ledgers, all or none.
func AppendNotices(journal Appender, notices []job.Notice, ledger ...goodput.Entry) error {
	entries := make([]state.Entry, 0, len(notices)+len(ledger))
	add := func(at time.Time, kind string, content any) error {
		data, err := json.Marshal(content)
		entries = append(entries, state.Entry{Time: at, Kind: kind, Data: data})
		return err
	}
	for i := range notices {
		if err := add(notices[i].Time, state.NoticeEntry, &notices[i]); err != nil {
			return err
		}
	}
	for i := range ledger {
		if err := add(ledger[i].Time, state.GoodputEntry, &ledger[i]); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return journal.Append(entries...)
}
