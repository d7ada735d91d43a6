package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The pods as objects of the cluster: edited by hand, shown, taken away.

func TestEditedByHandIsShownAndMended(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(4 * steps) // while commands come and go
	s.must("apply", "-auto-approve")
	has(t, s.must("plan", "-detailed-exitcode"), "No changes.")
	before := s.job()
	victim := before.worker(1)
	was := s.pods()[victim.Name]
	const label = "training.kubeflow.org/job-name"
	edit := `{"metadata":{"labels":{"` + label + `":"mine"}},"spec":{"containers":[{"name":"main","image":"other:1"}]}}`
	pods := cluster.Admin().CoreV1().Pods(s.namespace)
	_, err := pods.Patch(t.Context(), victim.Name, types.StrategicMergePatchType, []byte(edit), metav1.PatchOptions{})
	s.ok(err)
	out, code := s.eltrain("plan", "-detailed-exitcode")
	if code != 2 {
		t.Errorf("plan: exit code %d", code)
	}
	has(t, out, "job.mnist.worker[1]", label, `"mine" -> "mnist"`, `"other:1" -> "trainer"`, "Plan: 0 to add, 1 to change, 0 to remove.")
	s.must("apply", "-auto-approve")
	now := s.pods()[victim.Name]
	if now.UID != was.UID || now.Labels[label] != s.name || now.Spec.Containers[0].Image != trainerImage {
		t.Errorf("it was not mended in place: %s %v %s", now.UID, now.Labels, now.Spec.Containers[0].Image)
	}
	has(t, s.must("plan", "-detailed-exitcode"), "No changes.")
	s.watch()
	after := s.awaitWorld(4, 1)
	s.untouched(before, after)
	if after.Generation != 1 {
		t.Errorf("generation %d: mending labels is no reason to restart", after.Generation)
	}
	s.endsRight(4 * steps)
}

func TestDestroyLeavesNothing(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(100 * steps)
	s.watch()
	s.awaitWorld(4, 1)
	// All of this is there, or the check after it would say nothing.
	there := strings.Join(s.left(), "\n")
	for _, kind := range []string{"Pod ", "Secret ", "ConfigMap ", "Service ", "PodDisruptionBudget ", "process "} {
		if !strings.Contains(there, kind) {
			t.Errorf("there is no %s while it trains:\n%s", kind, there)
		}
	}
	s.signalMaster(syscall.SIGTERM)
	out := s.must("destroy", "-auto-approve")
	has(t, out, "Destroy complete! Resources: 4 removed.")
	if pids := s.processes(); len(pids) > 0 {
		t.Errorf("a destroy has ended and these run: %v", pids)
	}
	s.until("nothing is left", func() bool { return len(s.left()) == 0 })
	if j := s.job(); len(j.Slots) > 0 {
		t.Errorf("status after it: %+v", j)
	}
}

// Output, status and events of what runs in pods.
func TestLogsStatusAndEventsOfPods(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	s.watch()
	j := s.awaitWorld(4, 1)
	pods := s.pods()
	for _, slot := range j.Slots {
		pod, there := pods[slot.Name]
		if !there || pod.Labels["eltrain.dev/index"] != strings.Trim(slot.Address[len("job.mnist.worker"):], "[]") {
			t.Errorf("%s is said to be pod %q: %v", slot.Address, slot.Name, pod.Labels)
		}
	}
	var first slotStatus
	for _, slot := range j.Slots {
		if slot.Rank == 0 {
			first = slot
		}
	}
	out := s.must("logs", first.Address)
	has(t, out, "rank 0 of 4 begins after step 0", "step 10 loss ")
	if other := s.must("logs", "-tail=1", "job.mnist.worker"); strings.Count(other, "job.mnist.worker[") < 4 && strings.Count(other, "worker[") < 4 {
		t.Errorf("one line of each slot:\n%s", other)
	}
	follow := s.command(t.Context(), "logs", "-f", "-tail=0", first.Address)
	said := &lines{}
	follow.Stdout, follow.Stderr = said, said
	s.ok(follow.Start())
	s.until("new lines are followed", func() bool { return strings.Count(said.String(), " loss ") > 2 })
	s.ok(follow.Process.Signal(os.Interrupt))
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f, interrupted: %v\n%s", err, said)
	}
	kill(t, syscall.SIGKILL, s.trainerOf(first))
	s.awaitWorld(4, j.Generation+1)
	has(t, s.must("logs", first.Address), fmt.Sprintf("generation %d", j.Generation+1)) // the same pod: both worlds
	has(t, s.must("events"), "world_formed job.mnist: generation 1: 4 slots, 4 processes", "process killed")
	s.endsRight(2 * steps)
	has(t, s.must("logs", first.Address), fmt.Sprintf("step %d loss ", 2*steps)) // of a pod that has ended
}
