package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// Each event is its number, so that what is shown can be read off.
func TestEventsAreSelected(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	journal, err := state.OpenJournal(filepath.Join(dir, workspace.JournalDirectory), state.JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	happened := func(n int, ago time.Duration, about string) {
		notice := job.Notice{Time: time.Now().Add(-ago), Type: "refused", Address: about, Message: fmt.Sprintf("<%d>", n)}
		if err := apply.AppendNotices(journal, []job.Notice{notice}); err != nil {
			t.Fatal(err)
		}
	}
	happened(1, 3*time.Hour, "job.a")
	happened(2, 2*time.Hour, "job.a.worker[0-1]")
	happened(3, time.Hour, "job.a.ps[0]")
	happened(4, time.Minute, "job.b")
	happened(5, 0, "files")
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                              "12345",
		"job.a":                         "123",
		"-tail=2":                       "45",
		"-tail=9 -since=1h30m job.a":    "3",
		"-json -tail=1 job.a.worker[0]": "2",
	} {
		out := eltrain(t, dir, strings.Fields("events "+args)...).check(t, exitDone).out
		got := ""
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			if strings.Contains(out, "<"+n+">") {
				got += n
			}
		}
		if got != want {
			t.Errorf("events %s shows %s, want %s:\n%s", args, got, want, out)
		}
	}
	for args, says := range map[string]string{
		"worker[0]":   "worker[0]",
		"-tail=-1":    "write a number from 0",
		"-since=soon": "write how long ago that was",
	} {
		eltrain(t, dir, strings.Fields("events "+args)...).check(t, exitError, says)
	}
}
