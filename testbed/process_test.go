package testbed_test

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// The pods themselves are tested in package kubelet. Here: the real scheduler places them, they are lost and recovered with
// their node, and nothing of them outlives the cluster.
func TestProcessNodesRunPodsForReal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	const node = "machine"
	c, err := testbed.New(testbed.Options{
		NodeLease: 4 * time.Second,
		ProcessNodes: []kubelet.Node{{
			Name:     node,
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi")},
		}},
		Images: map[string]kubelet.Image{"host": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	t.Cleanup(func() { // after the namespace's cleanup
		if t.Failed() {
			t.Log(c.Logs())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pod's process is left: %v", err)
		}
	})
	namespace := c.Namespace(t)
	sleeper := pod("sleeper")
	sleeper.Spec.Containers[0].Image = "host"
	sleeper.Spec.Containers[0].Command = []string{"sleep", "600"}
	if got := runPod(t, c, namespace, sleeper).Spec.NodeName; got != node {
		t.Errorf("it runs on %q", got)
	}
	if pid, err = c.Kubelet.PID(namespace, "sleeper", "main"); err != nil {
		t.Fatal(err)
	}

	c.Lose(t, node)
	await(t, "the node is Unknown", func() bool { return ready(getNode(t, c, node)) == corev1.ConditionUnknown })
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
		t.Errorf("the process on a node off the network: %v", err)
	}
	c.Recover(t, node)
	if _, err := c.Admin().CoreV1().Pods(namespace).Get(t.Context(), "sleeper", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
