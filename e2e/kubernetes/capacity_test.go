package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What there is room for: nodes that are closed and opened, that come, what others run on them, quotas.

// resumedAt are the steps after which a world of that many began, of those that did not begin at the first.
func (s *site) resumedAt(world int) (steps []int) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, eventsFile))
	s.ok(err)
	for line := range strings.Lines(string(text)) {
		var event struct {
			Ev    string `json:"ev"`
			World int    `json:"world"`
			Step  int    `json:"step"`
		}
		s.ok(json.Unmarshal([]byte(line), &event))
		if event.Ev == "ready" && event.World == world && event.Step > 0 {
			steps = append(steps, event.Step)
		}
	}
	return steps
}

func TestCordonedItLeavesWithACheckpointAndComesBack(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	s.watch()
	before := s.awaitWorld(4, 1)
	leaver := before.on(s.node(4))
	cluster.Cordon(t, s.node(4))
	three := s.awaitWorld(3, before.Generation+1)
	s.untouched(before, three, leaver)
	if now := three.on(s.node(4)); now.Phase == "Running" {
		t.Errorf("%+v is on the cordoned node", now)
	}
	if len(three.Incidents) > 0 {
		t.Errorf("a planned shrink is no incident: %+v", three.Incidents)
	}
	has(t, s.out.String(), "node "+s.node(4)+" is drained (cordoned)")
	// The script itself makes one every 50 steps, and the first step that the status shows is 10.
	s.until("those that stay go on from a checkpoint that was asked for", func() bool { return len(s.resumedAt(3)) == 3 })
	has(t, s.must("plan"), "No changes.")
	cluster.Uncordon(t, s.node(4))
	four := s.awaitWorld(4, three.Generation+1)
	s.untouched(three, four, four.on(s.node(4)))
	s.endsRight(2 * steps)
}

func TestForeignPodsCount(t *testing.T) {
	s := newSite(t, 4)
	s.setSteps(2 * steps)
	s.foreign("theirs", "")
	taken := s.nodeOf("theirs")
	s.watch()
	before := s.awaitWorld(3, 1)
	for _, slot := range before.Slots {
		if slot.Node == taken {
			t.Errorf("%+v is where somebody else is", slot)
		}
	}
	if names := s.pods(); len(names) != 3 {
		t.Errorf("it made pods that do not fit: %v", names)
	}
	now := int64(0)
	s.deletePod("theirs", &now)
	after := s.awaitWorld(4, before.Generation+1)
	s.untouched(before, after, after.on(taken))
	s.endsRight(2 * steps)
}

func TestQuotaRefusesAndNobodyRunsUntilItIsRaised(t *testing.T) {
	s := newSite(t, 4)
	quotas := cluster.Admin().CoreV1().ResourceQuotas(s.namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	s.ok(err)
	s.until("the quota is known", func() bool {
		quota, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		s.ok(err)
		return len(quota.Status.Hard) > 0
	})
	s.watch()
	s.await("one that is held", func(j jobStatus) bool {
		return len(j.running()) == 0 && strings.Contains(strings.Join(j.Reasons, "\n"), "held until all of its gang exist")
	})
	s.until("the reason", func() bool { return strings.Contains(s.out.String(), "exceeded quota: few") })
	// The one that exists is held back: it would train with nobody, and holds no node.
	pods := s.pods()
	if len(pods) != 1 {
		t.Errorf("%d pods under a quota of one", len(pods))
	}
	for _, p := range pods {
		gated := slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == "eltrain.dev/gang" })
		if !gated || p.Spec.NodeName != "" {
			t.Errorf("pod %s is not held until its gang exists: %+v on %q", p.Name, p.Spec.SchedulingGates, p.Spec.NodeName)
		}
	}
	_, err = quotas.Patch(t.Context(), "few", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"10"}}}`), metav1.PatchOptions{})
	s.ok(err)
	s.awaitWorld(4, 1)
	for _, p := range s.pods() {
		if len(p.Spec.SchedulingGates) > 0 {
			t.Errorf("pod %s trains and is held: %+v", p.Name, p.Spec.SchedulingGates)
		}
	}
	s.endsRight(steps)
}

func TestPlanSaysWhatWouldFitWhereAndWhyNot(t *testing.T) {
	s := newSiteOf(t, "mnist-local", "mnist", resource.MustParse("512Mi"), 5) // alone: a plan names a few nodes, not all
	const steps = 100
	s.setSteps(steps)
	s.foreign("theirs", "")
	loaded := s.nodeOf("theirs")
	free := slices.DeleteFunc([]string{s.node(1), s.node(2), s.node(3), s.node(4), s.node(5)}, func(n string) bool { return n == loaded })
	cluster.Taint(t, free[0], corev1.Taint{Key: "dedicated", Value: "others", Effect: corev1.TaintEffectNoSchedule})
	cluster.Cordon(t, free[1])
	_, err := cluster.Admin().CoreV1().Nodes().Patch(t.Context(), free[2], types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+poolLabel+`":"elsewhere"}}}`), metav1.PatchOptions{})
	s.ok(err)
	out, _ := s.eltrain("plan")
	has(t, out,
		"Wanted: 2 worker with 1 cpu, 256MiB each.",
		free[0]+": taint dedicated=others:NoSchedule",
		free[1]+" cordoned",
		free[2]+": node selector "+poolLabel+"="+s.namespace,
		free[3]+" 1 cpu, 512MiB free",
		loaded+" 512MiB free", // no core
		"That is weaker than a real gang",
	)
	if pods := s.pods(); len(pods) > 0 {
		t.Errorf("a plan made pods: %v", pods)
	}
	// What is opened is where it would go.
	cluster.Untaint(t, free[0], "dedicated")
	out = s.must("plan")
	has(t, out, "nodes = "+strings.Join(slices.Sorted(slices.Values([]string{free[0], free[3]})), ", "), "Plan: 2 to add, 0 to change, 0 to remove.")
	s.watch()
	two := s.awaitWorld(2, 1)
	for _, slot := range two.running() {
		if slot.Node != free[0] && slot.Node != free[3] {
			t.Errorf("%+v is not where it was said to fit", slot)
		}
	}
	s.endsRight(steps)
}
