package view

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply/replay"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A replay as text and as lines: a decision with other changes and waits, one of which only records differ, one that is not replayable, and
// the counts.
func TestReplay(t *testing.T) {
	r := NewRedactor([]job.Job{{Secrets: []string{"s3cret"}}})
	in := plan.Input{
		Jobs: []job.Job{jobtest.Job("mnist", jobtest.Role("worker", 3, jobtest.Needs(jobtest.Cores(1))))}, Now: jobtest.Epoch,
		Snapshot:     job.Snapshot{Nodes: []job.Node{jobtest.Node("n1", jobtest.Cores(8))}},
		Capabilities: map[string]job.Capabilities{"local": {Places: true}}, NewUID: func(string) string { return "u" },
	}
	now := plan.Make(in)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	worker := job.Address{Job: "mnist", Role: "worker", Index: 2}
	differences := []*replay.Difference{
		{Seq: 17, Time: at, Jobs: []string{"eval", "mnist"}, Parts: []string{"changes", "waits"}, Input: in, Plan: now, Then: replay.Choices{
			Changes: []plan.Change{{Action: plan.Restart, Job: "mnist", Slot: worker, UID: "u", Provider: "local", Node: "n1", Incarnation: 1, Reasons: said("it said s3cret")}},
			Waits:   []plan.Wait{{Job: "eval", Role: "worker", Reasons: said("no room")}},
		}, Now: replay.Choices{Changes: now.Changes[1:]}},
		{Seq: 18, Time: at.Add(time.Second), Parts: []string{"records"}, Input: in, Plan: now},
	}
	skipped := replay.Skip{Seq: 19, Time: at.Add(2 * time.Second), Err: errors.New("decode it: s3cret is no number")}
	counts := replay.Counts{Replayed: 3, Equal: 1, Different: 2, Skipped: 1}
	var text, lines bytes.Buffer
	screen, stream := Screen{Writer: &text}, NewStream(&lines, "0.1.0", still)
	for _, d := range differences {
		m := NewReplayDifference(d, r)
		WriteReplayDifference(screen, m)
		stream.ReplayDifference(m)
	}
	WriteReplaySkip(screen, r, skipped)
	stream.ReplaySkip(skipped, r)
	WriteReplayed(screen, counts)
	stream.ReplayComplete(counts)
	golden(t, "replay.txt", text.String())
	golden(t, "replay.jsonl", lines.String())
	if strings.Contains(text.String()+lines.String(), "s3cret") {
		t.Error("a replay shows a secret")
	}
}
