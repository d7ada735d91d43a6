package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply/replay"
	"github.com/eltrain/eltrain/plan"
)

// ReplayDifference is a decision that comes out differently when it is made again.
type ReplayDifference struct {
	Seq  uint64       `json:"seq"` // of its entry in the journal
	Time time.Time    `json:"time"`
	Jobs []string     `json:"jobs"` // addresses
	Then ReplayedPart `json:"then"` // what was decided and is not any more
	Now  ReplayedPart `json:"now"`  // what is decided now and was not
	// Parts are the parts of the plan that differ, by the names that they have in the journal.
	Parts []string `json:"parts,omitempty"`

	then, now *PlanModel
}

// ReplayedPart is a part of a plan.
type ReplayedPart struct {
	Changes []StreamChange `json:"changes"`
	Waits   []PlanWait     `json:"waits"`
}

// NewReplayDifference makes the model of a difference.
func NewReplayDifference(d *replay.Difference, r *Redactor) *ReplayDifference {
	of := func(c replay.Choices) (*PlanModel, ReplayedPart) {
		p := plan.Plan{Changes: c.Changes, Waits: c.Waits, Records: d.Plan.Records}
		m := NewPlan(PlanFacts{Input: d.Input, Plan: p}, r)
		part := ReplayedPart{Changes: []StreamChange{}, Waits: append([]PlanWait{}, m.Eltrain.Waits...)}
		for _, rc := range m.planned() {
			part.Changes = append(part.Changes, streamChange(rc))
		}
		return m, part
	}
	out := &ReplayDifference{Seq: d.Seq, Time: d.Time, Jobs: make([]string, len(d.Jobs)), Parts: d.Parts}
	for i, name := range d.Jobs {
		out.Jobs[i] = "job." + name
	}
	out.then, out.Then = of(d.Then)
	out.now, out.Now = of(d.Now)
	return out
}

// title names the decision and what it is about.
func (d *ReplayDifference) title() string {
	text := fmt.Sprintf("Decision %d of %s differs", d.Seq, clock(d.Time))
	if len(d.Jobs) > 0 {
		text += ": " + strings.Join(d.Jobs, ", ")
	}
	return text
}

// WriteReplayDifference shows a decision that comes out differently: what was decided, and what is decided now.
func WriteReplayDifference(s Screen, d *ReplayDifference) {
	t := planText{Screen: s}
	t.line("%s", t.paint(d.title(), bold))
	switch same := len(d.Then.Changes)+len(d.Then.Waits)+len(d.Now.Changes)+len(d.Now.Waits) == 0; {
	case same && slices.Contains(d.Parts, "changes"):
		t.line("\nThe same changes and waits, in another order or with other attributes.")
	case same:
		t.line("\nThe same changes and waits.")
	default:
		t.replayed("Decided then:", d.then)
		t.replayed("Decided now:", d.now)
	}
	if len(d.Parts) > 0 {
		t.line("\nParts of the plan that differ: %s", strings.Join(d.Parts, ", "))
	}
	t.line("")
	s.Write(t.buf.Bytes())
}

// replayed shows what only one of two plans has.
func (t *planText) replayed(title string, m *PlanModel) {
	changes := m.changes()
	t.line("\n%s", t.paint(title, bold))
	for _, b := range blocks(changes) {
		t.block(b)
	}
	t.waits(m.Eltrain.Waits)
	for _, text := range m.overrideItems() {
		t.line("  - %s", text)
	}
	if len(changes)+len(m.Eltrain.Waits) == 0 {
		t.line("  nothing else")
	}
}

// skipText says why a decision cannot be made again.
func skipText(skipped replay.Skip, r *Redactor) string {
	return fmt.Sprintf("Decision %d of %s is not replayable: %s", skipped.Seq, clock(skipped.Time), r.Text(skipped.Err.Error()))
}

// WriteReplaySkip shows a decision that cannot be made again.
func WriteReplaySkip(s Screen, r *Redactor, skipped replay.Skip) {
	fmt.Fprintln(s, skipText(skipped, r))
}

// replayText is the outcome in a line.
func replayText(n replay.Counts) string {
	text := fmt.Sprintf("%s replayed: %d equal, %d different", plural(n.Replayed, "decision"), n.Equal, n.Different)
	if n.Skipped > 0 {
		text += fmt.Sprintf("; %d not replayable", n.Skipped)
	}
	return text + "."
}

// WriteReplayed shows the outcome of a replay.
func WriteReplayed(s Screen, n replay.Counts) { fmt.Fprintln(s, replayText(n)) }

// ReplayDifference writes a line of the type replay_difference.
func (s *Stream) ReplayDifference(d *ReplayDifference) {
	s.line("info", d.title(), "replay_difference", map[string]any{"decision": d})
}

// ReplaySkip writes a line of the type replay_skip.
func (s *Stream) ReplaySkip(skipped replay.Skip, r *Redactor) {
	of := map[string]any{"seq": skipped.Seq, "time": skipped.Time, "error": r.Text(skipped.Err.Error())}
	s.line("warn", skipText(skipped, r), "replay_skip", map[string]any{"decision": of})
}

// ReplayComplete writes a line of the type replay_complete.
func (s *Stream) ReplayComplete(n replay.Counts) {
	counts := map[string]any{"decisions": n.Replayed, "equal": n.Equal, "different": n.Different, "not_replayable": n.Skipped}
	s.line("info", replayText(n), "replay_complete", map[string]any{"replay": counts})
}
