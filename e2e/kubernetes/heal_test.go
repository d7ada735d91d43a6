package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eltrain/eltrain/e2e/heal"
	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// late is how long the cluster's events are delayed while the agents' reports are not, as by a busy API server.
const late = 300 * time.Millisecond

var here = heal.On{
	Place:  heal.Kubernetes,
	New:    func(t *testing.T, nodes int) *site.Site { return newDemo(t, nodes).Site.Site },
	Faults: podsite.Faults,
	MayExec: func(s *site.Site) {
		d := s.Place.(*podsite.Demo)
		d.As(operator(d))
	},
	Delay: func(s *site.Site) {
		s.Place.(*podsite.Demo).Through().Proxy.Inject(testbed.Fault{Verb: "watch", Lag: late})
	},
}

func TestHeal(t *testing.T) { here.Run(t) }

func TestHealSoak(t *testing.T) {
	soak.Only(t)
	here.Soak(t)
}

func TestPreemptedItShrinksAndGrowsAgain(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long) // if its pod is not bound at first, it waits 30 s before it grows into that slot again
	urgent := s.Urgent()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	s.Foreign("urgent", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = urgent })
	victim := before.On(s.NodeOf("urgent"))
	after := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, after, victim)
	s.Blamed(after, "preempted", []site.Slot{victim}, "PreemptionByScheduler")
	s.DeletePod("urgent", podsite.AtOnce())
	s.AwaitWorld(4, after.Generation+1)
	s.ContinuesRight(long)
}

// A runtime that cannot start containers, on a node that reports ready, is not the job's fault: nothing is charged to its budget,
// however often that happens, and the other slots train.
func TestNodeThatStartsNoContainerIsNotTheJobsFault(t *testing.T) {
	const long = 8 * site.Steps
	s := newDemo(t, 4)
	s.Edit("job.hcl", "restarts = 10", "restarts = 0")
	s.SetSteps(long)
	bad := s.Node(2)
	s.OK(s.Kubelet.FailStarts(bad, "failed to create shim task: context deadline exceeded: unknown"))
	s.Watch()
	three := s.Await("a world of 3, and a slot that was tried three times and will be again", func(j site.Job) bool {
		tried := slices.ContainsFunc(j.Slots, func(slot site.Slot) bool { return slot.Incarnation > 3 })
		return j.WorldSize == 3 && tried && j.Last().Action != "" // not before its pause is over
	})
	if last := three.Last(); last.Cause != "node_failed" || last.Action != "replace" {
		t.Errorf("the incident is %+v", last)
	}
	site.Has(t, strings.Join(three.Last().Evidence, "\n"), "node "+bad+" could not start it: init container eltrain-agent ended with 128: StartError: failed to create containerd task: failed to create shim task: context deadline exceeded")
	s.OK(s.Kubelet.FailStarts(bad, ""))
	four := s.AwaitWorld(4, three.Generation+1)
	if four.On(bad).Address == "" {
		t.Errorf("no slot is on the repaired node: %+v", four.Slots)
	}
	s.ContinuesRight(long)
}

// fetching adds a user's init container to the role.
const fetching = `stop_grace = "5s"
    pod = { spec = { initContainers = [{
      name    = "fetch"
      image   = var.image
      command = ["sh", "-c", %q]
    }] } }
`

// A user's init container that fails is retried within the budget: it is part of the job.
func TestInitContainerThatFailsIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		ends   func(*podsite.Demo)
	}{
		"and goes well": {"! mkdir first && ! mkdir second", func(s *podsite.Demo) { // each directory is made by one pod, which then fails
			j := s.AwaitWorld(4, 1)
			restarts := 0
			for _, slot := range j.Slots {
				restarts += slot.Restarts
			}
			if restarts != 2 {
				s.T.Errorf("two pods failed, and there were %d restarts", restarts)
			}
			if last := j.Last(); last.Action != "replace" || last.Cause != "process_failed" {
				s.T.Errorf("the incident is %+v", last)
			}
			s.EndsRight(site.Steps)
		}},
		"until the budget is spent": {"exit 3", func(s *podsite.Demo) {
			failed := s.Await("failure", func(j site.Job) bool { return j.Phase == "Failed" })
			if last := failed.Last(); last.Action != "fail" || last.Cause != "process_failed" {
				s.T.Errorf("the incident is %+v", last)
			}
			site.Has(s.T, strings.Join(failed.Last().Evidence, "\n"), "exit code 3", "init container fetch ended with 3: Error")
			site.Until(s.T, "the events say why", func() bool { return strings.Contains(s.Must("events"), "restart budget exhausted: 3 within 1h") })
			if !slices.ContainsFunc(failed.Slots, func(slot site.Slot) bool { return slot.Incarnation > 3 }) {
				s.T.Errorf("none was tried four times: %+v", failed.Slots)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDemo(t, 4)
			s.Together()
			s.Edit("job.hcl", "restarts = 10", "restarts = 3")
			s.Edit("job.hcl", `stop_grace = "5s"`, fmt.Sprintf(fetching, test.script))
			s.Watch()
			test.ends(s)
		})
	}
}

// buggy is the training, with a bug that SIGUSR2 triggers.
const buggy = `import runpy, signal, sys

def fail(*_):
    raise RuntimeError("the bug was met")

signal.signal(signal.SIGUSR2, fail)
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
`

