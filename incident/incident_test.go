package incident_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func worker(index int) job.Address { return job.Address{Job: "a", Role: "worker", Index: index} }

func context(at time.Time) incident.Context {
	return incident.Context{Now: at, Heal: &job.Heal{ExitCodes: map[string]string{"75": job.ExitRetries}}, Timeout: time.Minute,
		CannotStart: func(job.Address) bool { return false }}
}

// fault draws a fault of one world: any slot, cause and exit.
func fault(t *rapid.T) incident.Fault {
	row := rapid.SampledFrom(incident.Causes).Draw(t, "cause")
	f := incident.Fault{Generation: 7, SlotFault: job.SlotFault{Slot: worker(rapid.IntRange(0, 5).Draw(t, "slot")), Cause: row.Code}}
	f.Evidence = []job.Reason{job.Because(job.Code(row.Code), "slot", f.Slot.Short())}
	switch row.Code {
	case job.ProcessKilled:
		f.Signal = rapid.SampledFrom([]string{"aborted", "killed", "segmentation fault"}).Draw(t, "signal")
		f.Code = 137
	case job.ProcessFailed:
		f.Code = rapid.SampledFrom([]int{1, 75}).Draw(t, "code")
	}
	if rapid.Bool().Draw(t, "timed") {
		f.At = start.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "at")) * time.Second)
	}
	f.Evidence = append(f.Evidence, job.Because("exit", "signal", f.Signal, "at", f.At.String()))
	return f
}

// told folds faults in the given order, several in each pass.
func told(t *rapid.T, faults []incident.Fault, label string) incident.Log {
	var log incident.Log
	for at := start; len(faults) > 0; at = at.Add(time.Second) {
		n := rapid.IntRange(1, len(faults)).Draw(t, label)
		log.Step(context(at), faults[:n])
		for i := range log.Incidents { // as if it was told
			log.Incidents[i].Told = true
		}
		faults = faults[n:]
	}
	return log
}

// The same faults of a world are the same incident, in whatever order they are reported, in one pass or in several.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		faults := rapid.SliceOfN(rapid.Custom(fault), 1, 12).Draw(t, "faults")
		one := told(t, faults, "split")
		other := told(t, rapid.Permutation(faults).Draw(t, "order"), "split differently")
		if len(one.Incidents) != 1 || len(other.Incidents) != 1 || len(one.Charges) != len(other.Charges) {
			t.Fatalf("%d and %d incidents, %d and %d charges", len(one.Incidents), len(other.Incidents), len(one.Charges), len(other.Charges))
		}
		a, b := one.Incidents[0], other.Incidents[0]
		for _, i := range []*job.Incident{&a, &b} {
			i.Time, i.Added = time.Time{}, time.Time{}
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("one order gives\n%+v\nanother\n%+v", a, b)
		}
		slots := map[job.Address]bool{}
		for _, f := range faults {
			slots[f.Slot] = true
		}
		for _, culprit := range a.Culprits {
			if !slots[culprit] {
				t.Fatalf("%s is named twice, or has no fault", culprit)
			}
			delete(slots, culprit)
		}
		var rest []int
		for slot := range slots {
			rest = append(rest, slot.Index)
		}
		if want := job.Fold("worker", rest); len(rest) > 0 && !slices.Equal(a.Cascade, []string{want}) || len(rest) == 0 && a.Cascade != nil {
			t.Fatalf("the cascade is %v, the slots besides the culprits are %v", a.Cascade, rest)
		}
	})
}

