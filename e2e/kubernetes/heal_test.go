package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/soak"
)

// The kills that e2e has for processes of one machine, and those that only a cluster knows.

func TestProcessKilledIsRestartedInPlace(t *testing.T) {
	s := newDemo(t, 4)
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(2)
	site.Kill(t, syscall.SIGKILL, s.TrainerOf(victim))
	after := s.AwaitWorld(4, before.Generation+1)
	if after.Generation != before.Generation+1 {
		t.Errorf("generation %d -> %d", before.Generation, after.Generation)
	}
	s.Untouched(before, after)
	now := after.Worker(2)
	if now.Incarnation != victim.Incarnation || now.Node != victim.Node || now.Rank != victim.Rank || now.Restarts != victim.Restarts+1 {
		t.Errorf("%+v -> %+v", victim, now)
	}
	s.Blamed(after, "process_killed", []site.Slot{victim}, "signal: killed")
	if action := after.Last().Action; action != "restart_in_place" {
		t.Errorf("the action is %s", action)
	}
	s.EndsRight(site.Steps)
}

func TestAgentKilledIsReplaced(t *testing.T) {
	s := newDemo(t, 4)
	s.NotByLease()
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(1)
	trainer := s.TrainerOf(victim)
	site.Kill(t, syscall.SIGKILL, s.AgentOf(victim))
	site.Gone(t, trainer) // it is the pod's first process: nothing outlives it
	after := s.AwaitWorld(4, before.Generation+1)
	s.Replaced(before, after, victim)
	s.Blamed(after, "agent_gone", []site.Slot{victim}, "its agent ended: signal: killed")
	s.EndsRight(site.Steps)
}

func TestAgentAskedToGoSaysSo(t *testing.T) {
	s := newDemo(t, 4)
	s.NotByLease()
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(1)
	agent := s.AgentOf(victim)
	site.Kill(t, syscall.SIGTERM, agent)
	after := s.AwaitWorld(4, before.Generation+1)
	site.Gone(t, agent)
	s.Replaced(before, after, victim)
	s.Blamed(after, "agent_left", []site.Slot{victim})
	s.EndsRight(site.Steps)
}

// On a node that is well all of a pod may hang. It is replaced at the lease, and its node ends what never wakes.
func TestSilentPodOnAHealthyNodeIsGoneAfterItsLease(t *testing.T) {
	s := newDemo(t, 5)
	s.SetSteps(2 * site.Steps)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(2)
	agent, trainer := s.AgentOf(victim), s.TrainerOf(victim)
	site.Kill(t, syscall.SIGSTOP, agent, trainer)
	after := s.Await("training with another pod", func(j site.Job) bool {
		return j.Trains(4, before.Generation+1) && j.Worker(2).Name != victim.Name
	})
	beforeKubernetes(s, victim, after.Worker(2))
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "lease_lost", []site.Slot{victim}, "no heartbeat for the whole lease")
	site.Gone(t, trainer)
	site.Gone(t, agent)
	s.EndsRight(2 * site.Steps)
}

func TestRankZeroAndAnotherAgentKilledAtOnce(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.NotByLease()
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	var victims []site.Slot
	for _, slot := range before.Slots {
		if slot.Rank == 0 || slot.Rank == 2 {
			victims = append(victims, slot)
		}
	}
	site.Kill(t, syscall.SIGKILL, s.AgentOf(victims[0]), s.AgentOf(victims[1]))
	after := s.AwaitWorld(4, before.Generation+1)
	s.Replaced(before, after, victims...)
	s.EndsRight(site.Steps)
}

func TestOneLostWhileAWorldForms(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	trainer, agent := s.TrainerOf(before.Worker(1)), s.AgentOf(before.Worker(3))
	site.Kill(t, syscall.SIGKILL, trainer)
	// At once after it, while the survivors stop and come together again.
	site.Kill(t, syscall.SIGKILL, agent)
	after := s.AwaitWorld(4, before.Generation+1)
	s.Replaced(before, after, before.Worker(3))
	s.EndsRight(site.Steps)
}

