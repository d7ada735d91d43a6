package scaling

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

func TestTrainingMeasuresRanksSlotsAndAccelerators(t *testing.T) {
	world := &job.World{Generation: 3, FirstStep: time.Unix(1, 0)}
	members := map[job.Address]*job.Member{}
	accelerators := map[job.Address][]job.AcceleratorFigures{}
	for i, use := range []float64{0.2, 0.6, 0.9} {
		slot := job.Address{Job: "j", Role: "worker", Index: i}
		world.Members = append(world.Members, job.WorldMember{Slot: slot, Processes: 2, Rank: 2 * i})
		var ranks []job.RankStatus
		for r := range 2 {
			ranks = append(ranks, job.RankStatus{Progress: &job.RankProgress{FirstStep: new(int64), Reading: job.Reading{Loss: new(job.Loss(2*i + r))}}})
		}
		members[slot] = &job.Member{State: job.MemberRunning, Generation: 3, Memory: job.Bytes(100 * (i + 1)), Ranks: ranks}
		accelerators[slot] = []job.AcceleratorFigures{{Device: 0, Utilization: new(use)}, {Device: 1, Power: new(300.0)}}
	}
	stale := job.Address{Job: "j", Role: "worker", Index: 2}
	members[stale].Generation = 2 // has not joined this world yet

	for _, c := range []struct {
		metric string
		ranks  job.RankAggregate
		rank   *int
		want   float64
		err    string
	}{
		{metric: job.LossMetric, want: 1.5},
		{metric: job.LossMetric, ranks: job.MaxOfRanks, want: 3},
		{metric: job.LossMetric, rank: new(2), want: 2},
		{metric: job.LossMetric, rank: new(4), err: "rank 4 shows no loss"},
		{metric: job.MemoryMetric, want: 150},
		{metric: job.MemoryMetric, rank: new(3), want: 200},
		{metric: job.AcceleratorUtilizationMetric, want: 0.4},
		{metric: job.AcceleratorUtilizationMetric, ranks: job.MinOfRanks, want: 0.2},
		{metric: job.AcceleratorUtilizationMetric, rank: new(3), want: 0.6},
		{metric: job.AcceleratorPowerMetric, ranks: job.SumOfRanks, want: 600},
		{metric: job.AcceleratorTemperatureMetric, err: "no accelerator shows accelerator_temperature"},
	} {
		got, err := Training(world, func(m job.WorldMember) (*job.Member, []job.AcceleratorFigures) {
			return members[m.Slot], accelerators[m.Slot]
		},
			&job.MetricSource{Kind: job.TrainingSource, Metric: c.metric, Ranks: c.ranks, Rank: c.rank})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s of %v: %v, want %q", c.metric, c.rank, err, c.err)
		case c.err == "" && (err != nil || math.Abs(got-c.want) > 1e-9):
			t.Errorf("%s %s of %v: %v, %v, want %v", c.ranks, c.metric, c.rank, got, err, c.want)
		}
	}
}
