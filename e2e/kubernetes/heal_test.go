package kubernetes

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kills that e2e has for processes of one machine, and those that only a cluster knows.

func TestProcessKilledIsRestartedInPlace(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(2)
	kill(t, syscall.SIGKILL, s.trainerOf(victim))
	after := s.awaitWorld(4, before.Generation+1)
	if after.Generation != before.Generation+1 {
		t.Errorf("generation %d -> %d", before.Generation, after.Generation)
	}
	s.untouched(before, after)
	now := after.worker(2)
	if now.Incarnation != victim.Incarnation || now.Node != victim.Node || now.Rank != victim.Rank || now.Restarts != victim.Restarts+1 {
		t.Errorf("%+v -> %+v", victim, now)
	}
	s.blamed(after, "process_killed", []slotStatus{victim}, "signal: killed")
	if action := after.last().Action; action != "restart_in_place" {
		t.Errorf("the action is %s", action)
	}
	s.endsRight(steps)
}

func TestAgentKilledIsReplaced(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(1)
	trainer := s.trainerOf(victim)
	kill(t, syscall.SIGKILL, s.agentOf(victim))
	s.gone(trainer) // it is the pod's first process: nothing outlives it
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "agent_gone", []slotStatus{victim}, "its agent ended: signal: killed")
	s.endsRight(steps)
}

func TestRankZeroAndAnotherAgentKilledAtOnce(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	before := s.awaitWorld(4, 1)
	var victims []slotStatus
	for _, slot := range before.Slots {
		if slot.Rank == 0 || slot.Rank == 2 {
			victims = append(victims, slot)
		}
	}
	kill(t, syscall.SIGKILL, s.agentOf(victims[0]), s.agentOf(victims[1]))
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victims...)
	s.endsRight(steps)
}

// replaced checks that these slots have other pods, keep their addresses, and that nobody else has.
func (s *site) replaced(before, after jobStatus, victims ...slotStatus) {
	s.t.Helper()
	s.untouched(before, after, victims...)
	for _, victim := range victims {
		for _, now := range after.Slots {
			if now.Address == victim.Address && (now.Incarnation <= victim.Incarnation || now.Name == victim.Name) {
				s.t.Errorf("%+v -> %+v: it has no other pod", victim, now)
			}
		}
	}
}

func (s *site) deletePod(name string, grace *int64) {
	s.t.Helper()
	s.ok(cluster.Admin().CoreV1().Pods(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: grace}))
}

func TestPodDeletedByHandIsReplaced(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(2)
	s.deletePod(victim.Name, nil)
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "deleted", []slotStatus{victim}, "pod "+victim.Name+" was deleted at ", "not by this master")
	s.endsRight(steps)
}

func TestPodDeletedWithNoGraceIsReplaced(t *testing.T) {
	s := newSite(t, 4)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(0)
	now := int64(0)
	s.deletePod(victim.Name, &now)
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "deleted", []slotStatus{victim}, "pod "+victim.Name)
	s.endsRight(steps)
}

func TestPodEvictedThroughTheAPIIsReplaced(t *testing.T) {
	s := newSite(t, 5)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(3)
	s.ok(cluster.Admin().PolicyV1().Evictions(s.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: victim.Name}}))
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "evicted", []slotStatus{victim}, "EvictionByEvictionAPI")
	s.endsRight(steps)
}

func TestPodEvictedByItsNodeGoesElsewhere(t *testing.T) {
	s := newSite(t, 5)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(1)
	s.ok(s.kubelet.Evict(s.namespace, victim.Name, "The node was low on resource: memory."))
	after := s.awaitWorld(4, before.Generation+1)
	s.replaced(before, after, victim)
	s.blamed(after, "evicted", []slotStatus{victim}, "The node was low on resource: memory.")
	if now := after.worker(1); now.Node == victim.Node {
		t.Errorf("it is on %s again, though another node is free", now.Node)
	}
	s.endsRight(steps)
}

// foreign makes a pod that is none of eltrain's and takes one node of the test.
func (s *site) foreign(name, priorityClass string) {
	s.t.Helper()
	grace := int64(0)
	_, err := cluster.Admin().CoreV1().Pods(s.namespace).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{poolLabel: s.namespace}, PriorityClassName: priorityClass, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: agentImage, Command: []string{"sleep", "3600"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}, metav1.CreateOptions{})
	s.ok(err)
}

// nodeOf waits until a pod runs, and gives its node.
func (s *site) nodeOf(pod string) (node string) {
	s.t.Helper()
	s.until("pod "+pod+" runs", func() bool {
		o, err := cluster.Admin().CoreV1().Pods(s.namespace).Get(s.t.Context(), pod, metav1.GetOptions{})
		s.ok(err)
		node = o.Spec.NodeName
		return o.Status.Phase == corev1.PodRunning
	})
	return node
}