func TestPodDeletedByHandIsReplaced(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(2 * site.Steps) // the others train on while its old pod has the only node
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(2)
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	after := s.AwaitWorld(4, before.Generation+1)
	s.Replaced(before, after, victim)
	s.Blamed(after, "deleted", []site.Slot{victim}, "pod "+victim.Name+" was deleted at ", "not by this master")
	s.EndsRight(2 * site.Steps)
}

func TestPodDeletedWithNoGraceIsReplaced(t *testing.T) {
	s := newDemo(t, 4)
	s.NotByLease()
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(0)
	s.DeletePod(victim.Name, site.AtOnce())
	after := s.AwaitWorld(4, before.Generation+1)
	s.Replaced(before, after, victim)
	s.Blamed(after, "deleted", []site.Slot{victim}, "pod "+victim.Name)
	s.EndsRight(site.Steps)
}

func TestPodEvictedThroughTheAPIIsReplaced(t *testing.T) {
	s := newDemo(t, 5)
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(3)
	counted(s, 4)
	s.OK(cluster.Admin().PolicyV1().Evictions(s.Namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: victim.Name}}))
	after := s.AwaitWorld(4, before.Generation+1)
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "evicted", []site.Slot{victim}, "EvictionByEvictionAPI")
	s.EndsRight(site.Steps)
}

// slow is the training, but the second slot takes its time to end.
const slow = `import os, runpy, signal, sys, time

def end(*_):
    time.sleep(3)
    sys.exit(1)

if os.environ["ELTRAIN_SLOT"] == "worker[1]":
    signal.signal(signal.SIGTERM, end)
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
`

// A kubelet says that it puts a pod out when that has ended, and its agent when it is asked to end: that may be long before.
func TestPodEvictedByItsNodeGoesElsewhere(t *testing.T) {
	for name, training := range map[string]string{"ends at once": "train.py", "takes its time to end": "slow.py"} {
		t.Run(name, func(t *testing.T) {
			s := newDemo(t, 5)
			s.SetSteps(2 * site.Steps)
			s.Write("slow.py", slow)
			s.Edit("job.hcl", `"train.py"`, `"`+training+`"`)
			s.Edit("job.hcl", `stop_grace = "5s"`, `stop_grace = "60s"`) // as long its kubelet may take to say so
			s.Watch()
			before := s.AwaitWorld(4, 1)
			victim := before.Worker(1)
			s.OK(s.Kubelet.Evict(s.Namespace, victim.Name, "The node was low on resource: memory.", time.Minute))
			after := s.AwaitWorld(4, before.Generation+1)
			s.ReplacedOnce(before, after, victim)
			s.Blamed(after, "evicted", []site.Slot{victim}, "The node was low on resource: memory.")
			if now := after.Worker(1); now.Node == victim.Node {
				t.Errorf("it is on %s again, though another node is free", now.Node)
			}
			s.EndsRight(2 * site.Steps)
		})
	}
}

// A node that shuts down says that it is not ready, and goes on to tell what becomes of its pods: it is not taken for lost.
func TestPodDeletedOnANodeThatShutsDownIsReplaced(t *testing.T) {
	s := newDemo(t, 5)
	s.Together()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(2)
	s.OK(s.Kubelet.NotReady(victim.Node, "node is shutting down"))
	site.Until(t, "the node says that it is not ready", func() bool { return !s.Ready(victim.Node) })
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	after := s.AwaitWorld(4, before.Generation+1)
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "deleted", []site.Slot{victim}, "pod "+victim.Name+" was deleted at ", "not by this master")
	if evidence := strings.Join(after.Last().Evidence, "\n"); strings.Contains(evidence, "nothing can report") {
		t.Errorf("its end was seen, and the evidence is %q", evidence)
	}
	if now := after.Worker(2); now.Node == victim.Node {
		t.Errorf("it is on %s again, which takes no more", now.Node)
	}
	s.EndsRight(site.Steps)
}

