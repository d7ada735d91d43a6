package job

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var anyName = rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9_-]{0,20}`)

func anyAddress(t *rapid.T) Address {
	return Address{anyName.Draw(t, "job"), anyName.Draw(t, "role"), rapid.IntRange(0, maxIndex).Draw(t, "index")}
}

func TestAddressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAddress(t)
		if got, err := ParseAddress(a.String()); err != nil || got != a {
			t.Fatalf("%s is read as %s, %v", a, got, err)
		}
		if got, err := ParseShort(a.Job, a.Short()); err != nil || got != a {
			t.Fatalf("%s is read as %s, %v", a.Short(), got, err)
		}
		b, err := json.Marshal(map[Address]Address{a: a})
		if err != nil {
			t.Fatal(err)
		}
		var back map[Address]Address
		if err := json.Unmarshal(b, &back); err != nil || back[a] != a {
			t.Fatalf("%s is read as %v, %v", b, back, err)
		}
		sel, err := ParseSelector(a.String())
		if err != nil || !sel.Matches(a) || sel.Matches(Address{a.Job, a.Role, a.Index + 1}) || sel.Matches(Address{a.Job + "x", a.Role, a.Index}) {
			t.Fatalf("%s selects wrongly: %+v, %v", a, sel, err)
		}
	})
}

func TestSelectors(t *testing.T) {
	worker := func(i int) Address { return Address{"gpt", "worker", i} }
	tests := []struct {
		text    string
		matches []Address
		misses  []Address
	}{
		{"job.gpt", []Address{worker(0), {"gpt", "ps", 7}}, []Address{{"gpt2", "worker", 0}}},
		{"job.gpt.worker", []Address{worker(0), worker(99)}, []Address{{"gpt", "ps", 0}}},
		{"job.gpt.worker[*]", []Address{worker(5)}, []Address{{"gpt", "ps", 0}}},
		{`job.gpt["a"]`, []Address{{"gpt-a", "worker", 0}}, []Address{worker(0)}},
		{`job.gpt["a"].worker[1]`, []Address{{"gpt-a", "worker", 1}}, []Address{{"gpt-a", "worker", 0}}},
		{`module.team.job.gpt`, []Address{{"team-gpt", "worker", 0}}, []Address{worker(0)}},
		{`module.team["eu"].module.base.job.gpt["7b"].ps[*]`, []Address{{"team-eu-base-gpt-7b", "ps", 3}}, []Address{{"team-eu-base-gpt-7b", "worker", 3}}},
		{"job.gpt.worker[0-2,7]", []Address{worker(0), worker(2), worker(7)}, []Address{worker(3), worker(6), worker(8)}},
	}
	for _, test := range tests {
		sel, err := ParseSelector(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		for _, a := range test.matches {
			if !sel.Matches(a) {
				t.Errorf("%s does not match %s", test.text, a)
			}
		}
		for _, a := range test.misses {
			if sel.Matches(a) {
				t.Errorf("%s matches %s", test.text, a)
			}
		}
	}
	for _, text := range []string{"", "gpt", "job.", "job.gpt.", "job.gpt.worker[", "job.gpt.worker[]", "job.gpt.worker[1", "job.gpt.worker[a]",
		"job.gpt.worker[-1]", "job.gpt.worker[3-1]", "job.gpt.worker[1,]", "job.gpt.worker[+1]", "job.gpt.worker[00]", "job.gpt.worker[01-2]", "job.gpt.worker[-0]", "job.gpt.worker[]", "job.gpt.worker[0-9999999999]",
		`job.gpt[a]`, `job.gpt["a]`, `job.gpt["a"`, `job.gpt[""]`, `job.gpt["a"]worker`, `job.gpt["a.b"]`, `job.gpt["a"]["b"]`, "job.gpt[0]", `job.["a"]`,
		"module.a", "module.a.", "module.a.b", "module.job.gpt", "module.a.job", `module.a["b".job.c`, "module.a.worker[0]",
		"module." + strings.Repeat("a", 40) + ".job." + strings.Repeat("b", 40),
		"job.gpt.worker[0].x", "job.-x", "job.gpt.wörker", "job.gpt.worker[99999999999999999999]"} {
		if sel, err := ParseSelector(text); err == nil {
			t.Errorf("%q was taken for %+v", text, sel)
		}
	}
	for _, text := range []string{"job.gpt", "job.gpt.worker", "job.gpt.worker[0-1]", "job.gpt.worker[*]"} {
		if a, err := ParseAddress(text); err == nil {
			t.Errorf("%q was taken for one slot, %s", text, a)
		}
	}
}

// Splitting an address into steps and joining them gives the same address.
func TestStepsOfAddresses(t *testing.T) {
	for _, address := range []string{"job.a", `job.a["k"]`, "module.x.job.a", `module.x["de"].module.y.job.a["k-1"]`, `module.x["de"]`} {
		if got := Declared(Steps(address)); got != address {
			t.Errorf("%s became %s", address, got)
		}
	}
	if got := Steps(`module.x["de"].job.a`); len(got) != 2 || got[0] != (Step{"module", "x", "de"}) || got[1] != (Step{"job", "a", ""}) {
		t.Errorf("the steps are %q", got)
	}
}

