package kubernetes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/testbed"
)

// awaited bounds every wait of these tests: a restarted API server takes some seconds on a busy machine.
const awaited = hang.Bound

const shipped = "../../deploy/base/rbac.yaml"

// field is a namespace of a cluster, watched by a provider with the permissions of deploy/.
type field struct {
	*testing.T
	cluster   *testbed.Cluster
	admin     *kubernetes.Clientset
	namespace string
	ctx       context.Context
}

func newField(t *testing.T, c *testbed.Cluster) *field {
	ctx, cancel := context.WithTimeout(context.Background(), 2*awaited)
	t.Cleanup(cancel)
	return &field{T: t, cluster: c, admin: c.Admin(), namespace: c.Namespace(t), ctx: ctx}
}

func (f *field) user() testbed.User {
	return testbed.User{Namespace: f.namespace, Roles: []string{shipped}}
}

func (f *field) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *field) open(kubeconfig string) *Provider {
	f.Helper()
	p, err := New(Options{Config: Config{Kubeconfig: kubeconfig, Image: "train:1"}, Version: "0.0.0", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	f.ok(err)
	f.Cleanup(func() { p.Close() })
	return p
}

const jobUID = "0b0e9c52-6a8e-4f0e-9a53-6a4f0f6f2d11"

// create creates the pod of a slot as another master would: this one sees it only through its watch.
func (f *field) create(index int, edit func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	pod, err := Config{Image: "train:1"}.pod(job.Launch{
		UID: jobUID, Slot: job.Address{Job: "gpt", Role: "worker", Index: index}, Incarnation: 1,
		Program: job.Program{Command: []string{"train"}}, Processes: 1, Fingerprint: "f1",
		Reserved: job.Resources{CPU: 100, Memory: 1 << 20},
	}, podContext{namespace: f.namespace, version: "0.0.0"})
	f.ok(err)
	if edit != nil {
		edit(pod)
	}
	made, err := f.admin.CoreV1().Pods(f.namespace).Create(f.ctx, pod, metav1.CreateOptions{FieldManager: FieldManager})
	f.ok(err)
	return made
}

// await waits for an observation, rechecking only on Changes.
func (f *field) await(p *Provider, what string, holds func(*providers.Observation) bool) *providers.Observation {
	f.Helper()
	deadline := time.After(awaited)
	for {
		o, err := p.Observe(f.ctx)
		f.ok(err)
		if holds(o) {
			return o
		}
		select {
		case <-p.Changes():
		case <-deadline:
			f.Fatalf("%s: not so after %s: %+v", what, awaited, o)
		}
	}
}

func slotIs(index int, state job.IncarnationState) func(*providers.Observation) bool {
	return func(o *providers.Observation) bool { i := slotOf(o, index); return i != nil && i.State == state }
}

func slotOf(o *providers.Observation, index int) *job.Incarnation {
	for inc := range o.Incarnations.All() {
		if inc.Slot.Index == index {
			return inc
		}
	}
	return nil
}

func count(o *providers.Observation, state job.IncarnationState) int {
	n := 0
	for i := range o.Incarnations.All() {
		if i.State == state {
			n++
		}
	}
	return n
}

// TestWatch runs the watches against a real API server, with scheduler and controllers.
func TestWatch(t *testing.T) {
	soak.Only(t)
	c := testbed.Start(t, testbed.Options{Nodes: 4, NodeLease: 12 * time.Second})
	t.Run("nodes and pods are seen", func(t *testing.T) { seesAll(newField(t, c)) })
	t.Run("an API server that is away is not nothing", func(t *testing.T) { survivesServer(newField(t, c)) })
	t.Run("lists that fail are not nothing", func(t *testing.T) { survivesLists(newField(t, c)) })
	t.Run("what ended unseen is noticed", func(t *testing.T) { noticesEnds(newField(t, c)) })
	t.Run("causes are the cluster's own", func(t *testing.T) { tellsCauses(newField(t, c)) })
	t.Run("edits by hand are drift", func(t *testing.T) { seesDrift(newField(t, c)) })
	t.Run("what the API server does not allow is named", func(t *testing.T) { namesRights(newField(t, c)) })
	t.Run("an unreachable API server is named", func(t *testing.T) { namesUnreachable(newField(t, c)) })
	t.Run("a steady state asks and wakes nobody", func(t *testing.T) { staysQuiet(newField(t, c)) })
}

func seesAll(f *field) {
	p := f.open(f.cluster.Kubeconfig(f, f.user()))
	o := f.await(p, "nodes are listed", func(o *providers.Observation) bool { return len(o.Nodes) == 4 })
	if n := o.Nodes[0]; n.Capacity.CPU == 0 || n.Capacity.Memory == 0 || n.Slots == 0 || n.Closed != "" || n.Labels["kubernetes.io/hostname"] != n.Name {
		f.Errorf("node %+v", n)
	}
	f.create(0, nil)
	f.create(1, func(o *corev1.Pod) { o.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gangGate}} })
	f.create(2, func(o *corev1.Pod) { o.Spec.NodeSelector = map[string]string{"no": "such"} })
	o = f.await(p, "worker[0] is up", slotIs(0, job.Up))
	if i := slotOf(o, 0); i.Node == "" || i.Name == "" || i.Fingerprint != "f1" || i.Reserved.CPU != 100 || i.Started.IsZero() || i.UID != jobUID || len(i.Drift) > 0 {
		f.Errorf("observed %+v", i)
	}
	f.await(p, "the scheduler says why worker[2] waits", func(o *providers.Observation) bool {
		i := slotOf(o, 2)
		return i != nil && strings.HasPrefix(i.Waiting, "Unschedulable: 0/4 nodes are available: ")
	})
	f.await(p, "worker[1] is there", func(now *providers.Observation) bool {
		o = now
		return slotOf(o, 0) != nil && slotOf(o, 1) != nil
	})
	if i := slotOf(o, 1); i.State != job.Starting || i.Waiting != heldTogether {
		f.Errorf("observed %+v", i)
	}
	node := slotOf(o, 0).Node
	other := f.cluster.Namespace(f)
	for name, labels := range map[string]map[string]string{
		"strangers": nil,
		"another's": podLabels("another-uid", job.Address{Job: "other", Role: "worker"}, 1),
	} {
		before := f.await(p, "nodes are listed", func(o *providers.Observation) bool { return true })
		_, err := f.admin.CoreV1().Pods(other).Create(f.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "other-", Labels: labels},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "a", Image: "a", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1500m")}}}}},
		}, metav1.CreateOptions{})
		f.ok(err)
		f.await(p, name+" load is seen", func(o *providers.Observation) bool {
			was, is := nodeOf(before, node), nodeOf(o, node)
			return is.Foreign.CPU == was.Foreign.CPU+1500 && is.Slots == was.Slots-1
		})
	}
	if o := f.await(p, "", func(*providers.Observation) bool { return true }); o.Incarnations.Len() != 3 {
		f.Errorf("pods of another namespace are reported: %+v", o.Incarnations)
	}
	f.cluster.Cordon(f, node)
	f.await(p, "the cordon is seen", func(o *providers.Observation) bool {
		n := nodeOf(o, node)
		return n.Drained == "cordoned" && n.Closed == "cordoned"
	})
	f.cluster.Uncordon(f, node)
	f.await(p, "the cordon is off", func(o *providers.Observation) bool { return nodeOf(o, node).Closed == "" })
	f.ok(f.admin.CoreV1().Pods(other).DeleteCollection(f.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	f.await(p, "others' load is off", func(o *providers.Observation) bool { return nodeOf(o, node).Foreign.CPU == 0 })
}

func nodeOf(o *providers.Observation, name string) job.Node {
	for _, n := range o.Nodes {
		if n.Name == name {
			return n
		}
	}
	return job.Node{}
}

// neverFewer checks that no observation shows fewer pods than there are, until stop is called.
func (f *field) neverFewer(p *Provider, pods int) (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			o, err := p.Observe(ctx)
			if ctx.Err() == nil && (err != nil || o.Incarnations.Len() < pods || count(o, job.Gone) > 0 || len(o.Nodes) != 4) {
				f.Errorf("of %d pods on 4 nodes, %d are reported (%d gone), and %d nodes: error %v", pods, o.Incarnations.Len(), count(o, job.Gone), len(o.Nodes), err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

func survivesServer(f *field) {
	p := f.open(f.cluster.Kubeconfig(f, f.user()))
	for index := range 5 {
		f.create(index, nil)
	}
	f.await(p, "five are up", func(o *providers.Observation) bool { return count(o, job.Up) == 5 && len(o.Nodes) == 4 })
	stop := f.neverFewer(p, 5)
	f.cluster.APIServer.Kill(f)
	f.cluster.Etcd.Restart(f)
	f.cluster.APIServer.Start(f)
	f.create(5, nil)
	f.await(p, "the sixth is seen after the restart", func(o *providers.Observation) bool { return slotOf(o, 5) != nil })
	stop()
	f.ok(f.admin.CoreV1().Pods(f.namespace).Delete(f.ctx, slotOf(f.now(p), 2).Name, metav1.DeleteOptions{}))
	f.await(p, "a later deletion is seen", slotIs(2, job.Gone))
}

func (f *field) now(p *Provider) *providers.Observation {
	f.Helper()
	o, err := p.Observe(f.ctx)
	f.ok(err)
	return o
}

func survivesLists(f *field) {
	// The answer of an API server that does not stream the first list: then it is listed, and watched from there.
	unstreamed := testbed.Fault{Verb: "watch", Status: http.StatusUnprocessableEntity}
	// The 410 is delayed: client-go retries at once, and one watch would get them all. The 429 has no Retry-After: with it,
	// client-go retries ten times before it returns the error to the reflector.
	for name, faults := range map[string][]testbed.Fault{
		"expired":      {{Verb: "watch", Status: http.StatusGone, Delay: 200 * time.Millisecond}},
		"busy":         {{Verb: "watch", Status: http.StatusTooManyRequests}},
		"no list":      {unstreamed, {Verb: "list", Status: http.StatusInternalServerError}},
		"busy lists":   {unstreamed, {Verb: "list", Status: http.StatusTooManyRequests}},
		"lost lists":   {unstreamed, {Verb: "list", LoseAnswer: true}},
		"half lists":   {unstreamed, {Verb: "list", CutAnswer: true}},
		"half streams": {{Verb: "watch", CutAnswer: true}, {Verb: "list", CutAnswer: true}},
	} {
		f.Run(name, func(t *testing.T) { survivesFaults(newField(t, f.cluster), faults) })
	}
}

// attemptsMet is how many requests each fault affects before it is removed: two for each of a provider's seven watches,
// which are broken together and retry with the same backoff.
const attemptsMet = 14

func survivesFaults(f *field, faults []testbed.Fault) {
	proxy := f.cluster.Proxy(f)
	p := f.open(proxy.Kubeconfig(f, f.user()))
	for index := range 5 {
		f.create(index, nil)
	}
	f.await(p, "five are up", func(o *providers.Observation) bool { return count(o, job.Up) == 5 && len(o.Nodes) == 4 })
	defer f.neverFewer(p, 5)()
	var injected []*testbed.Injected
	for _, fault := range faults {
		injected = append(injected, proxy.Inject(fault))
	}
	if proxy.BreakWatches() == 0 {
		f.Error("no watch was open")
	}
	f.within("every fault is met", func() bool {
		return !slices.ContainsFunc(injected, func(i *testbed.Injected) bool { return i.Hits() < attemptsMet })
	})
	f.create(5, nil)
	for _, i := range injected {
		i.Remove()
	}
	f.await(p, "what came meanwhile is seen", func(o *providers.Observation) bool { return slotOf(o, 5) != nil })
}

func noticesEnds(f *field) {
	proxy := f.cluster.Proxy(f)
	p := f.open(proxy.Kubeconfig(f, f.user()))
	f.create(1, nil)
	f.await(p, "it is up", slotIs(1, job.Up))
	// Ends that happen while the API server is down are noticed because the next list lacks the pods.
	proxy.Refuse(f)
	zero := int64(0)
	f.ok(f.admin.CoreV1().Pods(f.namespace).Delete(f.ctx, slotOf(f.now(p), 1).Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	if o := f.now(p); slotOf(o, 1).State != job.Up {
		f.Errorf("without an API server it is reported as %+v", slotOf(o, 1))
	}
	proxy.Inject(testbed.Fault{Verb: "watch", Status: http.StatusGone, Times: 4})
	proxy.Accept(f)
	o := f.await(p, "its end is seen", slotIs(1, job.Gone))
	if i := slotOf(o, 1); i.Cause != job.Deletion || len(i.Evidence) == 0 {
		f.Errorf("reported as %+v", i)
	}
}

func (f *field) within(what string, holds func() bool) {
	f.Helper()
	for deadline := time.Now().Add(awaited); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("%s: not so after %s", what, awaited)
		}
	}
}

func tellsCauses(f *field) {
	p := f.open(f.cluster.Kubeconfig(f, f.user()))
	expect := func(index int, cause job.Cause, words string) {
		f.Helper()
		o := f.await(p, fmt.Sprintf("worker[%d] is gone", index), slotIs(index, job.Gone))
		i := slotOf(o, index)
		if i.Cause != cause || !strings.Contains(strings.Join(i.Evidence, "\n"), words) {
			f.Errorf("worker[%d] is reported as %s: %q, want %s: %q", index, i.Cause, i.Evidence, cause, words)
		}
	}
	pods := f.admin.CoreV1().Pods(f.namespace)

	evicted := f.create(0, nil)
	f.await(p, "it is up", slotIs(0, job.Up))
	f.ok(pods.EvictV1(f.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: evicted.Name}}))
	expect(0, job.Eviction, "EvictionByEvictionAPI")

	deleted := f.create(1, nil)
	f.await(p, "it is up", slotIs(1, job.Up))
	f.ok(pods.Delete(f.ctx, deleted.Name, metav1.DeleteOptions{}))
	expect(1, job.Deletion, "not by this master")

	names := f.cluster.AddNodes(f, 2, testbed.KWOKNode{Prefix: "cause", Labels: map[string]string{"cause": "yes"}, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: apiresource.MustParse("1"), corev1.ResourceMemory: apiresource.MustParse("1Gi"), corev1.ResourcePods: apiresource.MustParse("10")}})
	on := func(node string) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			o.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
			whole := corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}
			o.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: whole, Limits: whole}
		}
	}
	f.create(2, on(names[0]))
	f.await(p, "it is up", slotIs(2, job.Up))
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}
	_, err := f.admin.SchedulingV1().PriorityClasses().Create(f.ctx, class, metav1.CreateOptions{})
	f.ok(err)
	f.within("admission knows the class", func() bool {
		urgent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Spec: corev1.PodSpec{
			PriorityClassName: class.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err := pods.Create(f.ctx, urgent, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
	f.create(3, func(o *corev1.Pod) { on(names[0])(o); o.Spec.PriorityClassName = class.Name })
	expect(2, job.Preemption, "PreemptionByScheduler")

	f.create(4, on(names[1]))
	f.await(p, "it is up", slotIs(4, job.Up))
	f.cluster.Taint(f, names[1], corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute})
	expect(4, job.Eviction, "DeletionByTaintManager")
	f.cluster.Untaint(f, names[1], "broken")

	f.create(5, on(names[1]))
	f.await(p, "it is up", slotIs(5, job.Up))
	f.cluster.Lose(f, names[1])
	f.await(p, "the node is silent", func(o *providers.Observation) bool {
		return strings.HasPrefix(nodeOf(o, names[1]).Closed, "not ready: ")
	})
	if i := slotOf(f.now(p), 5); i.State != job.Up {
		f.Errorf("on a silent node it is reported as %+v", i)
	}
	f.ok(pods.Delete(f.ctx, slotOf(f.now(p), 5).Name, metav1.DeleteOptions{}))
	expect(5, job.Deletion, "not ready")

	f.await(p, "the urgent one is up", slotIs(3, job.Up))
	f.cluster.RemoveNode(f, names[0])
	f.cluster.RemoveNode(f, names[1])
	expect(3, job.NodeGone, "was deleted")
	f.await(p, "it went with its node", func(o *providers.Observation) bool {
		i := slotOf(o, 5) // how depends on what is seen first
		return i.Cause == job.NodeGone && strings.Contains(strings.Join(i.Evidence, "\n"), names[1])
	})
}

func seesDrift(f *field) {
	p := f.open(f.cluster.Kubeconfig(f, f.user()))
	made := f.create(0, nil)
	o := f.await(p, "it is up", slotIs(0, job.Up))
	if i := slotOf(o, 0); len(i.Drift) > 0 {
		f.Fatalf("nobody edited it: %+v", i.Drift)
	}
	patch := `{"metadata":{"labels":{"app.kubernetes.io/part-of":"mine","theirs":"x"}},"spec":{"containers":[{"name":"main","image":"train:2"}]}}`
	_, err := f.admin.CoreV1().Pods(f.namespace).Patch(f.ctx, made.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	f.ok(err)
	o = f.await(p, "the edit is seen", func(o *providers.Observation) bool { return len(slotOf(o, 0).Drift) > 0 })
	want := []job.FieldChange{
		{Path: `pod.metadata.labels["app.kubernetes.io/part-of"]`, Before: `"mine"`, After: `"gpt"`, Change: job.Update, By: "kubectl-edit"},
		{Path: `pod.spec.containers["main"].image`, Before: `"train:2"`, After: `"train:1"`, Change: job.Update, By: "kubectl-edit"},
	}
	if got := slotOf(o, 0).Drift; fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("drift\n%+v, want\n%+v", got, want)
	}
	f.ok(p.repair(f.ctx, p.index.get(key{jobUID, "worker", 0, 1}), job.Launch{
		UID: jobUID, Slot: job.Address{Job: "gpt", Role: "worker"}, Incarnation: 1, Fingerprint: "f1", Reserved: job.Resources{CPU: 100, Memory: 1 << 20},
	}))
	if i := slotOf(f.now(p), 0); len(i.Drift) > 0 || i.Fingerprint != "f1" {
		f.Errorf("after it was repaired: %+v", i)
	}
	now, err := f.admin.CoreV1().Pods(f.namespace).Get(f.ctx, made.Name, metav1.GetOptions{})
	f.ok(err)
	if now.UID != made.UID || now.Labels["theirs"] != "x" || now.Spec.Containers[0].Image != "train:1" {
		f.Errorf("repaired to %v", now)
	}
}

// rolesWithout is the RBAC of deploy/, without its ClusterRole.
func rolesWithout(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, document := range strings.Split(string(all), "\n---\n") {
		if !strings.Contains(document, "kind: ClusterRole\n") {
			kept = append(kept, document)
		}
	}
	path := filepath.Join(t.TempDir(), "rbac.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(kept, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func namesRights(f *field) {
	for n, verb := range []string{"list", "watch"} {
		user := f.user()
		user.Name = fmt.Sprintf("short-%d", n)
		user.Without = []testbed.Permission{{Verb: verb, Resource: "pods"}}
		p := f.open(f.cluster.Kubeconfig(f, user))
		ctx, cancel := context.WithTimeout(f.ctx, awaited)
		_, err := p.Observe(ctx)
		cancel()
		if verb == "list" && err == nil {
			continue // if a watch streams the first list, the verb list is not needed
		}
		for _, words := range []string{verb, "pods", f.namespace} {
			if err == nil || !strings.Contains(err.Error(), words) {
				f.Errorf("without %s on pods: %q is not named in %v", verb, words, err)
			}
		}
	}
	user := f.user()
	user.Name, user.Roles = "homebody", []string{rolesWithout(f.T)}
	p := f.open(f.cluster.Kubeconfig(f, user))
	f.create(0, nil)
	o := f.await(p, "its own pods are seen", slotIs(0, job.Up))
	if len(o.Nodes) != 1 || !(job.Resources{CPU: 64000, Memory: 1 << 40}).Fits(o.Nodes[0].Capacity) {
		f.Errorf("without a view of nodes: %+v", o.Nodes)
	}
	capabilities := p.Capabilities()
	if !capabilities.NodesUnknown || f.open(f.cluster.Kubeconfig(f, f.user())).Capabilities().NodesUnknown {
		f.Error("nodes count as known though listing them is forbidden, or the reverse")
	}
	caveats := strings.Join(capabilities.Caveats, "\n")
	for _, words := range []string{"watch nodes", "pods of all namespaces", "every job fits"} {
		if !strings.Contains(caveats, words) {
			f.Errorf("%q is not among the caveats:\n%s", words, caveats)
		}
	}

	user = f.user()
	user.Name, user.TokenLife = "late", time.Second
	kubeconfig := f.cluster.Kubeconfig(f, user)
	time.Sleep(2 * time.Second) // the token's own lifetime, counted in seconds
	late := f.open(kubeconfig)
	if _, err := late.Observe(f.ctx); err == nil || !strings.Contains(err.Error(), "expired") {
		f.Errorf("with an expired token: %v", err)
	}
}

func namesUnreachable(f *field) {
	proxy := f.cluster.Proxy(f)
	p := f.open(proxy.Kubeconfig(f, f.user()))
	proxy.Refuse(f)
	q := f.open(proxy.Kubeconfig(f, f.user()))
	f.within("it is named", func() bool {
		ctx, cancel := context.WithTimeout(f.ctx, 500*time.Millisecond)
		defer cancel()
		_, err := q.Observe(ctx)
		if err == nil {
			f.Fatal("observed an API server that refuses connections")
		}
		return strings.Contains(err.Error(), "is unreachable")
	})
	proxy.Accept(f)
	f.await(q, "it answers again", func(o *providers.Observation) bool { return len(o.Nodes) > 0 })
	f.await(p, "it answers again", func(o *providers.Observation) bool { return len(o.Nodes) > 0 })

	// With credentials that are no longer valid, the last observation stays, marked as stale.
	old := func() bool { return strings.Contains(strings.Join(p.Capabilities().Caveats, "\n"), "is stale") }
	refusals := []*testbed.Injected{
		proxy.Inject(testbed.Fault{Verb: "watch", Status: http.StatusUnauthorized}), proxy.Inject(testbed.Fault{Verb: "list", Status: http.StatusUnauthorized}),
	}
	if old() {
		f.Error("a current watch is reported as stale")
	}
	proxy.BreakWatches()
	f.within("the caveat is there", old)
	if o := f.now(p); len(o.Nodes) == 0 {
		f.Error("without credentials there are no nodes")
	}
	for _, r := range refusals {
		r.Remove()
	}
	f.within("the caveat is gone", func() bool { return !old() })
}

func staysQuiet(f *field) {
	proxy := f.cluster.Proxy(f)
	p := f.open(proxy.Kubeconfig(f, f.user()))
	f.create(0, nil)
	f.await(p, "it is up", slotIs(0, job.Up))
	node := slotOf(f.now(p), 0).Node
	// Namespaces of earlier tests may still be terminating: wait for a quiet period of this length.
	const quiet = 5 * time.Second
	requests := func() int { return proxy.Requests("", "") - proxy.Requests("get", "namespaces") } // which is periodic, see locateEach
	asked := 0
	for deadline := time.Now().Add(awaited); ; {
		if time.Now().After(deadline) {
			f.Fatalf("never without changes for %s", quiet)
		}
		asked = requests()
		beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		_, err := f.admin.CoreV1().Nodes().PatchStatus(f.ctx, node, []byte(beat))
		f.ok(err)
		select { // the nodes renew their leases meanwhile
		case <-p.Changes():
			continue
		case <-time.After(quiet):
		}
		break
	}
	if n := requests(); n != asked {
		f.Errorf("%d requests in a steady state", n-asked)
	}
}
