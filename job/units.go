package job

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time, written "30s" or "1h30m" as in Go.
type Duration time.Duration

// wellFormed matches what time.ParseDuration accepts, unless it is out of range, which its error does not tell.
var wellFormed = regexp.MustCompile(`^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)

// ParseDuration parses a non-negative duration with its unit.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	formed, below := wellFormed.MatchString(s), strings.HasPrefix(s, "-")
	switch {
	case err == nil && d >= 0:
		return Duration(d), nil
	case err == nil, formed && below:
		return 0, fmt.Errorf("%q is negative: durations must be 0 or more", s)
	case formed:
		return 0, fmt.Errorf("%q is too long: the limit is %s (292 years)", s, Duration(time.Duration(math.MaxInt64).Truncate(time.Hour)))
	}
	return 0, fmt.Errorf(`%q is not a duration: write a number with a unit, like "30s", "10m" or "24h"`, s)
}

// Std converts d to the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String drops the zero units that time.Duration prints: "24h", not "24h0m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDuration(string(b))
	return err
}

// Bytes is an amount of memory in bytes, written "512MiB" (powers of two) or "1GB" (powers of ten).
type Bytes int64

var byteUnits = []struct {
	suffix string
	size   float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"B", 1},
}

// maxBytes is more than any cluster has, and half the range of the type.
const maxBytes Bytes = 1 << 62

// ParseBytes parses a non-negative size with its unit.
func ParseBytes(s string) (Bytes, error) {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err == nil && n*u.size > float64(maxBytes) && !math.IsInf(n, 0) || errors.Is(err, strconv.ErrRange) && n > 0 {
			return 0, fmt.Errorf("%q is too large: the limit is %s", s, maxBytes)
		}
		if err != nil || !(n >= 0) || math.IsInf(n, 0) { // !(n >= 0) includes NaN
			break
		}
		return Bytes(n * u.size), nil
	}
	return 0, fmt.Errorf(`%q is not a size: write a number with a unit, like "512MiB", "4GiB" or "2GB"`, s)
}

// String uses the largest binary unit that divides b evenly.
func (b Bytes) String() string {
	if b == 0 {
		return "0B"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for b%1024 == 0 && i < len(units)-1 {
		b, i = b/1024, i+1
	}
	return strconv.FormatInt(int64(b), 10) + units[i]
}

// Approx is for messages: it rounds to one decimal if String is longer than 7 characters.
func (b Bytes) Approx() string {
	if exact := b.String(); len(exact) <= 7 {
		return exact
	}
	n, unit := float64(b), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + units[unit]
}

func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b *Bytes) UnmarshalText(t []byte) (err error) {
	*b, err = ParseBytes(string(t))
	return err
}

// CPU is an amount of CPU in thousandths of a core; in HCL it is a number of cores: 0.5, 16.
type CPU int64

// maxCores is more than any cluster has, and leaves room for sums and products.
const maxCores = 1_000_000_000

// Cores converts a number of cores. It returns an error if n is negative, NaN, or too large.
func Cores(n float64) (CPU, error) {
	if n > maxCores {
		return 0, fmt.Errorf("%v is too large: the limit is %d cores", n, maxCores)
	}
	if !(n >= 0) {
		return 0, fmt.Errorf("%v is not a number of cores: write 0.5, 1, 16 …", n)
	}
	return CPU(math.Round(n * 1000)), nil
}

// Cores returns c in cores.
func (c CPU) Cores() float64 { return float64(c) / 1000 }

func (c CPU) String() string { return strconv.FormatFloat(c.Cores(), 'f', -1, 64) }
