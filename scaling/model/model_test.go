package model

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func measured(t testing.TB, name string) []Observation {
	t.Helper()
	file, err := os.Open("testdata/scalability-" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found, err := ReadCSV(file)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func batches(all []Observation) (sizes []float64) {
	for _, o := range all {
		sizes = append(sizes, o.LocalBatch)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// everyOther returns every other batch size, from the smallest.
func everyOther(all []Observation) (kept []float64) {
	for i, size := range batches(all) {
		if i%2 == 0 {
			kept = append(kept, size)
		}
	}
	return kept
}

func split(all []Observation, keep func(Observation) bool) (in, out []Observation) {
	for _, o := range all {
		if keep(o) {
			in = append(in, o)
		} else {
			out = append(out, o)
		}
	}
	return in, out
}

// quantile is of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

func stepTime(t testing.TB, m *Model, s Size) Estimate {
	t.Helper()
	e, ok := m.StepTime(s)
	if !ok || !(e.Low <= e.Mean && e.Mean <= e.High && e.Low >= 0 && e.Mean > 0 && e.High <= math.MaxFloat64) {
		t.Fatalf("%+v takes %+v, %v", s, e, ok)
	}
	if mean := m.Seconds(s); mean != e.Mean {
		t.Errorf("%+v takes %g s and %v", s, mean, e)
	}
	return e
}

// The bar is a median error of 10 %; how often the interval of 90 % is right is checked with some margin.
func TestPredictsRealModels(t *testing.T) {
	for _, name := range []string{"bert", "cifar10"} {
		all := measured(t, name)
		use := everyOther(all)
		in, others := split(all, func(o Observation) bool { return o.Replicas <= 16 && slices.Contains(use, o.LocalBatch) })
		large, _ := split(others, func(o Observation) bool { return o.Replicas > 16 })
		m := Fit(in)
		for _, set := range []struct {
			name string
			of   []Observation
		}{{"all others", others}, {"above 16", large}} {
			var errors []float64
			inside := 0.0
			for _, o := range set.of {
				e := stepTime(t, &m, o.Size)
				errors = append(errors, math.Abs(e.Mean/o.StepTime-1))
				if e.Low <= o.StepTime && o.StepTime <= e.High {
					inside += 1 / float64(len(set.of))
				}
			}
			slices.Sort(errors)
			median, p90 := quantile(errors, 0.5), quantile(errors, 0.9)
			t.Logf("%s, fitted on %d sizes, %s (%d): median %.1f %%, p90 %.1f %%, %.0f %% within their intervals", name, len(in), set.name, len(set.of), 100*median, 100*p90, 100*inside)
			if median > 0.1 {
				t.Errorf("%s, %s: the median error is %.1f %%", name, set.name, 100*median)
			}
			if inside < 0.8 {
				t.Errorf("%s, %s: only %.0f %% are within their intervals", name, set.name, 100*inside)
			}
		}
	}
}

// of8 is a size on nodes of 8.
func of8(replicas int, batch float64) Size {
	return Size{Nodes: (replicas + 7) / 8, Replicas: replicas, LocalBatch: batch}
}

// truth is a job's step time.
func truth(s Size) float64 {
	network := 0.0
	if s.Replicas > 1 {
		network = 0.05 + 0.01*math.Log2(float64(s.Replicas))
	}
	if s.Nodes > 1 {
		network += 0.1 + 0.03*math.Log2(float64(s.Replicas))
	}
	return 0.05 + math.Hypot(0.01*s.LocalBatch, network)
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// ran returns what is observed of a job that made steps at each of the sizes.
func ran(steps int, sizes ...Size) (found []Observation) {
	for _, s := range sizes {
		for i := range steps {
			found = Observe(found, s, truth(s)*(1+0.1*math.Sin(float64(i*7))), noon)
		}
	}
	return found
}

func sizes(batch float64, replicas ...int) (found []Size) {
	for _, r := range replicas {
		found = append(found, of8(r, batch))
	}
	return found
}

// shared returns sizes that divide one batch.
func shared(batch float64, replicas ...int) (found []Size) {
	for _, r := range replicas {
		found = append(found, of8(r, batch/float64(r)))
	}
	return found
}

func TestFindsTheTruth(t *testing.T) {
	for _, test := range []struct{ had, others []Size }{
		{sizes(32, 1, 2, 4, 8, 16), sizes(32, 3, 12, 24, 32, 64, 128)},
		{shared(512, 1, 2, 4, 8, 16, 32), shared(512, 3, 12, 24, 64)},
	} {
		m := Fit(ran(100, test.had...))
		for _, s := range test.others {
			e := stepTime(t, &m, s)
			if math.Abs(e.Mean/truth(s)-1) > 0.1 || truth(s) < e.Low || truth(s) > e.High {
				t.Errorf("%+v takes %v and not %.3f", s, e, truth(s))
			}
		}
	}
}

// With one size known, elsewhere all is possible between perfect scaling and no gain.
func TestOneSizeSaysLittleOfOthers(t *testing.T) {
	at := of8(4, 32)
	m := Fit(ran(100, at))
	known := stepTime(t, &m, at)
	if math.Abs(known.Mean/truth(at)-1) > 0.02 || known.High/known.Low > 1.1 {
		t.Errorf("what was measured as %.3f is %v", truth(at), known)
	}
	last := 1.0
	for _, s := range sizes(32, 8, 16, 64, 512) {
		e := stepTime(t, &m, s)
		if width := e.High / e.Low; width <= last {
			t.Errorf("%d replicas are no less certain than fewer: %v", s.Replicas, e)
		} else {
			last = width
		}
		if e.Low < known.Low*0.99 || e.High > known.High*1.01*float64(s.Replicas)/4 {
			t.Errorf("%d replicas take %v with 4 at %v", s.Replicas, e, known)
		}
		if m.Known(s) {
			t.Errorf("%d replicas are known", s.Replicas)
		}
	}
	if e := stepTime(t, &m, of8(64, 32)); e.High/e.Low < 3 {
		t.Errorf("64 replicas are rather certain: %v", e)
	}
	if e, _ := m.Efficiency(of8(64, 32), at); e.Low > 0.3 || e.High < 0.99 || e.High > 1 {
		t.Errorf("the efficiency of 64 replicas is %v", e)
	}
	if !m.Known(at) || !m.Known(of8(4, 16)) {
		t.Error("the measured size is not known")
	}
}

func TestMoreSizesMakeSurer(t *testing.T) {
	last := math.Inf(1)
	for _, of := range [][]int{{4}, {4, 8}, {4, 8, 16}, {4, 8, 16, 32}} {
		m := Fit(ran(100, sizes(32, of...)...))
		e := stepTime(t, &m, of8(64, 32))
		if width := e.High / e.Low; width >= last {
			t.Errorf("after %v, 64 replicas are no surer: %v", of, e)
		} else {
			last = width
		}
	}
}

func TestEfficiencyIsOfPerfectScaling(t *testing.T) {
	m := Fit(ran(200, sizes(32, 1, 2, 4, 8, 16, 32)...))
	for _, s := range sizes(32, 2, 8, 32, 64) {
		base := of8(1, 32)
		want := truth(base) / truth(s)
		e, ok := m.Efficiency(s, base)
		if !ok || math.Abs(e.Mean-want) > 0.07 || want < e.Low || want > e.High || e.High > 1 {
			t.Errorf("the efficiency of %d replicas is %v, %v and not %.3f", s.Replicas, e, ok, want)
		}
	}
	if e, _ := m.Efficiency(of8(50, 32), of8(50, 32)); e != (Estimate{1, 1, 1}) {
		t.Errorf("the efficiency relative to itself is %v", e)
	}
}

func TestInvalidIsIgnored(t *testing.T) {
	good := ran(10, sizes(32, 2, 4)...)
	want := Fit(good)
	for _, seconds := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300} {
		if got := Observe(good, of8(2, 32), seconds, noon); !reflect.DeepEqual(got, good) {
			t.Errorf("%g s is observed", seconds)
		}
		if got := Fit(append(slices.Clone(good), Observation{Size: of8(8, 32), Count: 5, StepTime: seconds})); !reflect.DeepEqual(got, want) {
			t.Errorf("%g s is fitted", seconds)
		}
	}
	for _, s := range []Size{{}, {Nodes: 1}, {Nodes: -1, Replicas: 2}, {Nodes: 3, Replicas: 2}, {Nodes: 1, Replicas: 1, LocalBatch: -1},
		{Nodes: 1, Replicas: 1, LocalBatch: math.NaN()}, {Nodes: 1, Replicas: 1, LocalBatch: math.Inf(1)}, {Nodes: 1, Replicas: math.MaxInt}} {
		if got := Observe(good, s, 1, noon); !reflect.DeepEqual(got, good) {
			t.Errorf("%+v is observed", s)
		}
		if e, ok := want.StepTime(s); ok || want.Seconds(s) != 0 {
			t.Errorf("%+v takes %v", s, e)
		}
	}
	if m := Fit(nil); len(m.Kinds) != 0 || m.Known(of8(1, 1)) {
		t.Errorf("nothing is fitted as %v", m)
	}
	for _, variance := range []float64{math.NaN(), math.Inf(1), -1} {
		m := Fit([]Observation{{Size: of8(2, 1), Count: 3, StepTime: 1, Variance: variance}})
		stepTime(t, &m, of8(4, 1))
	}
}

// A size whose measurements are wrong by any factor moves the predictions of others by at most 10 %, and its own, and those beyond it if it
// is the smallest or the largest, by at most the factor that is
// believed, with some margin for how much less is known without it.
func TestLiesAreBounded(t *testing.T) {
	all := sizes(32, 1, 2, 4, 8, 16, 24, 32, 48)
	for lying := range all {
		for _, factor := range []float64{1e-3, 0.1, 0.5, 2, 10, 1e3} {
			lies := ran(100, all...)
			for i := range lies {
				if lies[i].Size == all[lying] {
					lies[i].StepTime *= factor
					lies[i].Variance *= factor * factor
				}
			}
			honest, _ := split(ran(100, all...), func(o Observation) bool { return o.Size != all[lying] })
			m, without := Fit(lies), Fit(honest)
			for _, s := range append(sizes(32, 3, 12, 28, 64), all...) {
				got, want := stepTime(t, &m, s).Mean, stepTime(t, &without, s).Mean
				bound := 1.1
				if s == all[lying] || s.Replicas > 48 && lying == len(all)-1 {
					bound = believed * 1.2
				}
				if off := math.Exp(math.Abs(math.Log(got / want))); off > bound {
					t.Errorf("with %d replicas wrong by %g, %d are off by %.2f", all[lying].Replicas, factor, s.Replicas, off)
				}
			}
		}
	}
}

func TestOneLyingMeasurementIsBounded(t *testing.T) {
	at := of8(4, 32)
	for _, factor := range []float64{1e-4, 1e4} {
		honest := ran(100, at)
		lied := Observe(honest, at, truth(at)*factor, noon)
		if off := math.Abs(lied[0].StepTime/honest[0].StepTime - 1); off > (farthest-1)/100.0 {
			t.Errorf("one of 101 measurements wrong by %g moves the mean by %.3f", factor, off)
		}
	}
}

func TestNewerMeasurementsCountMore(t *testing.T) {
	at := of8(4, 32)
	all := ran(1000, at)
	for range 4 * MaxCount {
		all = Observe(all, at, 3*truth(at), noon)
	}
	if all[0].Count != MaxCount || math.Abs(all[0].StepTime/(3*truth(at))-1) > 0.05 {
		t.Errorf("after a change to %.3f the mean is %+v", 3*truth(at), all[0])
	}

	// The job was made twice as slow: what was measured two months ago says little.
	old := ran(100, sizes(32, 1, 2, 4, 8)...)
	for i := range old {
		old[i].StepTime *= 0.5
		old[i].Last = noon.Add(-60 * 24 * time.Hour)
	}
	_, kept := split(old, func(o Observation) bool { return o.Replicas == 2 || o.Replicas == 8 })
	m := Fit(append(kept, ran(100, sizes(32, 2, 8)...)...))
	without := Fit(ran(100, sizes(32, 2, 8)...))
	for _, s := range sizes(32, 1, 2, 4, 6, 8) {
		if got, want := stepTime(t, &m, s), stepTime(t, &without, s); math.Abs(got.Mean/want.Mean-1) > 0.06 {
			t.Errorf("%d replicas take %v, without the old %v", s.Replicas, got, want)
		}
	}
}

// Welford's method against the definition.
func TestObserves(t *testing.T) {
	var all []Observation
	values := []float64{1, 2, 1.5, 1.2, 1.8, 1.1}
	mean, variance := 0.0, 0.0
	for i, v := range values {
		all = Observe(all, of8(2, 1), v, noon.Add(time.Duration(i)))
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values))
	}
	o := all[0]
	if len(all) != 1 || o.Count != len(values) || math.Abs(o.StepTime-mean) > 1e-12 || math.Abs(o.Variance-variance) > 1e-12 || !o.Last.Equal(noon.Add(5)) {
		t.Errorf("%+v: mean %g, variance %g", all, mean, variance)
	}
	before := slices.Clone(all)
	Observe(all, of8(2, 1), 9, noon.Add(time.Hour))
	if !reflect.DeepEqual(all, before) {
		t.Error("the argument is changed")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var all []Observation
	for i := range 3 * MaxObservations {
		all = Observe(all, of8(1+i*31%97, 1), 1, noon.Add(time.Duration(i)*time.Second))
		all = Observe(all, Size{Kind: "other", Nodes: 1, Replicas: 1}, 1, noon.Add(-time.Hour))
	}
	ours, others := split(all, func(o Observation) bool { return o.Kind == "" })
	if len(ours) != MaxObservations || len(others) != 1 {
		t.Errorf("%d and %d observations", len(ours), len(others))
	}
	if !slices.IsSortedFunc(all, func(a, b Observation) int { return a.compare(b.Size) }) {
		t.Error("they are not in order")
	}
	text, err := json.Marshal(all)
	if err != nil || len(text) > 200*len(all) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestKindsAreApart(t *testing.T) {
	fast := ran(50, sizes(32, 1, 2, 4)...)
	alone := Fit(fast)
	for _, o := range ran(50, sizes(32, 1, 2, 4, 8)...) {
		o.Kind, o.StepTime = "slow", 3*o.StepTime
		fast = append(fast, o)
	}
	both := Fit(fast)
	for _, s := range sizes(32, 1, 8, 64) {
		a, b := stepTime(t, &alone, s), stepTime(t, &both, s)
		if a != b {
			t.Errorf("%v becomes %v by what another kind did", a, b)
		}
	}
	slow := of8(4, 32)
	slow.Kind = "slow"
	if e := stepTime(t, &both, slow); math.Abs(e.Mean/(3*truth(slow))-1) > 0.05 {
		t.Errorf("the slow kind takes %v and not %.3f", e, 3*truth(slow))
	}
	slow.Kind = "unknown"
	if e, ok := both.StepTime(slow); ok || both.Known(slow) {
		t.Errorf("an unknown kind takes %v", e)
	}
	if e, ok := both.Efficiency(of8(4, 32), slow); ok {
		t.Errorf("relative to an unknown kind the efficiency is %v", e)
	}
}

func TestGoodput(t *testing.T) {
	m := Fit(ran(100, sizes(32, 1, 2, 4, 8)...))
	s := of8(8, 32)
	throughput, _ := m.Throughput(s)
	if want := 256 / truth(s); math.Abs(throughput.Mean/want-1) > 0.03 || throughput.Low > throughput.Mean || throughput.High < throughput.Mean {
		t.Errorf("the throughput is %v and not %.1f", throughput, want)
	}
	// At the base batch of 64 and a noise scale of 192, 256 samples make the progress of (192+64)/(192+256) of them.
	goodput, ok := m.Goodput(s, Noise{Scale: 192, BaseBatch: 64})
	if want := throughput.Mean * 256 / 448; !ok || math.Abs(goodput.Mean/want-1) > 1e-12 {
		t.Errorf("the goodput is %v and not %.1f", goodput, want)
	}
	for _, n := range []Noise{{}, {Scale: 10}, {Scale: -1, BaseBatch: 8}, {Scale: math.NaN(), BaseBatch: 8}, {Scale: math.Inf(1), BaseBatch: 8}, {Scale: 8, BaseBatch: math.NaN()}} {
		if got, _ := m.Goodput(s, n); got != throughput {
			t.Errorf("with %+v it is not the throughput: %v", n, got)
		}
	}
}

func draw(t *rapid.T) []Observation {
	var all []Observation
	size := rapid.Custom(func(t *rapid.T) Size {
		r := rapid.IntRange(1, 64).Draw(t, "replicas")
		return Size{Nodes: rapid.IntRange(1, r).Draw(t, "nodes"), Replicas: r, LocalBatch: rapid.SampledFrom([]float64{0, 8, 16, 1e6}).Draw(t, "batch")}
	})
	for _, s := range rapid.SliceOfN(size, 1, 20).Draw(t, "sizes") {
		all = append(all, Observation{Size: s, Count: rapid.IntRange(1, MaxCount).Draw(t, "count"), StepTime: math.Exp(rapid.Float64Range(-13, 13).Draw(t, "time")),
			Variance: rapid.SampledFrom([]float64{0, 1e-3, 1e6}).Draw(t, "variance"), Last: noon.Add(-time.Duration(rapid.IntRange(0, 400*24).Draw(t, "hours")) * time.Hour)})
	}
	return all
}

// Whatever was measured: estimates are finite; beyond the largest size the throughput per replica does not grow with replicas; and no
// unmeasured size does better than perfect scaling from the nearest measured one.
func TestScalingIsNeverBetterThanPerfect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := draw(t)
		m := Fit(all)
		largest := slices.MaxFunc(all, func(a, b Observation) int { return a.Replicas - b.Replicas })
		last := 0.0
		for _, r := range []int{largest.Replicas, largest.Replicas + 1, 80, 256, 10000} {
			s := Size{Nodes: largest.Nodes, Replicas: r, LocalBatch: largest.LocalBatch}
			e, ok := m.StepTime(s)
			if !ok || !(e.Low <= e.Mean && e.Mean <= e.High && e.Low >= 0 && e.Mean > 0 && e.High <= math.MaxFloat64) {
				t.Fatalf("%+v takes %+v, %v", s, e, ok)
			}
			if e.Mean < last*(1-1e-12) {
				t.Fatalf("%+v takes %v, fewer replicas %g", s, e, last)
			}
			last = e.Mean
			if f, ok := m.Efficiency(s, largest.Size); !ok || f.Mean > 1+1e-12 || !(f.Low <= f.Mean && f.Mean <= f.High) {
				t.Fatalf("%+v has the efficiency %v", s, f)
			}
		}
	})
}

func TestFitIsDeterministic(t *testing.T) {
	all := measured(t, "cifar10")
	all = append(all, all[:50]...) // some twice
	want := Fit(all)
	random := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := Fit(all); !reflect.DeepEqual(got, want) {
			t.Fatalf("another order gives %+v instead of %+v", got, want)
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var read Model
	if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, want) {
		t.Errorf("read as %+v: %v", read, err)
	}
	damaged := Model{Kinds: []kind{{}}}
	if e, ok := damaged.StepTime(of8(1, 1)); ok {
		t.Errorf("without points a step takes %v", e)
	}
}

func twenty(t testing.TB) []Observation {
	all, _ := split(measured(t, "bert"), func(o Observation) bool { return o.Replicas <= 16 && o.LocalBatch <= 8 })
	return all[:20]
}

func TestPredictionsAllocateNothing(t *testing.T) {
	m := Fit(twenty(t))
	if n := testing.AllocsPerRun(100, func() { m.Goodput(of8(64, 8), Noise{100, 8}) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkFit(b *testing.B) {
	all := twenty(b)
	b.ReportAllocs()
	for b.Loop() {
		Fit(all)
	}
}

func BenchmarkStepTime(b *testing.B) {
	m := Fit(twenty(b))
	b.ReportAllocs()
	for b.Loop() {
		m.StepTime(of8(64, 8))
	}
}

func BenchmarkSeconds(b *testing.B) {
	m := Fit(twenty(b))
	b.ReportAllocs()
	for b.Loop() {
		m.Seconds(of8(64, 8))
	}
}
