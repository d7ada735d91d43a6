// Package report has the common parts of all benchmark reports: the machine, medians, and writing the report. It must not
// know what is measured.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine returns the date and the machine: cores, memory, kernel and Go version, without a full stop.
func Machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	meminfo, _ := os.ReadFile("/proc/meminfo")
	var kib int
	_, _ = fmt.Sscanf(string(meminfo), "MemTotal: %d kB", &kib)
	return fmt.Sprintf("%s: %d cores, %d GiB, Linux %s, %s", time.Now().Format(time.DateOnly),
		runtime.NumCPU(), kib>>20, strings.TrimSpace(string(kernel)), runtime.Version())
}

// Load returns the machine's load average over the last minute.
func Load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// Median returns the median of at least one figure.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Write writes a report to the file at path, or to the standard output if path is "".
func Write(path string, write func(io.Writer) error) error {
	if path == "" {
		return write(os.Stdout)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// Samples is the path of a file to which figures are appended in the format of Go's benchmarks, for benchstat; "" discards
// them.
type Samples string

// Add appends one figure. name is a path without spaces, such as Recovery/node-lost; unit is benchstat's, such as sec/op.
func (s Samples) Add(name string, value float64, unit string) error {
	if s == "" {
		return nil
	}
	f, err := os.OpenFile(string(s), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "Benchmark%s 1 %g %s\n", name, value, unit)
	return errors.Join(err, f.Close())
}
