package scaling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// system is a job whose values follow from its size alone.
type system struct {
	in     Input
	values func(size int) []job.Value
	// targets are those of policies whose value may vary.
	targets map[string]float64
	log     string
}

// TestConstantInputsComeToRest draws policies and systems whose values follow from the size. After some time the size no longer changes,
// and it is a legal one; noise within the tolerance then changes nothing either.
func TestConstantInputsComeToRest(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := draw(rnd)
		noise := 0.0
		step := func() bool {
			now := s.in.Now.Add(30 * time.Second)
			e := job.Evaluation{At: now, Size: s.in.Size, Target: s.in.Size, Values: s.values(s.in.Size)}
			for i := range e.Values {
				v := &e.Values[i]
				if noisy, target := v.Value*(1+noise*(2*rnd.Float64()-1)), s.targets[v.Policy]; math.Abs(noisy/target-1) <= s.in.Scaling.Tolerated() {
					v.Value = noisy
				}
			}
			s.in.Now = now
			s.in.Evaluations = append(s.in.Evaluations, e)
			if extra := len(s.in.Evaluations) - job.MaxEvaluations; extra > 0 {
				s.in.Evaluations = s.in.Evaluations[extra:]
			}
			d := Decide(s.in)
			size := d.To
			if size == 0 && d.Most > 0 {
				size = d.Most
			}
			if size == 0 {
				size = s.in.Sizes.Floor(s.in.Sizes.Max)
			}
			if s.in.Sizes.Floor(size) != size {
				t.Fatalf("seed %d: %d is not legal\n%s\n%+v", seed, size, s.log, d)
			}
			changed := size != s.in.Size
			if changed {
				s.in.Scaled.At = now
				if d.Explores {
					s.in.Scaled.Explored++
				}
			}
			s.in.Size = size
			if d.To > 0 {
				s.in.Scaled.Size = size
			}
			return changed
		}
		for range 2000 { // 17 hours
			step()
		}
		last := s.in.Size
		noise = 2 * s.in.Scaling.Tolerated()
		for i := range 300 {
			if step() {
				t.Fatalf("seed %d: after %d more evaluations the size goes from %d to %d\n%s", seed, i, last, s.in.Size, s.log)
			}
		}
	}
}

func draw(rnd *rand.Rand) *system {
	sc := &job.Scaling{Min: 1 + rnd.IntN(4), Step: 1 + rnd.IntN(4)}
	sc.Max = sc.Min + sc.Step + rnd.IntN(60)
	s := &system{targets: map[string]float64{}, in: Input{Now: time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC), Scaling: sc, Sizes: job.Sizes{Min: sc.Min, Max: sc.Max, Step: sc.Step},
		Restart: time.Duration(rnd.IntN(300)) * time.Second}}
	s.in.Size = s.in.Sizes.Least()
	if rnd.IntN(2) == 0 {
		sc.Cooldown = &job.Cooldown{}
	}
	if rnd.IntN(2) == 0 {
		sc.Stabilization = &job.Stabilization{Up: job.Duration(rnd.IntN(3)) * job.Duration(time.Minute), Down: job.Duration(rnd.IntN(3)) * job.Duration(time.Minute)}
	}
	if rnd.IntN(3) == 0 {
		sc.MaxScaleUp, sc.MaxScaleDown = 1+rnd.IntN(8), 1+rnd.IntN(8)
	}
	share := 0.5 + rnd.Float64()/2 // of what the last slot adds
	throughput := func(size int) float64 { return 100 * math.Pow(float64(size), share) }
	load := 100 + 5000*rnd.Float64()
	values := map[string]func(int) float64{}
	add := func(p job.Policy, value func(int) float64) {
		p.Name = fmt.Sprintf("p%d", len(sc.Policies))
		sc.Policies = append(sc.Policies, p)
		values[p.Name] = value
		if p.Strategy.Target != nil {
			s.targets[p.Name] = *p.Strategy.Target
		}
		s.log += fmt.Sprintf("%+v %+v\n", p, *p.Strategy)
	}
	prometheus, training := &job.MetricSource{Kind: job.PrometheusSource}, &job.MetricSource{Kind: job.TrainingSource, Metric: job.TokensMetric}
	for range 1 + rnd.IntN(3) {
		target := 10 + 300*rnd.Float64()
		switch rnd.IntN(5) {
		case 0:
			add(job.Policy{Source: prometheus, Strategy: &job.Strategy{Kind: job.TargetValue, Target: &target}}, func(n int) float64 { return load / float64(n) })
		case 1:
			target *= 10
			add(job.Policy{Source: training, Strategy: &job.Strategy{Kind: job.TargetValue, Target: &target}}, throughput)
		case 2:
			delta := []int{-4, -1, 1, 3}[rnd.IntN(4)]
			bound := &job.Strategy{Kind: job.Threshold, Delta: delta, Within: 1 + rnd.IntN(4)}
			if bound.Above = &target; delta < 0 { // it moves away from the bound
				bound.Above, bound.Below = nil, &target
			}
			add(job.Policy{Source: prometheus, Strategy: bound}, func(n int) float64 { return load / float64(n) })
		case 3:
			fixed := load / 60
			add(job.Policy{Source: prometheus, Strategy: &job.Strategy{Kind: job.PassThrough}}, func(int) float64 { return fixed })
		case 4:
			add(job.Policy{Strategy: &job.Strategy{Kind: job.Efficiency, MinEfficiency: 0.3 + 0.6*rnd.Float64()}}, nil)
		}
	}
	s.values = func(size int) (all []job.Value) {
		for _, p := range sc.Policies {
			if value := values[p.Name]; value != nil {
				all = append(all, job.Value{Policy: p.Name, Value: value(size)})
			}
		}
		return all
	}
	measured := map[int]bool{}
	s.in.Growth = known{measured, throughput, &s.in}
	return s
}

// known knows what a system has had the size of.
type known struct {
	measured   map[int]bool
	throughput func(int) float64
	in         *Input
}

func (k known) Noise(int) (scale, batch float64) { return 0, 0 }

func (k known) Throughput(size int) Throughput {
	k.measured[k.in.Size] = true
	t := k.throughput(size)
	if !k.measured[size] {
		return Throughput{}
	}
	return Throughput{Mean: t, High: t, Measured: true}
}
