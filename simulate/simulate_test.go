package simulate_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/eltrain/eltrain/faults"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/outcome"
	"github.com/eltrain/eltrain/simulate"
)

// cluster is a setup of nodes of eight places.
func cluster(nodes int, length time.Duration) simulate.Setup {
	s := simulate.Setup{For: length}
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		s.Nodes = append(s.Nodes, jobtest.Node(name, jobtest.GPUs(8)))
		s.Places = append(s.Places, faults.Place{Name: name, Devices: 8})
	}
	return s
}

// arrival is a job of so many slots with a GPU each.
func arrival(name string, at time.Duration, slots int, t simulate.Training) simulate.Arrival {
	return simulate.Arrival{At: at, Job: jobtest.Job(name, jobtest.Role("worker", slots, jobtest.Needs(jobtest.GPUs(1)))), Training: t}
}

func run(t testing.TB, s simulate.Setup) outcome.Run {
	t.Helper()
	out, err := simulate.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A job without faults trains from when its world has formed until its work is done.
func TestAJobTrainsAndSucceeds(t *testing.T) {
	s := cluster(2, time.Hour)
	s.Arrivals = []simulate.Arrival{arrival("a", 0, 16, simulate.Training{Samples: 16 * 600, Start: 10 * time.Second})}
	out := run(t, s)
	text, _ := json.MarshalIndent(out, "", " ")
	t.Logf("%s", text)
	j := out.Jobs[0]
	if j.Phase != job.JobSucceeded || math.Abs(j.Productive-600) > 3 || j.Restarts != 0 || j.Completion < 600 || j.Completion > 630 {
		t.Errorf("the job: %+v", j)
	}
}

// one is a fault at a time, of a place of the first node.
func one(kind faults.Kind, at time.Duration, away time.Duration) (faults.Models, []faults.Event) {
	return faults.Models{{Name: string(kind), Kind: kind, Code: 1}}, []faults.Event{{At: at, Away: away, Notice: time.Minute}}
}

// Each kind of fault costs a restart, after which the job does its work again from the newest checkpoint, and succeeds.
func TestFaultsCostWhatCameAfterTheCheckpoint(t *testing.T) {
	unseen := map[faults.Kind]float64{faults.Node: simulate.DefaultLease.Seconds()} // until the lease expires it is taken to train
	for kind, action := range map[faults.Kind]string{faults.Process: "incident restart_in_place", faults.Node: "incident replace", faults.Hang: "incident restart_in_place", faults.Reclaim: "replaced"} {
		t.Run(string(kind), func(t *testing.T) {
			s := cluster(3, 3*time.Hour)
			s.Arrivals = []simulate.Arrival{arrival("a", 0, 16, simulate.Training{Samples: 16 * 3600, Start: 10 * time.Second, Every: 10 * time.Minute})}
			s.Models, s.Faults = one(kind, 25*time.Minute, time.Hour)
			out := run(t, s)
			j := out.Jobs[0]
			if j.Phase != job.JobSucceeded || j.Restarts != 1 || out.Faults != 1 || out.Actions[action] != 1 {
				t.Errorf("%+v, faults %d, actions %v", j, out.Faults, out.Actions)
			}
			// 25 minutes have two checkpoints: what came since, less what passed before training began, is done again.
			if j.Lost.RedoneSteps < 250 || j.Lost.RedoneSteps > 400 || math.Abs(j.Productive-3600) > 5+unseen[kind] {
				t.Errorf("redone %.0f s, productive %.0f s", j.Lost.RedoneSteps, j.Productive)
			}
		})
	}
}

// Jobs that do not fit wait for others.
func TestJobsWaitForCapacity(t *testing.T) {
	s := cluster(1, time.Hour)
	s.Arrivals = []simulate.Arrival{arrival("a", 0, 8, simulate.Training{Samples: 8 * 600}), arrival("b", time.Minute, 8, simulate.Training{Samples: 8 * 600})}
	out := run(t, s)
	a, b := out.Jobs[0], out.Jobs[1]
	if a.Phase != job.JobSucceeded || b.Phase != job.JobSucceeded || a.Waiting > 10 || b.Waiting < 530 || b.Waiting > 600 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// The same setup gives the same result, bit for bit.
func TestTheSameAgain(t *testing.T) {
	s := month(t, 20, 5, 3)
	for i := range s.Models {
		s.Models[i].Count *= 300
	}
	s.Faults = s.Models.Draw(s.Places, 7, s.For)
	text := func() string {
		out, err := json.Marshal(run(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	once := text()
	var out outcome.Run
	if err := json.Unmarshal([]byte(once), &out); err != nil || out.Total.Restarts < 10 {
		t.Fatalf("too little happens to compare: %v, %s", err, once)
	}
	if again := text(); again != once {
		t.Errorf("once\n%s\nand then\n%s", once, again)
	}
}
