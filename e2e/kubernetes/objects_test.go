package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
)

// Pods as objects of the cluster: edited by hand, shown, deleted.

func TestEditedByHandIsShownAndMended(t *testing.T) {
	const long = 8 * site.Steps // enough for all the commands
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.Together()
	s.Must("apply", "-auto-approve")
	site.Has(t, s.Must("plan", "-detailed-exitcode"), "No changes.")
	before := s.Now()
	victim := before.Worker(1)
	was := s.Pod(victim.Name)
	const label = "training.kubeflow.org/job-name"
	edit := `{"metadata":{"labels":{"` + label + `":"mine"}},"spec":{"containers":[{"name":"main","image":"other:1"}]}}`
	pods := cluster.Admin().CoreV1().Pods(s.Namespace)
	_, err := pods.Patch(t.Context(), victim.Name, types.StrategicMergePatchType, []byte(edit), metav1.PatchOptions{})
	s.OK(err)
	out, code := s.Run("plan", "-detailed-exitcode")
	if code != 2 {
		t.Errorf("plan: exit code %d", code)
	}
	site.Has(t, out, "job.mnist.worker[1]", label, `"mine" -> "mnist"`, `"other:1" -> "trainer"`, "Plan: 0 to add, 1 to change, 0 to destroy.")
	s.Must("apply", "-auto-approve")
	now := s.Pod(victim.Name)
	if now.UID != was.UID || now.Labels[label] != s.Job || now.Spec.Containers[0].Image != podsite.TrainerImage {
		t.Errorf("it was not mended in place: %s %v %s", now.UID, now.Labels, now.Spec.Containers[0].Image)
	}
	site.Has(t, s.Must("plan", "-detailed-exitcode"), "No changes.")
	s.Watch()
	after := s.AwaitWorld(4, 1)
	s.Untouched(before, after)
	if after.Generation != before.Generation {
		t.Errorf("generation %d -> %d: reverting labels must not restart anything", before.Generation, after.Generation)
	}
	s.ContinuesRight(long)
}

func TestDestroyLeavesNothing(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(100 * site.Steps)
	m := s.Watch()
	s.AwaitWorld(4, 1)
	// All of this exists; otherwise the check after the destroy would prove nothing.
	there := strings.Join(s.Left(), "\n")
	for _, kind := range []string{"pod/", "secret/", "configmap/", "service/", "poddisruptionbudget/", "process "} {
		if !strings.Contains(there, kind) {
			t.Errorf("there is no %s while it trains:\n%s", kind, there)
		}
	}
	m.Interrupt()
	out := s.Must("destroy", "-auto-approve")
	site.Has(t, out, "Destroy complete! Resources: 4 destroyed.")
	if pids := s.Processes(); len(pids) > 0 {
		t.Errorf("a destroy has ended and these run: %v", pids)
	}
	site.Until(t, "nothing is left", func() bool { return len(s.Left()) == 0 })
	if j := s.Status(); len(j.Slots) > 0 {
		t.Errorf("status after it: %+v", j)
	}
}

// A pod finds the others by their DNS names from the job's Service.
func TestPodsHaveNames(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(100 * site.Steps)
	s.Watch()
	j := s.AwaitWorld(4, 1)
	in := strconv.Itoa(s.AgentOf(j.Worker(0)))
	for i := range 4 {
		pod := s.Pod(j.Worker(i).Name)
		if want := fmt.Sprintf("worker-%d", i); pod.Spec.Hostname != want {
			t.Errorf("the host name of worker[%d] is %q, wanted %q", i, pod.Spec.Hostname, want)
		}
		name := pod.Spec.Hostname + "." + pod.Spec.Subdomain
		site.Until(t, name+" leads to its pod", func() bool {
			out, _ := exec.Command("nsenter", "--target", in, "--mount", "getent", "hosts", name).Output() // it fails for a name that does not exist yet
			found := strings.Fields(string(out))
			return len(found) > 0 && found[0] == pod.Status.PodIP
		})
	}
}

// Output, status and events of pods.
func TestLogsStatusAndEventsOfPods(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(2 * site.Steps)
	s.Together()
	s.Watch()
	j := s.AwaitWorld(4, 1)
	for _, slot := range j.Slots {
		if pod := s.Pod(slot.Name); pod.Labels["eltrain.dev/index"] != strings.Trim(slot.Address[len("job.mnist.worker"):], "[]") {
			t.Errorf("the status of %s names pod %q, which has the labels %v", slot.Address, slot.Name, pod.Labels)
		}
	}
	first := j.Ranked(0)
	out := s.Must("logs", first.Address)
	site.Has(t, out, "rank 0 of 4 begins after step 0", "step 10 loss ")
	if other := s.Must("logs", "-tail=1", "job.mnist.worker"); strings.Count(other, "job.mnist.worker[") < 4 && strings.Count(other, "worker[") < 4 {
		t.Errorf("one line of each slot:\n%s", other)
	}
	follow := s.Command(t.Context(), "logs", "-f", "-tail=0", first.Address)
	said := &site.Lines{}
	follow.Stdout, follow.Stderr = said, said
	s.OK(follow.Start())
	site.Until(t, "new lines are followed", func() bool { return strings.Count(said.String(), " loss ") > 2 })
	s.OK(follow.Process.Signal(os.Interrupt))
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f, interrupted: %v\n%s", err, said)
	}
	site.Kill(t, syscall.SIGKILL, s.TrainerOf(first))
	s.AwaitWorld(4, j.Generation+1)
	site.Has(t, s.Must("logs", first.Address), fmt.Sprintf("generation %d", j.Generation+1)) // the same pod: both worlds
	site.Has(t, s.Must("events"), fmt.Sprintf("world_formed job.mnist: generation %d: 4 slots, 4 processes", j.Generation))
	// An event appears once the failure can no longer be a consequence of another one.
	site.Until(t, "the fault is reported", func() bool { return strings.Contains(s.Must("events"), "process killed") })
	s.EndsRight(2 * site.Steps)
	site.Has(t, s.Must("logs", first.Address), fmt.Sprintf("step %d loss ", 2*site.Steps)) // of a pod that has ended
}
