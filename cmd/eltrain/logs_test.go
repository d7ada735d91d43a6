package main

import (
	"path/filepath"
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

func TestLogSources(t *testing.T) {
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
		sources, err := logSources(logRecord(), logsArgs{selector: sel, rank: c.rank})
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
	if got := whyNoOutput(record, all, false); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

func TestStatusOfWhatIsNotThereIsAnError(t *testing.T) {
	record := logRecord()
	record.Spec = job.Job{Name: "a", Roles: []job.Role{{Name: "ps"}, {Name: "w"}, {Name: "evaluator"}}}
	for address, want := range map[string]string{
		"job.a": "", "job.a.w": "", "job.a.w[2]": "", "job.a.evaluator": "", // the role has no slots yet
		"job.a.evaluater": "evaluator", "job.a.w[7]": "w[0-2]", "job.a.evaluator[0]": "ps[0], w[0-2]",
	} {
		sel, err := job.ParseSelector(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := view.CheckSlots(sel, record); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestLogsSendATerminalNoCommands(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": `job "tiny" {
  role "worker" {
    command    = ["sh", "-c", "printf '\\033]52;c;eA==\\007\\033[31mred\\n'; exec sleep 300"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eventually(t, "it writes", func() bool {
		return eltrain(t, dir, "logs", "-tail=1", "job.tiny").out == "[rank 0] \x1b]52;c;eA==\a\x1b[31mred\n"
	})
	if o := onTerminal(t, commandIn(dir, "logs", "-tail=1", "job.tiny"), ""); o.out != `[rank 0] \x1b]52;c;eA==\ared`+"\n" {
		t.Errorf("a terminal gets %q", o.out)
	}
}

func TestAnOmittedAddressIsTheOnlyJob(t *testing.T) {
	a, b := job.Job{Name: "a"}, job.Job{Name: "b"}
	for _, c := range []struct {
		records  job.Records
		declared []job.Job
		want     string
		err      string
	}{
		{job.Records{"a": {}}, nil, "a", ""},
		{nil, []job.Job{a}, "a", ""},
		{job.Records{"a": {}}, []job.Job{a}, "a", ""},
		{job.Records{"a": {}}, []job.Job{b}, "", "There are: a, b."},
		{nil, nil, "", "an address is missing"},
	} {
		got, err := onlyJob(c.records, c.declared)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v and %v: %q, %v", c.records, c.declared, got, err)
		}
	}
}

func TestAFollowedJobIsOver(t *testing.T) {
	record := &job.Record{UID: "u", Spec: job.Job{Provider: "local"}}
	at := time.Unix(1, 0)
	phase := func(p job.JobPhase) job.Records { return job.Records{"renamed": {UID: "u", Phase: p}} }
	seen := func(uid string, s job.IncarnationState) job.Snapshot {
		return job.Snapshot{At: at, Incarnations: []job.Incarnation{{UID: uid, State: s}}}
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

// -f goes on with the next incarnation and ends with the job, -previous has the one before, and logs outlive their job.
func TestLogsOfAJobThatEnds(t *testing.T) {
	t.Parallel()
	files := func(script string) map[string]string {
		return map[string]string{"main.hcl": `job "tiny" {
  role "worker" {
    command    = ["sh", "-c", "` + script + `"]
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`}
	}
	dir := directoryWith(t, files("echo one; exec sleep 300"))
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	eventually(t, "it writes", func() bool { return strings.Contains(eltrain(t, dir, "logs").out, "[rank 0] one\n") })
	eltrain(t, dir, "logs", "-previous").check(t, exitError, "No earlier output", "no output of an earlier incarnation is left")

	followed := make(chan outcome)
	go func() { followed <- eltrain(t, dir, "logs", "-f") }()
	writeFile(t, filepath.Join(dir, "main.hcl"), files("echo two; sleep 2; echo three")["main.hcl"])
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	const all = "[rank 0] one\n[rank 0] two\n[rank 0] three\n"
	if o := <-followed; o.code != exitDone || processLines(o.out) != all {
		t.Errorf("followed %q, exit code %d\n%s", o.out, o.code, o.err)
	}
	for _, c := range []struct{ option, want string }{{"-since=1h", all}, {"-previous", "[rank 0] one\n"}, {"-f", all}} {
		if o := eltrain(t, dir, "logs", c.option, "job.tiny"); o.code != exitDone || processLines(o.out) != c.want {
			t.Errorf("%s: %q, exit code %d\n%s", c.option, o.out, o.code, o.err)
		}
	}
	eltrain(t, dir, "logs", "-f", "-previous").check(t, exitError, "-previous cannot be used with -f")

	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	for _, c := range []struct{ option, want string }{{"-tail=99", all}, {"-f", all}, {"-previous", "[rank 0] one\n"}} {
		o := eltrain(t, dir, "logs", c.option, "job.tiny")
		if o.code != exitDone || processLines(o.out) != c.want || !strings.HasPrefix(o.err, "job.tiny is gone: ") || strings.Count(o.err, "\n") != 1 {
			t.Errorf("gone, %s: %q, exit code %d\n%s", c.option, o.out, o.code, o.err)
		}
	}
	eltrain(t, dir, "logs", "-rank=0", "job.tiny").check(t, exitError, "name a slot instead")
	eltrain(t, dir, "logs", "job.other").check(t, exitError, `There is no job "other"`)
}

// processLines leaves out the agent's own lines.
func processLines(out string) (text string) {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "[eltrain] ") {
			text += line
		}
	}
	return text
}
