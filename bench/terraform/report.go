//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/bench/internal/report"
)

// key identifies the samples of one measurement.
type key struct {
	tool string
	what figure
	n    int
}

type result struct {
	began   string // load before
	tools   []string
	sizes   []int
	samples map[key][]sample
	floor   []int64 // bytes, for each of parts
}

func (r *result) add(tool string, what figure, n int, s sample) {
	k := key{tool, what, n}
	r.samples[k] = append(r.samples[k], s)
}

// wanted has the targets: by which factor a figure must at least be faster than terraform, by size.
var wanted = map[figure]map[int]float64{noop: {1000: 10, 10_000: 100}}

const (
	// showVersion and validateOne are the figures of startup.
	showVersion figure = "version"
	validateOne figure = "validate one file"
	// wantedMemory is the target for eltrain's memory, as a part of terraform's.
	wantedMemory = 1.0 / 5
	// wantedStart is the target for version and validate of one file.
	wantedStart = 30 * time.Millisecond
)

// write renders the report.
func (r *result) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# The command line beside terraform's\n\n%s. Load %s before, %s after.\n\n", report.Machine(), r.began, report.Load())
	b.WriteString("Whole processes, median [min..max] of n. Memory is the peak of resident memory.\n\n")
	fmt.Fprintf(&b, "## Starting\n\nWanted: eltrain under %v.\n\n", wantedStart)
	r.table(&b, []figure{showVersion, validateOne}, []int{1})
	r.floorTable(&b)
	for _, n := range r.sizes {
		fmt.Fprintf(&b, "\n## %d slots, %d objects\n\n", n, n)
		fmt.Fprintf(&b, "Wanted: memory under %.0f%%", 100*wantedMemory)
		if times := wanted[noop][n]; times > 0 {
			fmt.Fprintf(&b, "; a no-op plan at least %.0f times faster", times)
		}
		b.WriteString(".\n\n")
		r.table(&b, figures, []int{n})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a row for each figure and size: both tools' times and memory, and their ratios.
func (r *result) table(b *strings.Builder, what []figure, sizes []int) {
	ours, other := r.tools[0], r.tools[1]
	fmt.Fprintf(b, "| | %s, s | %s, s | times faster | %s, MiB | %s, MiB | memory | wanted |\n|---|---|---|---|---|---|---|---|\n", ours, other, ours, other)
	for _, f := range what {
		for _, n := range sizes {
			a, z := r.samples[key{ours, f, n}], r.samples[key{other, f, n}]
			if len(a) == 0 || len(z) == 0 {
				continue
			}
			fmt.Fprintf(b, "| %s | %s | %s | %.1f | %s | %s | %.0f%% | %s |\n", f,
				spread(a, seconds, "%.3f"), spread(z, seconds, "%.3f"), median(z, seconds)/median(a, seconds),
				spread(a, mebibytes, "%.0f"), spread(z, mebibytes, "%.0f"), 100*median(a, mebibytes)/median(z, mebibytes), verdict(f, n, a, z))
		}
	}
}

// floorTable writes the memory of programs that only link parts of eltrain.
func (r *result) floorTable(b *strings.Builder) {
	whole := median(r.samples[key{r.tools[1], showVersion, 1}], mebibytes)
	fmt.Fprintf(b, "\nA Go program that does nothing, by what of eltrain is linked into it:\n\n| linked | MiB | of %s's version |\n|---|---|---|\n", r.tools[1])
	for i, peak := range r.floor {
		here := mebibytes(sample{peak: peak})
		fmt.Fprintf(b, "| %s | %.1f | %.0f%% |\n", parts[i].name, here, 100*here/whole)
	}
}

func seconds(s sample) float64   { return s.took.Seconds() }
func mebibytes(s sample) float64 { return float64(s.peak) / (1 << 20) }

// verdict says which targets of a figure its median meets.
func verdict(f figure, n int, ours, other []sample) string {
	say := func(what string, met bool) string {
		if met {
			return what + " met"
		}
		return "**" + what + " missed**"
	}
	if f == showVersion || f == validateOne {
		return say("time", median(ours, seconds) < wantedStart.Seconds())
	}
	memory := say("memory", median(ours, mebibytes) < wantedMemory*median(other, mebibytes))
	if times := wanted[f][n]; times > 0 {
		return say("time", median(other, seconds) >= times*median(ours, seconds)) + ", " + memory
	}
	return memory
}

func values(all []sample, of func(sample) float64) []float64 {
	values := make([]float64, len(all))
	for i, s := range all {
		values[i] = of(s)
	}
	return values
}

func median(all []sample, of func(sample) float64) float64 { return report.Median(values(all, of)) }

// spread formats "median [min..max] n", or just a single sample.
func spread(all []sample, of func(sample) float64, format string) string {
	v := values(all, of)
	text := fmt.Sprintf(format, report.Median(v))
	if len(v) > 1 {
		text += fmt.Sprintf(" ["+format+".."+format+"] %d", slices.Min(v), slices.Max(v), len(v))
	}
	return text
}
