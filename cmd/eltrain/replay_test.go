package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// workersOf declares as many slots as a variable says, and has a secret.
const workersOf = `variable "n" {
  type    = number
  default = 2
}

variable "token" {
  type      = string
  default   = "hunter2"
  sensitive = true
}

job "tiny" {
  role "worker" {
    replicas   = var.n
    command    = ["sh", "-c", "exec sleep 300"]
    env        = { TOKEN = var.token }
    stop_grace = "1s"
    resources {
      cpu = 0.1
    }
  }
}
`

// What an apply and a destroy decided comes out the same, also by the files as they are; other variables or files make a difference.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": workersOf, "other/main.hcl": workersOf, "other/n.auto.vars": "n = 3\n", "four.vars": "n = 4\n", "broken/main.hcl": "job {"})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "replay").check(t, exitDone, "0 decisions replayed")
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone)
	const same = ": 1 equal, 0 different."
	for _, line := range []string{
		"", "-var=n=2", "-dir=.", "-since=1h -until=0s", "-json", ".eltrain/journal", "-untrusted",
		"-var=token=hunter2", // it is sealed with the key of the state
	} {
		o := eltrain(t, dir, strings.Fields("replay "+line)...).check(t, exitDone, "1 decision replayed"+same)
		if strings.Contains(o.out+o.err, "hunter2") {
			t.Errorf("replay %s shows a secret:\n%s", line, o.out)
		}
	}
	for line, says := range map[string]string{
		"-var=n=3":            "job.tiny.worker[2] will be created",
		"-var-file=four.vars": "job.tiny.worker[2-3] will be created",
		"-dir=other":          "job.tiny.worker[2] will be created",
		"-dir=other -var=n=1": "job.tiny.worker[1] will be created",
	} {
		eltrain(t, dir, strings.Fields("replay "+line)...).check(t, exitDiffers, "Decision", "Decided then:", "Decided now:", says, "0 equal, 1 different")
	}
	for _, line := range []string{"-since=0s", "-until=1h", "-until=2026-01-02T03:04:05Z"} {
		eltrain(t, dir, strings.Fields("replay "+line)...).check(t, exitDone, "0 decisions replayed")
	}
	for line, says := range map[string]string{
		"nowhere":              "nowhere",
		"-since=soon":          "write how long ago",
		"-since=1h -until=2h":  "-until is before -since",
		"-dir=broken":          "main.hcl",
		"-dir=nowhere":         "nowhere",
		"-json -json-into=x":   "cannot be used together",
		"-var=unknown=1":       "unknown",
		".eltrain/journal two": "Too many arguments",
	} {
		eltrain(t, dir, strings.Fields("replay "+line)...).check(t, exitError, says)
	}
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	eltrain(t, dir, "replay").check(t, exitDone, "0 different.")
	eltrain(t, dir, "replay", "-dir=.").check(t, exitDone, "0 different.")
}

// A journal of another version, damaged in one place: what can be read is replayed, and the rest is named.
func TestReplayOfAnotherJournal(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	at := filepath.Join(dir, "elsewhere")
	journal, err := state.OpenJournal(at, state.JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := plan.Input{
		Jobs: []job.Job{jobtest.Job("a", jobtest.Role("worker", 2))}, Now: jobtest.Epoch, Records: job.Records{}, Capabilities: map[string]job.Capabilities{"local": {Places: true}},
		Snapshot: job.Snapshot{Nodes: []job.Node{jobtest.Node("n1", jobtest.Cores(8))}}, NewUID: func(string) string { return "u" },
	}
	p := plan.Make(in)
	append := func(p plan.Plan) {
		t.Helper()
		if err := apply.AppendDecision(journal, &apply.Decision{Input: in, Plan: p}); err != nil {
			t.Fatal(err)
		}
	}
	append(p)
	append(p) // to be damaged
	other := p
	other.Changes = p.Changes[:1]
	append(other)
	other.Changes, other.Dirty = p.Changes, false
	append(other)
	if err := journal.Append(state.Entry{Time: in.Now, Kind: state.DecisionEntry, Data: json.RawMessage(`{"format": 99}`)}); err != nil {
		t.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(at, "*.journal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	lines := strings.SplitAfter(read(t, files[0]), "\n")
	lines[1] = strings.Replace(lines[1], "decision", "decisioM", 1)
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	filetest.Put(t, files[0], strings.Join(lines, ""))

	o := eltrain(t, dir, "replay", "elsewhere").unwrapped().check(t, exitDiffers, "Cannot read part of the journal",
		"Decision 3 of", "differs: job.a", "Decided then: nothing else Decided now: # job.a.worker[1] will be created", "Parts of the plan that differ: changes",
		"Decision 4 of", "The same changes and waits", "Parts of the plan that differ: dirty",
		"Decision 5 of", "is not replayable: it has the format 99", "3 decisions replayed: 1 equal, 2 different; 1 not replayable.")
	if strings.Contains(o.out, "Decision 1 ") {
		t.Errorf("the equal one is shown:\n%s", o.out)
	}
	kinds := map[string]int{}
	for line := range strings.Lines(eltrain(t, dir, "replay", "-json", "elsewhere").check(t, exitDiffers).out) {
		var l struct {
			Type     string
			Message  string `json:"@message"`
			Decision struct {
				Seq       int
				Jobs      []string
				Then, Now struct{ Changes, Waits []json.RawMessage }
				Parts     []string
			}
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Message == "" {
			t.Errorf("%s: %v", line, err)
		}
		kinds[l.Type]++
		if d := l.Decision; l.Type == "replay_difference" && d.Seq == 3 && (len(d.Then.Changes) != 0 || len(d.Now.Changes) != 1 || len(d.Parts) != 1 || len(d.Jobs) != 1) {
			t.Errorf("it says %s", line)
		}
	}
	want := map[string]int{"version": 1, "diagnostic": 2, "replay_difference": 2, "replay_skip": 1, "replay_complete": 1}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d lines of the type %s, want %d", kinds[kind], kind, n)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, ".eltrain", "*")); err != nil || len(files) > 0 {
		t.Errorf("a replay leaves %v, %v in %s", files, err, workspace.RunDirectory)
	}
}
