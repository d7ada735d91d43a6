package podsite

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/heal"
	"github.com/eltrain/eltrain/e2e/site"
)

// Faults are those of pods and their nodes.
var Faults = []heal.Fault{
	{ // The others train on while the old pod occupies the only free node.
		Name: "pod deleted", Gate: heal.Kubernetes, Delayed: heal.Kubernetes,
		Victims: []int{2}, Replaced: []int{2}, Inject: on(func(d *Demo, victim site.Slot) { d.DeletePod(victim.Name, metav1.DeleteOptions{}) }),
		Cause: "deleted", Evidence: []string{" was deleted at ", "not by this master"}, OthersTrain: true,
	},
	{
		Name: "pod deleted with no grace", Gate: heal.Kubernetes | heal.Volcano,
		MasterDies: heal.Kubernetes, MasterDown: heal.Kubernetes, Delayed: heal.Kubernetes,
		Victims: []int{0}, Replaced: []int{0}, Inject: on(func(d *Demo, victim site.Slot) { d.DeletePod(victim.Name, AtOnce()) }),
		Cause: "deleted",
	},
	{
		Name: "pod evicted through the API", Gate: heal.Kubernetes, Delayed: heal.Kubernetes,
		Victims: []int{3}, Replaced: []int{3}, Inject: on(func(d *Demo, victim site.Slot) {
			d.Counted(4)
			d.OK(d.Evict(victim))
		}),
		Cause: "evicted", Evidence: []string{"EvictionByEvictionAPI"}, Spare: true,
	},
	evictedByItsNode("pod evicted by its node", "train.py", heal.Kubernetes),
	// A kubelet reports an eviction when the pod has ended. The agent reports when it is asked to stop, which may be long before.
	evictedByItsNode("pod evicted by its node that takes its time to end", "slow.py", 0),
	{ // A node that shuts down is not ready, but still reports the status of its pods: it does not count as lost.
		Name: "pod deleted on a node that shuts down", Gate: heal.Kubernetes,
		Victims: []int{2}, Replaced: []int{2}, Inject: on(func(d *Demo, victim site.Slot) {
			d.OK(d.Kubelet.NotReady(victim.Node, "node is shutting down"))
			site.Until(d.T, "the node says that it is not ready", func() bool { return !d.Ready(victim.Node) })
			d.DeletePod(victim.Name, metav1.DeleteOptions{})
		}),
		Cause: "deleted", Evidence: []string{" was deleted at ", "not by this master"}, Spare: true,
		After: func(s *site.Site, h heal.Healed) {
			elsewhere(s, h)
			if evidence := strings.Join(h.After.Last().Evidence, "\n"); strings.Contains(evidence, "node "+h.Victims[0].Node+" is ") {
				s.T.Errorf("its end was seen, and the evidence is %q", evidence)
			}
		},
	},
	{
		Name: "pod evicted for a taint", Delayed: heal.Kubernetes,
		Victims: []int{1}, Replaced: []int{1}, Inject: on(func(d *Demo, victim site.Slot) {
			d.Cluster.Taint(d.T, victim.Node, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
		}),
		Cause: "evicted",
	},
	{
		Name: "pod preempted", Delayed: heal.Kubernetes,
		Victims: []int{1}, Replaced: []int{1}, Inject: on(func(d *Demo, victim site.Slot) {
			urgent := d.Urgent()
			d.Foreign("urgent", func(pod *corev1.Pod) {
				there := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{victim.Node}}
				pod.Spec.PriorityClassName = urgent
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{there}}},
				}}}
			})
		}),
		Cause: "preempted",
	},
	{ // A node that dies reports nothing. eltrain acts at its own lease; Kubernetes considers the node ready for 40 s.
		Name: "node without power", Gate: heal.Kubernetes | heal.Volcano, Delayed: heal.Kubernetes,
		Victims: []int{2}, Replaced: []int{2}, Inject: on(func(d *Demo, victim site.Slot) { d.OK(d.Kubelet.PowerOff(victim.Node)) }),
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, OthersTrain: true, Spare: true,
		After: func(s *site.Site, h heal.Healed) {
			elsewhere(s, h)
			s.Reconnect(h.Victims[0].Node) // otherwise its pod stays until the cluster gives the node up
		},
	},
	{ // A node that is cut off comes back, with a pod that believes it is still a member of the world.
		Name: "node cut off, and its pod comes back", Gate: heal.Kubernetes,
		Victims: []int{0}, Replaced: []int{0}, Inject: func(s *site.Site, victims []site.Slot) []int {
			d := of(s)
			d.OK(d.Kubelet.Disconnect(victims[0].Node))
			return heal.Silence(s, victims)
		},
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, OthersTrain: true, Spare: true,
		After: func(s *site.Site, h heal.Healed) {
			elsewhere(s, h)
			heal.Wake(s, h)
			s.Reconnect(h.Victims[0].Node) // otherwise its pod stays until the cluster gives the node up
		},
	},
}

