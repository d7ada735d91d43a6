//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/bench/internal/report"
)

// table is a Markdown table.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	fmt.Fprintf(w, "%s|\n", strings.Repeat("|---", len(t.head)))
	for _, row := range t.rows {
		line(row)
	}
}

// values returns one value of each measurement.
func values[T any](all []T, of func(T) float64) []float64 {
	v := make([]float64, len(all))
	for i, one := range all {
		v[i] = of(one)
	}
	return v
}

// spreadText formats "median [min..max] n"; format is for one number.
func spreadText(format string, v []float64) string {
	if len(v) == 0 {
		return ""
	}
	number := func(x float64) string { return fmt.Sprintf(format, x) }
	if len(v) == 1 {
		return number(v[0]) + " n=1"
	}
	return fmt.Sprintf("%s [%s..%s] n=%d", number(report.Median(v)), number(slices.Min(v)), number(slices.Max(v)), len(v))
}

// ratioText formats the ratio of two medians.
func ratioText(a, b []float64) string {
	if len(a) == 0 || len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", report.Median(a)/report.Median(b))
}

// percentile returns the smallest value that at least p percent of the values do not exceed.
func percentile(v []float64, p float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[max(int(math.Ceil(p/100*float64(len(v))))-1, 0)]
}
