package kubernetes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
)

// importing writes an import block.
func importing(s *podsite.Demo, to, id string) {
	s.T.Helper()
	s.Write("import.hcl", fmt.Sprintf("import {\n  to = job.%s\n  id = %q\n}\n", to, id))
}

// A master imports a job that runs under another state, under another name, by the ID that kubectl shows: no pod is recreated
// and no training process restarted. From then on that master heals it.
func TestWhatRunsUnderAnotherStateIsImported(t *testing.T) {
	s := newDemo(t, 4)
	const long = 8 * site.Steps // enough for all the commands
	s.SetSteps(long)
	s.Together()
	s.Must("apply", "-auto-approve")
	before, processes := s.Now(), s.Processes()
	pod := s.Pod(before.Worker(1).Name)
	uid, anchor := pod.Labels["eltrain.dev/uid"], pod.Labels["app.kubernetes.io/instance"]
	s.Foreign("theirs", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"nowhere": "yes"} })
	objects := s.Objects()

	other := s.Elsewhere()
	other.Job = "taken"
	other.Edit("job.hcl", `job "mnist"`, `job "taken"`)
	for _, wrong := range []struct{ to, id, want string }{
		{"taken", "nobody", `nothing runs with the id "nobody"`},
		{"taken", "theirs", `nothing runs with the id "theirs". Only what eltrain has launched`}, // somebody else's pod
		{"taken", "kube-root-ca.crt", `nothing runs with the id "kube-root-ca.crt"`},             // somebody else's ConfigMap
		{"taken.worker[0]", pod.Name, `was launched as worker[1] and cannot become job.taken.worker[0]`},
		{"taken.worker[1]", anchor, `is a whole job. Import it to job.taken.`},
	} {
		importing(other, wrong.to, wrong.id)
		for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}} {
			out, code := other.Run(command...)
			if site.Has(t, out, wrong.want, "import.hcl line 1"); code != 1 {
				t.Errorf("%s to import %s as %s: exit code %d", command[0], wrong.id, wrong.to, code)
			}
		}
	}
	if now := s.Objects(); !slices.Equal(now, objects) {
		t.Errorf("refused imports changed %v\nto %v", objects, now)
	}
	for to, id := range map[string]string{"taken": uid, "taken.worker[1]": pod.Name} {
		importing(other, to, id)
		site.Has(t, other.Must("plan"), "# job.taken will be imported", "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy.")
	}

	importing(other, "taken", anchor)
	m := other.Watch()
	after := other.AwaitWorld(4, 1)
	same := map[string]string{} // names of pods by new address
	for _, slot := range before.Slots {
		same["job.taken"+slot.Address[len(before.Address):]] = slot.Name
	}
	if now := after.PodsOrAgents(); after.Generation != before.Generation || !maps.Equal(now, same) {
		t.Errorf("generation %d -> %d, the pods %v became %v", before.Generation, after.Generation, same, now)
	}
	for _, slot := range after.Slots {
		if pid := other.TrainerOf(slot); processes[pid] == "" {
			t.Errorf("%s has another training process than before: %d of %v", slot.Address, pid, processes)
		}
	}
	if now := s.Objects(); !slices.Equal(now, objects) {
		t.Errorf("importing changed %v\nto %v", objects, now)
	}
	site.Has(t, other.Must("plan", "-detailed-exitcode"), "No changes.")

	// That master owns the job now: it cannot be imported again, and is healed.
	other.Write("twice.hcl", fmt.Sprintf(`job "twice" {
  provider = "kubernetes"
  role "worker" {
    command = ["true"]
  }
}

import {
  to = job.twice
  id = %q
}
`, uid))
	out, code := other.Run("plan")
	if site.Has(t, out, "Resource already managed by eltrain", fmt.Sprintf("what runs with the id %q, as job.taken", uid), "twice.hcl line 8"); code != 1 {
		t.Errorf("to import it twice: exit code %d", code)
	}
	other.OK(os.Remove(filepath.Join(other.Dir, "twice.hcl")))
	// The old state forgets the job, which does not affect the new owner.
	s.DropBlock("job.hcl", `job "mnist"`)
	s.Write("removed.hcl", "removed {\n  from = job.mnist\n  lifecycle {\n    destroy = false\n  }\n}\n")
	site.Has(t, s.Must("apply", "-auto-approve"), "# job.mnist will no longer be managed by eltrain")
	if now := other.Now(); now.Generation != after.Generation || !maps.Equal(now.PodsOrAgents(), same) {
		t.Errorf("generation %d -> %d, the pods %v became %v", after.Generation, now.Generation, same, now.PodsOrAgents())
	}

	victim := after.Worker(1)
	was := s.Pod(victim.Name).Annotations["eltrain.dev/state"]
	s.DeletePod(victim.Name, metav1.DeleteOptions{})
	healed := other.AwaitWorld(4, after.Generation+1)
	other.Replaced(after, healed, victim)
	if now := s.Pod(healed.Worker(1).Name).Annotations["eltrain.dev/state"]; now == was || now == "" {
		t.Errorf("its next pod is of the state %q, and it was launched under %q", now, was)
	}
	other.ContinuesRight(long)
	m.Interrupt()
	other.Must("destroy", "-auto-approve")
}
