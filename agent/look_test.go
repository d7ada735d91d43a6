package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// A process is looked at each half second: R works, S sleeps, D is blocked, T stopped; in lower case it shows no step.
func TestWhatIsToldAtOnce(t *testing.T) {
	for _, c := range []struct{ name, looks, told string }{
		{"steady", "RRRRRRRR", ""},
		{"works and waits, while it moves", "RSRSRSRS", ""},
		{"stopped", "RRRTTT", "3"},
		{"stopped and continued", "RRRTTTRR", "3 6"},
		{"blocked for a moment", "RRRDRRDR", ""},
		{"blocked for long", "RRRDDDDD", "5"},
		{"stands still, then waits", "RRRsssss", "3 5"},
		{"stands still, and works later", "RRRsssrrrrrr", "3 5 7"},
		{"stands still, then moves", "RRRsssSS", "3 5 7"},
		{"not too often", "RTRTRTRT", "1 4 7"},
	} {
		var l lookout
		now := time.Unix(1000, 0)
		ticks := uint64(0)
		var told []string
		for i, letter := range c.looks {
			g := glimpse{state: job.ThreadSleeps, channel: "ep_poll", still: letter >= 'a'}
			switch upper := letter &^ 0x20; upper {
			case 'R':
				ticks += 50
				g.state, g.channel = job.ThreadRuns, ""
			case 'D', 'T':
				g.state = job.ThreadState(upper)
			}
			g.ticks = ticks
			if l.see(now, []glimpse{g}) {
				told = append(told, string(rune('0'+i)))
			}
			now = now.Add(lookEvery)
		}
		if got := strings.Join(told, " "); got != c.told {
			t.Errorf("%s: %s is told at looks %q, want %q", c.name, c.looks, got, c.told)
		}
	}
}

func TestFiguresOfLooks(t *testing.T) {
	var l lookout
	now := time.Unix(1000, 0)
	ranks := []job.RankReport{{Process: &job.ProcessFigures{PID: 7, State: job.ThreadRuns}}, {}}
	see := func(seconds float64, g glimpse) *job.ProcessFigures {
		for range int(seconds * 2) {
			l.see(now, []glimpse{g, {}})
			now = now.Add(lookEvery)
		}
		out := append([]job.RankReport(nil), ranks...)
		l.enter(out, now)
		if out[1].Process != nil {
			t.Fatal("a process that cannot be seen has figures")
		}
		return out[0].Process
	}
	p := see(10, glimpse{state: job.ThreadSleeps, channel: "ep_poll"})
	if *p.Age != 10 || *p.StateAge != 10 || *p.IdleAge != 10 || *p.Busy != 0 || p.Looks.All != 20 || p.Looks.Waits["ep_poll"] != 20 || p.WaitChannel != "ep_poll" {
		t.Errorf("asleep for 10 s: state since %v, idle since %v, busy %v, looks %+v", *p.StateAge, *p.IdleAge, *p.Busy, *p.Looks)
	}
	if p = see(1, glimpse{state: job.ThreadSleeps, channel: "ep_poll", devices: true}); *p.IdleAge != 0.5 || *p.Busy != 0 {
		t.Errorf("its accelerators work: idle since %v, busy %v", *p.IdleAge, *p.Busy)
	}
	p = see(1, glimpse{state: job.ThreadSleeps, channel: "ep_poll", lines: 1})
	if *p.StateAge != 12 || *p.IdleAge != 1 {
		t.Errorf("after a line: state since %v, idle since %v", *p.StateAge, *p.IdleAge)
	}
	p = see(1, glimpse{state: job.ThreadBlocked, channel: "nfs", lines: 1, bytes: 5})
	if *p.StateAge != 1 || p.State != job.ThreadBlocked || p.Looks.All != 26 {
		t.Errorf("blocked: state since %v, %+v", *p.StateAge, *p)
	}
	if ranks[0].Process.StateAge != nil {
		t.Error("the figures of the sampler were changed")
	}
	for i := range 2 * job.MaxWaits {
		p = see(0.5, glimpse{state: job.ThreadSleeps, channel: strings.Repeat("x", i+1)})
	}
	if len(p.Looks.Waits) != job.MaxWaits {
		t.Errorf("%d wait channels are kept", len(p.Looks.Waits))
	}
}

func TestEvidenceFits(t *testing.T) {
	long := strings.Repeat("é", 500)
	many := make([]job.RankEvidence, 100)
	for i := range many {
		many[i] = job.RankEvidence{State: job.ThreadRuns, Output: []string{long, long, long}}
		for range 100 {
			many[i].Frames = append(many[i].Frames, long)
		}
	}
	fitEvidence(many, maxEvidence)
	if len(many[0].Frames) != maxFrames || len(many[0].Frames[0]) != maxFrame || len(many[0].Output) != maxOutput {
		t.Errorf("of the first process there are %d frames of %d bytes and %d lines", len(many[0].Frames), len(many[0].Frames[0]), len(many[0].Output))
	}
	if many[50].State != job.ThreadRuns || many[50].Frames != nil {
		t.Errorf("in the middle there is %+v", many[50])
	}
}
