package testbed

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/eltrain/eltrain/testbed/kubelet"
)

const (
	// kwokLabel marks the nodes that KWOK simulates. A label, because KWOK's watch then ends for a node that loses it.
	kwokLabel = "testbed.eltrain.dev/kwok"
	// notReadyLabel makes KWOK report a node as not ready.
	notReadyLabel = "testbed.eltrain.dev/not-ready"

	// nodeWriters is how many nodes are created concurrently: more gain nothing on the API server of a small machine.
	nodeWriters = 16

	// leverTimeout bounds each injected fault or other action on the cluster.
	leverTimeout = kubelet.Bound
)

// KWOKNode describes a simulated node. Defaults are 32 cpus, 256 GiB and 110 pods.
type KWOKNode struct {
	Prefix   string // of its name; a number follows: kwok-0
	Capacity corev1.ResourceList
	Labels   map[string]string
	Taints   []corev1.Taint
}

// AddNodes adds KWOK nodes, waits until they are Ready, and returns their names.
func (c *Cluster) AddNodes(t T, count int, node KWOKNode) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), leverTimeout)
	defer cancel()
	names, err := c.addNodes(ctx, count, node)
	if err != nil {
		t.Fatalf("testbed: %v", err)
	}
	return names
}

func (c *Cluster) addNodes(ctx context.Context, count int, node KWOKNode) ([]string, error) {
	prefix := node.Prefix
	if prefix == "" {
		prefix = "kwok"
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	for name, quantity := range node.Capacity {
		capacity[name] = quantity
	}
	writers, writeCtx := errgroup.WithContext(ctx)
	writers.SetLimit(nodeWriters)
	var names []string
	for range count {
		name := fmt.Sprintf("%s-%d", prefix, len(c.kwokNodes))
		c.kwokNodes, names = append(c.kwokNodes, name), append(names, name)
		object := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				kwokLabel: "true", corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}},
			Spec:   corev1.NodeSpec{Taints: node.Taints},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		for key, value := range node.Labels {
			object.Labels[key] = value
		}
		writers.Go(func() error {
			_, err := c.client.CoreV1().Nodes().Create(writeCtx, object, metav1.CreateOptions{})
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		return nil, fmt.Errorf("make KWOK nodes: %w", err)
	}
	for _, name := range names {
		if err := c.awaitNode(ctx, name, schedulable); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// schedulable reports whether a new node can be used: it is Ready, and the controller manager has noticed that and
// removed its not-ready taint.
func schedulable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return readyStatus(node) == corev1.ConditionTrue
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func (c *Cluster) awaitNode(ctx context.Context, name string, holds func(*corev1.Node) bool) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return holds(node), nil
	})
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", name, err)
	}
	return nil
}

// RemoveNode deletes a node, as a cloud does for a machine that is gone: at once, with its pods still bound to it.
func (c *Cluster) RemoveNode(t T, name string) {
	t.Helper()
	c.lever(t, "remove node "+name, func(ctx context.Context) error {
		err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Cordon makes a node unschedulable.
func (c *Cluster) Cordon(t T, name string) {
	t.Helper()
	c.patchNode(t, name, `{"spec":{"unschedulable":true}}`)
}

// Uncordon undoes Cordon.
func (c *Cluster) Uncordon(t T, name string) {
	t.Helper()
	c.patchNode(t, name, `{"spec":{"unschedulable":null}}`)
}

// Taint adds a taint to a node; one of effect NoExecute evicts the pods that do not tolerate it.
func (c *Cluster) Taint(t T, name string, taint corev1.Taint) {
	t.Helper()
	c.editNode(t, name, func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, taint) })
}

// Untaint removes the taints with that key.
func (c *Cluster) Untaint(t T, name, key string) {
	t.Helper()
	c.editNode(t, name, func(node *corev1.Node) {
		var kept []corev1.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != key {
				kept = append(kept, taint)
			}
		}
		node.Spec.Taints = kept
	})
}

// NotReady makes a KWOK node report that it is not ready, while it still renews its lease, and waits for that.
func (c *Cluster) NotReady(t T, name string) {
	t.Helper()
	c.patchNode(t, name, `{"metadata":{"labels":{"`+notReadyLabel+`":"true"}}}`)
	c.awaitReady(t, name, corev1.ConditionFalse)
}

// Lose disconnects a node: its lease is no longer renewed, its pods are no longer reported, and after
// Options.NodeLease the controller manager calls it Unknown. Lose returns at once.
func (c *Cluster) Lose(t T, name string) {
	t.Helper()
	if c.runsProcesses(name) {
		if err := c.Kubelet.Disconnect(name); err != nil {
			t.Fatalf("testbed: %v", err)
		}
		return
	}
	c.patchNode(t, name, `{"metadata":{"labels":{"`+kwokLabel+`":null}}}`)
}

// Recover undoes NotReady and Lose, and waits until the node is Ready.
func (c *Cluster) Recover(t T, name string) {
	t.Helper()
	if c.runsProcesses(name) {
		c.lever(t, "recover", func(ctx context.Context) error { return c.Kubelet.Reconnect(ctx, name) })
		c.awaitReady(t, name, corev1.ConditionTrue)
		return
	}
	c.patchNode(t, name, `{"metadata":{"labels":{"`+notReadyLabel+`":null,"`+kwokLabel+`":"true"}}}`)
	c.awaitReady(t, name, corev1.ConditionTrue)
}

// runsProcesses reports whether a node is a process node; KWOK simulates the others.
func (c *Cluster) runsProcesses(name string) bool {
	return slices.ContainsFunc(c.options.ProcessNodes, func(node kubelet.Node) bool { return node.Name == name })
}

func (c *Cluster) awaitReady(t T, name string, status corev1.ConditionStatus) {
	t.Helper()
	c.lever(t, fmt.Sprintf("wait for node %s to be Ready=%s", name, status), func(ctx context.Context) error {
		return c.awaitNode(ctx, name, func(node *corev1.Node) bool { return readyStatus(node) == status })
	})
}

// Nodes returns the names of the cluster's nodes, sorted.
func (c *Cluster) Nodes(t T) []string {
	t.Helper()
	var names []string
	c.lever(t, "list nodes", func(ctx context.Context) error {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range list.Items {
			names = append(names, node.Name)
		}
		return nil
	})
	return names
}

func (c *Cluster) patchNode(t T, name, patch string) {
	t.Helper()
	c.lever(t, "change node "+name, func(ctx context.Context) error {
		_, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// editNode reads, edits and writes a node until there is no conflict.
func (c *Cluster) editNode(t T, name string, edit func(*corev1.Node)) {
	t.Helper()
	c.lever(t, "change node "+name, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			edit(node)
			_, err = c.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				return false, nil
			}
			return err == nil, err
		})
	})
}

// lever runs an action within leverTimeout, and fails the test if the action fails.
func (c *Cluster) lever(t T, doing string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), leverTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatalf("testbed: %s: %v", doing, err)
	}
}
