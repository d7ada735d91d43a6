package goodput

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// part is one thing that a job does, with what is true of it. Times are seconds since the job's start.
type part struct {
	mode     string
	from, to float64

	generation  int
	silent      bool    // it never shows a step
	first       float64 // when it shows its first step
	step        int64   // that step
	rate        float64
	hang, found float64 // since when it hangs, and when that is noticed; 0 for never
	slow        float64 // since when it loses the share cost
	cost        float64
}

// stepAt is the newest step at a time; 0 before the first.
func (p *part) stepAt(at float64) int64 {
	if p.mode != Training || p.silent || at < p.first {
		return 0
	}
	if p.hang > 0 {
		at = min(at, p.hang)
	}
	return p.step + int64((at-p.first)*p.rate+1e-6)
}

// life is all that is true of a job, in order and without gaps.
type life []part

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func timeOrZero(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return at(seconds)
}

// facts is what can be known at a time.
func (l life) facts(now float64) Facts {
	i := slices.IndexFunc(l, func(p part) bool { return now < p.to })
	if i < 0 {
		i = len(l) - 1
	}
	p := &l[i]
	f := Facts{Mode: p.mode}
	for k := range i {
		f.Expected = f.Expected || l[k].stepAt(l[k].to) > 0
		f.Before = max(f.Before, l[k].stepAt(l[k].to))
	}
	if p.mode == Training {
		f.Generation, f.Formed = p.generation, at(p.from)
		if n := p.stepAt(now); n > 0 {
			f.Shown, f.FirstStep, f.FirstStepAt, f.Rate = true, p.step, at(p.first), p.rate
			f.Newest = n
		}
		if p.hang > 0 && now >= p.found {
			f.Hang, f.HangCertain = at(p.hang), true
		}
		if p.cost > 0 && now >= p.slow {
			f.Slow, f.SlowBy = at(p.slow), p.cost
		}
		return f
	}
	if i > 0 && l[i-1].mode == Training {
		f.Ended, f.Newest, f.Rate = at(p.from), l[i-1].stepAt(p.from), l[i-1].rate // its members' last reports are still there
	}
	return f
}

// spent is where the time until end went, worked out from what is true rather than step by step.
func (l life) spent(end float64) (g job.Goodput) {
	shown, reached := false, int64(0)
	for i := range l {
		p := &l[i]
		to := min(p.to, end)
		if to <= p.from {
			break
		}
		whole := to - p.from
		g.Wall += whole
		switch lost := &g.Lost; p.mode {
		case Scheduling:
			lost.Scheduling += whole
		case Rendezvous:
			lost.Rendezvous += whole
		case Checkpoint:
			lost.Checkpoint += whole
		case Restart:
			lost.Restart += whole
		case Suspended:
			lost.Suspended += whole
		case Over:
			g.Wall -= whole
		case Training:
			went, first := to, to
			if p.hang > 0 && to >= p.found {
				went = p.hang
			}
			if first = went; p.stepAt(to) > 0 {
				first = min(p.first, went)
			}
			if p.stepAt(to) > 0 || shown {
				lost.Start += first - p.from
			} else {
				g.Unknown += first - p.from
			}
			past := first
			if reached > 0 && p.stepAt(to) > 0 && p.step <= reached {
				past = min(p.first+float64(reached-p.step)/p.rate, went)
				if p.stepAt(to) <= reached {
					past = went
				}
			}
			lost.RedoneSteps += past - first
			cost := 0.0
			if p.cost > 0 && to >= p.slow {
				cost = p.cost * max(0, went-max(p.slow, past))
			}
			lost.Straggling += cost
			g.Productive += went - past - cost
			lost.Hang += to - went
			if p.to <= end {
				reached = max(reached, p.stepAt(p.to))
			}
			shown = shown || p.stepAt(to) > 0
		}
	}
	g.Reached = reached
	return g
}

