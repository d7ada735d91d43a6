package testbed_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// gang is a PodGroup and its pods of 4 cpus each, all on nodes of one label.
type gang struct {
	cluster         *testbed.Cluster
	namespace, name string
}

const gangLabel = "gang-test"

// gangNodes adds nodes for one test, each with room for one pod of a gang.
func gangNodes(t *testing.T, c *testbed.Cluster, label string, count int) []string {
	t.Helper()
	return c.AddNodes(t, count, testbed.KWOKNode{
		Prefix: label, Labels: map[string]string{gangLabel: label},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
	})
}

func podGroup(name string, minMember int, spec map[string]any) *unstructured.Unstructured {
	fields := map[string]any{"minMember": int64(minMember)}
	for key, value := range spec {
		fields[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": testbed.PodGroups.GroupVersion().String(), "kind": "PodGroup",
		"metadata": map[string]any{"name": name}, "spec": fields,
	}}
}

func gangPod(name, group, label string) *corev1.Pod {
	p := pod(name)
	p.Annotations = map[string]string{"scheduling.k8s.io/group-name": group}
	p.Labels = map[string]string{"group": group}
	p.Spec.SchedulerName = "volcano"
	p.Spec.NodeSelector = map[string]string{gangLabel: label}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	return p
}

// makeGang makes a gang of so many pods, all of which must run together.
func makeGang(t *testing.T, c *testbed.Cluster, namespace, name, label string, size int, spec map[string]any) gang {
	t.Helper()
	groups := c.Dynamic().Resource(testbed.PodGroups).Namespace(namespace)
	if _, err := groups.Create(t.Context(), podGroup(name, size, spec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	class, _ := spec["priorityClassName"].(string)
	for i := range size {
		p := gangPod(fmt.Sprintf("%s-%d", name, i), name, label)
		p.Spec.PriorityClassName = class
		if _, err := c.Admin().CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return gang{c, namespace, name}
}

// pods returns how many of the gang's pods are bound, and how many run.
func (g gang) pods(t *testing.T) (bound, running int) {
	t.Helper()
	list, err := g.cluster.Admin().CoreV1().Pods(g.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "group=" + g.name})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			bound++
		}
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	}
	return bound, running
}

func (g gang) running(t *testing.T) int {
	t.Helper()
	_, running := g.pods(t)
	return running
}

func (g gang) bound(t *testing.T) int {
	t.Helper()
	bound, _ := g.pods(t)
	return bound
}

