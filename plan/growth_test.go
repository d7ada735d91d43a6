package plan

import (
	"testing"

	"github.com/eltrain/eltrain/job"
)

// The batch grows with the replicas of the role's slots, unless they share one.
func TestNoiseIsThatOfTheBatchAtASize(t *testing.T) {
	g := &growth{size: 4, replicas: 10, processes: 2, samples: 32, noise: 1000} // two replicas are another role's
	for size, want := range map[int]float64{4: 320, 6: 448, 2: 192} {
		if scale, batch := g.Noise(size); scale != 1000 || batch != want {
			t.Errorf("at %d slots: scale %v, batch %v, want 1000, %v", size, scale, batch, want)
		}
	}
	g.batch = job.BatchGlobal
	if scale, batch := g.Noise(6); scale != 0 || batch != 0 {
		t.Errorf("of a shared batch: scale %v, batch %v, want none", scale, batch)
	}
}