func TestPreemptedItShrinksAndGrowsAgain(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long) // should its pod once not be bound after all, it rests for 30 s before it grows into that slot again
	urgent := s.Urgent()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	s.Foreign("urgent", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = urgent })
	victim := before.On(s.NodeOf("urgent"))
	after := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, after, victim)
	s.Blamed(after, "preempted", []site.Slot{victim}, "PreemptionByScheduler")
	s.DeletePod("urgent", site.AtOnce())
	s.AwaitWorld(4, after.Generation+1)
	s.GoesOnRight(long)
}

func TestScriptWithABugFailsTheJobWithItsEvidence(t *testing.T) {
	s := newDemo(t, 2)
	s.Write("train.py", `raise RuntimeError("the bug was met")`) // in every rank: none ends because another did
	s.Edit("job.hcl", "restarts = 10", "restarts = 2")
	m := s.Watch()
	failed := s.Await("failure", func(j site.Job) bool { return j.Phase == "Failed" })
	last := failed.Last()
	evidence := strings.Join(last.Evidence, "\n")
	if last.Action != "fail" || last.Cause != "process_failed" {
		t.Errorf("the incident is %+v", last)
	}
	site.Has(t, evidence, "exit code 1", "output: RuntimeError: the bug was met")
	if out, code := s.Run("status"); code != 1 {
		t.Errorf("status exits with %d for a failed job:\n%s", code, out)
	}
	site.Until(t, "nothing of a failed job runs", func() bool { return len(s.Processes()) == 0 })
	m.Interrupt()
}

func TestMissingCommandFailsAtOnce(t *testing.T) {
	s := newDemo(t, 2)
	s.Edit("job.hcl", "[var.python,", `["no-such-program",`)
	out, code := s.Run("apply", "-auto-approve")
	if code != 1 {
		t.Errorf("apply: exit code %d", code)
	}
	site.Has(t, out, "cannot be started")
	j := s.Now()
	if j.Phase != "Failed" {
		t.Errorf("the job is %s", j.Phase)
	}
	// The plan names the command, too: only the evidence says that it is the matter.
	site.Has(t, strings.Join(j.Last().Evidence, "\n"), "could not be started: ", "no-such-program")
}

// A runtime that cannot start a container, on a node that says it is well, is no fault of the job's: its budget is not
// touched, however often that happens, and whoever can train does.
func TestNodeThatStartsNoContainerIsNotTheJobsFault(t *testing.T) {
	const long = 8 * site.Steps
	s := newDemo(t, 4)
	s.Edit("job.hcl", "restarts = 10", "restarts = 0")
	s.SetSteps(long)
	bad := s.Node(2)
	s.OK(s.Kubelet.FailStarts(bad, "failed to create shim task: context deadline exceeded: unknown"))
	s.Watch()
	three := s.Await("a world of 3, and a slot that was tried three times and is to be again", func(j site.Job) bool {
		tried := slices.ContainsFunc(j.Slots, func(slot site.Slot) bool { return slot.Incarnation > 3 })
		return j.WorldSize == 3 && tried && j.Last().Action != "" // none before its pause is over
	})
	if last := three.Last(); last.Cause != "node_failed" || last.Action != "replace" {
		t.Errorf("the incident is %+v", last)
	}
	site.Has(t, strings.Join(three.Last().Evidence, "\n"), "node "+bad+" could not start it: init container eltrain-agent ended with 128: StartError: failed to create containerd task: failed to create shim task: context deadline exceeded")
	s.OK(s.Kubelet.FailStarts(bad, ""))
	four := s.AwaitWorld(4, three.Generation+1)
	if four.On(bad).Address == "" {
		t.Errorf("nobody is on the node that was mended: %+v", four.Slots)
	}
	s.GoesOnRight(long)
}

// fetching is an init container of a user's, beside what is in the role already.
const fetching = `stop_grace = "5s"
    pod = { spec = { initContainers = [{
      name    = "fetch"
      image   = var.image
      command = ["sh", "-c", %q]
    }] } }
`

