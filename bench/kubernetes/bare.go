//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The clients that eltrain is compared with: programs that know in advance which pods to create and do nothing else.

// newTemplate returns a copy of a pod with only the fields set by its creator, without scheduling gates.
func newTemplate(made *corev1.Pod) *corev1.Pod {
	t := &corev1.Pod{Spec: *made.Spec.DeepCopy()}
	t.Labels, t.Annotations, t.OwnerReferences = made.Labels, made.Annotations, made.OwnerReferences
	t.Spec.NodeName, t.Spec.SchedulingGates, t.Spec.ServiceAccountName = "", nil, ""
	return t
}

// gang is the gate that eltrain puts on pods until all pods of a gang are created.
var gang = []corev1.PodSchedulingGate{{Name: "eltrain.dev/gang"}}

// bareClient creates copies of the template in a namespace.
type bareClient struct {
	client    kubernetes.Interface
	namespace string
	template  *corev1.Pod
	writers   int
	gang      int // pods per PodGroup; 0: no PodGroups
}

// newBareClient returns a client for the bare namespace. As with eltrain, its pods are owned by an anchor; without it the
// garbage collector would delete them, since the template has an owner.
func (b *bed) newBareClient(ctx context.Context, writers int) (*bareClient, error) {
	anchor, err := b.cluster.Admin().CoreV1().ConfigMaps(b.bare.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "anchor-", Labels: b.template.Labels,
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make an anchor: %w", err)
	}
	template := b.template.DeepCopy()
	template.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: anchor.Name, UID: anchor.UID}}
	return &bareClient{client: b.bare.client, namespace: b.bare.namespace, template: template, writers: writers}, nil
}

func (c *bareClient) name(i int) string { return "bare-" + strconv.Itoa(i) }

func (c *bareClient) pod(i int) *corev1.Pod {
	p := c.template.DeepCopy()
	p.Name, p.Namespace = c.name(i), c.namespace
	p.Labels[labelIndex] = strconv.Itoa(i)
	p.Spec.Hostname = "worker-" + strconv.Itoa(i)
	if c.gang > 0 {
		p.Annotations[groupAnnotation] = c.name(i / c.gang)
	}
	return p
}

// each calls do for n numbers starting with first, from all writers concurrently, and returns the first error.
func (c *bareClient) each(ctx context.Context, first, n int, do func(context.Context, int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var writers sync.WaitGroup
	for range c.writers {
		writers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, first+i); err != nil {
					fail(err)
				}
			}
		})
	}
	writers.Wait()
	return context.Cause(ctx)
}

func (c *bareClient) create(ctx context.Context, i int) error {
	_, err := c.client.CoreV1().Pods(c.namespace).Create(ctx, c.pod(i), metav1.CreateOptions{})
	return err
}

// ungate removes the gate from one pod, with the same patch as eltrain.
func (c *bareClient) ungate(ctx context.Context, i int) error {
	const patch = `{"spec":{"schedulingGates":[{"$patch":"delete","name":"eltrain.dev/gang"}]}}`
	_, err := c.client.CoreV1().Pods(c.namespace).Patch(ctx, c.name(i), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// addServiceAndBudget creates the headless Service and the PodDisruptionBudget that an eltrain job has. For both, every pod
// causes work in controllers.
func (c *bareClient) addServiceAndBudget(ctx context.Context, n int) error {
	selector := map[string]string{labelUID: c.template.Labels[labelUID]}
	_, err := c.client.CoreV1().Services(c.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	least := intstr.FromInt(n)
	_, err = c.client.PolicyV1().PodDisruptionBudgets(c.namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: selector}},
	}, metav1.CreateOptions{})
	return err
}

// DLRover's way, as in its pod_scaler.py: a loop that polls its queue every 3 s, four threads, and a Service for
// each pod, with JSON as in Python's client.
const (
	dlroverPoll    = 3 * time.Second
	dlroverWriters = 4
	dlroverPort    = 3333
)

func (b *bed) dlrover(ctx context.Context, n int) error {
	c, err := b.newBareClient(ctx, dlroverWriters)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", b.bare.kubeconfig)
	if err != nil {
		return err
	}
	if c.client, err = unlimited(config, runtime.ContentTypeJSON); err != nil {
		return err
	}
	if err := pause(ctx, dlroverPoll); err != nil {
		return err
	}
	return c.each(ctx, 0, n, func(ctx context.Context, i int) error {
		if err := c.create(ctx, i); err != nil {
			return err
		}
		_, err := c.client.CoreV1().Services(c.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: c.name(i)},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{labelIndex: strconv.Itoa(i)},
				Ports:    []corev1.ServicePort{{Port: dlroverPort}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}
