package volcano

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/e2e/heal"
	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

func TestTheLocalJobTrainsAsAGang(t *testing.T) {
	s := newDemo(t, 4)
	s.SetLease(site.Lenient)
	s.Together()
	s.Watch()
	j := s.AwaitWorld(4, 1)
	if g := podGroup(s); g == nil || g.Spec.MinMember != 2 || g.Spec.Queue != "default" {
		t.Fatalf("its PodGroup is %+v", g)
	}
	site.Until(t, "its PodGroup runs", func() bool { return podGroup(s).Status.Phase == v1beta1.PodGroupRunning })
	nodes := map[string]bool{}
	for i := range 4 {
		slot := j.Worker(i)
		nodes[slot.Node] = true
		pod := s.Pod(slot.Name)
		if preemptable := pod.Annotations["volcano.sh/preemptable"]; pod.Spec.SchedulerName != "volcano" || preemptable != fmt.Sprint(i >= 2) {
			t.Errorf("%s is for scheduler %q, preemptable %s", slot.Address, pod.Spec.SchedulerName, preemptable)
		}
	}
	if len(nodes) != 4 {
		t.Errorf("the nodes are %v", nodes)
	}
	if plan := s.Must("plan", "-detailed-exitcode"); !strings.Contains(plan, "No changes.") {
		t.Errorf("while it trains, plan says:\n%s", plan)
	}
	s.EndsRight(site.Steps)
	if last := s.Now(); last.Generation != j.Generation || len(last.Incidents) > 0 {
		t.Errorf("nothing happened, and yet: generation %d, incidents %+v", last.Generation, last.Incidents)
	}
}