// object returns the gang's PodGroup.
func (g gang) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, err := g.cluster.Dynamic().Resource(testbed.PodGroups).Namespace(g.namespace).Get(t.Context(), g.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (g gang) phase(t *testing.T) string {
	t.Helper()
	phase, _, _ := unstructured.NestedString(g.object(t).Object, "status", "phase")
	return phase
}

// unschedulable returns the scheduler's reason for not placing the gang; empty while there is none.
func (g gang) unschedulable(t *testing.T) string {
	t.Helper()
	conditions, _, _ := unstructured.NestedSlice(g.object(t).Object, "status", "conditions")
	for _, condition := range conditions {
		if fields := condition.(map[string]any); fields["type"] == "Unschedulable" && fields["status"] == "True" {
			return fields["reason"].(string)
		}
	}
	return ""
}

func (g gang) remove(t *testing.T) {
	t.Helper()
	// The pods first, until they are gone: they would keep their room.
	err := g.cluster.Admin().CoreV1().Pods(g.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "group=" + g.name})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cluster.Dynamic().Resource(testbed.PodGroups).Namespace(g.namespace).Delete(t.Context(), g.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The real Volcano, on one cluster: each test has its own nodes.
func TestVolcano(t *testing.T) {
	t.Parallel()
	before := klogSockets()
	c := testbed.Start(t, testbed.Options{
		Volcano: &testbed.Volcano{},
		ProcessNodes: []kubelet.Node{{
			Name:     "machine",
			Labels:   map[string]string{gangLabel: "mixed"},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi")},
		}},
		Images: map[string]kubelet.Image{"host": {}},
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testbed.Cluster)
	}{
		{"gang runs whole or not at all", gangIsWhole},
		{"two gangs for the room of one", twoGangs},
		{"scheduler is killed and started", schedulerKilled},
		{"KWOK and process nodes", mixedNodes},
		{"queues have states and limits", queues},
		{"preempt is configured", preempt},
		{"webhook refuses PodGroups", refusedPodGroups},
		{"API changes", definitionsChange},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
	if after := klogSockets(); !slices.Equal(after, before) {
		t.Errorf("it left sockets outside its folder: %v", after)
	}
}

// klogSockets are the files that Volcano's programs leave on a machine by default.
func klogSockets() []string {
	found, _ := filepath.Glob("/tmp/klog-socks/*")
	return found
}

func gangIsWhole(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "whole", 4)
	g := makeGang(t, c, c.Namespace(t), "g", "whole", 5, nil)
	await(t, "the scheduler says that there is no room", func() bool { return g.unschedulable(t) == "NotEnoughResources" })
	if bound := g.bound(t); bound != 0 {
		t.Errorf("%d pods of 5 are bound with room for 4", bound)
	}
	gangNodes(t, c, "whole", 1)
	await(t, "all run with a fifth node", func() bool { return g.running(t) == 5 })
	await(t, "the PodGroup runs", func() bool { return g.phase(t) == "Running" })
}

func twoGangs(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "two", 5)
	namespace := c.Namespace(t)
	first := makeGang(t, c, namespace, "first", "two", 4, nil)
	second := makeGang(t, c, namespace, "second", "two", 4, nil)
	await(t, "one runs and the other is told why not", func() bool {
		return first.running(t)+second.running(t) == 4 && (first.unschedulable(t) != "" || second.unschedulable(t) != "")
	})
	winner, loser := first, second
	if first.bound(t) == 0 {
		winner, loser = second, first
	}
	if won, lost := winner.bound(t), loser.bound(t); won != 4 || lost != 0 {
		t.Fatalf("%d pods of one gang and %d of the other are bound", won, lost)
	}
	winner.remove(t)
	await(t, "the other follows", func() bool { return loser.running(t) == 4 })
}

func schedulerKilled(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "killed", 2)
	namespace := c.Namespace(t)
	before := makeGang(t, c, namespace, "before", "killed", 1, nil)
	await(t, "a gang runs", func() bool { return before.running(t) == 1 })
	c.VolcanoScheduler.Kill(t)
	g := makeGang(t, c, namespace, "meanwhile", "killed", 1, nil)
	c.VolcanoController.Restart(t)
	c.MakeQueue(t, "after-restart", testbed.Queue{}) // shows that the controller works again
	if phase, bound := g.phase(t), g.bound(t); bound != 0 || (phase != "" && phase != "Pending") {
		t.Errorf("without a scheduler it is %s with %d pods bound", phase, bound)
	}
	c.VolcanoScheduler.Start(t)
	await(t, "the one that waited runs", func() bool { return g.running(t) == 1 })
	if before.running(t) != 1 {
		t.Error("the earlier one no longer runs")
	}
}

