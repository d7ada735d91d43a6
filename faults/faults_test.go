package faults_test

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/faults"
	"github.com/eltrain/eltrain/job"
)

func places(nodes int) (all []faults.Place) {
	for range nodes {
		all = append(all, faults.Place{Devices: 8, Rack: string(rune('a' + len(all)/16))})
	}
	return all
}

// The example has as many faults as were published, on as many GPUs in as many days, and the same again for the same seed.
func TestTheRatesAreThoseOfLlama3(t *testing.T) {
	f, err := os.Open("../examples/simulate/llama3-faults.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	models, err := faults.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	const seeds, published = 20, 419
	const length = 54 * 24 * time.Hour
	nodes := places(16384 / 8)
	all := 0
	for seed := range uint64(seeds) {
		all += len(models.Draw(nodes, seed, length))
	}
	if mean, sd := float64(all)/seeds, math.Sqrt(published/float64(seeds)); math.Abs(mean-published) > 4*sd {
		t.Errorf("%.1f faults, not %d", mean, published)
	}
	if once := models.Draw(nodes, 3, length); !reflect.DeepEqual(once, models.Draw(nodes, 3, length)) {
		t.Error("the same seed draws others")
	}
}

// Laws keep their mean, whatever their shape, and lemons fail as much more often as they say.
func TestLawsKeepTheirMean(t *testing.T) {
	mean := job.Duration(10 * time.Hour)
	for name, c := range map[string]struct {
		model faults.Model
		times float64
	}{
		"exponential": {faults.Model{Law: faults.Exponential, Mean: mean}, 1},
		"weibull":     {faults.Model{Law: faults.Weibull, Mean: mean, Shape: 2}, 1},
		"lemons":      {faults.Model{Law: faults.Exponential, Mean: mean, Lemons: &faults.Lemons{Share: 0.5, Factor: 9}}, 5},
	} {
		c.model.Kind, c.model.Of = faults.Process, faults.EachNode
		n := len(faults.Models{c.model}.Draw(places(500), 1, 1000*time.Hour))
		if want := 500 * 100 * c.times; math.Abs(float64(n)-want) > 0.1*want {
			t.Errorf("%s: %d faults, not %.0f", name, n, want)
		}
	}
}

// A fault of a rack is one of all its nodes, and a storm hits its share of them once.
func TestRacksAndStorms(t *testing.T) {
	rack := faults.Models{{Kind: faults.Node, Law: faults.Exponential, Of: faults.EachRack, Mean: job.Duration(time.Hour)}}.Draw(places(32), 1, 10*time.Hour)
	if len(rack) == 0 || len(rack)%16 != 0 {
		t.Errorf("%d faults of nodes", len(rack))
	}
	storm := faults.Models{{Kind: faults.Node, Law: faults.Storm, Of: faults.EachNode, At: job.Duration(time.Hour), Lasts: job.Duration(time.Minute), Share: 0.3}}.Draw(places(1000), 1, 10*time.Hour)
	for _, e := range storm {
		if e.At < time.Hour || e.At > time.Hour+time.Minute {
			t.Fatalf("a fault at %s", e.At)
		}
	}
	if len(storm) < 240 || len(storm) > 360 {
		t.Errorf("%d of 1000 nodes", len(storm))
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"models\": [}": "line 2",
		`{"models": []}`:    "no models",
		`{"modles": []}`:    "modles",
		`{"models": [{"name": "x", "kind": "flood", "law": "exponential", "of": "node", "mean": "1h"}]}`:                          `model 1 "x": kind is "flood"`,
		`{"models": [{"name": "x", "kind": "node", "law": "gauss", "of": "node", "mean": "1h"}]}`:                                 "law is",
		`{"models": [{"name": "x", "kind": "node", "law": "weibull", "of": "node", "mean": "1h"}]}`:                               "shape",
		`{"models": [{"name": "x", "kind": "node", "law": "exponential", "of": "node"}]}`:                                         "count",
		`{"models": [{"name": "x", "kind": "node", "law": "exponential", "of": "node", "mean": "1h", "count": 3}]}`:               "together",
		`{"models": [{"name": "x", "kind": "node", "law": "storm", "of": "node", "share": 2}]}`:                                   "share",
		`{"models": [{"name": "x", "kind": "node", "law": "exponential", "of": "node", "mean": "1h", "lemons": {"share": 0.1}}]}`: "lemons",
	} {
		if _, err := faults.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
}
