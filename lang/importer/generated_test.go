package importer

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/lang/importer/importertest"
)

// The tests below check that whatever importertest draws is imported as valid HCL in canonical format. Each is also a fuzz
// target.

// tried counts the inputs drawn, and how many of them were imported at all.
type tried struct{ drawn, imported int }

func (n *tried) check(t *rapid.T, r Result) {
	checkResult(t, r)
	n.drawn++
	n.imported += min(r.Jobs, 1)
}

// importsWell is the property: a job of the kind gives valid HCL in canonical format, and diagnostics have positions.
func importsWell(kind string, n *tried) func(*rapid.T) {
	return func(t *rapid.T) {
		src := importertest.Jobs[kind](t)
		t.Logf("%s", src)
		r := Manifests("in.yaml", bytes.NewReader(src), Checks{})
		n.check(t, r)
	}
}

func launchesWell(n *tried) func(*rapid.T) {
	return func(t *rapid.T) {
		line := importertest.LauncherLine(t)
		t.Logf("%q", line)
		r := CommandLine(line)
		n.check(t, r)
	}
}

func TestWhatIsImportedIsValid(t *testing.T) {
	check := func(t *testing.T, property func(*tried) func(*rapid.T)) {
		t.Parallel()
		var n tried
		rapid.Check(t, property(&n))
		if 10*n.imported < 3*n.drawn {
			t.Errorf("only %d of %d were imported at all: too few to be meaningful", n.imported, n.drawn)
		}
	}
	for kind := range importertest.Jobs {
		t.Run(kind, func(t *testing.T) {
			check(t, func(n *tried) func(*rapid.T) { return importsWell(kind, n) })
		})
	}
	t.Run("command line", func(t *testing.T) { check(t, launchesWell) })
}

func FuzzElasticJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("ElasticJob", new(tried)))) }
func FuzzPyTorchJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("PyTorchJob", new(tried)))) }
func FuzzTrainJob(f *testing.F)     { f.Fuzz(rapid.MakeFuzz(importsWell("TrainJob", new(tried)))) }
func FuzzVolcanoJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("Volcano Job", new(tried)))) }
func FuzzIndexedJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("Indexed Job", new(tried)))) }
func FuzzLauncherLine(f *testing.F) { f.Fuzz(rapid.MakeFuzz(launchesWell(new(tried)))) }
