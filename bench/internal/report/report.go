// Package report has what all benchmarks here say in the same way: what they were measured on, the middle of some figures,
// and where the text goes. It must not know what is measured.
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

// Machine is the day, and what figures were measured on: cores, memory, kernel and Go, without a full stop.
func Machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	meminfo, _ := os.ReadFile("/proc/meminfo")
	var kib int
	_, _ = fmt.Sscanf(string(meminfo), "MemTotal: %d kB", &kib)
	return fmt.Sprintf("%s: %d cores, %d GiB, Linux %s, %s", time.Now().Format(time.DateOnly),
		runtime.NumCPU(), kib>>20, strings.TrimSpace(string(kernel)), runtime.Version())
}

// Load is the machine's load average over the last minute.
func Load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// Median is the middle of some figures, of which there is one at least.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Write writes a report to the file of that path, or to the standard output if it is "".
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

// Samples is the path of a file to which single figures are added as lines in the format of Go's benchmarks, which benchstat
// compares; "" is nowhere.
type Samples string

// Add adds one figure. A name is a path without blanks, such as Recovery/node-lost; a unit is benchstat's, such as sec/op.
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