// draw draws a job's life.
func draw(t *rapid.T) (l life) {
	now, generation, reached := 0.0, 0, int64(0)
	seconds := func(what string) float64 { return float64(rapid.IntRange(1, 4000).Draw(t, what)) / 10 }
	add := func(p part) {
		p.from, p.to = now, now+seconds("lasts")
		now = p.to
		l = append(l, p)
	}
	add(part{mode: Scheduling})
	if rapid.Bool().Draw(t, "gathers") {
		add(part{mode: Rendezvous})
	}
	for range rapid.IntRange(0, 6).Draw(t, "worlds") {
		generation++
		p := part{mode: Training, generation: generation, silent: rapid.IntRange(0, 3).Draw(t, "silent") == 0}
		add(p)
		w := &l[len(l)-1]
		lasts := w.to - w.from
		share := func(what string) float64 { return rapid.Float64Range(0, 0.9).Draw(t, what) }
		w.first, w.rate = w.from+lasts*share("first step"), float64(rapid.IntRange(1, 200).Draw(t, "rate"))/10
		w.step = 1 + rapid.Int64Range(0, reached+1).Draw(t, "resumes")
		switch rapid.IntRange(0, 2).Draw(t, "trouble") {
		case 0:
			w.hang = w.from + lasts*share("hangs") + 0.001
			w.found = w.hang + (w.to-w.hang)*share("found")
			if w.found >= w.to {
				w.hang, w.found = 0, 0
			}
		case 1:
			w.slow, w.cost = w.from+lasts*share("slow"), 0.1+0.8*share("cost")
		}
		reached = max(reached, w.stepAt(w.to))
		for range rapid.IntRange(1, 3).Draw(t, "between") {
			add(part{mode: rapid.SampledFrom([]string{Checkpoint, Restart, Scheduling, Suspended}).Draw(t, "then")})
		}
	}
	add(part{mode: Over})
	return l
}

// looks are when a job has to be looked at: what has no time of its own begins when it is seen. Of a world one look is enough, once
// what is to be known of it is: it may be late.
func (l life) looks(t *rapid.T) (times []float64) {
	for i := range l {
		p := &l[i]
		switch {
		case p.mode == Training:
			known := max(p.from, p.found, p.slow)
			if !p.silent {
				known = max(known, p.first)
			}
			times = append(times, known+(p.to-known)*rapid.Float64Range(0, 0.999).Draw(t, "late"))
		case i > 0 && l[i-1].mode == Training: // when a world ended is known
			times = append(times, p.from+(p.to-p.from)*rapid.Float64Range(0, 0.999).Draw(t, "late"))
		default:
			times = append(times, p.from)
		}
	}
	return times
}

// accounts are all parts that make up a ledger's wall time.
func accounts(g *job.Goodput) []float64 {
	l := &g.Lost
	return []float64{g.Productive, g.Unknown, l.Scheduling, l.Rendezvous, l.Start, l.RedoneSteps, l.Hang, l.Straggling, l.Checkpoint, l.Restart, l.Suspended}
}

func alike(a, b job.Goodput) bool {
	x, y := accounts(&a), accounts(&b)
	for i := range x {
		if math.Abs(x[i]-y[i]) > 1e-3 {
			return false
		}
	}
	return math.Abs(a.Wall-b.Wall) < 1e-3
}

// However often and however late a job is looked at, its time is charged to what was true of it. The parts sum to the wall time, which
// never falls, and its figures while it lives are those of its journal, recomputed.
func TestEachMomentBelongsToOneAccount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := draw(t)
		end := l[len(l)-1].to
		times := l.looks(t)
		for range rapid.IntRange(0, 20).Draw(t, "more looks") {
			times = append(times, end*rapid.Float64Range(0, 0.999).Draw(t, "look"))
		}
		slices.Sort(times)
		var g job.Goodput
		var journal []Entry
		var wall float64
		for _, now := range times {
			f := l.facts(now)
			next, changed := Step(g, at(now), f)
			if changed {
				g = next
				journal = append(journal, Entry{Time: at(now), UID: "u", Facts: f})
			}
			f.Expected = f.Expected || g.Shown
			if _, changed := Step(g, at(now), f); changed {
				t.Fatalf("at %.3f: the same facts change %+v once more", now, g)
			}
			live := Until(g, at(now), f)
			var sum float64
			for _, part := range accounts(&live) {
				if part < -1e-6 {
					t.Fatalf("at %.3f: an account is negative: %+v", now, live)
				}
				sum += part
			}
			if math.Abs(sum-live.Wall) > 1e-3 || live.Wall < wall-1e-6 || math.Abs(sum-live.Productive-live.Unknown-live.Lost.Sum()) > 1e-3 {
				t.Fatalf("at %.3f: the parts are %.3f of %.3f, after %.3f: %+v", now, sum, live.Wall, wall, live)
			}
			wall = live.Wall
			if again := Recompute(journal)["u"]; again != g {
				t.Fatalf("at %.3f: the journal says %+v, and the ledger %+v", now, again, g)
			}
		}
		got, want := Until(g, at(end), l.facts(end)), l.spent(end)
		if !alike(got, want) || got.Reached != want.Reached {
			t.Fatalf("charged\n%+v, but true is\n%+v\nof %+v", got, want, l)
		}
	})
}

