package kubernetes

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
)

// Plans of pods: saved, limited by -target, made from an earlier observation.

// hand is the field manager of manual edits.
const hand = "kubectl-edit"

const jobLabel = "training.kubeflow.org/job-name"

// edit changes a label of a slot's pod by hand.
func edit(s *podsite.Demo, slot site.Slot, value string) {
	patch := `{"metadata":{"labels":{"` + jobLabel + `":"` + value + `"}}}`
	_, err := cluster.Admin().CoreV1().Pods(s.Namespace).Patch(s.T.Context(), slot.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: hand})
	s.OK(err)
}

func TestASavedPlanIsAppliedToThePodsThatItWasMadeFrom(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(6 * site.Steps)
	s.Must("apply", "-auto-approve")
	before := s.Now()

	// The plan changes only one slot. If that slot was edited since, nothing is done.
	plan := s.Dir + "/replace.plan"
	s.Must("plan", "-replace=job.mnist.worker[1]", "-out="+plan)
	edit(s, before.Worker(1), "mine")
	out, code := s.Run("apply", plan)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	site.Has(t, out, "job.mnist.worker[1]", "was edited since")
	s.Untouched(before, s.Now())

	// Edits of other slots do not make it stale.
	s.Must("apply", "-auto-approve") // reverts the label
	s.Must("plan", "-replace=job.mnist.worker[1]", "-out="+plan)
	edit(s, before.Worker(2), "mine")
	s.Must("apply", plan)
	after := s.Now()
	s.Replaced(before, after, before.Worker(1))
	if got := s.Pod(before.Worker(2).Name).Labels[jobLabel]; got != s.Job {
		t.Errorf("the label of worker[2] is %q: it is looked after as by any apply", got)
	}

	// The plan is not carried out twice.
	if out, code := s.Run("apply", plan); code != 1 || !strings.Contains(site.Unwrapped(out), "the state was changed by another operation") {
		t.Errorf("again: exit code %d\n%s", code, out)
	}
}

func TestDriftOfPodsAndWhoMadeIt(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(6 * site.Steps)
	s.Must("apply", "-auto-approve")
	before := s.Now()
	undrifted := s.Dir + "/before.plan"
	s.Must("plan", "-out="+undrifted)
	edit(s, before.Worker(1), "mine")
	edit(s, before.Worker(2), "other")

	out, code := s.Run("plan", "-refresh-only", "-detailed-exitcode")
	if code != 2 {
		t.Errorf("-refresh-only: exit code %d", code)
	}
	site.Has(t, out, "job.mnist.worker[1-2] has changed", "was changed by "+hand, `"mnist" -> "mine" # worker[1]`, `"mnist" -> "other" # worker[2]`)
	lacks := func(out, part string) {
		t.Helper()
		if strings.Contains(site.Unwrapped(out), part) {
			t.Errorf("%q is in:\n%s", part, out)
		}
	}
	out = s.Must("plan", "-target=job.mnist.worker[1]")
	site.Has(t, out, "job.mnist.worker[1]", "1 to change")
	lacks(out, "worker[2]")
	out = s.Must("plan", "-exclude=job.mnist.worker[1]")
	site.Has(t, out, "job.mnist.worker[2]", "1 to change")
	lacks(out, "worker[1]")

	// A plan that does not ask the provider does not see the drift.
	site.Has(t, s.Must("plan", "-refresh=false"), "No changes.")
	site.Has(t, s.Must("plan", "-observed="+undrifted), "No changes.")

	// -target reverts one and leaves the other alone.
	s.Must("apply", "-auto-approve", "-target=job.mnist.worker[1]")
	if one, other := s.Pod(before.Worker(1).Name).Labels[jobLabel], s.Pod(before.Worker(2).Name).Labels[jobLabel]; one != "mnist" || other != "other" {
		t.Errorf("the labels are %q and %q", one, other)
	}
	s.Untouched(before, s.Now())
}
