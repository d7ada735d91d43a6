package importer

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/lang/importer/importertest"
)

// The tests below hold that whatever is written of what importertest draws is valid and in canonical format. Each is a
// fuzz target, too.

// importsWell is the property: what comes of a job of the kind is valid, in canonical format, and told with its place.
func importsWell(kind string, imported *int) func(*rapid.T) {
	return func(t *rapid.T) {
		src := importertest.Jobs[kind](t)
		t.Logf("%s", src)
		r := Manifests("in.yaml", bytes.NewReader(src), Checks{})
		checkResult(t, r)
		*imported += r.Jobs
	}
}

func launchesWell(imported *int) func(*rapid.T) {
	return func(t *rapid.T) {
		line := importertest.LauncherLine(t)
		t.Logf("%q", line)
		r := CommandLine(line)
		checkResult(t, r)
		*imported += r.Jobs
	}
}

func TestWhatIsImportedIsValid(t *testing.T) {
	check := func(t *testing.T, property func(*int) func(*rapid.T)) {
		t.Parallel()
		imported := 0
		rapid.Check(t, property(&imported))
		if imported < 30 { // of some 100
			t.Errorf("only %d were imported at all: the others show little", imported)
		}
	}
	for kind := range importertest.Jobs {
		t.Run(kind, func(t *testing.T) {
			check(t, func(imported *int) func(*rapid.T) { return importsWell(kind, imported) })
		})
	}
	t.Run("command line", func(t *testing.T) { check(t, launchesWell) })
}

func FuzzElasticJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("ElasticJob", new(int)))) }
func FuzzPyTorchJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("PyTorchJob", new(int)))) }
func FuzzTrainJob(f *testing.F)     { f.Fuzz(rapid.MakeFuzz(importsWell("TrainJob", new(int)))) }
func FuzzVolcanoJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("Volcano Job", new(int)))) }
func FuzzIndexedJob(f *testing.F)   { f.Fuzz(rapid.MakeFuzz(importsWell("Indexed Job", new(int)))) }
func FuzzLauncherLine(f *testing.F) { f.Fuzz(rapid.MakeFuzz(launchesWell(new(int)))) }
