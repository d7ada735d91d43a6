package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// BenchmarkAppendNotice appends one entry to the journal, without a sync.
func BenchmarkAppendNotice(b *testing.B) {
	data, err := json.Marshal(job.Notice{Time: noon, Type: "slot_phase", Address: "job.gpt.worker[17]", Message: "Registered -> Running"})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkAppend(b, Entry{Time: noon, Kind: NoticeEntry, Data: data})
}

// BenchmarkAppendDecision1000Slots appends a decision with the records of 1,000 slots, compressed.
func BenchmarkAppendDecision1000Slots(b *testing.B) {
	r := &job.Record{UID: "7f6d1c9e-0000-4000-8000-000000000001", Created: noon}
	for i := range 1000 {
		r.Slots = append(r.Slots, job.Slot{
			Address: job.Address{Job: "gpt", Role: "worker", Index: i}, Phase: job.Running, Incarnation: 1 + i%3, Node: fmt.Sprint("node-", i/8),
			Reserved: job.Resources{CPU: 8000, Memory: 64 << 30, Devices: map[string]int{"nvidia.com/gpu": 8}},
			Rank:     i, Since: noon, Fingerprint: strings.Repeat("0123", 4),
		})
	}
	data, err := json.Marshal(job.Records{"gpt": r})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkAppend(b, Entry{Time: noon, Kind: DecisionEntry, Data: data})
}

func benchmarkAppend(b *testing.B, e Entry) {
	j := openJournal(b, memoryDir(b), JournalOptions{})
	line, err := appendRecord(nil, e)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := j.Append(e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(e.Data)), "data-bytes")
	b.ReportMetric(float64(len(line)), "line-bytes")
}
