//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPercentile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 25: 1, 50: 2, 75: 3, 99: 4, 100: 4} {
		if got := percentile(v, p); got != want {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
	if !slices.Equal(v, []float64{4, 1, 3, 2}) {
		t.Errorf("the argument was sorted: %v", v)
	}
}

func TestSpread(t *testing.T) {
	if got := spreadText("%.1f", []float64{3, 1, 2, 8}); got != "2.5 [1.0..8.0] n=4" {
		t.Errorf("spread is %q", got)
	}
	if got := spreadText("%.0f", []float64{7}); got != "7 n=1" {
		t.Errorf("spread of one is %q", got)
	}
	if got := ratioText([]float64{2, 4}, []float64{6}); got != "0.50" {
		t.Errorf("ratio is %q", got)
	}
}

func TestTable(t *testing.T) {
	table := table{head: []string{"a", "b"}}
	table.add("1", "2")
	var out bytes.Buffer
	table.write(&out)
	if want := "| a | b |\n|---|---|\n| 1 | 2 |\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// The compared clients start from the same pod, without the fields that the cluster added.
func TestTemplateIsNotBound(t *testing.T) {
	made := &corev1.Pod{}
	made.Name, made.UID, made.Spec.NodeName, made.Spec.SchedulingGates = "gpt-0", "u", "kwok-1", gang
	made.Labels = map[string]string{labelUID: "j", labelIndex: "0"}
	c := &bareClient{namespace: "ns", template: newTemplate(made)}
	p := c.pod(7)
	if p.UID != "" || p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || p.Name != "bare-7" || p.Labels[labelIndex] != "7" {
		t.Errorf("the copy is %+v", p)
	}
	if made.Labels[labelIndex] != "0" {
		t.Error("the original was changed")
	}
}

// The job files are valid and in canonical format.
func TestJobFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("builds eltrain")
	}
	eltrain := filepath.Join(t.TempDir(), "eltrain")
	if out, err := exec.Command("go", "build", "-o", eltrain, "../../cmd/eltrain").CombinedOutput(); err != nil {
		t.Fatalf("build eltrain: %v\n%s", err, out)
	}
	const kubeconfig = "/etc/kubeconfig"
	for _, text := range []string{
		workload{jobs: 2, pods: 3}.hcl("kubernetes", kubeconfig),
		workload{jobs: 2, pods: 3}.hcl(withVolcano, kubeconfig),
		workload{jobs: 1, pods: 3, min: 1, state: clusterState(kubeconfig)}.hcl("kubernetes", kubeconfig),
		silentHCL(kubeconfig, "pool"),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "job.hcl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"validate"}, {"fmt", "-check"}} {
			cmd := exec.Command(eltrain, args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("eltrain %s: %v\n%s%s", strings.Join(args, " "), err, out, text)
			}
		}
	}
}

func TestPatternsThatMatchNothingAreRefused(t *testing.T) {
	for variants, want := range map[string]string{
		"*": "", "bare,gang*": "", "one gang": `no variant matches "one gang"`, "bare,": `no variant matches ""`,
	} {
		c := config{provider: "kubernetes", variants: variants}
		if err := c.read("", "1000"); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("-variants=%q: %v, want %q", variants, err, want)
		}
	}
}
