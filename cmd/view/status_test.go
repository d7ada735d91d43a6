package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

type statusCase struct {
	Secrets []string
	Holder  *state.LockInfo
	Facts   Facts
}

func (c statusCase) model() StatusModel {
	c.Facts.Holder = c.Holder
	return Status(c.Facts, NewRedactor([]job.Job{{Secrets: c.Secrets}}))
}

func TestStatus(t *testing.T) {
	for _, name := range cases(t, "status") {
		t.Run(name, func(t *testing.T) {
			var in statusCase
			input(t, filepath.Join("status", name, "facts.json"), &in)
			m := in.model()
			var text, machine bytes.Buffer
			WriteStatus(Screen{Writer: &text}, m, false)
			if err := WriteJSON(&machine, m); err != nil {
				t.Fatal(err)
			}
			for _, secret := range in.Secrets {
				if strings.Contains(text.String()+machine.String(), secret) {
					t.Errorf("the status shows the secret %q", secret)
				}
			}
			golden(t, filepath.Join("status", name, "status.txt"), text.String())
			text.Reset()
			WriteStatus(Screen{Writer: &text}, m, true)
			if len(m.Jobs) > 1 {
				golden(t, filepath.Join("status", name, "list.txt"), text.String())
			} else {
				golden(t, filepath.Join("status", name, "status.txt"), text.String())
			}
			golden(t, filepath.Join("status", name, "status.json"), machine.String())
		})
	}
}

// The field names that the status contract promises.
func TestStatusJSONHasTheContractsFields(t *testing.T) {
	var in statusCase
	input(t, "status/running/facts.json", &in)
	out, err := json.Marshal(in.model())
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	if m["format_version"] != "1.10" {
		t.Errorf("format_version is %v", m["format_version"])
	}
	has := func(where string, v any, fields ...string) map[string]any {
		object := v.(map[string]any)
		for _, f := range fields {
			if _, ok := object[f]; !ok {
				t.Errorf("%s has no %q", where, f)
			}
		}
		return object
	}
	has("condition", m["conditions"].([]any)[0], "about", "code", "message", "reason_code", "since")
	j := has("job", m["jobs"].([]any)[0], "address", "uid", "provider", "phase", "healthy", "generation", "world_size",
		"step", "steps_per_second", "reasons", "roles", "slots", "incidents", "goodput")
	has("role", j["roles"].([]any)[0], "name", "desired", "running", "min", "max")
	has("slot", j["slots"].([]any)[1], "address", "incarnation", "phase", "rank", "node", "pid", "agent_pid", "step", "restarts")
	has("incident", j["incidents"].([]any)[0], "time", "cause", "culprits", "action", "evidence")
	goodput := has("goodput", j["goodput"], "wall_seconds", "productive_seconds", "lost")
	has("lost", goodput["lost"], "scheduling", "rendezvous", "restart", "redone_steps", "hang")
}

func TestStatusFailedDecidesTheExitCode(t *testing.T) {
	for name, want := range map[string]bool{"failed": true, "running": false, "unwatched": false} {
		var in statusCase
		input(t, filepath.Join("status", name, "facts.json"), &in)
		if got := in.model().Failed(); got != want {
			t.Errorf("%s: Failed is %t", name, got)
		}
	}
	for name, wait := range map[string]plan.Wait{"waits for room": {Job: "a"}, "can never run": {Job: "a", Never: true}, "another never": {Job: "b", Never: true}} {
		f := Facts{Records: job.Records{"a": {Phase: job.JobPending}}, Waits: []plan.Wait{wait}}
		if got, want := Status(f, NewRedactor(nil)).Failed(), name == "can never run"; got != want {
			t.Errorf("%s: Failed is %t", name, got)
		}
	}
}