func TestPreemptedItShrinksAndGrowsAgain(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	urgent := s.namespace + "-urgent" // the class is the whole cluster's
	classes := cluster.Admin().SchedulingV1().PriorityClasses()
	_, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}, metav1.CreateOptions{})
	s.ok(err)
	t.Cleanup(func() { classes.Delete(context.Background(), urgent, metav1.DeleteOptions{}) })
	s.watch()
	before := s.awaitWorld(4, 1)
	s.foreign("urgent", urgent)
	victim := before.on(s.nodeOf("urgent"))
	after := s.awaitWorld(3, before.Generation+1)
	s.untouched(before, after, victim)
	s.blamed(after, "preempted", []slotStatus{victim}, "PreemptionByScheduler")
	now := int64(0)
	s.deletePod("urgent", &now)
	s.awaitWorld(4, after.Generation+1)
	s.endsRight(2 * steps)
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
	s := newSite(t, 4)
	if err := s.kubelet.LimitsMemory(); err != nil {
		t.Skipf("memory limits are not enforced here: %v", err)
	}
	s.write("hog.py", hog)
	s.edit("job.hcl", `"train.py"`, `"hog.py"`)
	s.edit("job.hcl", `memory = "256MiB"`, `memory = "128MiB"`)
	s.edit("job.hcl", "heal {", "heal {\n    on \"oom\" {\n      memory = \"x2\"\n    }")
	s.watch()
	after := s.await("the second pod of worker[1]", func(j jobStatus) bool {
		return j.worker(1).Incarnation > 1 && j.trains(4, 2)
	})
	s.blamed(after, "oom", []slotStatus{after.worker(1)}, "killed by the kernel for memory")
	for _, slot := range after.Slots {
		want := resource.MustParse("128Mi")
		if slot.Address == after.worker(1).Address {
			want = resource.MustParse("256Mi")
		}
		pod := s.pods()[slot.Name]
		if got := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; !got.Equal(want) {
			t.Errorf("%s has %s of memory, want %s", slot.Address, &got, &want)
		}
	}
	s.endsRight(steps)
}

// A node that dies says nothing. eltrain acts at its own lease; Kubernetes thinks for 40 s that all is well.
func TestNodeThatLosesItsPowerIsLeftAtTheLease(t *testing.T) {
	s := newSite(t, 5)
	s.setSteps(2 * steps)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(2)
	s.ok(s.kubelet.PowerOff(victim.Node))
	after := s.await("training without the lost node", func(j jobStatus) bool {
		return j.trains(4, before.Generation+1) && j.worker(2).Name != victim.Name
	})
	if !s.ready(victim.Node) {
		t.Error("Kubernetes was the first to see it")
	}
	if now := after.worker(2); now.Node == victim.Node {
		t.Errorf("%+v is on the lost node", now)
	}
	s.replaced(before, after, victim)
	s.blamed(after, "lease_lost", []slotStatus{victim}, "not heard of for the whole lease")
	s.ok(s.kubelet.Reconnect(t.Context(), victim.Node)) // or its pod is there until the cluster gives the node up
	s.endsRight(2 * steps)
}

// A node that is cut off comes back, with a pod that believes to be of this world.
func TestNodeCutOffAndItsZombieIsFenced(t *testing.T) {
	s := newSite(t, 5)
	s.setSteps(2 * steps)
	s.watch()
	before := s.awaitWorld(4, 1)
	victim := before.worker(0)
	agent, trainer := s.agentOf(victim), s.trainerOf(victim)
	s.ok(s.kubelet.Disconnect(victim.Node))
	kill(t, syscall.SIGSTOP, agent, trainer)
	after := s.await("training without the lost node", func(j jobStatus) bool {
		return j.trains(4, before.Generation+1) && j.worker(0).Name != victim.Name
	})
	if !s.ready(victim.Node) {
		t.Error("Kubernetes was the first to see it")
	}
	s.replaced(before, after, victim)
	s.blamed(after, "lease_lost", []slotStatus{victim})
	kill(t, syscall.SIGCONT, agent, trainer)
	s.gone(trainer)
	s.gone(agent)
	if now := s.job(); now.Generation != after.Generation || !maps.Equal(now.podNames(), after.podNames()) {
		t.Errorf("the zombie disturbed its successor: %+v -> %+v", after, now)
	}
	s.ok(s.kubelet.Reconnect(t.Context(), victim.Node)) // or its pod is there until the cluster gives the node up
	s.endsRight(2 * steps)
}

