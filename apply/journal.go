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

// Choice is what the journal keeps of a decision: its input, and what was chosen. plan.Make derives the whole plan from the
// input, so the launches and records, which would be most of the entry with 10,000 slots, are left out.
type Choice struct {
	Input   plan.Input    `json:"input"`
	Changes []plan.Change `json:"changes"` // without Fields and Launch
	Waits   []plan.Wait   `json:"waits,omitempty"`
}

func choiceOf(d *Decision) Choice {
	c := Choice{Input: d.Input, Changes: slices.Clone(d.Plan.Changes), Waits: d.Plan.Waits}
	for i := range c.Changes {
		c.Changes[i].Fields, c.Changes[i].Launch = nil, nil
	}
	return c
}

// AppendDecision appends a decision with its input.
func AppendDecision(journal Appender, d *Decision) error {
	data, err := json.Marshal(choiceOf(d))
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
