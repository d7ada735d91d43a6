package foreground

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

func TestExitCodeOfSeveralJobs(t *testing.T) {
	began := time.Now()
	failed := func(exits ...int) *job.Record {
		r := &job.Record{Phase: job.JobFailed, Incidents: []job.Incident{{}}}
		for i, code := range exits {
			slot := job.Address{Job: "j", Role: "worker", Index: i}
			r.Slots = append(r.Slots, job.Slot{Address: slot, Exit: &job.Exit{Code: code, At: began.Add(-time.Duration(i) * time.Second)}})
			r.Incidents[0].Culprits = append(r.Incidents[0].Culprits, slot)
		}
		return r
	}
	for _, c := range []struct {
		ended []*job.Record
		want  int
	}{
		{nil, 0}, {[]*job.Record{failed(7)}, 7}, {[]*job.Record{failed(3, 137)}, 137}, {[]*job.Record{failed(3, 0)}, 3},
		{[]*job.Record{failed(4), failed(5)}, 4}, {[]*job.Record{{Phase: job.JobCanceled}, failed(5)}, 5}, {[]*job.Record{{Phase: job.JobCanceled}}, 1}, {[]*job.Record{failed()}, 1},
	} {
		if got := ExitCode(c.ended); got != c.want {
			t.Errorf("exit code %d, want %d", got, c.want)
		}
	}
}

func TestNotSucceeded(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	records := job.Records{
		"good": {Spec: job.Job{Name: "good"}, Phase: job.JobSucceeded, Ended: at(1)},
		"late": {Spec: job.Job{Name: "late"}, Phase: job.JobFailed, Ended: at(3)},
		"soon": {Spec: job.Job{Name: "soon"}, Phase: job.JobCanceled, Ended: at(2)},
	}
	var got []string
	for _, record := range notSucceeded([]string{"good", "late", "soon", "gone"}, records) {
		got = append(got, record.Spec.Name+" "+string(record.Phase))
	}
	if want := []string{"gone destroyed", "soon Canceled", "late Failed"}; !slices.Equal(got, want) {
		t.Errorf("not succeeded have %q, want %q", got, want)
	}
	if allEnded([]string{"good", "gone"}, records) || !allEnded([]string{"good", "late"}, records) {
		t.Error("a job without a record has ended, or one with an end has not")
	}
}

func TestNarrow(t *testing.T) {
	declared := []job.Job{{Name: "a"}, {Name: "b"}, {Name: "kept", Lifecycle: job.Lifecycle{PreventDestroy: true}}}
	for _, c := range []struct {
		declared []job.Job
		on       []job.Selector
		want     []string
		err      string
	}{
		{declared[:2], nil, []string{"a", "b"}, ""},
		{declared, []job.Selector{{Job: "b"}}, []string{"b"}, ""},
		{declared, nil, nil, "job.kept has prevent_destroy"},
		{declared, []job.Selector{{Job: "c"}}, nil, "There are: a, b, kept."},
		{nil, nil, nil, "the files declare no job"},
	} {
		cfg := &lang.Config{Jobs: c.declared, Moved: make([]lang.Moved, 1), Removed: make([]lang.Removed, 1), Imports: make([]lang.Import, 1)}
		err := Narrow(cfg, c.on)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v of %d jobs: %v", c.on, len(c.declared), err)
		}
		var got []string
		for i := range cfg.Jobs {
			got = append(got, cfg.Jobs[i].Name)
		}
		if !slices.Equal(got, c.want) || err == nil && len(cfg.Moved)+len(cfg.Removed)+len(cfg.Imports) > 0 {
			t.Errorf("%v leaves %q and %d moved, %d removed, %d imports", c.on, got, len(cfg.Moved), len(cfg.Removed), len(cfg.Imports))
		}
	}
}

// A run takes over no job that was there before, and says what does.
func TestCheckAbsent(t *testing.T) {
	stored := &state.State{
		Jobs:      job.Records{"runs": {Phase: job.JobRunning}, "ended": {Phase: job.JobFailed}},
		Destroyed: map[string]job.Override{"destroyed": {}},
	}
	for name, want := range map[string]string{
		"new": "", "runs": "eltrain destroy -target=job.runs ends it", "ended": "eltrain restart job.ended runs it again", "destroyed": "stays so until eltrain restart job.destroyed",
	} {
		if err := CheckAbsent(stored, []job.Job{{Name: "another"}, {Name: name}}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