func TestStatusSelect(t *testing.T) {
	var in statusCase
	input(t, "status/running/facts.json", &in)
	for selector, want := range map[string]string{
		"job.mnist":             "worker ps: ps[0] worker[0] worker[1] worker[2]",
		"job.mnist.worker":      "worker: worker[0] worker[1] worker[2]",
		"job.mnist.worker[1-2]": "worker: worker[1] worker[2]",
		"job.mnist.ps[*]":       "ps: ps[0]",
		"job.nobody":            "",
		"job.mnist.worker[2] job.mnist.ps job.mnist.worker[0]": "worker ps: ps[0] worker[0] worker[2]",
		"job.mnist.ps job.mnist":                               "worker ps: ps[0] worker[0] worker[1] worker[2]",
	} {
		var sels []job.Selector
		for _, one := range strings.Fields(selector) {
			sel, err := job.ParseSelector(one)
			if err != nil {
				t.Fatal(err)
			}
			sels = append(sels, sel)
		}
		var got []string
		for _, j := range in.model().Select(sels...).Jobs {
			for _, r := range j.Roles {
				got = append(got, r.Name)
			}
			got[len(got)-1] += ":"
			for _, s := range j.Slots {
				got = append(got, s.slot.Short())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s selects %q, want %q", selector, strings.Join(got, " "), want)
		}
	}
	if len(in.model().Jobs) != 2 {
		t.Error("Select changed the model it was asked of")
	}
}

// Without an observation the records stand: an unreachable provider must not make a job look dead.
func TestStatusWithoutObservationDoubtsNothing(t *testing.T) {
	var in statusCase
	input(t, "status/unwatched/facts.json", &in)
	in.Facts.Snapshot = job.Snapshot{}
	if j := in.model().Jobs[0]; j.Phase != job.JobRunning || len(j.Reasons) != 0 || j.Roles[0].Running != 2 {
		t.Errorf("with nothing observed the job is %s with %d running, because of %q", j.Phase, j.Roles[0].Running, j.Reasons)
	}
}

// An address also selects among jobs that run without a record.
func TestStatusSelectsOfWhatIsNotRecorded(t *testing.T) {
	var in statusCase
	input(t, "status/unrecorded/facts.json", &in)
	for selector, want := range map[string]string{
		"job.lost": "job.lost.worker[0] job.lost.worker[1]", "job.lost.worker[1]": "job.lost.worker[1]", "job.lost.worker[2]": "", "job.over": "", "job.theirs": "",
	} {
		sel, err := job.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range in.model().Select(sel).Unrecorded {
			for _, s := range u.Slots {
				got = append(got, s.Address)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
}

// During an apply the records are about to change: they are not doubted either.
func TestStatusDuringAnApplyDoubtsNothing(t *testing.T) {
	var in statusCase
	input(t, "status/unwatched/facts.json", &in)
	in.Holder = &state.LockInfo{Operation: "apply", Who: "ada@host", PID: 7}
	m := in.model()
	if j := m.Jobs[0]; j.Phase != job.JobRunning || j.Roles[0].Running != 2 || m.Master.Watching {
		t.Errorf("during an apply the job is %s with %d running, watched: %t", j.Phase, j.Roles[0].Running, m.Master.Watching)
	}
	var out bytes.Buffer
	WriteStatus(Screen{Writer: &out}, m, false)
	if !strings.Contains(out.String(), "ada@host (pid 7) has been running eltrain apply since ") {
		t.Errorf("it does not name the lock's holder:\n%s", out.String())
	}
}

// Often only rank 0 prints the loss; other ranks at the same step must not hide it.
func TestStatusTellsTheLossOfTheFurthest(t *testing.T) {
	none, much := new(job.Loss), job.Loss(9) // 0 is a valid loss
	for _, order := range [][]job.Member{
		{{Step: 7, Loss: none, StepRate: 1}, {Step: 7, StepRate: 2}, {Step: 6, Loss: &much}},
		{{Step: 6, Loss: &much}, {Step: 7, StepRate: 2}, {Step: 7, Loss: none, StepRate: 1}},
	} {
		var j JobStatus
		for i := range order {
			j.progress(&order[i])
		}
		if text := trainingText(&j); text != "step 7, loss 0, 2.0 steps/s" {
			t.Error(text)
		}
	}
}

// What ended its processes since was no fault of its own.
func TestTheLastFaultOfASlotThatEndedByAnothersSince(t *testing.T) {
	at := func(i int) job.Address { return job.Address{Job: "a", Role: "w", Index: i} }
	incident := func(slot job.Address, signal string) job.Incident {
		return job.Incident{Cause: job.ProcessKilled, Action: job.RestartInPlace, Culprits: []job.Address{slot},
			Faults: []job.SlotFault{{Slot: slot, Cause: job.ProcessKilled, Signal: signal}}}
	}
	record := &job.Record{UID: "u", Phase: job.JobRunning, Spec: job.Job{Name: "a"},
		Slots: []job.Slot{
			{Address: at(0), Phase: job.Running, Cause: job.ProcessKilled, Exit: &job.Exit{Signal: "terminated"}},
			{Address: at(1), Phase: job.Running, Exit: &job.Exit{Code: 1}}, // by the end of the other
			{Address: at(2), Phase: job.Running},
		},
		Incidents: []job.Incident{incident(at(1), "killed"), incident(at(0), "terminated")}}
	slots := Status(Facts{Records: job.Records{"a": record}}, new(Redactor)).Jobs[0].Slots
	for i, want := range []string{"process killed (signal: terminated)", "process killed (signal: killed)", ""} {
		if got := faultText(&slots[i]); got != want {
			t.Errorf("slot %d had %q, want %q", i, got, want)
		}
	}
}

// A destroy that was interrupted leaves a record of a job that runs, with slots that do not.
func TestAJobWhoseSlotsStopIsNotRunning(t *testing.T) {
	at := func(i int, p job.Phase) job.Slot {
		return job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Incarnation: 1, Phase: p}
	}
	for want, phases := range map[job.JobPhase][]job.Phase{
		job.JobDegraded: {job.Canceling, job.Canceled}, job.JobRunning: {job.Canceling, job.Running},
	} {
		rec := &job.Record{Phase: job.JobRunning, Slots: []job.Slot{at(0, phases[0]), at(1, phases[1])}}
		if got := Status(Facts{Records: job.Records{"a": rec}}, NewRedactor(nil)).Jobs[0]; got.Phase != want {
			t.Errorf("with slots %v it is %s, want %s", phases, got.Phase, want)
		}
	}
}

// A loss that is not finite is no unknown one, in the text and in the JSON.
func TestStatusTellsALossThatIsNotFinite(t *testing.T) {
	for want, value := range map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)} {
		loss := job.Loss(value)
		var j JobStatus
		j.progress(&job.Member{Step: 7, Loss: &loss})
		out, err := json.Marshal(j)
		if err != nil || !strings.Contains(string(out), `"loss_not_finite":"`+want+`"`) || strings.Contains(string(out), `"loss":`) {
			t.Errorf("%s is %s, %v", want, out, err)
		}
		if text := trainingText(&j); text != "step 7, loss "+strconv.FormatFloat(value, 'g', 4, 64) {
			t.Errorf("%s is %s", want, text)
		}
	}
}

func TestStatusFoldsManySlots(t *testing.T) {
	record := &job.Record{UID: "u", Phase: job.JobRunning, Spec: job.Job{Name: "big", Provider: "local", Roles: []job.Role{{Name: "worker", Replicas: 1000}}}}
	for i := range 1000 {
		s := job.Slot{Address: job.Address{Job: "big", Role: "worker", Index: i}, Phase: job.Running, Incarnation: 1, Node: fmt.Sprintf("n%d", i/8)}
		if i == 500 {
			s.Restarts, s.Cause = 1, job.OutOfMemory
		}
		record.Slots = append(record.Slots, s)
		record.World.Members = append(record.World.Members, job.WorldMember{Slot: s.Address, Incarnation: 1, Rank: i, Processes: 1})
	}
	record.World.Generation = 1
	var out bytes.Buffer
	WriteStatus(Screen{Writer: &out}, Status(Facts{Records: job.Records{"big": record}}, NewRedactor(nil)), false)
	golden(t, "status_1000_slots.txt", out.String())
}

// A slot whose agent has no process has ended unobserved, unless the agent has reported that to a master.
func TestStatusOfWhatEndedUnseen(t *testing.T) {
	var in statusCase
	input(t, "status/unwatched/facts.json", &in)
	seen := in.Facts.Snapshot.Incarnations[0]
	for i := range seen {
		seen[i].State, seen[i].Idle = job.Up, true
	}
	seen[1].Member = &job.Member{}
	j := in.model().Jobs[0]
	if j.Phase != job.JobDegraded || j.Healthy || j.Slots[0].Phase != job.Registered || j.Slots[1].Phase != job.Running || j.Roles[0].Running != 1 {
		t.Errorf("it is %s, healthy %v, with %s and %s, %d running", j.Phase, j.Healthy, j.Slots[0].Phase, j.Slots[1].Phase, j.Roles[0].Running)
	}
}

// The reason why a program could not be started quotes its command, which may be sensitive; the state has the seal.
func TestStatusHidesWhatCouldNotBeStarted(t *testing.T) {
	seal := "(sensitive value a5062faa0123456789abcdef01234567)"
	for _, told := range []string{"hunter22", seal} {
		record := &job.Record{Slots: []job.Slot{{
			Address: job.Address{Job: "a", Role: "worker"}, Incarnation: 1, Phase: job.Failed, Cause: job.StartFailed,
			Exit: &job.Exit{NotStarted: "fork/exec " + told + ": no such file or directory"},
		}}}
		model := Status(Facts{Records: job.Records{"a": record}}, NewRedactor([]job.Job{{Secrets: []string{"hunter22"}}}))
		var text, encoded strings.Builder
		WriteStatus(Screen{Writer: &text, Width: 200}, model, false)
		if err := WriteJSON(&encoded, model); err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{text.String(), encoded.String()} {
			if !strings.Contains(shown, "fork/exec (sensitive value): no such file") {
				t.Errorf("of %q it shows\n%s", told, shown)
			}
		}
	}
}

// A job whose world has formed says that it waits for its first step, and its goodput is unknown while nobody knows of steps.
func TestStatusBeforeTheFirstStep(t *testing.T) {
	for _, test := range []struct {
		goodput job.Goodput
		want    string
	}{
		{job.Goodput{Wall: 100, Unknown: 90, Lost: job.LostTime{Scheduling: 10}}, "unknown of 1m40s; lost: scheduling 10.0%"},
		{job.Goodput{Wall: 100, Lost: job.LostTime{Start: 90, Scheduling: 10}}, "0.0% of 1m40s; lost: start 90.0%, scheduling 10.0%"},
		{job.Goodput{Wall: 100, Productive: 50, Unknown: 49.95, Lost: job.LostTime{Rendezvous: 0.05}}, "50.0% of 1m40s, unknown 50.0%"},
		{job.Goodput{Wall: 0.5, Productive: 0.5}, ""},
	} {
		if got := goodputText(goodputStatus(&test.goodput)); got != test.want {
			t.Errorf("%+v is %q", test.goodput, got)
		}
	}
	record := &job.Record{Phase: job.JobStarting, World: job.World{Generation: 3}, Awaits: job.Because(plan.FirstStepDue, "generation", "3")}
	j := Status(Facts{Records: job.Records{"a": record}}, NewRedactor(nil)).Jobs[0]
	if !slices.Equal(j.Reasons, []string{"Waiting for the first step of generation 3."}) || j.Healthy {
		t.Errorf("healthy %v, because of %q", j.Healthy, j.Reasons)
	}
}

// What is used of a budget changes with time alone. It is of all jobs, so a status of some does not have it.
func TestStatusOfABudget(t *testing.T) {
	at := func(hours float64) StatusModel {
		return Status(Facts{Spent: job.Spent{NodeHours: hours, Nodes: 2, Budget: 10}}, NewRedactor(nil))
	}
	if !at(5).Same(at(6)) {
		t.Error("a status is another one because time has passed")
	}
	if raised := Status(Facts{Spent: job.Spent{NodeHours: 5, Nodes: 2, Budget: 20}}, NewRedactor(nil)); at(5).Same(raised) {
		t.Error("a status is the same although the budget was raised")
	}
	for hours, want := range map[float64]string{9.99: "10 of 10 node hours used (99 %), 2 nodes in use", 12.34: "12.3 of 10 node hours used (123 %), 2 nodes in use"} {
		if got := at(hours).Budget.text(); got != want {
			t.Errorf("%v hours: %q, want %q", hours, got, want)
		}
	}
	if at(5).Select(job.Selector{Job: "gpt"}).Budget != nil || Status(Facts{}, NewRedactor(nil)).Budget != nil {
		t.Error("a budget is shown where none belongs")
	}
}
