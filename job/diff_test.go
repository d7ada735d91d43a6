package job

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

func sample() Job {
	cpu, mem := CPU(16000), Bytes(64<<30)
	return Job{
		Name: "gpt", Provider: "local", Priority: 1,
		Limits: &Limits{CPU: &cpu, Memory: &mem, Devices: map[string]int{"gpu": 8}},
		Roles: []Role{{
			Name: "worker", Replicas: 2, Processes: 1, Ranked: true,
			Scaling: &Scaling{Min: 1, Max: 4, Step: 1, Sizes: []int{1, 4}, Enabled: new(true), Tolerance: new(0.1), Explore: new(3),
				Cooldown: &Cooldown{}, Stabilization: &Stabilization{}, Fallback: &Fallback{},
				Policies: []Policy{{
					Name: "p", Schedule: &Schedule{}, Source: &MetricSource{Kind: PrometheusSource, Rank: new(1), Headers: map[string]string{"A": "b"}, Command: []string{"x"}},
					Strategy: &Strategy{Kind: Threshold, Target: new(1.0), Rising: new(true), Above: new(1.0), Below: new(2.0)},
				}}},
			Program:   Program{Image: "train:1", Command: []string{"train", "--fast"}, WorkingDir: ".", Env: map[string]string{"A": "1"}},
			Source:    Files{"train.py": "d1"},
			DependsOn: []string{"ps"}, Update: &Updating{MaxUnavailable: 2}, StopGrace: Duration(30e9),
			Resources: Resources{CPU: 1000, Memory: 1 << 30, Devices: map[string]int{"gpu": 1}, Shm: 1 << 20},
			Pod:       map[string]any{"a": "b"},

			Accelerators: &Accelerators{Command: []string{"gpus"}, DCGM: "http://localhost:9400/metrics"},
		}},
		Progress:   &Progress{Pattern: "step (?P<step>\\d+)"},
		Checkpoint: &Checkpoint{Dir: "ckpt", Signal: "SIGUSR1", Pattern: "saved (?P<step>\\d+)"},
		Rendezvous: Rendezvous{Settle: Duration(5e9), Timeout: Duration(600e9)},
		Topology:   Topology{RankBy: []string{"node.labels.rack"}},
		Detect:     Detect{Lease: Duration(15e9), Hang: &HangLimits{Floor: Duration(30e9), Ceiling: Duration(1800e9)}, Check: &NodeCheck{When: CheckAlways, Timeout: Duration(60e9), Command: []string{"check"}}},
		Heal:       Heal{Budget: Budget{Restarts: 10, Window: Duration(86400e9)}, On: []On{{Cause: "oom", Memory: 1.5, Limit: 3}}, ExitCodes: map[string]string{"3": ExitFails}},
		StopWhen:   &StopWhen{Above: new(1.0), Below: new(2.0)},
		Lifecycle:  Lifecycle{PreventDestroy: true, IgnoreChanges: []string{"role.worker.replicas"}},
	}
}

// leaf is one argument in a job, and the declared effect of its edit.
type leaf struct {
	path   string
	change Change
	value  reflect.Value
}

// leaves returns all arguments of a declared value by the schema. In a block whose edit replaces slots, every edit does.
func leaves(path string, v reflect.Value) []leaf {
	var all []leaf
	for _, f := range Fields(v.Type()) {
		at := v.FieldByIndex(f.Index)
		name := join(path, f.Name)
		switch {
		case f.Kind == Label:
		case f.Repeated():
			for i := range at.Len() {
				label := at.Index(i).FieldByIndex(labelOf(f.ElemType())).String()
				all = append(all, leaves(join(name, label), at.Index(i))...)
			}
		case f.Kind == Block:
			if at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
			all = append(all, leaves(name, at)...)
		default:
			all = append(all, leaf{name, f.Change, at})
		}
	}
	return all
}