func mixedNodes(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "mixed", 1)
	namespace := c.Namespace(t)
	groups := c.Dynamic().Resource(testbed.PodGroups).Namespace(namespace)
	if _, err := groups.Create(t.Context(), podGroup("g", 2, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, name := range []string{"a", "b"} {
		p := gangPod(name, "g", "mixed")
		p.Spec.Containers[0].Image = "host"
		p.Spec.Containers[0].Command = []string{"sleep", "600"}
		if _, err := c.Admin().CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	g := gang{c, namespace, "g"}
	await(t, "both run", func() bool { return g.running(t) == 2 })
	for _, name := range []string{"a", "b"} {
		p, err := c.Admin().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, p.Spec.NodeName)
		if p.Spec.NodeName != "machine" {
			continue
		}
		if pid, err := c.Kubelet.PID(namespace, name, "main"); err != nil || pid == 0 {
			t.Errorf("pod %s has process %d: %v", name, pid, err)
		}
	}
	if !slices.Contains(nodes, "machine") {
		t.Errorf("they run on %v", nodes)
	}
}

func queues(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "queue", 1)
	c.MakeQueue(t, "narrow", testbed.Queue{Capability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}})
	c.CloseQueue(t, "narrow")
	if state := queueState(t, c, "narrow"); state != "Closed" {
		t.Errorf("an empty queue that was closed is %q", state)
	}
	c.OpenQueue(t, "narrow")
	if state := queueState(t, c, "narrow"); state != "Open" {
		t.Errorf("a queue that was opened again is %q", state)
	}
	namespace := c.Namespace(t)
	tooMuch := makeGang(t, c, namespace, "too-much", "queue", 1, map[string]any{
		"queue": "narrow", "minResources": map[string]any{"cpu": "5"},
	})
	fits := makeGang(t, c, namespace, "fits", "queue", 1, map[string]any{
		"queue": "narrow", "minResources": map[string]any{"cpu": "4"},
	})
	await(t, "what the queue has room for runs", func() bool { return fits.running(t) == 1 })
	if phase := tooMuch.phase(t); phase != "Pending" {
		t.Errorf("the gang beyond the queue's capability is %q", phase)
	}
}

func queueState(t *testing.T, c *testbed.Cluster, name string) string {
	t.Helper()
	queue, err := c.Dynamic().Resource(testbed.Queues).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state, _, _ := unstructured.NestedString(queue.Object, "status", "state")
	return state
}

func preempt(t *testing.T, c *testbed.Cluster) {
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		_, err := c.Admin().SchedulingV1().PriorityClasses().Create(t.Context(),
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	gangNodes(t, c, "preempt", 1)
	namespace := c.Namespace(t)
	low := makeGang(t, c, namespace, "low", "preempt", 1, map[string]any{"priorityClassName": "low"})
	await(t, "the low one runs", func() bool { return low.running(t) == 1 })
	high := makeGang(t, c, namespace, "high", "preempt", 1, map[string]any{"priorityClassName": "high"})
	await(t, "the high one is told to wait", func() bool { return high.unschedulable(t) != "" })
	if low.running(t) != 1 {
		t.Fatal("the stock configuration preempts")
	}
	stock := c.VolcanoConfiguration(t)
	preempting := strings.Replace(stock, "enqueue, allocate, backfill", "enqueue, allocate, preempt, backfill", 1)
	if preempting == stock {
		t.Fatalf("the stock configuration is not as expected:\n%s", stock)
	}
	c.ConfigureVolcano(t, preempting)
	t.Cleanup(func() { c.ConfigureVolcano(t, stock) })
	configMap, err := c.Admin().CoreV1().ConfigMaps(testbed.VolcanoNamespace).Get(t.Context(), testbed.VolcanoConfigMap, metav1.GetOptions{})
	if err != nil || configMap.Data[testbed.VolcanoConfigKey] != preempting {
		t.Errorf("the ConfigMap has %v: %v", configMap.Data, err)
	}
	await(t, "the high one takes the low one's place", func() bool { return high.running(t) == 1 && low.running(t) == 0 })
}

func refusedPodGroups(t *testing.T, c *testbed.Cluster) {
	namespace := c.Namespace(t)
	webhook := c.Webhook(t, testbed.Refusals{Namespace: namespace, Resource: testbed.PodGroups, Message: "not today"})
	groups := c.Dynamic().Resource(testbed.PodGroups).Namespace(namespace)
	if _, err := groups.Create(t.Context(), podGroup("g", 1, nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("a PodGroup: %v", err)
	}
	if _, err := c.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); err != nil || webhook.Asked() != 1 {
		t.Errorf("a pod: %v, and the webhook was asked %d times", err, webhook.Asked())
	}
}

func definitionsChange(t *testing.T, c *testbed.Cluster) {
	gangNodes(t, c, "topology", 1)
	namespace := c.Namespace(t)
	groups := c.Dynamic().Resource(testbed.PodGroups).Namespace(namespace)
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for _, test := range []struct {
		version        testbed.VolcanoDefinitions
		topology, tier bool // whether it has the fields
	}{
		{testbed.Volcano114, true, true},
		{testbed.Volcano112, true, false},
		{testbed.Volcano110, false, false},
	} {
		c.DefineVolcano(t, test.version)
		fields := map[string]bool{"mode": test.topology, "highestTierName": test.tier}
		for field, known := range fields {
			topology := map[string]any{"networkTopology": map[string]any{field: "hard"}}
			if _, err := groups.Create(t.Context(), podGroup("g", 1, topology), strict); (err == nil) != known {
				t.Errorf("%q: %s known: %t: %v", test.version, field, known, err)
			}
		}
		subGroups := map[string]any{"subGroupPolicy": []any{map[string]any{"name": "rack", "subGroupSize": int64(2)}}}
		if _, err := groups.Create(t.Context(), podGroup("g", 1, subGroups), strict); (err == nil) != test.tier {
			t.Errorf("%q: subGroupPolicy known: %t: %v", test.version, test.tier, err)
		}
		_, err := c.Dynamic().Resource(testbed.HyperNodes).List(t.Context(), metav1.ListOptions{})
		if (err == nil) != test.topology {
			t.Errorf("%q: HyperNodes known: %t: %v", test.version, test.topology, err)
		}
	}

	c.DefineVolcano(t, testbed.Volcano114)
	t.Cleanup(func() { c.DefineVolcano(t, testbed.Volcano110) })
	want := map[string]any{"mode": "hard", "highestTierName": "rack"}
	g := makeGang(t, c, namespace, "kept", "topology", 1, map[string]any{"networkTopology": want})
	await(t, "the PodGroup runs", func() bool { return g.phase(t) == "Running" })
	got, _, _ := unstructured.NestedMap(g.object(t).Object, "spec", "networkTopology")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after Volcano wrote the PodGroup its networkTopology is %v", got)
	}
}