// of returns the demo of a site in the suite.
func of(s *site.Site) *Demo { return s.Place.(*Demo) }

// on makes a Inject of one slot.
func on(inject func(d *Demo, victim site.Slot)) func(*site.Site, []site.Slot) []int {
	return func(s *site.Site, victims []site.Slot) []int {
		inject(of(s), victims[0])
		return nil
	}
}

// slow is the training, but rank 1 takes 3 s to stop.
const slow = `import os, runpy, signal, sys, time

def end(*_):
    time.sleep(3)
    sys.exit(1)

if os.environ["RANK"] == "1":
    signal.signal(signal.SIGTERM, end)
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
`

func evictedByItsNode(name, script string, late heal.Places) heal.Fault {
	const why = "The node was low on resource: memory."
	return heal.Fault{
		Name: name, Gate: heal.Kubernetes, Delayed: late,
		Victims: []int{1}, Replaced: []int{1}, Inject: on(func(d *Demo, victim site.Slot) {
			d.OK(d.Kubelet.Evict(d.Namespace, victim.Name, why, time.Minute))
		}),
		Cause: "evicted", Evidence: []string{why}, OthersTrain: true, Spare: true,
		Prepare: func(s *site.Site) {
			s.Write("slow.py", slow)
			s.Edit("job.hcl", `"train.py"`, fmt.Sprintf("%q", script))
			s.Edit("job.hcl", `stop_grace = "5s"`, `stop_grace = "60s"`) // the kubelet may take as long to report it
		},
		After: elsewhere,
	}
}

// elsewhere checks that a slot has moved to the other free node.
func elsewhere(s *site.Site, h heal.Healed) {
	s.T.Helper()
	if now := h.After.At(h.Victims[0].Address); now.Node == h.Victims[0].Node {
		s.T.Errorf("it is on %s again, although another node is free", now.Node)
	}
}

// Evict asks the API server to evict a slot's pod.
func (s *Site) Evict(slot site.Slot) error {
	ctx, cancel := bounded()
	defer cancel()
	return s.Cluster.Admin().PolicyV1().Evictions(s.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: slot.Name}})
}

// Counted waits until the cluster's controller has counted this many healthy pods for the job's disruption budget: before that
// the API server refuses all evictions.
func (s *Site) Counted(healthy int32) {
	s.T.Helper()
	site.Until(s.T, fmt.Sprintf("the budget counts %d pods", healthy), func() bool {
		budgets, err := s.Cluster.Admin().PolicyV1().PodDisruptionBudgets(s.Namespace).List(s.T.Context(), metav1.ListOptions{})
		s.OK(err)
		return len(budgets.Items) == 1 && budgets.Items[0].Status.ObservedGeneration == budgets.Items[0].Generation &&
			budgets.Items[0].Status.CurrentHealthy == healthy
	})
}