// Which fault initiated the end of a world, and which are explained by it.
func TestRoles(t *testing.T) {
	exit := func(index int, cause job.Cause, signal string, second int) incident.Fault {
		return incident.Fault{Generation: 1, SlotFault: job.SlotFault{Slot: worker(index), Cause: cause, Signal: signal, At: start.Add(time.Duration(second) * time.Second)}}
	}
	for _, test := range []struct {
		what     string
		faults   []incident.Fault
		cause    job.Cause
		culprits string
		cascade  string
	}{
		{"the first of several exits", []incident.Fault{exit(0, job.ProcessFailed, "", 2), exit(1, job.ProcessFailed, "", 1), exit(2, job.ProcessFailed, "", 3)}, job.ProcessFailed, "worker[1]", "worker[0,2]"},
		{"at the same time the lowest slot", []incident.Fault{exit(2, job.ProcessFailed, "", 1), exit(1, job.ProcessFailed, "", 1)}, job.ProcessFailed, "worker[1]", "worker[2]"},
		{"an unknown time is after any other", []incident.Fault{{Generation: 1, SlotFault: job.SlotFault{Slot: worker(0), Cause: job.ProcessFailed}}, exit(1, job.ProcessFailed, "", 1)}, job.ProcessFailed, "worker[1]", "worker[0]"},
		{"an abort explains exits before it", []incident.Fault{exit(0, job.ProcessFailed, "", 1), exit(1, job.ProcessKilled, "aborted", 2)}, job.ProcessKilled, "worker[1]", "worker[0]"},
		{"of aborts the first", []incident.Fault{exit(0, job.ProcessKilled, "aborted", 2), exit(1, job.ProcessKilled, "aborted", 1)}, job.ProcessKilled, "worker[1]", "worker[0]"},
		{"a kill explains an abort", []incident.Fault{exit(0, job.ProcessKilled, "aborted", 1), exit(1, job.ProcessKilled, "killed", 2)}, job.ProcessKilled, "worker[1]", "worker[0]"},
		{"two kills are two faults", []incident.Fault{exit(1, job.ProcessKilled, "killed", 1), exit(0, job.ProcessKilled, "killed", 2)}, job.ProcessKilled, "worker[0] worker[1]", ""},
		{"a lost agent does not explain a kill", []incident.Fault{exit(0, job.ProcessKilled, "killed", 1), exit(1, job.AgentGone, "", 2)}, job.AgentGone, "worker[1] worker[0]", ""},
		{"a lost agent explains exits", []incident.Fault{exit(0, job.ProcessFailed, "", 1), exit(1, job.LeaseLost, "", 9)}, job.LeaseLost, "worker[1]", "worker[0]"},
		{"a slot counts once", []incident.Fault{exit(0, job.ProcessFailed, "", 1), exit(0, job.AgentGone, "", 2), exit(0, job.NodeGone, "", 3)}, job.NodeGone, "worker[0]", ""},
	} {
		var log incident.Log
		log.Step(context(start), test.faults)
		i := log.Incidents[0]
		var culprits []string
		for _, a := range i.Culprits {
			culprits = append(culprits, a.Short())
		}
		if got := strings.Join(culprits, " "); len(log.Incidents) != 1 || i.Cause != test.cause || got != test.culprits || strings.Join(i.Cascade, " ") != test.cascade {
			t.Errorf("%s: %d incidents, %s of %s, cascade %v", test.what, len(log.Incidents), i.Cause, got, i.Cascade)
		}
	}
}

// A fault of a world whose successors had faults of their own is part of that world's incident.
func TestALateFaultBelongsToItsWorld(t *testing.T) {
	var log incident.Log
	first := incident.Fault{Generation: 1, SlotFault: job.SlotFault{Slot: worker(0), Cause: job.ProcessFailed, Code: 1, At: start}}
	second := incident.Fault{Generation: 2, SlotFault: job.SlotFault{Slot: worker(0), Cause: job.ProcessKilled, Signal: "killed", At: start.Add(time.Minute)}}
	late := incident.Fault{Generation: 1, SlotFault: job.SlotFault{Slot: worker(1), Cause: job.AgentGone}}
	log.Step(context(start), []incident.Fault{first})
	log.Step(context(start.Add(time.Minute)), []incident.Fault{second})
	log.Incidents[0].Told = true
	cascade := log.Step(context(start.Add(2*time.Minute)), []incident.Fault{late})
	if i := log.Incidents[0]; len(log.Incidents) != 2 || i.Cause != job.AgentGone || i.Told || len(i.Culprits) != 1 || i.Culprits[0] != worker(1) {
		t.Errorf("%d incidents, the first is %+v", len(log.Incidents), i)
	}
	if len(cascade) != 0 {
		t.Errorf("the fault that %v has now is another", cascade)
	}
	if len(log.Charges) != 1 {
		t.Errorf("charged %d, but only the second is a fault of the program", len(log.Charges))
	}
}

// An incident that was stored without faults is added to like any other.
func TestStoredIncidentsHaveFaults(t *testing.T) {
	log := incident.Log{Incidents: []job.Incident{{Generation: 1, Cause: job.ProcessKilled, Culprits: []job.Address{worker(0)}, Evidence: []job.Reason{job.Because("old")}}}}
	log.Step(context(start), []incident.Fault{{Generation: 1, Evidence: []job.Reason{job.Because("new")}, SlotFault: job.SlotFault{Slot: worker(1), Cause: job.AgentGone}}})
	i := log.Incidents[0]
	if len(log.Incidents) != 1 || i.Cause != job.AgentGone || !slices.Equal(i.Culprits, []job.Address{worker(1), worker(0)}) || len(i.Evidence) != 2 || i.Evidence[1].Code != "old" {
		t.Errorf("%+v", log.Incidents)
	}
}