// fatal records the failure of a lever.
type fatal struct {
	*testing.T
	said string
}

func (f *fatal) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func TestVolcanoIsAbsentUnlessAskedFor(t *testing.T) {
	c := sharedCluster(t)
	_, err := c.Dynamic().Resource(testbed.PodGroups).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("list PodGroups: %v", err)
	}
	if c.VolcanoScheduler != nil || c.VolcanoController != nil {
		t.Error("the cluster has Volcano's components")
	}
	levers := map[string]func(testbed.T){
		"ConfigureVolcano":     func(t testbed.T) { c.ConfigureVolcano(t, "") },
		"VolcanoConfiguration": func(t testbed.T) { c.VolcanoConfiguration(t) },
		"DefineVolcano":        func(t testbed.T) { c.DefineVolcano(t, testbed.Volcano114) },
		"CloseQueue":           func(t testbed.T) { c.CloseQueue(t, "default") },
	}
	for name, lever := range levers {
		failure := &fatal{T: t}
		if lever(failure); !strings.Contains(failure.said, "without Options.Volcano") {
			t.Errorf("%s fails with %q", name, failure.said)
		}
	}
}

func TestVolcanoStartsAsAskedFor(t *testing.T) {
	t.Parallel()
	const configuration = "actions: \"enqueue\"\n"
	c := testbed.Start(t, testbed.Options{Volcano: &testbed.Volcano{Configuration: configuration, Definitions: testbed.Volcano112}})
	configMap, err := c.Admin().CoreV1().ConfigMaps(testbed.VolcanoNamespace).Get(t.Context(), testbed.VolcanoConfigMap, metav1.GetOptions{})
	if err != nil || configMap.Data[testbed.VolcanoConfigKey] != configuration || c.VolcanoConfiguration(t) != configuration {
		t.Errorf("its configuration is %q, in the ConfigMap %v: %v", c.VolcanoConfiguration(t), configMap.Data, err)
	}
	if _, err := c.Dynamic().Resource(testbed.HyperNodes).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list HyperNodes: %v", err)
	}
	if state := queueState(t, c, "default"); state != "Open" {
		t.Errorf("the queue default is %q", state)
	}
}