// Below min nothing trains; then the job follows its nodes between min and max.
func TestItGrowsAndShrinksWithItsNodes(t *testing.T) {
	const long = 8 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.NotByLease()
	for n := range 3 {
		s.Delete(s.Node(n + 2))
	}
	s.Watch()
	s.Await("waiting below min, with what is wanted", func(j site.Job) bool {
		return j.Says("Wanted: 2 worker with 1 cpu, 256MiB each")
	})
	for _, pod := range s.Pods() {
		if pod.Spec.NodeName != "" {
			t.Errorf("pod %s of a gang that has no room is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	s.Reconnect(s.Node(2))
	two := s.AwaitWorld(2, 1)
	s.Reconnect(s.Node(3))
	s.Reconnect(s.Node(4))
	four := s.AwaitWorld(4, two.Generation+1)
	s.Untouched(two, four, four.Worker(2), four.Worker(3))
	// Above min, a slot leaves a drained node with a checkpoint.
	leaver := four.On(s.Node(4))
	cluster.Cordon(t, s.Node(4))
	three := s.AwaitWorld(3, four.Generation+1)
	s.Untouched(four, three, leaver)
	for _, i := range three.Incidents {
		if slices.Contains(i.Culprits, leaver.Address) {
			t.Errorf("it was asked to leave, and yet: %+v", i)
		}
	}
	cluster.Uncordon(t, s.Node(4))
	back := s.AwaitWorld(4, three.Generation+1)
	s.Delete(s.Node(3))
	lost := s.AwaitWorld(3, back.Generation+1)
	s.Blamed(lost, "node_gone", []site.Slot{back.On(s.Node(3))}, "node "+s.Node(3)+" was removed")
	if g := podGroup(s); g.Spec.MinMember != 2 {
		t.Errorf("growing and shrinking changed minMember to %d", g.Spec.MinMember)
	}
	s.ContinuesRight(long)
}

func TestTheConfigurationIsThatOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "volcano.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), preempting) {
		t.Errorf("docs/volcano.md does not have\n%s", preempting)
	}
}

// Another user's job with a higher priority takes the slots above min, and none below.
func TestAHigherPriorityTakesWhatIsAboveMin(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	urgent := s.Urgent()
	s.Watch()
	before := s.AwaitWorld(4, 1)
	theirs := []string{"urgent-0", "urgent-1", "urgent-2"}
	for _, name := range theirs {
		s.Foreign(name, func(pod *corev1.Pod) { pod.Spec.PriorityClassName, pod.Spec.SchedulerName = urgent, "volcano" })
	}
	site.Until(t, "two of three have a node", func() bool { return bound(s, theirs) == 2 })
	after := s.AwaitWorld(2, before.Generation+1)
	s.Untouched(before, after, before.Worker(2), before.Worker(3))
	for _, i := range after.Incidents {
		if i.Cause != "preempted" || !strings.Contains(strings.Join(i.Evidence, "\n"), "Pod is evicted, because of preempt") {
			t.Errorf("an incident is %+v", i)
		}
	}
	if n := bound(s, theirs); n != 2 {
		t.Errorf("%d pods of a higher priority have a node", n)
	}
	for _, name := range theirs {
		s.DeletePod(name, podsite.AtOnce())
	}
	s.AwaitWorld(4, after.Generation+1)
	s.ContinuesRight(long)
}

// A queue reclaims what it deserves from a queue above its share, but only slots above min. Reclaimed slots are reported as
// such, and come back when there is room.
func TestAQueueReclaimsWhatItDeserves(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	lent, owner := s.Namespace, s.Namespace+"-owner"
	two := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	cluster.MakeQueue(t, lent, testbed.Queue{Deserved: two})
	cluster.MakeQueue(t, owner, testbed.Queue{Deserved: two})
	s.Edit("volcano.hcl", `default     = "default"`, `default     = "`+lent+`"`)
	s.Watch()
	before := s.AwaitWorld(4, 1) // its queue deserves two of the four
	theirs := []string{"owner-0", "owner-1", "owner-2"}
	for _, name := range theirs {
		s.Foreign(name, func(pod *corev1.Pod) {
			pod.Spec.SchedulerName = "volcano"
			pod.Annotations = map[string]string{v1beta1.QueueNameAnnotationKey: owner}
		})
	}
	site.Until(t, "the other queue has what it deserves", func() bool { return bound(s, theirs) == 2 })
	after := s.AwaitWorld(2, before.Generation+1)
	s.Untouched(before, after, before.Worker(2), before.Worker(3))
	for _, i := range after.Incidents {
		if i.Cause != "preempted" || !strings.Contains(strings.Join(i.Evidence, "\n"), "Pod is evicted, because of reclaim") {
			t.Errorf("an incident is %+v", i)
		}
	}
	s.Await("training on", func(j site.Job) bool { return j.WorldSize == 2 && j.Step > after.Step })
	site.Has(t, s.Must("status"), "preempted")
	site.Has(t, s.Must("events"), "Pod is evicted, because of reclaim")
	if n := bound(s, theirs); n != 2 {
		t.Errorf("%d pods of the queue that deserves two have a node", n)
	}
	for _, name := range theirs {
		s.DeletePod(name, podsite.AtOnce())
	}
	s.AwaitWorld(4, after.Generation+1)
	s.ContinuesRight(long)
}

// Ranks follow a depth-first walk of the tree of HyperNodes, not the names of nodes. Placement is not tested here: the available
// scheduler is older than HyperNodes, and eltrain says so.
func TestRanksFollowTheNetwork(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	podsite.RequireCluster(t)
	own := newCharted(t)
	s := podsite.NewDemo(t, own, programs, podsite.Local("volcano", 4))
	for name, tier := range map[string]struct {
		at      int64
		kind    string
		members []string
	}{
		"s0": {1, "Node", []string{s.Node(1), s.Node(4)}}, "s1": {1, "Node", []string{s.Node(2), s.Node(3)}},
		"spine": {2, "HyperNode", []string{"s0", "s1"}},
	} {
		var members []any
		for _, member := range tier.members {
			members = append(members, map[string]any{"type": tier.kind, "selector": map[string]any{"exactMatch": map[string]any{"name": member}}})
		}
		_, err := own.Dynamic().Resource(testbed.HyperNodes).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": testbed.HyperNodes.GroupVersion().String(), "kind": "HyperNode", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"tier": tier.at, "members": members},
		}}, metav1.CreateOptions{})
		s.OK(err)
	}
	s.Edit("volcano.hcl", "  queue       = var.queue\n", "  queue       = var.queue\n\n  network_topology {\n    mode         = \"hard\"\n    highest_tier = 2\n  }\n")
	s.Edit("job.hcl", `"node.labels.rack", "node.labels.switch"`, `"node.labels.hypernode.eltrain.dev/tier-2", "node.labels.hypernode.eltrain.dev/tier-1"`)
	site.Has(t, s.Must("plan"), "The scheduler's plugin network-topology-aware is off")
	s.SetLease(site.Lenient)
	s.Together()
	s.Watch()
	j := s.AwaitWorld(4, 1)
	topology, _, err := unstructured.NestedMap(podGroupIn(s, own).Object, "spec", "networkTopology")
	s.OK(err)
	if want := map[string]any{"mode": "hard", "highestTierAllowed": int64(2)}; !maps.Equal(topology, want) {
		t.Errorf("its PodGroup wants the network %v, not %v", topology, want)
	}
	leaf := map[string]string{s.Node(1): "s0", s.Node(4): "s0", s.Node(2): "s1", s.Node(3): "s1"}
	var walked []string
	for rank := range 4 {
		walked = append(walked, leaf[j.Ranked(rank).Node])
	}
	if len(slices.Compact(slices.Clone(walked))) != 2 {
		t.Errorf("the ranks go through the network as %v", walked)
	}
	s.EndsRight(site.Steps)
}

// bound counts the pods that have a node.
func bound(s *podsite.Demo, pods []string) (n int) {
	s.T.Helper()
	for _, name := range pods {
		if s.Pod(name).Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// Healing works as with local processes, and the PodGroup outlives the fault: the gang keeps its age in the queue.
var here = heal.On{
	Place:  heal.Volcano,
	New:    func(t *testing.T, nodes int) *site.Site { return newDemo(t, nodes).Site.Site },
	Faults: podsite.Faults,
	Kept:   func(s *site.Site) any { return podGroup(s.Place.(*podsite.Demo)).UID },
}

func TestHeal(t *testing.T) { here.Run(t) }
