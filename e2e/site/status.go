package site

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// Job is one of `eltrain status -json`, as docs/commands.md has it.
type Job struct {
	Address    string     `json:"address"`
	Phase      string     `json:"phase"`
	Generation int        `json:"generation"`
	WorldSize  int        `json:"world_size"`
	Step       int64      `json:"step"`
	Reasons    []string   `json:"reasons"`
	Slots      []Slot     `json:"slots"`
	Incidents  []Incident `json:"incidents"`
}

// Slot is one of a job's.
type Slot struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	Rank        int    `json:"rank"`
	Node        string `json:"node"`
	Name        string `json:"name"` // of its pod
	PID         int    `json:"pid"`  // in its pod
	Restarts    int    `json:"restarts"`
}

// Incident is one that was diagnosed.
type Incident struct {
	Cause    string   `json:"cause"`
	Culprits []string `json:"culprits"`
	Action   string   `json:"action"`
	Evidence []string `json:"evidence"`
}

// Worker finds a slot; the zero one if it is not there.
func (j Job) Worker(index int) Slot {
	return j.slot(func(s Slot) bool { return s.Address == fmt.Sprintf("%s.worker[%d]", j.Address, index) })
}

// On finds the slot that is on a node.
func (j Job) On(node string) Slot { return j.slot(func(s Slot) bool { return s.Node == node }) }

// Ranked finds the slot of a rank.
func (j Job) Ranked(rank int) Slot { return j.slot(func(s Slot) bool { return s.Rank == rank }) }

func (j Job) slot(is func(Slot) bool) Slot {
	if at := slices.IndexFunc(j.Slots, is); at >= 0 {
		return j.Slots[at]
	}
	return Slot{}
}

// Running are the slots that train.
func (j Job) Running() []Slot {
	return slices.DeleteFunc(slices.Clone(j.Slots), func(s Slot) bool { return s.Phase != "Running" || s.PID == 0 })
}

// PodNames are the pods of the slots by address, but for some slots.
func (j Job) PodNames(but ...Slot) map[string]string {
	names := map[string]string{}
	for _, s := range j.Slots {
		if s.Name != "" {
			names[s.Address] = s.Name
		}
	}
	for _, s := range but {
		delete(names, s.Address)
	}
	return names
}

// Last is the newest incident.
func (j Job) Last() Incident {
	if len(j.Incidents) == 0 {
		return Incident{}
	}
	return j.Incidents[len(j.Incidents)-1]
}

// Trains reports whether n slots train together in a generation of at least g, past the first step.
func (j Job) Trains(n, g int) bool {
	return j.Phase == "Running" && len(j.Running()) == n && j.WorldSize == n && j.Generation >= g && j.Step > 0
}

// Says reports whether one of the job's reasons has this part.
func (j Job) Says(part string) bool { return strings.Contains(strings.Join(j.Reasons, "\n"), part) }

// Status reads the job's status. It is zero while there is none, and where status has anything to say beside it: a
// warning, or that the API server does not answer.
func (s *Site) Status() Job {
	s.T.Helper()
	j, _ := s.status()
	return j
}

// Now is the job's status. A master or an API server that is late may have to be asked again.
func (s *Site) Now() Job {
	s.T.Helper()
	return s.Await("a status", func(j Job) bool { return j.Phase != "" })
}

// status is Status with what was said beside it.
func (s *Site) status() (j Job, said string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	cmd := s.Command(ctx, "status", "-json")
	out, beside := bytes.Buffer{}, bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = &out, &beside
	err := cmd.Run()
	var all struct {
		Jobs []Job `json:"jobs"`
	}
	if bad := json.Unmarshal(out.Bytes(), &all); bad != nil || beside.Len() > 0 {
		return Job{}, fmt.Sprintf("status -json: %v, %v\n%s\n%s", err, bad, &out, &beside)
	}
	if at := slices.IndexFunc(all.Jobs, func(j Job) bool { return j.Address == "job."+s.Job }); at >= 0 {
		return all.Jobs[at], ""
	}
	return Job{}, ""
}

// Await waits until the job is as wanted, and returns it. As long as it trains on it is not hung.
func (s *Site) Await(what string, holds func(j Job) bool) Job {
	s.T.Helper()
	for wait := (hang.Wait{}); ; time.Sleep(Poll) {
		j, said := s.status()
		if holds(j) {
			return j
		}
		if wait.Hung(j.Step) || s.T.Context().Err() != nil {
			text, _ := json.MarshalIndent(j, "", " ")
			s.T.Fatalf("%s: not in %v; the job is\n%s\n%s", what, Bound, text, said)
		}
	}
}

// AwaitWorld waits for a world of so many that trains, in a generation of at least that.
func (s *Site) AwaitWorld(slots, generation int) Job {
	s.T.Helper()
	return s.Await(fmt.Sprintf("a world of %d in generation %d or later", slots, generation),
		func(j Job) bool { return j.Trains(slots, generation) })
}

// Succeeds waits for the job's success.
func (s *Site) Succeeds() {
	s.T.Helper()
	s.Await("success", func(j Job) bool {
		if j.Phase == "Failed" {
			s.T.Fatalf("the job failed: %v", j.Reasons)
		}
		return j.Phase == "Succeeded"
	})
}

// Blamed checks the newest incident: its cause and slots, and what its evidence has to name.
func (s *Site) Blamed(j Job, cause string, culprits []Slot, evidence ...string) {
	s.T.Helper()
	last := j.Last()
	var want []string
	for _, c := range culprits {
		want = append(want, c.Address)
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(last.Culprits)); last.Cause != cause || !slices.Equal(got, want) {
		s.T.Errorf("the incident is %+v, want %s in %v", last, cause, want)
	}
	for _, part := range evidence {
		if !strings.Contains(strings.Join(last.Evidence, "\n"), part) {
			s.T.Errorf("%q is missing in the evidence %q", part, last.Evidence)
		}
	}
}

// Untouched checks that the pods of all slots but these are those of before.
func (s *Site) Untouched(before, after Job, but ...Slot) {
	s.T.Helper()
	if a, b := before.PodNames(but...), after.PodNames(but...); !maps.Equal(a, b) {
		s.T.Errorf("pods of other slots were replaced: %v -> %v", a, b)
	}
}

// Replaced checks that these slots have other pods, keep their addresses, and that nobody else has.
func (s *Site) Replaced(before, after Job, victims ...Slot) {
	s.T.Helper()
	s.Untouched(before, after, victims...)
	for _, victim := range victims {
		now := after.slot(func(s Slot) bool { return s.Address == victim.Address })
		if now.Incarnation <= victim.Incarnation || now.Name == victim.Name {
			s.T.Errorf("%+v -> %+v: it has no other pod", victim, now)
		}
	}
}

// ReplacedOnce is Replaced where there was room for the next pods at once: their incarnations are one more. A slot that
// has to wait for room counts that, too.
func (s *Site) ReplacedOnce(before, after Job, victims ...Slot) {
	s.T.Helper()
	s.Replaced(before, after, victims...)
	for _, victim := range victims {
		now := after.slot(func(s Slot) bool { return s.Address == victim.Address })
		if now.Incarnation != victim.Incarnation+1 {
			s.T.Errorf("%+v -> %+v: it was replaced more than once", victim, now)
		}
	}
}
