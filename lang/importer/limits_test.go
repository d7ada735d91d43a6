package importer

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

const least = `apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  completionMode: Indexed
  template: {spec: {containers: [{name: c, image: i, command: [x]}]}}
`

// endless returns the same bytes forever.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = "- a\n"[(e.read+i)%4]
	}
	e.read += len(b)
	return len(b), nil
}

// mostAllocated limits the total allocation in bytes, an upper bound of the memory in use. It is far above what any input
// here needs.
const mostAllocated = 2 << 30

// bounded imports, and checks that this does not allocate much memory. The package's test timeout bounds the time.
func bounded(t *testing.T, r io.Reader) Result {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result := Manifests("in.yaml", r, Checks{})
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > mostAllocated {
		t.Errorf("it took %d MiB", allocated>>20)
	}
	return result
}

// As many documents as fit into a file are read, and anchors in common uses; aliases are expanded.
func TestManyDocumentsAndAnchors(t *testing.T) {
	const other = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n"
	const services = maxValues / 10 // each has 9 values
	for name, c := range map[string]struct {
		src            string
		jobs, reported int // reported is a minimum
	}{
		"other kinds around a job": {strings.Repeat(other, services/2) + "---\n" + least + strings.Repeat(other, services/2), 1, services},
		"jobs":                     {strings.Repeat("---\n"+least, 500), 500, 500 - 1}, // all but the first are renamed
		"empty documents":          {strings.Repeat("---\n", 100_000) + least, 1, 0},
		"anchors": {strings.Replace(least, "{spec: {containers: [{name: c, image: i, command: [x]}]}}",
			"\n    spec:\n      nodeSelector: &same {a: b}\n      containers: [{name: c, image: &i i, command: [x, *i]}]\n    metadata: {labels: {<<: *same, c: *i}}", 1), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := bounded(t, strings.NewReader(c.src))
			if r.Jobs != c.jobs || r.Diagnostics.HasErrors() || len(r.Diagnostics) < c.reported {
				t.Errorf("%d jobs, %d diagnostics:\n%.2000s", r.Jobs, len(r.Diagnostics), reported(r.Diagnostics))
			}
			if len(mustBeValid(t, r.HCL)) != c.jobs {
				t.Errorf("the jobs are\n%.2000s", r.HCL)
			}
		})
	}
}

func TestBadInputIsAnErrorWithItsLine(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	cases := []struct {
		name, src string
		line      int
		reported  string
	}{
		{"indentation", "a: 1\n b: 2\n", 2, "Invalid YAML"},
		{"tab", "a:\n\tb: 1\n", 2, "Invalid YAML"},
		{"open quote", least + "x: \"a\n", 7, "Invalid YAML"},
		{"unknown anchor", least + "x: *nobody\n", 7, "no anchor &nobody"},
		{"alias bomb", bomb, 1, "more than the limit of 200000 values"},
		{"alias of itself", "a: &a [1, *a, *a]\n", 1, "more than 100 deep"},
		{"merge of itself", "a: &a {b: 1, <<: *a}\n", 1, "more than 100 deep"},
		{"deep", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), 1, "more than 100 deep"},
		{"very deep", strings.Repeat("[", 200000), 1, "Invalid YAML"},
		{"wide", "[" + strings.Repeat("a,", 300_000) + "]", 1, "more than the limit of 200000 values"},
		{"binary", "\xff\xfe\xfd\x00\x01", 1, ""},
		{"not UTF-8", "a: \xff\n", 1, "Not text"},
		{"nothing", "", 1, "No job to import"},
		{"only others", "apiVersion: v1\nkind: Service\n", 2, "No job to import"},
		{"no spec", "apiVersion: batch/v1\nkind: Job\n", 1, "has no spec"},
		{"a text", "torchrun train.py\n", 1, "No job to import"},
		{"too many slots", strings.ReplaceAll(least, "Indexed", "Indexed\n  completions: 100000") + "---\n" + least, 11, "Too many slots"},
	}
	for _, c := range cases {
		r := bounded(t, strings.NewReader(c.src))
		text := reported(r.Diagnostics)
		if !r.Diagnostics.HasErrors() || !strings.Contains(text, c.reported) {
			t.Errorf("%s: %d jobs; the diagnostics are\n%s", c.name, r.Jobs, text)
			continue
		}
		if c.name != "too many slots" && (r.Jobs != 0 || len(r.HCL) != 0) {
			t.Errorf("%s: half of the file is imported:\n%s", c.name, r.HCL)
		}
		found := false
		for _, d := range r.Diagnostics {
			found = found || d.Subject.Start.Line == c.line
		}
		if !found && c.reported != "more than the limit of 200000 values" && c.reported != "" {
			t.Errorf("%s: no diagnostic in line %d:\n%s", c.name, c.line, text)
		}
	}
}

func TestHugeInputIsRefusedUnread(t *testing.T) {
	e := &endless{}
	r := bounded(t, io.LimitReader(e, 100<<20))
	if text := reported(r.Diagnostics); !strings.Contains(text, "larger than 4MiB") || r.Jobs != 0 {
		t.Errorf("the diagnostics are %s", text)
	}
	if e.read > 3*maxBytes {
		t.Errorf("%d bytes were read", e.read)
	}
	words := []string{"torchrun", strings.Repeat("a", maxBytes)}
	if r := CommandLine(words); r.Jobs != 0 || !r.Diagnostics.HasErrors() {
		t.Errorf("a command line of %d bytes is taken", maxBytes)
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]string{
		"4": "4 cpu", "500m": "0.5 cpu", "1.5": "1.5 cpu", "1e3": "1000 cpu", "2k": "2000 cpu",
	} {
		n, err := parseCPU(text)
		if err != nil || n.String()+" cpu" != want {
			t.Errorf("%s cpu is %s, %v", text, n, err)
		}
	}
	for text, want := range map[string]int64{
		"128974848": 128974848, "129e6": 129e6, "129M": 129e6, "123Mi": 123 << 20, "1Gi": 1 << 30, "1.5Gi": 3 << 29, "2Ti": 2 << 40, "1000m": 1, "4G": 4e9, "1E": 1e18, "0": 0,
	} {
		n, err := parseMemory(text)
		if err != nil || int64(n) != want {
			t.Errorf("%s of memory is %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "1GB", "Gi", "0x10", "Inf", "NaN", "1 Gi", "1e400", "16E"} {
		if n, err := parseMemory(text); err == nil {
			t.Errorf("%q of memory is %d", text, n)
		}
	}
	if n, err := parseDevices("1500m"); err == nil {
		t.Errorf("there are %d devices", n)
	}
}
