package outcome_test

import (
	"math"
	"testing"

	"github.com/eltrain/eltrain/outcome"
)

func goodputs(all ...float64) (runs []outcome.Run) {
	for _, g := range all {
		runs = append(runs, outcome.Run{Total: outcome.Total{Goodput: g}})
	}
	return runs
}

// The interval is that of Student's t of the paired differences, computed by hand: 0.1, 0.2 and 0.3 have the mean 0.2 and the deviation 0.1.
func TestCompareIsPaired(t *testing.T) {
	for _, d := range outcome.Compare(goodputs(0.5, 0.1, 0.3), goodputs(0.6, 0.3, 0.6)) {
		if d.Figure != "goodput" {
			continue
		}
		half := 4.303 * 0.1 / math.Sqrt(3)
		if math.Abs(d.Mean-0.2) > 1e-9 || math.Abs(d.Low-(0.2-half)) > 1e-9 || math.Abs(d.High-(0.2+half)) > 1e-9 {
			t.Errorf("%+v", d)
		}
		return
	}
	t.Error("goodput is not compared")
}

func TestQuantile(t *testing.T) {
	for share, want := range map[float64]float64{0: 1, 0.5: 2, 0.75: 3, 0.99: 4, 1: 4} {
		if got := outcome.Quantile([]float64{1, 2, 3, 4}, share); got != want {
			t.Errorf("%v: %v, not %v", share, got, want)
		}
	}
}
