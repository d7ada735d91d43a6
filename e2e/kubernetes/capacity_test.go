package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// Capacity: nodes that are cordoned, uncordoned and added, other pods on them, quotas.

// resumed counts the processes that started in a world of this size, except those that started at the first step.
func resumed(s *podsite.Demo, world int) (n int) {
	s.T.Helper()
	for _, event := range s.Events() {
		if event.Ev == "ready" && event.World == world && event.Step > 0 {
			n++
		}
	}
	return n
}

func TestCordonedItLeavesWithACheckpointAndComesBack(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(2 * site.Steps)
	// No checkpoint is due before the last step: any earlier one was requested.
	s.Edit("job.hcl", `"--ckpt-every=20"`, `"--ckpt-every=100000"`)
	s.Edit("job.hcl", `stop_grace = "5s"`, `stop_grace = "60s"`) // a checkpoint may take that long on a slow disk
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	leaver, had := before.On(s.Node(4)), resumed(s, 3) // from an earlier world of three if an agent was late
	cluster.Cordon(t, s.Node(4))
	three := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, three, leaver)
	if now := three.On(s.Node(4)); now.Phase == "Running" {
		t.Errorf("%+v is on the cordoned node", now)
	}
	if len(three.Incidents) > 0 {
		t.Errorf("a planned shrink is no incident: %+v", three.Incidents)
	}
	m.AwaitOutput("node " + s.Node(4) + " is drained (cordoned)")
	site.Until(t, "the remaining slots resume from a checkpoint", func() bool { return resumed(s, 3) == had+3 })
	site.Until(t, "the leaver has ended, and nothing is to change", func() bool { return strings.Contains(s.Must("plan"), "No changes.") })
	cluster.Uncordon(t, s.Node(4))
	four := s.AwaitWorld(4, three.Generation+1)
	s.Untouched(three, four, four.On(s.Node(4)))
	s.EndsRight(2 * site.Steps)
}

// A drain uses the eviction API, which honors the job's PodDisruptionBudget: it evicts the slots above the job's min of 2, and
// no others.
func TestADrainTakesNoneOfTheLeastThatCanTrain(t *testing.T) {
	const long = 8 * site.Steps
	s := newDemo(t, 3)
	s.SetSteps(long)
	cluster.Cordon(t, s.Node(3))
	s.Watch()
	two := s.AwaitWorld(2, 1)
	s.Counted(2)
	for _, slot := range two.Running() {
		if err := s.Evict(slot); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the eviction of %s, one of the two that are needed: %v", slot.Address, err)
		}
	}
	cluster.Uncordon(t, s.Node(3))
	three := s.AwaitWorld(3, two.Generation+1)
	s.Untouched(two, three, three.On(s.Node(3)))
	s.Counted(3)
	victim := three.On(s.Node(3))
	s.OK(s.Evict(victim))
	after := s.AwaitWorld(3, three.Generation+1)
	s.Untouched(three, after, victim)
	s.Blamed(after, "evicted", []site.Slot{victim})
	s.ContinuesRight(long)
}

func TestForeignPodsCount(t *testing.T) {
	s := newDemo(t, 4)
	s.SetSteps(2 * site.Steps)
	s.Foreign("theirs", nil)
	taken := s.NodeOf("theirs")
	s.Watch()
	before := s.AwaitWorld(3, 1)
	for _, slot := range before.Slots {
		if slot.Node == taken {
			t.Errorf("%+v is where somebody else is", slot)
		}
	}
	if pods := s.Pods(); len(pods) != 3 {
		t.Errorf("it made %d pods, and three fit", len(pods))
	}
	s.DeletePod("theirs", podsite.AtOnce())
	after := s.AwaitWorld(4, before.Generation+1)
	s.Untouched(before, after, after.On(taken))
	s.EndsRight(2 * site.Steps)
}