// A module covers everything in it, and an omitted key matches any key.
func TestTargetsCover(t *testing.T) {
	for text, jobs := range map[string]struct{ covered, others []string }{
		"module.x": {[]string{"module.x.job.a", `module.x["de"].job.a["k"]`, `module.x["de"].module.y.job.a`},
			[]string{"job.x", "module.xx.job.a", "module.y.module.x.job.a", ""}},
		`module.x["de"]`:              {[]string{`module.x["de"].job.a`}, []string{`module.x["fr"].job.a`, "module.x.job.a"}},
		"module.x.module.y":           {[]string{`module.x["de"].module.y["k"].job.a`}, []string{"module.x.job.y"}},
		"job.a":                       {[]string{"job.a", `job.a["k"]`}, []string{"job.b", "module.x.job.a"}},
		`job.a["k"].worker[3]`:        {[]string{`job.a["k"]`}, []string{`job.a["l"]`, "job.a"}},
		"module.x.job.a.worker":       {[]string{`module.x["de"].job.a["k"]`}, []string{"module.x.job.b", "module.x.module.a.job.a"}},
		`module.x["de"].job.a["k"].w`: {[]string{`module.x["de"].job.a["k"]`}, []string{`module.x["fr"].job.a["k"]`}},
	} {
		sel, err := ParseTarget(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, address := range jobs.covered {
			if !sel.Covers(address) {
				t.Errorf("%s does not cover %s", text, address)
			}
		}
		for _, address := range jobs.others {
			if sel.Covers(address) {
				t.Errorf("%s covers %s", text, address)
			}
		}
	}
	if sel, err := ParseTarget(`module.x["de"]`); err != nil || sel.String() != `module.x["de"]` {
		t.Errorf("a module is written %s, %v", sel, err)
	}
	for text, want := range map[string]string{
		"module.x":        "is not the address of a job: write module.NAME.job.NAME",
		`module.x["a"]`:   "is not the address of a job",
		"module.x.a":      `it does not begin with "job."`,
		"module..job.a":   "the module's name or key is missing or malformed",
		`module.x["a"]jo`: `expected "." after the module`,
		"job.a[*]":        `a for_each key must be quoted: job.a["KEY"]; without a key, job.a selects all of them`,
		"job.a[0].b":      `job.a["KEY"]`,
		"module.x[*]":     `module.x["KEY"]; without a key, module.x selects all`,
		`job.a["k"][0]`:   `expected "." after the job's name`,
	} {
		if _, err := ParseSelector(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOverlappingSelectors(t *testing.T) {
	for _, c := range []struct {
		a, b     string
		overlaps bool
	}{
		{"job.a", "job.a", true},
		{"job.a", "job.b", false},
		{"job.a", "job.a.worker[3]", true},
		{"job.a.worker", "job.a.ps", false},
		{"job.a.worker", "job.a.worker[0-1]", true},
		{"job.a.worker[0-3]", "job.a.worker[3-4]", true},
		{"job.a.worker[0-3]", "job.a.worker[4,6]", false},
		{"job.a.worker[5]", "job.a.worker[4,6]", false},
		{"job.a.worker[0,5]", "job.a.worker[4-6]", true},
		{`job.a["x"].worker`, "job.a-x", true},
	} {
		a, err := ParseSelector(c.a)
		b, err2 := ParseSelector(c.b)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if a.Overlaps(b) != c.overlaps || b.Overlaps(a) != c.overlaps {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.overlaps)
		}
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"job.gpt", "job.gpt.worker", "job.gpt.worker[3]", "job.a.b[0-3,7]", "job.a.b[*]", "job.a.b[-]", "job.a.b[,]",
		`job.a["k"]`, `job.a["k"].b[3]`, `module.m["k"].job.a["k"].b[*]`, `module.m.module.n.job.a`, `job.a["`, "module."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelector(s)
		if err != nil {
			return
		}
		again, err := ParseSelector(sel.String())
		if err != nil || again.String() != sel.String() || !slices.Equal(again.Ranges, sel.Ranges) {
			t.Fatalf("%q is written %q, and that read as %+v, %v", s, sel, again, err)
		}
	})
}

func TestFold(t *testing.T) {
	indices := []int{7, 0, 1, 3, 2, 12, 11}
	if got := Fold("worker", indices); got != "worker[0-3,7,11-12]" {
		t.Error(got)
	}
	if !slices.Equal(indices, []int{7, 0, 1, 3, 2, 12, 11}) {
		t.Error("Fold sorts its argument in place")
	}
}

func TestCompareIndicesAsNumbers(t *testing.T) {
	sorted := []Address{{"a", "w", 2}, {"a", "w", 10}, {"a", "x", 0}, {"b", "a", 0}}
	if !slices.IsSortedFunc(sorted, Address.Compare) {
		t.Error("order is not job, role, index as a number")
	}
}
