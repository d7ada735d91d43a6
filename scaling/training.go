package scaling

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// ErrNotTraining: there is no value because no world trains, or its processes have not shown one yet.
var ErrNotTraining = errors.New("nothing trains")

// Training measures what the training processes of a world show. member returns what a member says of itself, nil if nothing, and of
// its accelerators. With a rank a figure of slots is that of the rank's slot.
func Training(world *job.World, member func(job.WorldMember) (*job.Member, []job.AcceleratorFigures), s *job.MetricSource) (float64, error) {
	if world.Generation == 0 || world.Broken {
		return 0, ErrNotTraining
	}
	var values []float64
	rank := 0
	for _, place := range world.Members {
		m, accelerators := member(place)
		first := rank
		rank += place.Processes
		if m == nil || m.Generation != world.Generation || m.State != job.MemberRunning || s.Rank != nil && (*s.Rank < first || *s.Rank >= rank) {
			continue
		}
		if figure := ofAccelerators[s.Metric]; figure != nil {
			for i := range accelerators {
				if v, known := figure(&accelerators[i]); known {
					values = append(values, v)
				}
			}
			continue
		}
		switch s.Metric {
		case job.CPUMetric:
			values = append(values, m.CPU.Cores())
			continue
		case job.MemoryMetric:
			values = append(values, float64(m.Memory))
			continue
		}
		for i := range m.Ranks {
			if s.Rank != nil && first+i != *s.Rank {
				continue
			}
			if v, shown := shown(m.Ranks[i].Progress, s.Metric); shown {
				values = append(values, v)
			}
		}
	}
	switch {
	case len(values) > 0:
	case world.FirstStep.IsZero():
		return 0, ErrNotTraining
	case ofAccelerators[s.Metric] != nil:
		return 0, fmt.Errorf("no accelerator shows %s", s.Metric)
	case s.Rank != nil:
		return 0, fmt.Errorf("rank %d shows no %s", *s.Rank, s.Metric)
	default:
		return 0, fmt.Errorf("no rank shows %s", s.Metric)
	}
	return Finite(aggregate(values, s.Ranks))
}

// ofAccelerators has how each metric of accelerators is read; known is false if the accelerator does not say it.
var ofAccelerators = map[string]func(*job.AcceleratorFigures) (value float64, known bool){
	job.AcceleratorUtilizationMetric: func(f *job.AcceleratorFigures) (float64, bool) { return pointed(f.Utilization) },
	job.AcceleratorMemoryMetric:      func(f *job.AcceleratorFigures) (float64, bool) { return pointed(f.MemoryUsed) },
	job.AcceleratorTemperatureMetric: func(f *job.AcceleratorFigures) (float64, bool) { return pointed(f.Temperature) },
	job.AcceleratorPowerMetric:       func(f *job.AcceleratorFigures) (float64, bool) { return pointed(f.Power) },
}

func pointed[T int64 | float64](at *T) (value float64, known bool) {
	if at == nil {
		return 0, false
	}
	return float64(*at), true
}

// Finite returns an error for a value that is no number.
func Finite(value float64) (float64, error) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("the value is %v", value)
	}
	return value, nil
}

// shown is what a process shows of a metric.
func shown(p *job.RankProgress, metric string) (value float64, shown bool) {
	if p == nil || p.FirstStep == nil {
		return 0, false
	}
	var at *float64
	switch metric {
	case job.StepMetric:
		if p.Step == nil {
			return 0, false
		}
		return float64(*p.Step), true
	case job.StepRateMetric:
		return p.StepRate, p.StepRate > 0
	case job.LossMetric:
		if p.Loss == nil {
			return 0, false
		}
		return float64(*p.Loss), true
	case job.EpochMetric:
		at = p.Epoch
	case job.RateMetric:
		at = p.LearningRate
	case job.TokensMetric:
		at = p.TokensPerSecond
	case job.GradNormMetric:
		at = p.GradNorm
	}
	if at == nil {
		return 0, false
	}
	return *at, true
}

func aggregate(values []float64, how job.RankAggregate) float64 {
	switch how {
	case job.MinOfRanks:
		return slices.Min(values)
	case job.MaxOfRanks:
		return slices.Max(values)
	case job.MedianOfRanks:
		sorted := slices.Sorted(slices.Values(values))
		if n := len(sorted); n%2 == 0 {
			return (sorted[n/2-1] + sorted[n/2]) / 2
		}
		return sorted[len(sorted)/2]
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if how == job.SumOfRanks {
		return sum
	}
	return sum / float64(len(values))
}