func TestQuotaRefusesAndNobodyRunsUntilItIsRaised(t *testing.T) {
	s := newDemo(t, 4)
	s.Together()
	quotas := cluster.Admin().CoreV1().ResourceQuotas(s.Namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	s.OK(err)
	site.Until(t, "the quota is known", func() bool {
		quota, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		s.OK(err)
		return len(quota.Status.Hard) > 0
	})
	m := s.Watch()
	s.Await("one that is held", func(j site.Job) bool {
		return len(j.Running()) == 0 && j.Says("held until its whole gang exists")
	})
	m.AwaitOutput("exceeded quota: few")
	// The one pod that exists is held back: it could not train alone, and occupies no node.
	pods := s.Pods()
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
	s.OK(err)
	s.AwaitWorld(4, 1)
	for _, p := range s.Pods() {
		if len(p.Spec.SchedulingGates) > 0 {
			t.Errorf("pod %s trains and is held: %+v", p.Name, p.Spec.SchedulingGates)
		}
	}
	s.EndsRight(site.Steps)
}

// Scheduling gates hold a gang until all its pods exist, but another pod may then take a place first. The gang's other pods keep
// their places, nothing trains, the scheduler's message is shown, and the job continues by itself once there is room.
func TestAGangOfWhichOneIsNotPlacedWaitsWhole(t *testing.T) {
	s := newDemo(t, 4)
	s.Edit("job.hcl", "min = 2", "min = 4")
	held, release := s.Through().StopAt(0, "patch pods", false)
	s.Watch()
	select {
	case <-held:
	case <-time.After(site.Bound):
		t.Fatal("no gate is lifted")
	}
	placed := func() (n int) {
		for _, p := range s.Pods() {
			if p.Spec.NodeName != "" {
				n++
			}
		}
		return n
	}
	s.Foreign("theirs", nil)
	site.Until(t, "the others and theirs are placed", func() bool { return placed() == 3 && s.Pod("theirs").Spec.NodeName != "" })
	close(release)
	j := s.Await("three pods that wait for one without room", func(j site.Job) bool {
		registered := 0
		for _, slot := range j.Slots {
			if slot.Phase == "Registered" {
				registered++
			}
		}
		return registered == 3 && j.Says("Insufficient cpu")
	})
	if n := placed(); n != 3 || j.Generation != 0 {
		t.Errorf("%d of the gang are placed, and generation %d trains", n, j.Generation)
	}
	s.DeletePod("theirs", podsite.AtOnce())
	s.AwaitWorld(4, 1)
	s.EndsRight(site.Steps)
}

// A pod that cannot start is not charged to the job: it waits, with the cluster's own message, until a person corrects it.
func TestAnImageThatCannotBePulledIsSaid(t *testing.T) {
	s := newDemo(t, 4)
	const role, typo = `role "worker" {`, "\n    image = \"no-such\""
	s.Edit("job.hcl", role, role+typo)
	s.Watch()
	j := s.Await("the cluster's message", func(j site.Job) bool { return j.Says("ImagePullBackOff") && j.Says("no-such") })
	if len(j.Incidents) > 0 || j.Phase == "Failed" {
		t.Errorf("the job is %s, with incidents %+v", j.Phase, j.Incidents)
	}
	s.Edit("job.hcl", typo, "")
	s.AwaitWorld(4, 1)
	s.EndsRight(site.Steps)
}

func TestPlanSaysWhatWouldFitWhereAndWhyNot(t *testing.T) {
	s := newDemoOf(t, podsite.Local("kubernetes", 5)) // not parallel: a plan names only a few of all nodes
	const steps = site.Steps
	s.SetSteps(steps)
	s.Foreign("theirs", nil)
	loaded := s.NodeOf("theirs")
	free := slices.DeleteFunc([]string{s.Node(1), s.Node(2), s.Node(3), s.Node(4), s.Node(5)}, func(n string) bool { return n == loaded })
	cluster.Taint(t, free[0], corev1.Taint{Key: "dedicated", Value: "others", Effect: corev1.TaintEffectNoSchedule})
	cluster.Cordon(t, free[1])
	_, err := cluster.Admin().CoreV1().Nodes().Patch(t.Context(), free[2], types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+podsite.PoolLabel+`":"elsewhere"}}}`), metav1.PatchOptions{})
	s.OK(err)
	out, _ := s.Run("plan")
	site.Has(t, out,
		"Wanted: 2 worker with 1 cpu, 256MiB each.",
		free[0]+": taint dedicated=others:NoSchedule",
		free[1]+" cordoned",
		free[2]+": node selector "+podsite.PoolLabel+"="+s.Namespace,
		free[3]+" 1 cpu, 512MiB free",
		loaded+" 0 cpu, 512MiB free",
		"That is weaker than gang scheduling",
	)
	if pods := s.Pods(); len(pods) > 0 {
		t.Errorf("a plan made pods: %v", pods)
	}
	// The plan uses a node whose taint was removed.
	cluster.Untaint(t, free[0], "dedicated")
	out = s.Must("plan")
	site.Has(t, out, "nodes = "+strings.Join(slices.Sorted(slices.Values([]string{free[0], free[3]})), ", "), "Plan: 2 to add, 0 to change, 0 to destroy.")
	s.Watch()
	two := s.AwaitWorld(2, 1)
	for _, slot := range two.Running() {
		if slot.Node != free[0] && slot.Node != free[3] {
			t.Errorf("%+v is not on a node that the plan named", slot)
		}
	}
	s.EndsRight(steps)
}

// The overhead of a RuntimeClass counts as room that the job's pods take, before there is any pod; and does not count as used by
// others once there is.
func TestTheOverheadOfARuntimeClassCounts(t *testing.T) {
	s := newDemo(t, 2)
	classes := cluster.Admin().NodeV1().RuntimeClasses()
	class := func(size, memory string) (name string) {
		name = s.Namespace + "-" + size // unique: classes are cluster-wide
		_, err := classes.Create(t.Context(), &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "vm",
			Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}},
		}, metav1.CreateOptions{})
		s.OK(err)
		t.Cleanup(func() { classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		return name
	}
	naming := func(class string) {
		s.SetSteps(site.Steps)
		s.Edit("eltrain.vars", "spec = {", fmt.Sprintf("spec = { runtimeClassName = %q,", class))
	}
	naming(class("large", "300Mi")) // a node has 512 MiB, and the slot takes 256
	out, _ := s.Run("plan")
	site.Has(t, out, "Wanted: 2 worker with 1 cpu, 256MiB each, and 300MiB for the rest of its pod")

	user := s.User()
	user.Name, user.Without = "blind", []testbed.Permission{{Verb: "list", Resource: "runtimeclasses"}, {Verb: "watch", Resource: "runtimeclasses"}}
	s.As(user)
	site.Has(t, s.Must("plan"), "The overhead of the RuntimeClass", "is unknown", "list and watch on runtimeclasses", "Plan: 2 to add")
	s.As(s.User())
	naming("none")
	site.Has(t, s.Must("plan"), `The RuntimeClass "none" does not exist in the cluster`)

	naming(class("small", "200Mi"))
	s.Watch()
	two := s.AwaitWorld(2, 1)
	for _, slot := range two.Slots {
		if o := s.Pod(slot.Name).Spec.Overhead; o.Memory().String() != "200Mi" {
			t.Errorf("%s has the overhead %v", slot.Name, o)
		}
	}
	site.Has(t, s.Must("plan"), "No changes.")
	s.EndsRight(site.Steps)
}
