package simulate_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/eltrain/eltrain/faults"
	"github.com/eltrain/eltrain/simulate"
)

// llama3 are the fault rates of the example.
func llama3(t testing.TB) faults.Models {
	f, err := os.Open("../examples/simulate/llama3-faults.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	models, err := faults.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// month is a cluster that jobs fill, with the faults of Llama 3.
func month(t testing.TB, nodes, jobs, days int) simulate.Setup {
	s := cluster(nodes, time.Duration(days)*24*time.Hour)
	slots := nodes * 8 / jobs
	for i := range jobs {
		s.Arrivals = append(s.Arrivals, arrival(fmt.Sprintf("job%03d", i), 0, slots*98/100, simulate.Training{Step: 20 * time.Second, Start: 2 * time.Minute, Every: 30 * time.Minute, Save: 30 * time.Second}))
	}
	s.Models = llama3(t)
	s.Faults = s.Models.Draw(s.Places, 1, s.For)
	return s
}

// BenchmarkRun simulates clusters with the faults of Llama 3. Target: 100,000 slots for 30 days in 10 minutes on 2 cores, within 8 GB.
func BenchmarkRun(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for _, c := range []struct{ nodes, jobs, days int }{{125, 20, 30}, {1250, 100, 30}, {12500, 200, 3}, {12500, 200, 30}} {
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d/days=%d", c.nodes, c.jobs, c.days), func(b *testing.B) {
			s := month(b, c.nodes, c.jobs, c.days)
			for b.Loop() {
				out := run(b, s)
				b.ReportMetric(float64(out.Total.Restarts), "restarts")
				b.ReportMetric(out.Total.Goodput, "goodput")
			}
		})
	}
}
