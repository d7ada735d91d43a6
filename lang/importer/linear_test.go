package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallJob = `{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "gpt"}, "spec": {"surplus": 1, "pytorchReplicaSpecs": ` +
	`{"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x", "command": ["python", "t.py"]}]}}}}}}`

// manifests are n jobs of one name, each with something to warn about, as documents and as a List of one line.
func manifests(n int) map[string]string {
	return map[string]string{
		"documents": strings.Repeat(smallJob+"\n---\n", n),
		"one line":  `{"apiVersion": "v1", "kind": "List", "items": [` + strings.TrimSuffix(strings.Repeat(smallJob+", ", n), ", ") + "]}",
	}
}

// The time for each job must not grow with the number of jobs.
func BenchmarkManifests(b *testing.B) {
	for _, n := range []int{500, 5000} {
		for name, text := range manifests(n) {
			b.Run(fmt.Sprintf("%d in %s", n, name), func(b *testing.B) {
				for b.Loop() {
					if r := Manifests("x.yaml", strings.NewReader(text), Checks{}); r.Jobs != n {
						b.Fatalf("%d jobs: %v", r.Jobs, r.Diagnostics[0])
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/job")
			})
		}
	}
}

// Each taken name is tried a constant number of times: each try allocates.
func TestTakingNamesIsLinear(t *testing.T) {
	tries := func(n int) float64 {
		return testing.AllocsPerRun(1, func() {
			var taken names
			for range n {
				taken.take("gpt")
			}
		})
	}
	if few, many := tries(500), tries(4000); many > 16*few {
		t.Errorf("500 names allocate %.0f times, 4000 %.0f times", few, many)
	}
}

// Positions in a long line are found from the marks, and are the same as without.
func TestMarksKeepPositions(t *testing.T) {
	long := strings.Repeat("é\xff😀a", markStep)
	im := newImporter("x", []byte("short\n"+long+"\n"+strings.Repeat("b", markStep)+"\n"))
	if len(im.marks[1]) != 0 || len(im.marks[2]) != 4 {
		t.Fatalf("the marks are %v", im.marks)
	}
	for column := 1; column < 5*markStep; column += 101 {
		for _, step := range []int{-1, 0, 1, 2} {
			at := place{line: 2, column: column/markStep*markStep + column%101 + step, length: 3}
			got := im.rangeOf(at)
			slow := *im
			slow.marks = nil
			if diff := cmp.Diff(slow.rangeOf(at), got); diff != "" {
				t.Fatalf("%+v: %s", at, diff)
			}
		}
	}
}
