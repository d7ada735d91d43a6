package history

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func rank(i int) Rank { return Rank{Slot: job.Address{Job: "gpt", Role: "worker", Index: i}} }

// busy is a report of a process that has used half a core and read 1000 bytes/s since start.
func busy(at time.Duration) Measured {
	s := at.Seconds()
	return Measured{
		At: start.Add(at), Incarnation: 1, Step: int64(s) + 1, Loss: new(job.Loss(2)),
		Process: &job.ProcessFigures{PID: 1, State: job.ThreadRuns, CPUSeconds: new(s / 2), Read: new(int64(s * 1000)), Written: new(int64(0)), RSS: new(int64(1 << 30))},
	}
}

// feed adds busy reports of ranks every 5 s.
func feed(h *History, from, until time.Duration, ranks ...Rank) {
	for at := from; at < until; at += Fine {
		for _, r := range ranks {
			h.Add(start.Add(at), r, busy(at))
		}
	}
}

func near(got *float64, want, within float64) bool {
	return got != nil && math.Abs(*got-want) <= within*want
}

func TestTheLastHourIsKeptInFull(t *testing.T) {
	h := New(1)
	feed(h, 0, 3*time.Hour, rank(0))
	now := start.Add(3 * time.Hour)
	points := h.Points(rank(0), now.Add(-time.Hour))
	if len(points) != 720 {
		t.Fatalf("%d points", len(points))
	}
	for i, p := range points {
		at := now.Add(-time.Hour + time.Duration(i)*Fine)
		if !p.At.Equal(at) || p.Step != int64(at.Sub(start).Seconds())+1 || *p.Loss != 2 || p.State != job.ThreadRuns ||
			!near(p.CPU, 0.5, .002) || !near(p.Read, 1000, .002) || *p.Written != 0 || !near(p.RSS, 1<<30, .002) {
			t.Fatalf("point %d is %+v", i, p)
		}
	}
}

func TestADayIsThinned(t *testing.T) {
	h := New(1)
	for at := time.Duration(0); at < 30*time.Hour; at += Fine {
		m := busy(at)
		m.Process.RSS = new(int64(1000))
		if at%Coarse == 7*Fine {
			m.Process.RSS, m.Process.State = new(int64(5000)), job.ThreadBlocked
		}
		h.Add(start.Add(at), rank(0), m)
	}
	points := h.Points(rank(0), start)
	if oldest := start.Add(30 * time.Hour).Sub(points[0].At); oldest < coarseFor || oldest > coarseFor+cells*Coarse {
		t.Errorf("the oldest point is of %s ago", oldest)
	}
	thinned := 0
	for i, p := range points {
		if i > 0 && p.At.Sub(points[i-1].At) == Coarse {
			thinned++
		}
		if i > 0 && !p.At.After(points[i-1].At) {
			t.Fatalf("%s follows %s", p.At, points[i-1].At)
		}
	}
	p := points[0]
	if thinned < 130 || thinned > 180 || !near(p.RSS, 5000, .002) || p.State != job.ThreadRuns || !near(p.CPU, .5, .002) ||
		p.Step != int64(p.At.Add(Coarse-Fine).Sub(start).Seconds())+1 {
		t.Errorf("%d thinned points, the first is %+v with memory of %v", thinned, p, *p.RSS)
	}
}