// A process fails and its pod ends while no master runs: the next master reads the cause from the pod's termination message,
// which the agent wrote.
func TestWhatAProcessFailedOfOutlivesItsPodWhileNoMasterRuns(t *testing.T) {
	s := newDemo(t, 5)
	s.SetSteps(2 * site.Steps)
	s.SetLease(site.Lenient)
	s.Write("buggy.py", buggy)
	s.Edit("job.hcl", `"train.py"`, `"buggy.py"`)
	listen := "-listen=" + loopback.Free(t) // of both: of another, agents might hear late
	m := s.Watch(listen)
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(1)
	agent := s.AgentOf(victim)
	var trainers []int
	for _, slot := range before.Slots {
		trainers = append(trainers, s.TrainerOf(slot))
	}
	m.Kill()
	site.Kill(t, syscall.SIGUSR2, s.TrainerOf(victim))
	site.AwaitExit(t, trainers...) // the others fail after the victim, because of it
	site.Kill(t, syscall.SIGTERM, agent)
	site.AwaitExit(t, agent)
	s.Watch(listen)
	after := s.AwaitWorld(4, before.Generation+1)
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "script_error", []site.Slot{victim}, "exit code 1", "error file: RuntimeError: the bug was met", "output: ")
	s.EndsRight(2 * site.Steps)
}

// hog is the training, but rank 1 soon takes 160 MB.
const hog = `import os, runpy, sys, threading, time

def take():
    time.sleep(1)
    held = b"x" * (160 << 20)
    time.sleep(3600)

if os.environ["ELTRAIN_SLOT"] == "worker[1]":
    threading.Thread(target=take, daemon=True).start()
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
`

func TestOutOfMemoryItGetsMore(t *testing.T) {
	s := newDemo(t, 4)
	s.MemoryIsLimited()
	s.Together()
	s.Write("hog.py", hog)
	s.Edit("job.hcl", `"train.py"`, `"hog.py"`)
	s.Edit("job.hcl", `memory = "256MiB"`, `memory = "128MiB"`)
	s.Edit("job.hcl", "heal {", "heal {\n    on \"oom\" {\n      memory = \"x2\"\n    }")
	s.Watch()
	after := s.Await("the second pod of worker[1]", func(j site.Job) bool {
		return j.Worker(1).Incarnation > 1 && j.Trains(4, 2)
	})
	s.Blamed(after, "oom", []site.Slot{after.Worker(1)}, "killed by the kernel for memory")
	for _, slot := range after.Slots {
		want := resource.MustParse("128Mi")
		if slot.Address == after.Worker(1).Address {
			want = resource.MustParse("256Mi")
		}
		pod := s.Pod(slot.Name)
		if got := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; !got.Equal(want) {
			t.Errorf("%s has %s of memory, want %s", slot.Address, &got, &want)
		}
	}
	s.EndsRight(site.Steps)
}

// The next master completes the healing that a killed master has begun, whenever it was killed during the creation of a pod, and
// does nothing twice.
func TestMasterKilledWhileItMakesAPod(t *testing.T) {
	soak.Only(t)
	for name, made := range map[string]bool{"before the API server has it": false, "after the API server has it": true} {
		t.Run(name, func(t *testing.T) {
			s := newDemo(t, 5)
			s.SetSteps(2 * site.Steps)
			s.SetLease(site.Lenient)
			listen := "-listen=" + loopback.Free(t) // of both: of another, agents might hear late
			gate := s.Through()
			m := s.Watch(listen)
			before := s.AwaitWorld(4, 1)
			victim := before.Worker(1)
			held, _ := gate.StopAt(0, "post pods", made)
			heal.KillAgents(s.Site.Site, []site.Slot{victim})
			select {
			case <-held:
			case <-time.After(site.Bound):
				t.Fatalf("it makes no pod; it has written %v", gate.Asked())
			}
			m.Kill()
			gate.Open()
			s.Watch(listen)
			after := s.AwaitWorld(4, before.Generation+1)
			s.ReplacedOnce(before, after, victim)
			s.EndsRight(2 * site.Steps)
			s.ReplacedOnce(before, s.Now(), victim) // and not again
		})
	}
}

// Two masters of one state in the cluster: one leads, the other takes over when it dies.
func TestStandbyTakesOverWithinTheLease(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.SetSteps(8 * site.Steps)
	s.Edit("job.hcl", "eltrain {", "eltrain {\n  state \"kubernetes\" {\n    name = \"e2e\"\n  }")
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	standby := s.Elsewhere()
	next := standby.Watch("-lock-timeout=1h")
	next.AwaitOutput("lock")
	s.Renewed("e2e")
	m.Kill()
	s.TakenOver("e2e")
	next.AwaitOutput("Watching.")
	after := standby.Await("the same world with its new master", func(j site.Job) bool { return j.Trains(4, 1) })
	s.Undisturbed(before, after)
	// The standby leads now: it heals.
	site.Kill(t, syscall.SIGKILL, standby.TrainerOf(after.Worker(3)))
	healed := standby.AwaitWorld(4, after.Generation+1)
	standby.Untouched(after, healed)
	next.Interrupt()
	s.Watch() // for the way back
	back := s.AwaitWorld(4, healed.Generation)
	if back.Generation != healed.Generation {
		t.Errorf("the hand-over back made generation %d of %d", back.Generation, healed.Generation)
	}
	s.ContinuesRight(8 * site.Steps)
}
