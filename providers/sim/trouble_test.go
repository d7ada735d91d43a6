package sim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
)

const troubledJob = `
job "a" {
  role "worker" {
    command = ["train"]
    replicas = 3
    scaling {
      min = 2
      max = 3
    }
    resources { cpu = 1 }
  }
}
`

func troubled(t *testing.T) *world {
	w := newWorld(t)
	t.Cleanup(w.close)
	cpu, _ := job.Cores(1)
	for _, name := range []string{"n1", "n2", "n3"} {
		w.cluster.SetNode(job.Node{Name: name, Capacity: job.Resources{CPU: cpu}})
	}
	if err := w.declare(troubledJob); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) happen(t *testing.T, s step) {
	t.Helper()
	if err := w.do(s); err != nil {
		t.Fatal(err)
	}
	w.settle()
}

func (w *world) phase(name string) job.JobPhase {
	if rec := w.leader().l.Records()[name]; rec != nil {
		return rec.Phase
	}
	return ""
}

func (w *world) expectRunning(t *testing.T, what string) {
	t.Helper()
	if got := w.phase("a"); got != job.JobRunning {
		t.Fatalf("%s: the job is %q\n%s", what, got, w.take())
	}
}

func TestAProviderThatCannotBeObservedIsNotEmpty(t *testing.T) {
	w := troubled(t)
	w.start("a")
	w.run(time.Second)
	w.expectRunning(t, "at first")
	before := w.leader().l.Records()["a"].World.Generation
	w.cluster.Trouble = func(op string, _ job.Address) error {
		if op == "observe" {
			return errors.New("the list was cut")
		}
		return nil
	}
	w.run(time.Minute)
	w.cluster.Trouble = nil
	w.run(time.Minute)
	w.expectRunning(t, "afterwards")
	if after := w.leader().l.Records()["a"].World.Generation; after != before {
		t.Errorf("generation %d -> %d: a failed list was taken for an empty one", before, after)
	}
	if told := w.take(); strings.Count(told, "raised: provider.local provider_unobserved") != 1 {
		t.Errorf("it is not said once:\n%s", told)
	}
}

func TestAFailedLaunchIsTriedAgainWithGrowingPauses(t *testing.T) {
	w := troubled(t)
	var tries []time.Duration
	w.cluster.Trouble = func(op string, slot job.Address) error {
		if op != "launch" || slot.Index != 1 || len(tries) >= 4 {
			return nil
		}
		tries = append(tries, w.cluster.Now().Sub(epoch))
		return errors.New("the node is busy")
	}
	w.start("a")
	w.run(time.Minute)
	w.expectRunning(t, "after four failures")
	if len(tries) != 4 {
		t.Fatalf("tried at %v", tries)
	}
	for i := 2; i < len(tries); i++ {
		if tries[i]-tries[i-1] <= tries[i-1]-tries[i-2] {
			t.Errorf("the pauses do not grow: %v", tries)
		}
	}
	seen, _ := w.cluster.Observe(t.Context())
	if seen.Incarnations.Len() != 3 {
		t.Errorf("%d incarnations for 3 slots", seen.Incarnations.Len())
	}
}

func TestNothingIsDoneThatCouldNotBeStored(t *testing.T) {
	w := troubled(t)
	w.start("a")
	w.run(time.Second)
	w.expectRunning(t, "at first")
	w.happen(t, "trouble write 10s")
	w.cluster.Agent(job.Address{Job: "a", Role: "worker", Index: 1}).Kill()
	w.run(10 * time.Second)
	if w.cluster.Agent(job.Address{Job: "a", Role: "worker", Index: 1}) != nil {
		t.Fatal("a slot was started though that could not be stored")
	}
	if told := w.take(); !strings.Contains(told, "write does not work") {
		t.Errorf("it is not said:\n%s", told)
	}
	live := w.leader().l.Live(w.cluster.Now(), nil)
	if phase := live.Records["a"].Phase; phase != job.JobDegraded {
		t.Errorf("status says %s of a job that cannot be healed", phase)
	}
	if len(live.Waits) == 0 || live.Waits[0].Job != "a" || live.Waits[0].Reasons[0].Code != apply.NotStored {
		t.Errorf("status does not say why: %+v", live.Waits)
	}
	w.run(10 * time.Second)
	w.expectRunning(t, "with space again")
	if live := w.leader().l.Live(w.cluster.Now(), nil); live.Records["a"].Phase != job.JobRunning || len(live.Waits) > 0 {
		t.Errorf("with space again status says %s: %+v", live.Records["a"].Phase, live.Waits)
	}
}

func TestAnAgentThatIsShownAgainMustNotRunTwice(t *testing.T) {
	w := troubled(t)
	w.start("a")
	w.run(time.Second)
	slot := job.Address{Job: "a", Role: "worker", Index: 1}
	w.happen(t, "pause a") // it does not see that the agent is hidden
	w.happen(t, "hide job.a.worker[1]")
	w.happen(t, "show job.a.worker[1]")
	if !w.cluster.Agent(slot).Missed() {
		t.Fatal("it may have been replaced until it is observed")
	}
	w.happen(t, "resume a")
	w.run(time.Second)
	if a := w.cluster.Agent(slot); a.Missed() || a.Incarnation() != 1 {
		t.Errorf("incarnation %d may run beside another", a.Incarnation())
	}
}

func TestTwoFaultsWhileNoMasterIsThereAreOneIncidentOfBoth(t *testing.T) {
	w := troubled(t)
	w.start("a")
	w.run(time.Second)
	w.expectRunning(t, "at first")
	slot := func(index int) job.Address { return job.Address{Job: "a", Role: "worker", Index: index} }
	w.masters["a"].crash()
	w.cluster.Agent(slot(0)).Fail(job.Exit{Code: 137, Signal: "killed"})
	w.cluster.Agent(slot(1)).Kill()
	w.run(time.Second)
	w.start("a")
	w.run(10 * time.Second)
	w.expectRunning(t, "under the next master")
	incidents := w.leader().l.Records()["a"].Incidents
	if len(incidents) != 1 || incidents[0].Cause != job.AgentGone || !slices.Equal(incidents[0].Culprits, []job.Address{slot(1), slot(0)}) {
		t.Errorf("incidents %+v", incidents)
	}
	if last := w.facts.incidents[len(w.facts.incidents)-1]; !slices.Equal(last.Culprits, incidents[0].Culprits) {
		t.Errorf("of the incident was told last %+v", last)
	}
}
