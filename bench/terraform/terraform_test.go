//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

func TestMultiplyObjects(t *testing.T) {
	const one = `{"version": 4, "serial": 1, "resources": [{"type": "terraform_data", "instances": [{
		"index_key": 0, "schema_version": 0, "attributes": {"id": "x", "input": {"value": {"index": 0, "cpu": 1}, "type": ["object", {}]},
		"output": {"value": {"index": 0, "cpu": 1}, "type": ["object", {}]}, "triggers_replace": null}}]}]}`
	text, err := multiplyObjects([]byte(one), 3)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version   int
		Resources []struct {
			Instances []struct {
				Key        int `json:"index_key"`
				Attributes struct {
					ID            string
					Input, Output struct{ Value map[string]int }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for i, o := range got.Resources[0].Instances {
		if o.Key != i || o.Attributes.Input.Value["index"] != i || o.Attributes.Output.Value["index"] != i || o.Attributes.Input.Value["cpu"] != 1 {
			t.Errorf("object %d is %+v", i, o)
		}
		ids[o.Attributes.ID] = true
	}
	if len(ids) != 3 || got.Version != 4 {
		t.Errorf("%d objects with their own id, version %d", len(ids), got.Version)
	}
	for _, bad := range []string{"", "{}", `{"resources": [{"instances": []}]}`} {
		if _, err := multiplyObjects([]byte(bad), 2); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestMultiplyRecord(t *testing.T) {
	rec := &job.Record{
		Spec: job.Job{Roles: []job.Role{{Name: roleName, Replicas: 1}}}, Counts: map[string]int{roleName: 1},
		Slots: []job.Slot{{Address: job.Address{Job: jobName, Role: roleName}, Incarnation: 1, Node: "n"}},
	}
	multiply(rec, 4)
	if len(rec.Slots) != 4 || rec.Slots[3].Address.Index != 3 || rec.Slots[3].Rank != 3 || rec.Slots[3].Node != "n" || rec.Spec.Roles[0].Replicas != 4 || rec.Counts[roleName] != 4 {
		t.Errorf("the record is %+v", rec)
	}
}

func TestDeclarationIsCanonical(t *testing.T) {
	text := declaration(7)
	clean, diags := lang.Format([]byte(text), "job.hcl")
	if diags.HasErrors() || string(clean) != text {
		t.Errorf("%v\n%s", diags, clean)
	}
}

// A process with another exit code than expected gives no sample.
func TestMeasure(t *testing.T) {
	const size = 150_000_000 // more than this test uses under the race detector
	script := fmt.Sprintf(`sleep 0.05; x=$(head -c %d /dev/zero | tr '\0' a); exit 3`, size)
	s, err := command{program: "/bin/sh", args: []string{"-c", script}, want: 3}.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.took < 50*time.Millisecond || s.peak < size || s.peak > 5*size {
		t.Errorf("it took %v and %d MiB", s.took, s.peak>>20)
	}
	if _, err := (command{program: "/bin/sh", args: []string{"-c", "echo why >&2; exit 1"}}).measure(t.Context()); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a failure gives %v", err)
	}
}

// This program's earlier peak does not count as the next process's.
func TestForget(t *testing.T) {
	const size = 128 << 20
	func() {
		ballast := make([]byte, size)
		for i := 0; i < len(ballast); i += os.Getpagesize() {
			ballast[i] = 1
		}
	}()
	before, err := ownPeak()
	if err != nil {
		t.Fatal(err)
	}
	if err := resetPeak(); err != nil {
		t.Fatal(err)
	}
	after, err := ownPeak()
	if err != nil || before < size || before-after < size*3/4 {
		t.Errorf("the peak is %d MiB, and then %d MiB, %v", before>>20, after>>20, err)
	}
}

func TestReport(t *testing.T) {
	r := &result{tools: []string{"eltrain", "terraform"}, sizes: []int{1000}, samples: map[key][]sample{}}
	for i, took := range []time.Duration{30, 10, 20} {
		r.add("eltrain", noop, 1000, sample{took * time.Millisecond, int64(i+1) << 20})
		r.add("terraform", noop, 1000, sample{took * 10 * time.Millisecond, 20 << 20})
		r.add("eltrain", full, 1000, sample{took, 4 << 20})
		r.add("terraform", full, 1000, sample{took, 20 << 20})
	}
	for tool, took := range map[string]time.Duration{"eltrain": wantedStart, "terraform": time.Hour} {
		r.add(tool, showVersion, 1, sample{took, 1 << 20})
		r.add(tool, validateOne, 1, sample{took - 1, 1 << 20})
	}
	for range parts {
		r.floor = append(r.floor, 3<<19)
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	const row = "| no-op plan | 0.020 [0.010..0.030] 3 | 0.200 [0.100..0.300] 3 | 10.0 | 2 [1..3] 3 | 20 [20..20] 3 | 10% | time met, memory met |"
	if !strings.Contains(b.String(), row) || !strings.Contains(b.String(), "a no-op plan at least 10 times faster") {
		t.Errorf("the report is\n%s", b.String())
	}
	// A value equal to the target is not under it.
	for name, end := range map[figure]string{"all": "1.5 | 150% |", full: "**memory missed** |", showVersion: "**time missed** |", validateOne: "100% | time met |"} {
		if !regexp.MustCompile(`(?m)^\| ` + string(name) + ` .*` + regexp.QuoteMeta(end) + `$`).MatchString(b.String()) {
			t.Errorf("of %q the report does not say %q:\n%s", name, end, b.String())
		}
	}
}

// The measured minimum memory is lower with fewer packages linked.
func TestFloor(t *testing.T) {
	nothing, err := parts[0].measure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	language, err := parts[1].measure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if nothing < 1<<20 || language < nothing+1<<20 || language > 64<<20 {
		t.Errorf("a program with %s takes %d bytes, with %s %d", parts[0].name, nothing, parts[1].name, language)
	}
}
