package job

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "0s": 0, "1.5s": 1500 * time.Millisecond} {
		if d, err := ParseDuration(text); err != nil || d.Std() != want {
			t.Errorf("%q: %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "30", "s", "-1s", "5 minutes", "1d", "99999999999h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q was taken for %v", text, d)
		}
	}
	for d, want := range map[time.Duration]string{24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 30 * time.Second: "30s", 0: "0s", time.Hour + 5*time.Second: "1h0m5s"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"1KiB": 1 << 10, "512MiB": 512 << 20, "1.5GiB": 3 << 29, "2GB": 2e9, "7B": 7, "1 TiB": 1 << 40, "0B": 0, "1PiB": 1 << 50} {
		if b, err := ParseBytes(text); err != nil || b != want {
			t.Errorf("%q: %d, %v; want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "1", "GiB", "-1GiB", "1gib", "1e99GiB", "NaNGiB", "InfB", "8EiB", "9000PiB"} {
		if b, err := ParseBytes(text); err == nil {
			t.Errorf("%q was taken for %d bytes", text, b)
		}
	}
}

func TestUnitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Range(0, math.MaxInt64/4).Draw(t, "bytes"))
		if b > 1<<53 {
			b &^= 1<<20 - 1 // large ones are multiples of 1 MiB, which a float64 represents exactly
		}
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Fatalf("%d is written %s and read as %d, %v", b, b, got, err)
		}
		d := Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "nanoseconds"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d is written %s and read as %d, %v", d, d, got, err)
		}
		c := CPU(rapid.Int64Range(0, 1e9).Draw(t, "thousandths"))
		if got, err := Cores(c.Cores()); err != nil || got != c {
			t.Fatalf("%s cores are read as %s, %v", c, got, err)
		}
	})
}

func TestCores(t *testing.T) {
	for _, n := range []float64{-1, math.NaN(), math.Inf(1), 1e12} {
		if c, err := Cores(n); err == nil {
			t.Errorf("%v was taken for %s cores", n, c)
		}
	}
}

// The error about a value that is too large says so and names the maximum.
func TestTooLargeIsNotMalformed(t *testing.T) {
	for want, parse := range map[string]func() error{
		`"999999999h" is too long: the limit is 2562047h (292 years)`: func() error { _, err := ParseDuration("999999999h"); return err },
		`"-999999999h" is negative: durations must be 0 or more`:      func() error { _, err := ParseDuration("-999999999h"); return err },
		`"99999999999PiB" is too large: the limit is 4096PiB`:         func() error { _, err := ParseBytes("99999999999PiB"); return err },
		`"1e999GiB" is too large: the limit is 4096PiB`:               func() error { _, err := ParseBytes("1e999GiB"); return err },
		`1e+20 is too large: the limit is 1000000000 cores`:           func() error { _, err := Cores(1e20); return err },
	} {
		if err := parse(); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	longest := "2562047h47m16.854775807s"
	if d, err := ParseDuration(longest); err != nil || d.String() != longest {
		t.Errorf("%s is read as %s, %v", longest, d, err)
	}
}

func TestFactor(t *testing.T) {
	for _, text := range []string{"", "x", "1.5", "x1", "x0.5", "x11", "xNaN", "x-2"} {
		if f, err := ParseFactor(text); err == nil {
			t.Errorf("%q was taken for %s", text, f)
		}
	}
	for _, f := range []Factor{0, 1.5, 10} {
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back Factor
		if err := json.Unmarshal(b, &back); err != nil || back != f {
			t.Errorf("%s is stored as %s and read as %s, %v", f, b, back, err)
		}
	}
}

func TestResources(t *testing.T) {
	gpu := func(n int) Resources { return Resources{CPU: 1000, Memory: 1 << 30, Devices: map[string]int{"gpu": n}} }
	one, eight := gpu(1), gpu(8)
	if sum := one.Add(eight); sum.Devices["gpu"] != 9 || sum.CPU != 2000 || one.Devices["gpu"] != 1 {
		t.Errorf("sum is %s, and one is %s now", sum, one)
	}
	if !one.Fits(eight) || eight.Fits(one) || one.Fits(Resources{CPU: 1000, Memory: 1 << 30}) {
		t.Error("devices are not counted")
	}
	if !one.Equal(gpu(1)) || one.Equal(eight) {
		t.Error("Equal does not compare devices")
	}
	if more := eight.Beyond(one); !more.Equal(Resources{Devices: map[string]int{"gpu": 7}}) {
		t.Errorf("eight has %s more than one", more)
	}
	if more := one.Beyond(eight); !more.Equal(Resources{}) {
		t.Errorf("one has %s more than eight", more)
	}
	limit := CPU(1500)
	for _, l := range []*Limits{nil, {}, {CPU: &limit}, {Devices: map[string]int{"gpu": 1}}} {
		if !one.Within(l) {
			t.Errorf("%s is not within %+v", one, l)
		}
	}
	if one.Add(one).Within(&Limits{CPU: &limit}) || eight.Within(&Limits{Devices: map[string]int{"gpu": 1}}) {
		t.Error("limits do not limit")
	}
	if s := (Resources{CPU: 500, Memory: 4 << 30, Devices: map[string]int{"b": 1, "a": 2, "c": 0}}).String(); s != "0.5 cpu, 4GiB, 2 a, 1 b" {
		t.Error(s)
	}
}

func TestSizes(t *testing.T) {
	step := Role{Scaling: &Scaling{Min: 3, Max: 9, Step: 2}}
	list := Role{Scaling: &Scaling{Min: 2, Max: 8, Sizes: []int{8, 2, 4}}}
	fixed := Role{Replicas: 3}
	tests := []struct {
		role        *Role
		n           int
		floor, ceil int
	}{
		{&step, 3, 0, 4}, {&step, 4, 4, 4}, {&step, 5, 4, 6}, {&step, 9, 8, 0}, {&step, 100, 8, 0}, {&step, 0, 0, 4},
		{&list, 1, 0, 2}, {&list, 2, 2, 2}, {&list, 3, 2, 4}, {&list, 7, 4, 8}, {&list, 9, 8, 0},
		{&fixed, 2, 0, 3}, {&fixed, 3, 3, 3}, {&fixed, 4, 3, 0},
	}
	for _, test := range tests {
		if floor, ceil := test.role.Floor(test.n), test.role.Ceil(test.n); floor != test.floor || ceil != test.ceil {
			t.Errorf("%+v: %d between %d and %d, want %d and %d", test.role.Scaling, test.n, floor, ceil, test.floor, test.ceil)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 10).Draw(t, "min")
		r := Role{Scaling: &Scaling{Min: least, Max: least + rapid.IntRange(0, 20).Draw(t, "span"), Step: rapid.IntRange(1, 5).Draw(t, "step")}}
		n := rapid.IntRange(-3, 40).Draw(t, "n")
		for _, size := range []int{r.Floor(n), r.Ceil(n)} {
			if size != 0 && (size < r.Scaling.Min || size > r.Scaling.Max || size%r.Scaling.Step != 0 || !r.Legal(size)) {
				t.Fatalf("%d is no legal size of %+v", size, r.Scaling)
			}
		}
		if f := r.Floor(n); f > n && f != 0 || r.Floor(f) != f {
			t.Fatalf("floor of %d is %d", n, f)
		}
		if c := r.Ceil(n); c != 0 && c < n {
			t.Fatalf("ceiling of %d is %d", n, c)
		}
	})
}
