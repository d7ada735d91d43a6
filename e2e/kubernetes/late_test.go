package kubernetes

import (
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// late is how long the cluster's own news are on their way here, when those of the agents are not: an API server that
// is busy.
const late = 300 * time.Millisecond

// Agents tell of an end by their own connections, before the cluster says whose deed it was. There is one incident for
// it all the same, it names the cluster's cause and the slot that the cluster meant, and nobody else is replaced.
func TestNewsOfTheClusterThatComeLateAreWaitedFor(t *testing.T) {
	soak.Only(t)
	for name, fault := range map[string]struct {
		cause string
		do    func(s *site.Demo, victim site.Slot) // to worker[1]
	}{
		"pod deleted":               {"deleted", func(s *site.Demo, victim site.Slot) { s.DeletePod(victim.Name, metav1.DeleteOptions{}) }},
		"pod deleted with no grace": {"deleted", func(s *site.Demo, victim site.Slot) { s.DeletePod(victim.Name, site.AtOnce()) }},
		"evicted through the API": {"evicted", func(s *site.Demo, victim site.Slot) {
			counted(s, 4)
			s.OK(cluster.Admin().PolicyV1().Evictions(s.Namespace).Evict(s.T.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: victim.Name}}))
		}},
		"evicted by its node": {"evicted", func(s *site.Demo, victim site.Slot) {
			s.OK(s.Kubelet.Evict(s.Namespace, victim.Name, "The node was low on resource: memory.", 0))
		}},
		"evicted for a taint": {"evicted", func(s *site.Demo, victim site.Slot) {
			cluster.Taint(s.T, victim.Node, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
		}},
		"node deleted": {"node_gone", func(s *site.Demo, victim site.Slot) { s.Delete(victim.Node) }},
		"node without power": {"lease_lost", func(s *site.Demo, victim site.Slot) {
			s.OK(s.Kubelet.PowerOff(victim.Node))
			s.T.Cleanup(func() { s.Reconnect(victim.Node) }) // or its pod is there until the cluster gives the node up
		}},
		"agent killed":   {"agent_gone", func(s *site.Demo, victim site.Slot) { site.Kill(s.T, syscall.SIGKILL, s.AgentOf(victim)) }},
		"process killed": {"process_killed", func(s *site.Demo, victim site.Slot) { site.Kill(s.T, syscall.SIGKILL, s.TrainerOf(victim)) }},
		"preempted": {"preempted", func(s *site.Demo, victim site.Slot) {
			urgent := s.Urgent()
			s.Foreign("urgent", func(pod *corev1.Pod) {
				there := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{victim.Node}}
				pod.Spec.PriorityClassName = urgent
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{there}}},
				}}}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// Should a pod once not be bound where it was meant to be, its slot rests for 30 s before the job grows into it again.
			const long = 6 * site.Steps
			s := newDemo(t, 5)
			s.SetSteps(long)
			if fault.cause != "lease_lost" {
				s.NotByLease()
			}
			s.Through().Proxy.Inject(testbed.Fault{Verb: "watch", Lag: late})
			s.Watch()
			before := s.AwaitWorld(4, 1)
			victim := before.Worker(1)
			fault.do(s, victim)
			after := s.AwaitWorld(4, before.Generation+1)
			s.Blamed(after, fault.cause, []site.Slot{victim})
			if len(after.Incidents) != 1 {
				t.Errorf("of one fault there are %d incidents: %+v", len(after.Incidents), after.Incidents)
			}
			s.Untouched(before, after, victim)
			s.GoesOnRight(long)
		})
	}
}
