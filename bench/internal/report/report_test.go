package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{
		{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := fmt.Sprint(c.of)
		if got := Median(c.of); got != c.want || fmt.Sprint(c.of) != before {
			t.Errorf("of %s: %v, want %v; left are %v", before, got, c.want, c.of)
		}
	}
}

func TestMachine(t *testing.T) {
	if got := Machine(); !regexp.MustCompile(`^\d{4}-\d\d-\d\d: [1-9]\d* cores, \d+ GiB, Linux .*, go[^,.]*\.[^ ]*[^.]$`).MatchString(got) {
		t.Errorf("%q", got)
	}
	if got := Load(); !regexp.MustCompile(`^(\d+\.\d\d)?$`).MatchString(got) { // "" where there is no /proc
		t.Errorf("%q", got)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.md")
	wrong := errors.New("wrong")
	if err := Write(path, func(w io.Writer) error { io.WriteString(w, "text"); return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.txt")
	for _, s := range []Samples{"", Samples(path), Samples(path)} {
		if err := s.Add("Recovery/node-lost", 0.25, "sec/op"); err != nil {
			t.Fatal(err)
		}
	}
	const want = "BenchmarkRecovery/node-lost 1 0.25 sec/op\n"
	if text, err := os.ReadFile(path); err != nil || string(text) != want+want {
		t.Errorf("%q, %v", text, err)
	}
}
