package logs

import (
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

func logRecord() *job.Record {
	at := func(role string, i int) job.Address { return job.Address{Job: "a", Role: role, Index: i} }
	return &job.Record{
		UID:   "u",
		Slots: []job.Slot{{Address: at("ps", 0)}, {Address: at("w", 0)}, {Address: at("w", 1)}, {Address: at("w", 2)}},
		World: job.World{Members: []job.WorldMember{{Slot: at("w", 1), Processes: 2}, {Slot: at("w", 0), Rank: 1, Processes: 1}}},
	}
}

func TestSources(t *testing.T) {
	for _, c := range []struct {
		address string
		rank    int
		want    string // slot, prefix and filter of each
		err     string
	}{
		{address: "job.a.w[2]", rank: -1, want: "w[2]||"},
		{address: "job.a.w[0,2]", rank: -1, want: "w[0]|w[0] |; w[2]|w[2] |"},
		{address: "job.a", rank: -1, want: "ps[0]|ps[0] |; w[0]|w[0] |; w[1]|w[1] |; w[2]|w[2] |"},
		{address: "job.a", rank: 0, want: "w[1]||[rank 0] "},
		{address: "job.a", rank: 1, want: "w[1]||[rank 1] "},
		{address: "job.a", rank: 2, want: "w[0]||"},
		{address: "job.a", rank: 3, err: "has 3 processes"},
		{address: "job.a.w[2]", rank: 0, err: "held by job.a.w[1]"},
		{address: "job.a.w[7]", rank: -1, err: "job.a.w[7] names no slot. Of job.a there are: ps[0], w[0-2]."},
		{address: "job.a.ws", rank: -1, err: "ps[0], w[0-2]"},
	} {
		sel, err := job.ParseSelector(c.address)
		if err != nil {
			t.Fatal(err)
		}
		sources, err := Sources(logRecord(), sel, c.rank)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s of rank %d: error %v, want one with %q", c.address, c.rank, err, c.err)
			}
			continue
		}
		var got []string
		for _, s := range sources {
			got = append(got, s.Slot.Short()+"|"+s.Prefix+"|"+s.Only)
		}
		if err != nil || strings.Join(got, "; ") != c.want {
			t.Errorf("%s of rank %d: %q, %v; want %q", c.address, c.rank, got, err, c.want)
		}
	}
}

func TestOutputThatIsMissingIsExplained(t *testing.T) {
	record := logRecord()
	for i := range record.Slots {
		record.Slots[i].Incarnation = 1
	}
	record.Slots[0].Incarnation = 0
	record.Slots[1].Exit = &job.Exit{NotStarted: "no such directory"}
	record.Slots[2].Exit = record.Slots[1].Exit
	var all []job.Address
	for i := range record.Slots {
		all = append(all, record.Slots[i].Address)
	}
	const want = "ps[0]: has not started.\nw[0-1]: has no output; could not be started: no such directory.\nw[2]: has no output."
	if got := WhyNone(record, all, false); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

func TestAFollowedJobIsOver(t *testing.T) {
	record := &job.Record{UID: "u", Spec: job.Job{Provider: "local"}}
	at := time.Unix(1, 0)
	phase := func(p job.JobPhase) job.Records { return job.Records{"renamed": {UID: "u", Phase: p}} }
	seen := func(uid string, s job.IncarnationState) job.Snapshot {
		return job.Snapshot{At: at, Incarnations: job.InParts([]job.Incarnation{{UID: uid, State: s}})}
	}
	unseen := func(provider string) []conditions.Condition {
		return []conditions.Condition{{About: provider, Reason: job.Because(apply.ProviderUnobserved)}}
	}
	for name, c := range map[string]struct {
		facts view.Facts
		want  bool
	}{
		"succeeded":           {view.Facts{Records: phase(job.JobSucceeded), Snapshot: seen("u", job.Gone)}, true},
		"failed":              {view.Facts{Records: phase(job.JobFailed), Snapshot: seen("other", job.Up)}, true},
		"canceled":            {view.Facts{Records: phase(job.JobCanceled), Snapshot: seen("u", job.Gone)}, true},
		"failed and stopping": {view.Facts{Records: phase(job.JobFailed), Snapshot: seen("u", job.Up)}, false},
		"healing":             {view.Facts{Records: phase(job.JobDegraded), Snapshot: seen("u", job.Gone)}, false},
		"suspended":           {view.Facts{Records: phase(job.JobSuspended), Snapshot: seen("u", job.Gone)}, false},
		"pending":             {view.Facts{Records: phase(job.JobPending), Snapshot: seen("u", job.Gone)}, false},
		"destroyed":           {view.Facts{Snapshot: seen("u", job.Gone)}, true},
		"unrecorded":          {view.Facts{Snapshot: seen("u", job.Up)}, false},
		"not observed":        {view.Facts{Records: phase(job.JobSucceeded)}, false},
		"provider is away":    {view.Facts{Snapshot: seen("u", job.Gone), Conditions: unseen("provider.local")}, false},
		"another is away":     {view.Facts{Snapshot: seen("u", job.Gone), Conditions: unseen("provider.west")}, true},
	} {
		if got := isOver(record, &c.facts); got != c.want {
			t.Errorf("%s: it is over: %v", name, got)
		}
	}
}
