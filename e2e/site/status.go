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

// Job is a job in `eltrain status -json`, as documented in docs/commands.md.
type Job struct {
	Address     string     `json:"address"`
	UID         string     `json:"uid"`
	Phase       string     `json:"phase"`
	Healthy     bool       `json:"healthy"`
	Generation  int        `json:"generation"`
	WorldSize   int        `json:"world_size"`
	Step        int64      `json:"step"`
	Checkpoint  int64      `json:"checkpoint_step"`
	Reasons     []string   `json:"reasons"`
	ReasonCodes []Reason   `json:"reason_codes"`
	Slots       []Slot     `json:"slots"`
	Incidents   []Incident `json:"incidents"`
}

// Slot is a slot of a job.
type Slot struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	Rank        int    `json:"rank"`
	Node        string `json:"node"`
	Name        string `json:"name"` // of its pod
	PID         int    `json:"pid"`  // in its pod, where it has one
	AgentPID    int    `json:"agent_pid"`
	Restarts    int    `json:"restarts"`
	Ranks       []Rank `json:"ranks"`
}

// Rank is a training process of a slot.
type Rank struct {
	Progress *struct {
		By   string `json:"by"`
		Step *int64 `json:"step"`
	} `json:"progress"` // nil if nothing was read of it
}

// Reason is documented in docs/reasons.md.
type Reason struct {
	Code string            `json:"code"`
	Args map[string]string `json:"args"`
	Of   []Reason          `json:"of"`
}

// Incident is a diagnosed incident.
type Incident struct {
	Cause         string   `json:"cause"`
	Culprits      []string `json:"culprits"`
	Action        string   `json:"action"`
	Evidence      []string `json:"evidence"`
	EvidenceCodes []Reason `json:"evidence_codes"`
}

// Slot finds a slot by role and index, as "worker[0]"; the zero Slot if it does not exist.
func (j Job) Slot(short string) Slot {
	return j.slot(func(s Slot) bool { return s.Address == j.Address+"."+short })
}

// Worker finds the slot of a worker.
func (j Job) Worker(index int) Slot { return j.Slot(fmt.Sprintf("worker[%d]", index)) }

// On finds the slot on a node.
func (j Job) On(node string) Slot { return j.slot(func(s Slot) bool { return s.Node == node }) }

// Ranked finds the slot with a rank.
func (j Job) Ranked(rank int) Slot { return j.slot(func(s Slot) bool { return s.Rank == rank }) }

// At finds a slot by its address; the zero Slot if it does not exist.
func (j Job) At(address string) Slot {
	return j.slot(func(s Slot) bool { return s.Address == address })
}

func (j Job) slot(is func(Slot) bool) Slot {
	if at := slices.IndexFunc(j.Slots, is); at >= 0 {
		return j.Slots[at]
	}
	return Slot{}
}

// Running returns the slots that train.
func (j Job) Running() []Slot {
	return slices.DeleteFunc(slices.Clone(j.Slots), func(s Slot) bool { return s.Phase != "Running" || s.PID == 0 })
}

// PodsOrAgents returns the pod or agent of each slot by address, except those of the slots in but.
func (j Job) PodsOrAgents(but ...Slot) map[string]string {
	bodies := map[string]string{}
	for _, s := range j.Slots {
		if s.Name != "" || s.AgentPID > 0 {
			bodies[s.Address] = s.podOrAgent()
		}
	}
	for _, s := range but {
		delete(bodies, s.Address)
	}
	return bodies
}

func (s Slot) podOrAgent() string {
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("agent %d", s.AgentPID)
}

// Last returns the newest incident.
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

// Says reports whether one of the job's reasons contains part.
func (j Job) Says(part string) bool { return strings.Contains(strings.Join(j.Reasons, "\n"), part) }

// Lacks reports whether one of the job's reasons is that it needs room for count slots with each.
func (j Job) Lacks(count, each string) bool { return lacks(j.ReasonCodes, count, each) }

func lacks(reasons []Reason, count, each string) bool {
	return slices.ContainsFunc(reasons, func(r Reason) bool {
		return r.Code == "wanted" && r.Args["count"] == count && r.Args["each"] == each || lacks(r.Of, count, each)
	})
}

// status is `eltrain status -json`.
type status struct {
	Master struct {
		Watching bool `json:"watching"`
	} `json:"master"`
	Jobs []Job `json:"jobs"`
}

// Jobs reads the status of all jobs. If the command failed or wrote to standard error, it returns no jobs, and what was said.
func (s *Site) Jobs() (all []Job, said string) {
	s.T.Helper()
	status, said := s.read()
	return status.Jobs, said
}