// At any moment the figures of a job are what is true and known by then, although nothing is written while it is steady.
func TestFiguresAreLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := draw(t)
		end := l[len(l)-1].from * rapid.Float64Range(0.001, 0.999).Draw(t, "now")
		var g job.Goodput
		for i := range l {
			p := &l[i]
			for _, now := range []float64{p.from, p.first, p.found, p.slow} { // what wakes whoever looks
				if now >= p.from && now <= end && now < p.to {
					g, _ = Step(g, at(now), l.facts(now))
				}
			}
		}
		if got, want := Until(g, at(end), l.facts(end)), l.spent(end); !alike(got, want) {
			t.Fatalf("at %.3f shown\n%+v, but true is\n%+v\nof %+v", end, got, want, l)
		}
	})
}

// ledgerOf steps a ledger of a job whose world formed at 0 and showed step 1 at 10, through facts at their times.
func ledgerOf(g job.Goodput, looks ...look) job.Goodput {
	for _, l := range looks {
		g, _ = Step(g, at(l.at), l.facts)
	}
	return g
}

type look struct {
	at    float64
	facts Facts
}

func TestWhatIsChargedWhereFactsChange(t *testing.T) {
	trains := Facts{Mode: Training, Generation: 1, Formed: start, Shown: true, FirstStep: 1, FirstStepAt: at(10), Rate: 1, Newest: 50}
	with := func(f Facts, set func(*Facts)) Facts { set(&f); return f }
	suspected := with(trains, func(f *Facts) { f.Hang = at(60) })
	hangs := with(suspected, func(f *Facts) { f.HangCertain = true })
	ended := with(trains, func(f *Facts) { f.Mode = Restart })
	silent := Facts{Mode: Training, Generation: 1, Formed: start}
	expected := with(silent, func(f *Facts) { f.Expected = true })
	over := Facts{Mode: Over, Ended: at(80), Succeeded: true}
	for _, test := range []struct {
		what  string
		first job.Goodput
		looks []look
		until look
		want  job.Goodput
	}{
		{"a suspicion counts while it lasts", job.Goodput{}, []look{{0, trains}, {70, suspected}}, look{80, suspected},
			job.Goodput{Wall: 80, Productive: 50, Lost: job.LostTime{Start: 10, Hang: 20}}},
		{"and not if it was a pause", job.Goodput{}, []look{{0, trains}, {70, suspected}, {90, trains}}, look{100, trains},
			job.Goodput{Wall: 100, Productive: 90, Lost: job.LostTime{Start: 10}}},
		{"a hang that ends by itself was one", job.Goodput{}, []look{{0, trains}, {70, suspected}, {75, hangs}, {90, trains}}, look{100, trains},
			job.Goodput{Wall: 100, Productive: 60, Lost: job.LostTime{Start: 10, Hang: 30}}},
		{"a hang ends with its world, and counts from the last step", job.Goodput{}, []look{{0, trains}, {75, hangs}, {80, ended}}, look{90, ended},
			job.Goodput{Wall: 90, Productive: 50, Lost: job.LostTime{Start: 10, Hang: 20, Restart: 10}, Reached: 50}},
		{"a hang before the first step", job.Goodput{}, []look{{0, expected}, {75, with(expected, func(f *Facts) { f.Hang = at(40) })}}, look{80, with(expected, func(f *Facts) { f.Hang = at(40) })},
			job.Goodput{Wall: 80, Lost: job.LostTime{Start: 40, Hang: 40}}},
		{"no step is known", job.Goodput{}, []look{{0, silent}}, look{60, silent}, job.Goodput{Wall: 60, Unknown: 60}},
		{"no step yet", job.Goodput{}, []look{{0, expected}}, look{60, expected}, job.Goodput{Wall: 60, Lost: job.LostTime{Start: 60}}},
		{"it did its work and never showed a step", job.Goodput{}, []look{{0, expected}, {90, over}}, look{100, over}, job.Goodput{Wall: 80, Unknown: 80}},
		{"the first step is seen late, and was not expected", job.Goodput{}, []look{{0, silent}, {60, trains}}, look{70, trains},
			job.Goodput{Wall: 70, Productive: 60, Lost: job.LostTime{Start: 10}}},
		{"steps are shown by a job without worlds", job.Goodput{}, []look{{0, Facts{Mode: Training, Shown: true}}}, look{60, Facts{Mode: Training, Shown: true}},
			job.Goodput{Wall: 60, Productive: 60}},
		{"a world's end and the next one's start are seen together", job.Goodput{}, []look{{0, trains}},
			look{100, Facts{Mode: Training, Generation: 2, Formed: at(80), Ended: at(70), Expected: true}},
			job.Goodput{Wall: 100, Productive: 60, Lost: job.LostTime{Start: 30, Restart: 10}}},
		{"a ledger of an earlier version", job.Goodput{Wall: 100, Productive: 90, Lost: job.LostTime{Restart: 10}, Reached: 30, Mode: "productive", At: at(20)},
			[]look{{60, trains}}, look{80, trains}, job.Goodput{Wall: 160, Productive: 131, Lost: job.LostTime{Restart: 10, RedoneSteps: 19}, Reached: 30}},
		{"one whose members have not reported yet", job.Goodput{Wall: 100, Productive: 100, Reached: 30, Mode: "productive", At: at(20)},
			[]look{{60, expected}}, look{80, expected}, job.Goodput{Wall: 160, Productive: 160, Reached: 30}},
		{"one whose world has ended", job.Goodput{Wall: 100, Productive: 100, Reached: 30, Mode: "productive", At: at(20)},
			[]look{{60, ended}}, look{80, ended}, job.Goodput{Wall: 160, Productive: 111, Lost: job.LostTime{Restart: 20, RedoneSteps: 29}, Reached: 50}},
		{"the clock is set back", job.Goodput{}, []look{{1000, trains}, {0, trains}}, look{20, trains},
			job.Goodput{Wall: 20, Productive: 20}},
		{"a straggler is replaced", job.Goodput{}, []look{{0, trains}, {40, with(trains, func(f *Facts) { f.Slow, f.SlowBy = at(30), 0.5 })}, {60, trains}}, look{70, trains},
			job.Goodput{Wall: 70, Productive: 45, Lost: job.LostTime{Start: 10, Straggling: 15}}},
		{"steps go backwards", job.Goodput{}, []look{{0, trains}, {50, with(trains, func(f *Facts) { f.FirstStep, f.Newest = 0, 3 })}}, look{60, trains},
			job.Goodput{Wall: 60, Productive: 50, Lost: job.LostTime{Start: 10}}},
		{"a rate that means nothing", job.Goodput{Reached: 40, Mode: Restart, At: start}, []look{{20, with(trains, func(f *Facts) { f.Rate, f.Newest = 1e-300, 50 })}},
			look{60, with(trains, func(f *Facts) { f.Rate, f.Newest = 1e-300, 50 })}, job.Goodput{Wall: 60, Productive: 40, Lost: job.LostTime{Start: 10, RedoneSteps: 10}, Reached: 40}},
	} {
		g := Until(ledgerOf(test.first, test.looks...), at(test.until.at), test.until.facts)
		if !alike(g, test.want) || g.Reached != test.want.Reached {
			t.Errorf("%s:\n%+v, want\n%+v", test.what, g, test.want)
		}
	}
}

