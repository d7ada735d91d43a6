package testbed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/testbed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func getNode(t *testing.T, c *testbed.Cluster, name string) *corev1.Node {
	t.Helper()
	node, err := c.Admin().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

// onNode is a pod for one node only, whatever its state.
func onNode(name, node string) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return p
}

func TestNodeSaysItIsNotReady(t *testing.T) {
	c := sharedCluster(t)
	name := c.AddNodes(t, 1, testbed.KWOKNode{Prefix: "sick"})[0]
	c.NotReady(t, name)
	await(t, "the controller manager taints it", func() bool {
		return hasTaint(getNode(t, c, name), corev1.TaintNodeNotReady)
	})
	c.Recover(t, name)
	await(t, "the taint goes", func() bool { return !hasTaint(getNode(t, c, name), corev1.TaintNodeNotReady) })
	c.RemoveNode(t, name)
}

// A pod on a machine that is gone cannot end: nothing can report it.
func TestLostNodeKeepsItsPods(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	c := testbed.Start(t, testbed.Options{Nodes: 2, NodeLease: lease})
	namespace := c.Namespace(t)
	name := c.Nodes(t)[0]
	runPod(t, c, namespace, onNode("p", name))
	c.Lose(t, name)
	await(t, "it is Unknown", func() bool { return ready(getNode(t, c, name)) == corev1.ConditionUnknown })
	await(t, "its lease is over, and nobody renews it", func() bool { // on a machine that was suspended Kubernetes may notice earlier
		renewed, err := c.Admin().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(renewed.Spec.RenewTime.Time) > lease
	})
	err := c.Admin().CoreV1().Pods(namespace).Delete(t.Context(), "p", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := c.Nodes(t)[1]
	runPod(t, c, namespace, onNode("q", other)) // to let time pass
	if err := getPod(c, namespace, "p"); err != nil {
		t.Errorf("the pod on the lost node: %v", err)
	}
	await(t, "the other node is Ready", func() bool { return ready(getNode(t, c, other)) == corev1.ConditionTrue })
	c.Recover(t, name)
	await(t, "the node that is back ends its pod", func() bool { return apierrors.IsNotFound(getPod(c, namespace, "p")) })
}

func TestCordonTaintAndRemoval(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	name := c.AddNodes(t, 1, testbed.KWOKNode{Prefix: "cut", Labels: map[string]string{"only": "here"}})[0]
	waiting := pod("waiting")
	waiting.Spec.NodeSelector = map[string]string{"only": "here"}

	c.Cordon(t, name)
	if !getNode(t, c, name).Spec.Unschedulable {
		t.Error("a cordoned node is schedulable")
	}
	pods := c.Admin().CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), waiting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the scheduler finds no node", func() bool {
		p, err := pods.Get(t.Context(), "waiting", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(p.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Reason == corev1.PodReasonUnschedulable
		})
	})
	c.Uncordon(t, name)
	await(t, "it runs", func() bool {
		p, err := pods.Get(t.Context(), "waiting", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == name && p.Status.Phase == corev1.PodRunning
	})

	c.Taint(t, name, corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute})
	await(t, "the taint evicts the pod", func() bool { return apierrors.IsNotFound(getPod(c, namespace, "waiting")) })
	c.Untaint(t, name, "broken")
	if hasTaint(getNode(t, c, name), "broken") {
		t.Error("the taint is left")
	}

	runPod(t, c, namespace, onNode("stays", name))
	c.RemoveNode(t, name)
	if slices.Contains(c.Nodes(t), name) {
		t.Error("the node is left")
	}
}