func TestRates(t *testing.T) {
	process := func(cpu float64) *job.ProcessFigures {
		return &job.ProcessFigures{PID: 1, State: job.ThreadRuns, CPUSeconds: &cpu}
	}
	const unknown = -1
	for _, c := range []struct {
		name   string
		second Measured
		want   float64
	}{
		{"5 s later by the agent's clock", Measured{At: start.Add(5 * time.Second), Incarnation: 1, Process: process(20)}, 2},
		{"the same sample again", Measured{At: start, Incarnation: 1, Process: process(10)}, unknown},
		{"another process: the counter began again", Measured{At: start.Add(5 * time.Second), Incarnation: 1, Process: process(3)}, unknown},
		{"another incarnation", Measured{At: start.Add(5 * time.Second), Incarnation: 2, Process: process(20)}, unknown},
		{"a clock that was set back", Measured{At: start.Add(-time.Hour), Incarnation: 1, Process: process(20)}, unknown},
		{"unreadable", Measured{At: start.Add(5 * time.Second), Incarnation: 1, Process: &job.ProcessFigures{PID: 1}}, unknown},
		{"no process", Measured{At: start.Add(5 * time.Second), Incarnation: 1}, unknown},
	} {
		h := New(1)
		h.Add(start, rank(0), Measured{At: start, Incarnation: 1, Process: process(10)})
		h.Add(start.Add(2*time.Second), rank(0), c.second) // reports may be late: the master's clock does not matter
		if got := h.Rates(rank(0)).CPU; (got == nil) != (c.want == unknown) || got != nil && *got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	h := New(1)
	feed(h, 0, time.Minute, rank(0))
	h.Add(start.Add(time.Minute), rank(0), busy(55*time.Second))
	if got := h.Rates(rank(0)).CPU; !near(got, 0.5, 0) {
		t.Errorf("after a report that repeats a sample the rate is %v", got)
	}
}

// TestMemoryIsBounded: of more ranks than there is room for, all keep their newest points and their thinned day; of many more, those
// that came first.
func TestMemoryIsBounded(t *testing.T) {
	const room = 20
	h := New(room)
	var ranks []Rank
	for i := range mostRanks*room + 10 {
		ranks = append(ranks, rank(i))
	}
	feed(h, 0, 26*time.Hour, ranks[:2*room]...)
	feed(h, 26*time.Hour, 27*time.Hour, ranks...)
	if blocks := len(h.slabs) * slab; blocks > room*perRank+slab {
		t.Errorf("%d blocks for %d ranks", blocks, room)
	}
	if len(h.ranks) != mostRanks*room {
		t.Errorf("%d ranks", len(h.ranks))
	}
	if len(h.fine) > room*perRank {
		t.Errorf("%d fine blocks in turn", len(h.fine))
	}
	now := start.Add(27 * time.Hour)
	for i, r := range ranks[:2*room] {
		points := h.Points(r, now.Add(-coarseFor+Coarse))
		if newest := points[len(points)-1].At; now.Sub(newest) != Fine {
			t.Fatalf("the newest point of %d is of %s ago", i, now.Sub(newest))
		}
		if oldest := points[0].At; now.Sub(oldest) < 23*time.Hour {
			t.Fatalf("the oldest point of %d is of %s ago", i, now.Sub(oldest))
		}
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	h := New(10)
	other := Rank{Slot: job.Address{Job: "other", Role: "worker"}}
	feed(h, 0, 2*time.Hour, rank(0), rank(1), other)
	h.Forget("gpt")
	if len(h.Points(rank(0), start)) > 0 || len(h.Points(other, start)) == 0 {
		t.Error("the wrong job is forgotten")
	}
	feed(h, 2*time.Hour, 3*time.Hour, rank(1))
	feed(h, 3*time.Hour, 40*time.Hour, rank(2))
	if len(h.ranks) != 1 {
		t.Errorf("%d ranks are remembered, of which one was measured in the last day", len(h.ranks))
	}
	used := len(h.slabs)*slab - len(h.free)
	if runs := len(h.ranks[rank(2)].fine) + len(h.ranks[rank(2)].coarse); used != runs {
		t.Errorf("%d blocks are used for %d runs", used, runs)
	}
}

// TestHistoryKeepsWhatItIsTold compares with a model that keeps everything: whatever comes in which order, points of the last hour are those that
// were added last in their interval, and no block is used twice.
func TestHistoryKeepsWhatItIsTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 4).Draw(t, "room")
		h, now := New(room), start
		type key struct {
			rank int
			cell int64
		}
		steps := map[key]int64{}
		newest, latest := map[int]int64{}, int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "reports") {
			jump := rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute, 7 * time.Minute, 3 * time.Hour, 25 * time.Hour, -time.Minute}).Draw(t, "jump")
			now = now.Add(jump)
			r := rapid.IntRange(0, room-1).Draw(t, "rank")
			step := rapid.Int64Range(1, 1e9).Draw(t, "step")
			h.Add(now, rank(r), Measured{Step: step})
			cell := max(now.Unix()/5, newest[r])
			newest[r], latest = cell, max(latest, cell)
			steps[key{r, cell}] = step
		}
		used := map[int32]bool{}
		for _, s := range h.ranks {
			for _, r := range append(slices.Clone(s.fine), s.coarse...) {
				if used[r.block] {
					t.Fatalf("block %d is used twice", r.block)
				}
				used[r.block] = true
			}
		}
		for _, free := range h.free {
			if used[free] {
				t.Fatalf("block %d is used and free", free)
			}
		}
		for r := range room {
			since := time.Unix(latest*5, 0).Add(-fineFor)
			got := map[int64]int64{}
			for _, p := range h.Points(rank(r), since) {
				got[p.At.Unix()/5] = p.Step
			}
			for k, want := range steps {
				if at := time.Unix(k.cell*5, 0); k.rank == r && !at.Before(since) && got[k.cell] != want {
					t.Fatalf("rank %d has at %s step %d, not %d", r, at, got[k.cell], want)
				}
			}
		}
	})
}

func TestPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := math.Exp2(rapid.Float64Range(0, 55).Draw(t, "amount"))
		if got := amountOf(amountCode(&amount, 1), 1); !near(got, amount, .001) {
			t.Errorf("%v is kept as %v", amount, *got)
		}
		loss := job.Loss(math.Exp2(rapid.Float64Range(-39, 39).Draw(t, "loss")))
		if rapid.Bool().Draw(t, "negative") {
			loss = -loss
		}
		if got := *lossOf(lossCode(&loss)); math.Abs(float64(got/loss)-1) > .002 {
			t.Errorf("%v is kept as %v", loss, got)
		}
	})
	for _, v := range []float64{0, math.Inf(1), math.Inf(-1), math.NaN()} {
		loss := job.Loss(v)
		if got := float64(*lossOf(lossCode(&loss))); got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%v is kept as %v", v, got)
		}
	}
	huge, tiny := math.MaxFloat64, math.SmallestNonzeroFloat64
	if a, b := amountOf(amountCode(&huge, 1), 1), amountOf(amountCode(&tiny, 1), 1); *a < 1<<55 || *b != 0 {
		t.Errorf("the largest and smallest amounts are kept as %v and %v", *a, *b)
	}
	for _, v := range []float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64} {
		loss := job.Loss(v)
		if got := *lossOf(lossCode(&loss)); got < 0 != (v < 0) {
			t.Errorf("%v is kept as %v", v, got)
		}
	}
}

// BenchmarkAdd adds reports of 10,000 ranks that are remembered in full: a day has passed.
func BenchmarkAdd(b *testing.B) {
	const ranks = 10000
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	h := New(ranks)
	report := func(i int, at time.Duration) {
		m := busy(at)
		*m.Process.Read += int64(i)
		h.Add(start.Add(at), rank(i), m)
	}
	at := time.Duration(0)
	for ; at < 25*time.Hour; at += cells * Fine / 2 { // each block is begun
		for i := range ranks {
			report(i, at)
		}
	}
	size := (heap() - before) / ranks
	n := 0
	for b.Loop() {
		if n++; n%ranks == 0 {
			at += Fine
		}
		report(n%ranks, at)
	}
	b.ReportMetric(size, "B/rank")
	runtime.KeepAlive(h)
}