// HasMaster reports whether the status says that a master is watching.
func (s *Site) HasMaster() bool {
	s.T.Helper()
	status, said := s.read()
	if said != "" {
		s.T.Fatal(said)
	}
	return status.Master.Watching
}

func (s *Site) read() (all status, said string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	cmd := s.Command(ctx, "status", "-json")
	out, beside := bytes.Buffer{}, bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = &out, &beside
	err := cmd.Run()
	if bad := json.Unmarshal(out.Bytes(), &all); bad != nil || beside.Len() > 0 {
		return status{}, fmt.Sprintf("status -json: %v, %v\n%s\n%s", err, bad, &out, &beside)
	}
	return all, ""
}

// status returns the job's status; zero if there is no job or no answer.
func (s *Site) status() (j Job, said string) {
	s.T.Helper()
	all, said := s.Jobs()
	if at := slices.IndexFunc(all, func(j Job) bool { return j.Address == "job."+s.Job }); at >= 0 {
		return all[at], said
	}
	return Job{}, said
}

// Status returns the job's status; zero if there is no job. It asks again if a master or an API server is late.
func (s *Site) Status() (j Job) {
	s.T.Helper()
	Until(s.T, "a status", func() bool {
		var said string
		j, said = s.status()
		return said == ""
	})
	return j
}

// Now returns the job's status and waits until the job exists.
func (s *Site) Now() Job {
	s.T.Helper()
	return s.Await("a status", func(j Job) bool { return j.Phase != "" })
}

// Await waits until holds, and returns the job. While the training makes progress it does not time out.
func (s *Site) Await(what string, holds func(j Job) bool) Job {
	s.T.Helper()
	for wait := (hang.Wait{}); ; time.Sleep(look) {
		j, said := s.status()
		if said == "" && holds(j) {
			return j
		}
		if wait.Hung(j.Step) || s.T.Context().Err() != nil {
			text, _ := json.MarshalIndent(j, "", " ")
			s.T.Fatalf("%s: not in %v; the job is\n%s\n%s", what, Bound, text, said)
		}
	}
}

// AwaitWorld waits for a world of slots that trains, in generation or a later one.
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

// Blamed checks the newest incident's cause and culprits, and that its evidence contains the given parts.
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

// Proven reports whether the evidence has a code.
func (i Incident) Proven(code string) bool {
	return slices.ContainsFunc(i.EvidenceCodes, func(r Reason) bool { return r.Code == code })
}

// Undisturbed checks that a job still runs the same world of the same processes. The status has training processes only if
// a master runs.
func (s *Site) Undisturbed(before, after Job) {
	s.T.Helper()
	disturbed := after.Generation != before.Generation || after.UID != before.UID || !maps.Equal(before.PodsOrAgents(), after.PodsOrAgents())
	for _, was := range before.Slots {
		now := after.At(was.Address)
		disturbed = disturbed || was.PID != now.PID && was.PID > 0 && now.PID > 0
	}
	if disturbed {
		s.T.Errorf("%s was disturbed:\n%+v\n%+v", before.Address, before, after)
	}
}

// Untouched checks that all slots except these still have the same pods or agents.
func (s *Site) Untouched(before, after Job, but ...Slot) {
	s.T.Helper()
	if a, b := before.PodsOrAgents(but...), after.PodsOrAgents(but...); !maps.Equal(a, b) {
		s.T.Errorf("other slots were replaced: %v -> %v", a, b)
	}
}

// Replaced checks that these slots, and no others, have new pods or agents under the same addresses.
func (s *Site) Replaced(before, after Job, victims ...Slot) {
	s.T.Helper()
	s.Untouched(before, after, victims...)
	for _, victim := range victims {
		if now := after.At(victim.Address); now.Incarnation <= victim.Incarnation || now.podOrAgent() == victim.podOrAgent() {
			s.T.Errorf("%+v -> %+v: it was not replaced", victim, now)
		}
	}
}

// ReplacedOnce is Replaced if there is room for the new ones at once: their incarnation numbers grow by one. Waiting for room
// would add another.
func (s *Site) ReplacedOnce(before, after Job, victims ...Slot) {
	s.T.Helper()
	s.Replaced(before, after, victims...)
	for _, victim := range victims {
		if now := after.At(victim.Address); now.Incarnation != victim.Incarnation+1 {
			s.T.Errorf("%+v -> %+v: it was replaced more than once", victim, now)
		}
	}
}