// A steady job changes nothing that would have to be stored: not by its steps, nor by figures that are never twice the same.
func TestASteadyJobIsNotStored(t *testing.T) {
	f := Facts{Mode: Training, Generation: 1, Formed: start, Expected: true, Shown: true, FirstStep: 1, FirstStepAt: at(10), Rate: 1, Newest: 2,
		Hang: at(12), Slow: at(11), SlowBy: 0.3}
	g, changed := Step(job.Goodput{}, at(20), f)
	if !changed {
		t.Fatal("what is new is not stored")
	}
	for i := range 100 {
		f.Newest, f.Rate, f.SlowBy = f.Newest+1, f.Rate*1.01, 0.3+float64(i%5)/100
		f.Hang = at(12 + float64(i%9)/10)
		if g, changed = Step(g, at(20+float64(i)), f); changed {
			t.Fatalf("look %d is stored: %+v", i, g)
		}
	}
}

// While steps are done again, a look is due when that is expected to be over: soon if that was to be by now, and never if nothing is.
func TestWhenALookIsDue(t *testing.T) {
	again := Facts{Mode: Training, Generation: 2, Formed: start, Shown: true, FirstStep: 61, FirstStepAt: start, Rate: 2, Newest: 81}
	g, _ := Step(job.Goodput{Mode: Restart, At: start, Reached: 100}, start, again)
	slow, stopped, past := again, again, again
	slow.Rate, stopped.Rate, past.Newest = 1e-9, 0, 101
	for _, test := range []struct {
		what  string
		facts Facts
		want  float64
	}{
		{"half of it is done", again, 30}, {"at a rate that means nothing", slow, 20 + mostAhead.Seconds()}, {"no rate", stopped, 0}, {"over", past, 0},
	} {
		now := at(20)
		ledger, _ := Step(g, now, test.facts)
		if due := DueToPass(ledger, now, test.facts); !due.Equal(timeOrZero(test.want)) {
			t.Errorf("%s: due at %v", test.what, due)
		}
	}
}
