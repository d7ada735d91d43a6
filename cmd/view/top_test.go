package view

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
)

// someUsage is that of a job with a rank in each state that is shown, of a parameter server, and of a job that has no agent yet.
func someUsage() map[string]elastic.Usage {
	slot := func(role string, i int) job.Address { return job.Address{Job: "gpt", Role: role, Index: i} }
	limit := &job.SlotFigures{At: jobtest.Epoch, MemoryLimit: new(int64(4 << 30)), TCPRetransmits: new(int64(0))}
	process := func(state job.ThreadState, waits string) *job.ProcessFigures {
		return &job.ProcessFigures{PID: 7, State: state, WaitChannel: waits, Processes: 1, Threads: 65, ThreadStates: &job.ThreadsByKind{Sleeping: 65},
			CPUSeconds: new(1234.5), RSS: new(int64(1500 << 20)), PSS: new(int64(1400 << 20)), PeakRSS: new(int64(2 << 30)), OpenFiles: new(int64(0)), Read: new(int64(1 << 40)), Written: new(int64(0))}
	}
	full := history.Rates{CPU: new(1.987), Read: new(123456789.0), Written: new(0.0)}
	running := func(i, rank int, p *job.ProcessFigures, r history.Rates) elastic.RankUsage {
		return elastic.RankUsage{Slot: slot("worker", i), Incarnation: 2, Rank: rank, State: job.MemberRunning, Heard: jobtest.Epoch, Step: 1234, Process: p, Figures: limit, Rates: r}
	}
	first := running(1, 0, process(job.ThreadRuns, ""), full)
	first.Loss, first.StepRate = new(job.Loss(0.12345678)), 41.234
	first.Points = []history.Point{
		{At: jobtest.Epoch.Add(-2 * history.Fine), Step: 1000, Loss: new(job.Loss(math.NaN())), State: job.ThreadSleeps, RSS: new(float64(1 << 30)), Rates: full},
		{At: jobtest.Epoch.Add(-history.Fine)},
	}
	silent := running(4, 4, process(job.ThreadRuns, ""), full)
	silent.Silent = true
	unread := running(5, 5, nil, history.Rates{})
	unread.Figures = nil
	server := elastic.RankUsage{Slot: slot("ps", 0), Incarnation: 1, Rank: -1, State: job.MemberRunning, Process: &job.ProcessFigures{PID: 9, State: job.ThreadSleeps, WaitChannel: "ep_poll\x1b[2J", Processes: 1, Threads: 1}}
	waiting := elastic.RankUsage{Slot: slot("worker", 6), Incarnation: 1, Rank: -1, State: job.MemberWaiting}
	return map[string]elastic.Usage{
		"gpt": {UID: "u1", Generation: 3, Ranks: []elastic.RankUsage{
			server, running(0, 3, process(job.ThreadBlocked, "nfs_wait_bit_killable"), history.Rates{}), first, running(2, 1, process(job.ThreadStopped, ""), full),
			running(3, 2, process(job.ThreadSleeps, "futex_do_wait"), full), silent, unread, waiting,
		}},
		"new": {UID: "u2", Ranks: []elastic.RankUsage{}},
	}
}

func TestTop(t *testing.T) {
	var r Redactor
	m := Top(someUsage(), &r)
	var text bytes.Buffer
	if err := WriteTop(Screen{Writer: &text}, m); err != nil {
		t.Fatal(err)
	}
	golden(t, "top.txt", text.String())
	text.Reset()
	if err := WriteJSON(&text, m); err != nil {
		t.Fatal(err)
	}
	golden(t, "top.json", text.String())
}

// Columns for accelerators are there where a slot of the job has figures.
func TestTopWithAccelerators(t *testing.T) {
	usage := someUsage()
	u := usage["gpt"]
	with := func(rank int, all ...job.AcceleratorFigures) {
		u.Ranks[rank].Figures = &job.SlotFigures{At: jobtest.Epoch, Accelerators: all}
	}
	with(1, job.AcceleratorFigures{Utilization: new(1.0), MemoryUsed: new(int64(70 << 30))}, job.AcceleratorFigures{Device: 1, Utilization: new(0.5), MemoryUsed: new(int64(60 << 30))}, job.AcceleratorFigures{Device: 2})
	with(2, job.AcceleratorFigures{Utilization: new(0.0), MemoryUsed: new(int64(0))})
	with(3, job.AcceleratorFigures{XID: new(int64(79))})
	var r Redactor
	var text bytes.Buffer
	if err := WriteTop(Screen{Writer: &text}, Top(usage, &r)); err != nil {
		t.Fatal(err)
	}
	golden(t, "top_accelerators.txt", text.String())
}

func TestTopOfSomeSlots(t *testing.T) {
	var r Redactor
	selector, err := job.ParseSelector("job.gpt.worker[1-2]")
	if err != nil {
		t.Fatal(err)
	}
	m := Top(someUsage(), &r).Select(selector)
	if len(m.Jobs) != 1 || len(m.Jobs[0].Ranks) != 2 || m.Jobs[0].Ranks[1].Address != "job.gpt.worker[2]" {
		t.Errorf("selected %+v", m)
	}
}

// TestTopWatch: another figure is a change, the same figures are none.
func TestTopWatch(t *testing.T) {
	var r Redactor
	var out bytes.Buffer
	w := TopWatch{Watch: Watch{Screen: Screen{Writer: &out}, JSON: true, Now: still}}
	usage := someUsage()
	for _, c := range []struct {
		change func()
		lines  int
	}{{func() {}, 1}, {func() {}, 1}, {func() { usage["gpt"].Ranks[0].Heard = jobtest.Epoch.Add(time.Second) }, 2}} {
		c.change()
		if err := w.Show(Top(usage, &r)); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "\n") != c.lines || !json.Valid([]byte(strings.Split(got, "\n")[c.lines-1])) {
			t.Fatalf("not %d lines of JSON:\n%s", c.lines, got)
		}
	}
}