// spoil changes a value to another one of its type.
func spoil(t *testing.T, l leaf) {
	v := l.value
	if v.Kind() == reflect.Pointer {
		other := reflect.New(v.Type().Elem())
		other.Elem().Set(v.Elem())
		v.Set(other)
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(v.Slice(0, 0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	default:
		t.Fatalf("%s: this test does not support %s", l.path, v.Kind())
	}
}

// TestEveryFieldCounts edits each argument of the language, one at a time: the diff must have it with its effect, and the
// fingerprint must change if and only if the edit replaces slots.
func TestEveryFieldCounts(t *testing.T) {
	original := sample()
	print := Fingerprints(&original, &original.Roles[0])(0)
	count := len(leaves("", reflect.ValueOf(original)))
	if count < 30 {
		t.Fatalf("only %d arguments found: the sample does not set every block", count)
	}
	for i := range count {
		edited := sample()
		l := leaves("", reflect.ValueOf(&edited).Elem())[i]
		if l.change != Update && l.change != Replaces {
			t.Errorf("%s has no change tag", l.path)
		}
		spoil(t, l)
		diff := Diff(original, edited)
		if len(diff) == 0 {
			t.Errorf("%s: an edit is not in the diff", l.path)
		}
		for _, c := range diff {
			if c.Path != l.path && c.Path != l.path+fmt.Sprintf("[%q]", mapKey(c.Path)) || c.Change != l.change || c.Before == c.After {
				t.Errorf("%s: the diff says %+v", l.path, c)
			}
		}
		changed := Fingerprints(&edited, &edited.Roles[0])(0) != print
		if want := l.change == Replaces; changed != want {
			t.Errorf("%s: fingerprint changed is %v, want %v", l.path, changed, want)
		}
	}
}

// mapKey returns the key in `env["A"]`.
func mapKey(path string) string {
	var name, key string
	for i, r := range path {
		if r == '[' {
			name = path[:i]
			fmt.Sscanf(path[len(name):], "[%q]", &key)
			break
		}
	}
	return key
}

// Jobs started before checkpoint patterns existed must not be replaced because they have none.
func TestTheFingerprintOfACheckpointWithoutAPatternIsAsEver(t *testing.T) {
	text, err := json.Marshal(Checkpoint{Dir: "ckpt", Signal: "SIGUSR1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Dir":"ckpt","Signal":"SIGUSR1"}`; string(text) != want {
		t.Errorf("what is hashed of a checkpoint block is %s, and was %s", text, want)
	}
}

func TestNewestCheckpoint(t *testing.T) {
	none, early, late, anew := Saved{}, Saved{5, 1}, Saved{10, 1}, Saved{7, 2}
	order := []Saved{none, early, late, anew} // anew is of a later world, which resumed from an older checkpoint
	for i, a := range order {
		for k, b := range order {
			if got := a.Newest(b); got != order[max(i, k)] {
				t.Errorf("of %+v and %+v the newest is %+v", a, b, got)
			}
		}
	}
}

func TestFingerprintsPerSlot(t *testing.T) {
	j := sample()
	r := &j.Roles[0]
	r.PerSlot = []Program{{Command: []string{"train", "0"}}, {Command: []string{"train", "1"}}}
	before := Fingerprints(&j, r)
	if before(0) == before(1) {
		t.Error("programs of their own have the same fingerprint")
	}
	was := [2]string{before(0), before(1)}
	r.PerSlot = slices.Clone(r.PerSlot)
	r.PerSlot[1].Command = []string{"train", "one"}
	after := Fingerprints(&j, r)
	if after(0) != was[0] || after(1) == was[1] {
		t.Error("an edit of one slot's program does not change just that slot's fingerprint")
	}
}

func TestFingerprintOfAnotherRole(t *testing.T) {
	j := sample()
	j.Roles = append(j.Roles, Role{Name: "ps", Program: Program{Command: []string{"ps"}}})
	before := Fingerprints(&j, &j.Roles[0])(0)
	j.Roles[1].Command = []string{"ps", "-v"}
	if Fingerprints(&j, &j.Roles[0])(0) != before {
		t.Error("a change in one role replaces another's slots")
	}
}

func TestDiffOfBlocks(t *testing.T) {
	a, b := sample(), sample()
	b.Roles = append([]Role{{Name: "ps"}}, b.Roles...) // order does not matter: blocks are matched by label
	b.Roles[1].Env = map[string]string{"A": "2", "B": "3"}
	b.Limits = nil
	b.Heal.On = nil
	var got []string
	for _, c := range Diff(a, b) {
		got = append(got, fmt.Sprintf("%s: %s -> %s", c.Path, c.Before, c.After))
	}
	want := []string{
		"limits.cpu: 16 -> ", "limits.memory: \"64GiB\" -> ", `limits.devices["gpu"]: 8 -> `,
		"role.ps:  -> {…}", `role.worker.env["A"]: "1" -> "2"`, `role.worker.env["B"]:  -> "3"`, "heal.on.oom: {…} -> ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if d := Diff(a, sample()); len(d) > 0 {
		t.Errorf("equal jobs differ: %v", d)
	}
}
