package view

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// notices returns notices of an older version, which have only sentences, and of this one.
func notices() []job.Notice {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	worker := job.Address{Job: "mnist", Role: "worker", Index: 2}
	return []job.Notice{
		{Seq: 1, Time: at, Type: "world_formed", Address: "job.mnist", Message: "world formed: generation 2, 4 of 4 slots, 4 processes"},
		{Seq: 2, Time: at.Add(time.Second), Type: "rejected", Address: worker.String(), Message: "Running -> Failing"},
		{Seq: 3, Time: at.Add(2 * time.Second), Type: "incident", Address: worker.String(), Message: "process killed", Incident: &job.Incident{
			Time: at, Cause: job.ProcessKilled, Culprits: []job.Address{worker}, Action: job.RestartInPlace, Cascade: []string{"worker[0-1]"}, Evidence: said("signal: killed", "last line: s3cret\nand \x07more"), Confidence: 1}},
		{Seq: 4, Time: at.Add(3 * time.Second), Type: "incident", Address: "job.mnist", Message: "job.mnist failed", Incident: &job.Incident{
			Time: at, Cause: job.ProcessFailed, Culprits: []job.Address{worker}, Action: job.FailJob, Evidence: []job.Reason{job.Because(plan.ExitCode, "code", "1")}, Confidence: 1}},
		{Seq: 5, Time: at.Add(4 * time.Second), Type: "refused", Address: "job.mnist.worker[2-3]", Reason: job.Because(apply.LaunchRefused, "message", "no quota for s3cret")},
		{Seq: 6, Time: at.Add(5 * time.Second), Type: "removed", Address: "job.mnist.worker[3]", Reason: job.Because(apply.SlotsRemoved, "count", "1").With(job.Because(plan.AboveMost, "most", "3"))},
		{Seq: 10, Time: at.Add(6 * time.Second), Type: "added", Address: "job.mnist.worker[4-5]", Reason: job.Because(apply.SlotsAdded, "count", "2").With(job.Because(plan.Scaled, "from", "4", "to", "6", "min", "2", "max", "8"))},
		{Seq: 8, Time: at.Add(7 * time.Second), Type: "withheld", Address: "job.mnist", Condition: "cleared", Reason: job.Because(apply.BackInFiles)},
		{Seq: 9, Time: at.Add(7 * time.Second), Type: "world_formed", Address: "job.mnist", Reason: job.Because(apply.WorldFormed, "generation", "3", "slots", "4", "processes", "1", "master", "n1:29500").With(
			job.Because(apply.RoleResized, "role", "worker", "from", "3", "to", "4", "min", "1", "max", "8"))},
		{Seq: 7, Time: at.Add(6 * time.Second), Type: "destroyed", Address: "job.mnist", Message: "is destroyed: it is not in the files any more"},
	}
}

func TestEvents(t *testing.T) {
	r := NewRedactor([]job.Job{{Secrets: []string{"s3cret"}}})
	var text, machine bytes.Buffer
	for _, n := range notices() {
		WriteEvent(Screen{Writer: &text}, r, n)
		if err := WriteEventJSON(&machine, r, n); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "events.txt", text.String())
	golden(t, "events.jsonl", machine.String())
	lines := strings.Split(strings.TrimSpace(machine.String()), "\n")
	if len(lines) != len(notices()) {
		t.Fatalf("%d lines for %d notices", len(lines), len(notices()))
	}
	for _, line := range lines {
		var n job.Notice
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if strings.Contains(text.String()+machine.String(), "s3cret") {
		t.Error("events show a secret")
	}
	if n := notices()[2]; !strings.Contains(n.Incident.Evidence[1].Args["message"], "s3cret") {
		t.Error("the notice itself was changed")
	}
}

// A run that shows its changes shows each once: by its own lines, not also by a notice, which is for the events.
func TestARunShowsItsChangesOnce(t *testing.T) {
	r := NewRedactor(nil)
	var text, machine bytes.Buffer
	for _, v := range []apply.View{NewProgress(Screen{Writer: &text}, r, still), NewStreamProgress(NewStream(&machine, "0.1.0", still), r)} {
		for _, n := range notices() {
			v.Noticed(n)
		}
	}
	for _, told := range []string{"generation 2", "process killed"} {
		if !strings.Contains(text.String(), told) || !strings.Contains(machine.String(), told) {
			t.Errorf("%q is not shown", told)
		}
	}
	for _, change := range []string{"are added", "is removed", "is destroyed"} {
		if strings.Contains(text.String()+machine.String(), change) {
			t.Errorf("%q is shown beside its change", change)
		}
	}
}

// An error that is in the error file, in the output and known as a signature is told once, with the hint that the signature has.
func TestAnErrorIsToldOnce(t *testing.T) {
	of := func(code job.Code, slot, message string) job.Reason {
		return job.Because(code, "slot", slot, "message", message, "signature", "python_exception")
	}
	n := job.Notice{Address: "job.a", Incident: &job.Incident{Cause: "script_error", Evidence: []job.Reason{
		of(plan.ErrorFile, "w[0]", "RuntimeError: bug"), of(plan.Signature, "w[0]", "RuntimeError: bug"),
		of(plan.Output, "w[0]", "Traceback"), of(plan.Output, "w[0]", "RuntimeError: bug"), of(plan.Output, "w[1]", "RuntimeError: bug"),
	}}}
	got := Screen{}.notice(n, NewRedactor(nil))
	want := "job.a: script error\n    w[0]: RuntimeError: bug (signature python_exception)\n    w[0]: output: Traceback\n    w[1]: output: RuntimeError: bug"
	if got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}
