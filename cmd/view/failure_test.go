package view

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// A failure is shown in one line: where, how, and the error itself, wherever the program printed it.
func TestAFailureIsToldInALine(t *testing.T) {
	for _, test := range []struct {
		what     string
		cause    job.Cause
		evidence []string
		want     string
	}{
		{"nothing but a code", job.ProcessFailed, []string{"exit code 3"}, "process failed in w[1]: exit code 3"},
		{"what it wrote to its error file", job.ProcessFailed, []string{"exit code 1", "error file: CUDA error:\n  out of memory", "output: bye"},
			"process failed in w[1]: exit code 1: CUDA error: out of memory"},
		{"a traceback", job.ProcessFailed, []string{"exit code 1", "output:   File \"a.py\", line 4", "output:     raise ValueError(x)", "output: ValueError: no data"},
			"process failed in w[1]: exit code 1: ValueError: no data"},
		{"an error of several lines", job.ProcessFailed, []string{"exit code 1", "output:     raise ValueError(x)", "output: ValueError: no data:", "output:   looked in /data", "output: "},
			"process failed in w[1]: exit code 1: ValueError: no data: looked in /data"},
		{"indented all through", job.ProcessFailed, []string{"exit code 1", "output:   one", "output:   two"}, "process failed in w[1]: exit code 1: one two"},
		{"long", job.ProcessFailed, []string{"exit code 1", "output: " + strings.Repeat("é", 400)}, "process failed in w[1]: exit code 1: " + strings.Repeat("é", 150) + "…"},
		{"a signal", job.ProcessKilled, []string{"signal: killed"}, "process killed in w[1]: signal: killed"},
		{"of no slot", job.RendezvousTimeout, nil, "rendezvous timeout in w[1]"},
	} {
		in := job.Incident{Cause: test.cause, Culprits: []job.Address{{Job: "a", Role: "w", Index: 1}}}
		for _, line := range test.evidence {
			what, value, _ := strings.Cut(line, ": ")
			why := map[string]job.Reason{
				"exit code 1": job.Because(plan.ExitCode, "slot", "w[1]", "code", "1"),
				"exit code 3": job.Because(plan.ExitCode, "slot", "w[1]", "code", "3"),
				"signal":      job.Because(plan.ExitSignal, "slot", "w[1]", "signal", value),
				"error file":  job.Because(plan.ErrorFile, "slot", "w[1]", "message", value),
				"output":      job.Because(plan.Output, "slot", "w[1]", "message", value),
			}
			in.Evidence = append(in.Evidence, why[what])
		}
		why := failure(&job.Record{Incidents: []job.Incident{in}})
		if got := failureText(why, each(why.Of)); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

// Why a job was given up is said beside what failed, unless that says it already.
func TestVerdict(t *testing.T) {
	late := job.Because(plan.PendingTooLong, "after", "1h")
	for want, rec := range map[string]job.Record{
		"": {Phase: job.JobFailed},
		"Not restarted: restart budget exhausted: 3 within 1h": {Phase: job.JobFailed, Verdict: job.Because(plan.RestartsSpent, "restarts", "3", "window", "1h")},
		"Not restarted: hang in w[1] once more: the limit of 2 within 30m that heal has for it is reached": {Phase: job.JobFailed,
			Verdict: job.Because(plan.LimitReached, "slot", "w[1]", "cause", "hang", "limit", "2", "window", "30m")},
		"Canceled by ann: enough": {Phase: job.JobCanceled, Verdict: job.Because(plan.CanceledBy, "by", "ann", "why", "enough")},
		"Canceled by ann":         {Phase: job.JobCanceled, Verdict: job.Because(plan.CanceledBy, "by", "ann")},
	} {
		if why := verdict(&rec); !why.IsZero() != (want != "") || want != "" && Sentence(why) != want {
			t.Errorf("%q, want %q", Sentence(why), want)
		}
	}
	told := job.Record{Phase: job.JobFailed, Verdict: late, Incidents: []job.Incident{{Cause: job.PendingTimeout, Evidence: []job.Reason{late}}}}
	if why := verdict(&told); !why.IsZero() {
		t.Errorf("it is said twice: %q", Sentence(why))
	}
}

// A watch does not start failed jobs again, so the advice differs under a watch.
func TestStatusSaysHowToGoOnWithAFailedJob(t *testing.T) {
	for operation, want := range map[string]string{"": "run eltrain apply.", "apply": "run eltrain apply.", WatchOperation: "eltrain restart does"} {
		var in statusCase
		input(t, "status/failed/facts.json", &in)
		if operation != "" {
			in.Holder = &state.LockInfo{Operation: operation, Created: time.Unix(0, 0)}
		}
		var out bytes.Buffer
		WriteStatus(Screen{Writer: &out}, in.model(), false)
		if !strings.Contains(out.String(), want) {
			t.Errorf("under %q it does not say %q:\n%s", operation, want, out.String())
		}
	}
}