// What a user puts in front of the training may fail and is tried again, within the budget: it is the job's own.
func TestInitContainerThatFailsIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		ends   func(*site.Demo)
	}{
		"and goes well": {"! mkdir first && ! mkdir second", func(s *site.Demo) { // each is made by one pod, which fails
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
		"until the budget is spent": {"exit 3", func(s *site.Demo) {
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

// buggy is the training, with a bug that SIGUSR2 meets.
const buggy = `import runpy, signal, sys

def fail(*_):
    raise RuntimeError("the bug was met")

signal.signal(signal.SIGUSR2, fail)
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
`

// While no master runs a process fails and its pod ends: the next master has what it failed of from the pod's
// termination message, where the agent has said it last.
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
	agent, trainers := s.AgentOf(victim), s.Trainers(before)
	m.Kill()
	site.Kill(t, syscall.SIGUSR2, trainers[victim.Address])
	for _, trainer := range trainers { // it is the first: the others miss it
		site.Gone(t, trainer)
	}
	site.Kill(t, syscall.SIGTERM, agent)
	site.Gone(t, agent)
	s.Watch(listen)
	after := s.AwaitWorld(4, before.Generation+1)
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "process_failed", []site.Slot{victim}, "exit code 1", "error file: RuntimeError: the bug was met", "output: ")
	s.EndsRight(2 * site.Steps)
}

// hog is the training, but the second slot takes 160 MB soon.
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

// beforeKubernetes checks that the next pod of a slot that fell silent was made before Kubernetes had given its node up,
// some 40 s after its last word.
func beforeKubernetes(s *site.Demo, lost, next site.Slot) {
	s.T.Helper()
	made := s.Pod(next.Name).CreationTimestamp
	if seen := s.NotReadySince(lost.Node); !seen.IsZero() && seen.Before(&made) {
		s.T.Errorf("pod %s was made at %v, and Kubernetes knew at %v that %s is lost", next.Name, made, seen, lost.Node)
	}
}

// A node that dies says nothing. eltrain acts at its own lease; Kubernetes thinks for 40 s that all is well.
func TestNodeThatLosesItsPowerIsLeftAtTheLease(t *testing.T) {
	s := newDemo(t, 5)
	s.SetSteps(2 * site.Steps)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(2)
	s.OK(s.Kubelet.PowerOff(victim.Node))
	after := s.Await("training without the lost node", func(j site.Job) bool {
		return j.Trains(4, before.Generation+1) && j.Worker(2).Name != victim.Name
	})
	if now := after.Worker(2); now.Node == victim.Node {
		t.Errorf("%+v is on the lost node", now)
	}
	beforeKubernetes(s, victim, after.Worker(2))
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "lease_lost", []site.Slot{victim}, "no heartbeat for the whole lease")
	s.Reconnect(victim.Node) // or its pod is there until the cluster gives the node up
	s.EndsRight(2 * site.Steps)
}

// A node that is cut off comes back, with a pod that believes to be of this world.
func TestNodeCutOffAndItsZombieIsFenced(t *testing.T) {
	s := newDemo(t, 5)
	s.SetSteps(2 * site.Steps)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	victim := before.Worker(0)
	agent, trainer := s.AgentOf(victim), s.TrainerOf(victim)
	s.OK(s.Kubelet.Disconnect(victim.Node))
	site.Kill(t, syscall.SIGSTOP, agent, trainer)
	after := s.Await("training without the lost node", func(j site.Job) bool {
		return j.Trains(4, before.Generation+1) && j.Worker(0).Name != victim.Name
	})
	beforeKubernetes(s, victim, after.Worker(0))
	s.ReplacedOnce(before, after, victim)
	s.Blamed(after, "lease_lost", []site.Slot{victim})
	site.Kill(t, syscall.SIGCONT, trainer, agent) // the agent last: once it runs, it ends the other
	site.Gone(t, trainer)
	site.Gone(t, agent)
	if now := s.Now(); now.Generation != after.Generation || !maps.Equal(now.PodNames(), after.PodNames()) {
		t.Errorf("the zombie disturbed its successor: %+v -> %+v", after, now)
	}
	s.Reconnect(victim.Node) // or its pod is there until the cluster gives the node up
	s.EndsRight(2 * site.Steps)
}

func TestNodesDeletedDownToMinAndBelow(t *testing.T) {
	s := newDemo(t, 4)
	s.NotByLease()
	s.SetSteps(2 * site.Steps)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	first := before.On(s.Node(1))
	s.Delete(s.Node(1))
	three := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, three, first)
	s.Blamed(three, "node_gone", []site.Slot{first}, "node "+s.Node(1)+" was removed")
	s.Delete(s.Node(2))
	two := s.AwaitWorld(2, three.Generation+1)
	s.Delete(s.Node(3))
	s.Await("waiting below min, with what is wanted", func(j site.Job) bool {
		return j.Phase == "Degraded" && j.WorldSize == 0 && j.Says("Wanted: 1 worker with 1 cpu, 256MiB each")
	})
	for n := range 3 {
		s.Reconnect(s.Node(n + 1))
	}
	s.AwaitWorld(4, two.Generation+1)
	s.EndsRight(2 * site.Steps)
}

func TestMasterKilledAndTheNextTakesOver(t *testing.T) {
	const long = 4 * site.Steps // while masters come and go
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	trainers := s.Trainers(before)
	for range 3 {
		m.Kill()
		m = s.Watch()
		after := s.AwaitWorld(4, 1)
		if after.Generation != before.Generation || !maps.Equal(s.Trainers(after), trainers) {
			t.Errorf("training processes were restarted: generation %d -> %d, %v -> %v", before.Generation, after.Generation, trainers, s.Trainers(after))
		}
	}
	s.EndsRight(long)
}

func TestFaultWhileNoMasterRuns(t *testing.T) {
	soak.Only(t)
	for name, fault := range map[string]func(s *site.Demo, j site.Job){
		"agent killed": func(s *site.Demo, j site.Job) { site.Kill(s.T, syscall.SIGKILL, s.AgentOf(j.Worker(1))) },
		"pod deleted":  func(s *site.Demo, j site.Job) { s.DeletePod(j.Worker(1).Name, site.AtOnce()) },
		"node deleted": func(s *site.Demo, j site.Job) {
			s.Delete(j.Worker(1).Node)
		},
		"silent": func(s *site.Demo, j site.Job) {
			site.Kill(s.T, syscall.SIGSTOP, s.AgentOf(j.Worker(1)), s.TrainerOf(j.Worker(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDemo(t, 5)
			s.SetSteps(2 * site.Steps)
			s.SetLease(site.Lenient)
			// Both masters have one address: of another, agents might hear late, and the silent one is awaited as long.
			listen := "-listen=" + loopback.Free(t)
			m := s.Watch(listen)
			before := s.AwaitWorld(4, 1)
			m.Kill()
			fault(s, before)
			s.Watch(listen)
			after := s.Await("training with another pod", func(j site.Job) bool {
				return j.Trains(4, before.Generation+1) && j.Worker(1).Name != before.Worker(1).Name
			})
			s.ReplacedOnce(before, after, before.Worker(1))
			s.EndsRight(2 * site.Steps)
			s.ReplacedOnce(before, s.Now(), before.Worker(1)) // and it was left at that
		})
	}
}

// The next master completes what the one before has begun to heal, wherever it was killed in that, and does nothing twice.
func TestMasterKilledInTheMiddleOfHealing(t *testing.T) {
	soak.Only(t)
	agentKilled := func(s *site.Demo, j site.Job) { site.Kill(s.T, syscall.SIGKILL, s.AgentOf(j.Worker(1))) }
	for name, c := range map[string]struct {
		fault    func(s *site.Demo, j site.Job)
		replaced []int // the workers that it costs their pods
		making   bool  // it is killed while it makes a pod, not at once
		made     bool  // of which the API server has heard
	}{
		"process killed":    {fault: func(s *site.Demo, j site.Job) { site.Kill(s.T, syscall.SIGKILL, s.TrainerOf(j.Worker(2))) }},
		"agent killed":      {fault: agentKilled, replaced: []int{1}},
		"agent asked to go": {fault: func(s *site.Demo, j site.Job) { site.Kill(s.T, syscall.SIGTERM, s.AgentOf(j.Worker(3))) }, replaced: []int{3}},
		"two agents killed": {fault: func(s *site.Demo, j site.Job) {
			site.Kill(s.T, syscall.SIGKILL, s.AgentOf(j.Worker(0)), s.AgentOf(j.Worker(3)))
		}, replaced: []int{0, 3}},
		"pod deleted": {fault: func(s *site.Demo, j site.Job) { s.DeletePod(j.Worker(1).Name, site.AtOnce()) }, replaced: []int{1}},
		"agent killed, and the master before the API server has its next pod": {fault: agentKilled, replaced: []int{1}, making: true},
		"agent killed, and the master after the API server has its next pod":  {fault: agentKilled, replaced: []int{1}, making: true, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDemo(t, 5)
			s.SetSteps(2 * site.Steps)
			s.SetLease(site.Lenient)
			listen := "-listen=" + loopback.Free(t) // of both: of another, agents might hear late
			gate := s.Through()
			m := s.Watch(listen)
			before := s.AwaitWorld(4, 1)
			if !c.making {
				c.fault(s, before)
			} else {
				held, _ := gate.StopAt(0, "post pods", c.made)
				c.fault(s, before)
				select {
				case <-held:
				case <-time.After(site.Bound):
					t.Fatalf("it makes no pod; it has written %v", gate.Asked())
				}
			}
			m.Kill()
			gate.Open()
			s.Watch(listen)
			after := s.AwaitWorld(4, before.Generation+1)
			var victims []site.Slot
			for _, index := range c.replaced {
				victims = append(victims, before.Worker(index))
			}
			s.ReplacedOnce(before, after, victims...)
			s.EndsRight(2 * site.Steps)
			s.ReplacedOnce(before, s.Now(), victims...) // and it was left at that
		})
	}
}

// Masters come and go, between one fault and the next. What the last one finds is one job, each of its slots once, and
// it ends right.
func TestMastersKilledAgainAndAgain(t *testing.T) {
	soak.Only(t)
	const long = 4 * site.Steps // while masters come and go
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	listen := "-listen=" + loopback.Free(t) // of all: of another, agents might hear late
	m := s.Watch(listen)
	before := s.AwaitWorld(4, 1)
	for round := range 9 {
		m.Kill()
		m = s.Watch(listen)
		if round%3 != 0 {
			time.Sleep(time.Duration(200*(round%5)) * time.Millisecond) // a different moment each round
			continue
		}
		now := s.Await("training", func(j site.Job) bool { return len(j.Running()) == 4 })
		site.Kill(t, syscall.SIGKILL, s.TrainerOf(now.Worker(round%4)))
	}
	s.EndsRight(long)
	end := s.Now()
	s.Untouched(before, end)
	if pods := s.Pods(); len(pods) != 4 {
		t.Errorf("%d pods for 4 slots: %v", len(pods), end.PodNames())
	}
}

// Two masters of one state in the cluster: one leads, the other is there when it dies.
func TestStandbyTakesOverWithinTheLease(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.SetSteps(8 * site.Steps)
	s.Edit("job.hcl", "eltrain {", "eltrain {\n  state \"kubernetes\" {\n    name = \"e2e\"\n  }")
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	trainers := s.Trainers(before)
	standby := s.Elsewhere()
	next := standby.Watch("-lock-timeout=1h")
	next.Heard("lock")
	s.Renewed("e2e")
	m.Kill()
	s.TakenOver("e2e")
	next.Heard("Watching.")
	after := standby.Await("the same world with its new master", func(j site.Job) bool { return j.Trains(4, 1) })
	if after.Generation != before.Generation || !maps.Equal(standby.Trainers(after), trainers) {
		t.Errorf("training processes were restarted: generation %d -> %d, %v -> %v", before.Generation, after.Generation, trainers, standby.Trainers(after))
	}
	// It is the master: it heals.
	site.Kill(t, syscall.SIGKILL, standby.TrainerOf(after.Worker(3)))
	healed := standby.AwaitWorld(4, after.Generation+1)
	standby.Untouched(after, healed)
	next.Interrupt()
	s.Watch() // and back
	back := s.AwaitWorld(4, healed.Generation)
	if back.Generation != healed.Generation {
		t.Errorf("the hand-over back made generation %d of %d", back.Generation, healed.Generation)
	}
	s.GoesOnRight(8 * site.Steps)
}