func TestNodesDeletedDownToMinAndBelow(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	s.watch()
	before := s.awaitWorld(4, 1)
	remove := func(n int) {
		t.Helper()
		s.ok(s.kubelet.PowerOff(s.node(n)))
		cluster.RemoveNode(t, s.node(n))
	}
	first := before.on(s.node(1))
	remove(1)
	three := s.awaitWorld(3, before.Generation+1)
	s.untouched(before, three, first)
	s.blamed(three, "node_gone", []slotStatus{first}, "node "+s.node(1)+" was removed")
	remove(2)
	two := s.awaitWorld(2, three.Generation+1)
	remove(3)
	s.await("waiting below min, with what is wanted", func(j jobStatus) bool {
		return j.Phase == "Degraded" && j.WorldSize == 0 && strings.Contains(strings.Join(j.Reasons, "\n"), "Wanted: 1 worker with 1 cpu, 256MiB each")
	})
	for n := range 3 {
		s.ok(s.kubelet.Reconnect(t.Context(), s.node(n+1)))
	}
	s.awaitWorld(4, two.Generation+1)
	s.endsRight(2 * steps)
}

func TestMasterKilledAndTheNextTakesOver(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	s.watch()
	before := s.awaitWorld(4, 1)
	trainers := s.trainers(before)
	for range 3 {
		s.signalMaster(syscall.SIGKILL)
		s.watch()
		after := s.awaitWorld(4, 1)
		if after.Generation != before.Generation || !maps.Equal(s.trainers(after), trainers) {
			t.Errorf("training processes were restarted: generation %d -> %d, %v -> %v", before.Generation, after.Generation, trainers, s.trainers(after))
		}
	}
	s.endsRight(2 * steps)
}

// freeAddress is one that nobody listens at now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestFaultWhileNoMasterRuns(t *testing.T) {
	now := int64(0)
	for name, fault := range map[string]func(s *site, j jobStatus){
		"agent killed": func(s *site, j jobStatus) { kill(s.t, syscall.SIGKILL, s.agentOf(j.worker(1))) },
		"pod deleted":  func(s *site, j jobStatus) { s.deletePod(j.worker(1).Name, &now) },
		"node deleted": func(s *site, j jobStatus) {
			s.ok(s.kubelet.PowerOff(j.worker(1).Node))
			cluster.RemoveNode(s.t, j.worker(1).Node)
		},
		"silent": func(s *site, j jobStatus) {
			kill(s.t, syscall.SIGSTOP, s.agentOf(j.worker(1)), s.trainerOf(j.worker(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 5)
			s.setSteps(2 * steps)
			// Both masters have one address: of another, agents might hear late, and the silent one is awaited as long.
			listen := "-listen=" + freeAddress(t)
			s.watch(listen)
			before := s.awaitWorld(4, 1)
			s.signalMaster(syscall.SIGKILL)
			fault(s, before)
			s.watch(listen)
			after := s.await("training with another pod", func(j jobStatus) bool {
				return j.trains(4, before.Generation+1) && j.worker(1).Name != before.worker(1).Name
			})
			s.replaced(before, after, before.worker(1))
			s.endsRight(2 * steps)
		})
	}
}

// Two masters of one state in the cluster: one leads, the other is there when it dies.
func TestStandbyTakesOverWithinTheLease(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(4 * steps)
	s.edit("job.hcl", "eltrain {", "eltrain {\n  state \"kubernetes\" {\n    name = \"e2e\"\n  }")
	s.watch()
	before := s.awaitWorld(4, 1)
	trainers := s.trainers(before)
	standby := *s
	standby.dir = t.TempDir()
	for _, name := range []string{"job.hcl", "kubernetes.hcl", "eltrain.vars"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		s.ok(err)
		standby.write(name, string(text))
	}
	standby.watch("-lock-timeout=1h")
	standby.until("the standby waits", func() bool { return strings.Contains(standby.out.String(), "lock") })
	s.signalMaster(syscall.SIGKILL)
	standby.until("the standby leads", func() bool { return strings.Contains(standby.out.String(), "Watching.") })
	after := standby.await("the same world with its new master", func(j jobStatus) bool { return j.trains(4, 1) })
	if after.Generation != before.Generation || !maps.Equal(standby.trainers(after), trainers) {
		t.Errorf("training processes were restarted: generation %d -> %d, %v -> %v", before.Generation, after.Generation, trainers, standby.trainers(after))
	}
	// It is the master: it heals.
	kill(t, syscall.SIGKILL, standby.trainerOf(after.worker(3)))
	healed := standby.awaitWorld(4, after.Generation+1)
	standby.untouched(after, healed)
	standby.signalMaster(syscall.SIGTERM)
	s.watch() // and back
	back := s.awaitWorld(4, healed.Generation)
	if back.Generation != healed.Generation {
		t.Errorf("the hand-over back made generation %d of %d", back.Generation, healed.Generation)
	}
	s.endsRight(4 * steps)
}
