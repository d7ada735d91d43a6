package volcano

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/apis/pkg/client/clientset/versioned"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/podtest"
	"github.com/eltrain/eltrain/providers/providertest"
	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

func TestMain(m *testing.M) { os.Exit(podtest.Main(m, closeBed)) }

func TestConformance(t *testing.T) {
	podtest.Needed(t)
	images, err := podtest.Images()
	if err != nil {
		t.Fatal(err)
	}
	const node = "process-1"
	cluster := testbed.Use(t, testbed.Options{
		Volcano: &testbed.Volcano{}, ProcessNodes: []kubelet.Node{podtest.Node(node)}, Images: images,
	})
	here := map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{corev1.LabelHostname: node}}}
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		namespace := cluster.Namespace(t)
		config := Config{Config: kubernetes.Config{
			Kubeconfig: cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{podtest.Rights}}),
			Image:      podtest.HostImage, AgentImage: podtest.StandInImage, Pod: here,
		}}
		return podtest.Harness(t, cluster.Kubelet, namespace, node, func() (providers.Provider, error) {
			return New(Options{Config: config, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "0"})
		})
	})
}

// bed is one control plane with Volcano and four simulated nodes of four cores, for all tests of what the scheduler does.
// They run one after the other, each on the empty cluster.
var bed struct {
	once    sync.Once
	err     error
	cluster *testbed.Cluster
}

func closeBed() {
	if bed.cluster == nil {
		return
	}
	if err := bed.cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

const nodes = 4

func newBed(t *testing.T) *testbed.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	bed.once.Do(func() {
		bed.cluster, bed.err = testbed.Shared(testbed.Options{Nodes: nodes, Node: fourCores, Volcano: &testbed.Volcano{}})
	})
	if bed.err != nil {
		t.Fatal(bed.err)
	}
	return bed.cluster
}

var fourCores = testbed.KWOKNode{Capacity: corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}}

// work is a provider in a namespace of its own.
type work struct {
	*testing.T
	cluster   *testbed.Cluster
	config    Config
	namespace string
	p         *kubernetes.Provider
	volcano   versioned.Interface // with the administrator's permissions
	bound     time.Duration
}

func newWork(t *testing.T, cluster *testbed.Cluster, edit func(*Config)) *work {
	t.Helper()
	namespace := cluster.Namespace(t)
	w := &work{T: t, cluster: cluster, namespace: namespace, bound: hang.Bound, config: Config{Config: kubernetes.Config{
		Kubeconfig: cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{podtest.Rights}}), Image: "train:1", AgentPath: "/eltrain-agent",
	}}}
	if edit != nil {
		edit(&w.config)
	}
	admin := cluster.Config()
	admin.ContentType = runtime.ContentTypeJSON
	w.volcano = versioned.NewForConfigOrDie(admin)
	w.p = w.open()
	return w
}

// preparedWithoutWriting checks that nothing is written if nothing changed: a master that may not write PodGroups prepares
// the group once more.
func (w *work) preparedWithoutWriting(g job.Group) {
	w.Helper()
	config := w.config
	config.Kubeconfig = w.cluster.Kubeconfig(w.T, testbed.User{Namespace: w.namespace, Name: "reader", Roles: []string{podtest.Rights},
		Without: []testbed.Permission{{Verb: "patch", Resource: "podgroups"}, {Verb: "create", Resource: "podgroups"}}})
	p, err := New(Options{Config: config, Logger: slog.New(slog.DiscardHandler), Version: "0"})
	w.ok(err)
	defer p.Close()
	_, err = p.Observe(w.Context())
	w.ok(err)
	_, err = p.Prepare(w.Context(), g)
	w.ok(err)
}

// open is another master.
func (w *work) open() *kubernetes.Provider {
	w.Helper()
	p, err := New(Options{Config: w.config, Logger: slog.New(slog.NewTextHandler(w.Output(), nil)), Version: "0"})
	w.ok(err)
	w.Cleanup(func() { p.Close() })
	return p
}

func (w *work) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// group is a job of workers that reserve some cores each. It is named after its UID.
func group(name string, least int, cores job.CPU) job.Group {
	return job.Group{UID: name + "00000", Name: name, Roles: []job.GroupRole{{Role: "worker", Min: least, Each: job.Resources{CPU: cores}}}}
}

const core = job.CPU(1000)

// podGroupOf is the name of a group's objects.
func podGroupOf(g job.Group) string { return g.Name + "-" + g.UID[:5] }

func (w *work) prepare(g job.Group) {
	w.Helper()
	_, err := w.p.Prepare(w.Context(), g)
	w.ok(err)
}

// launch launches slots of a group's workers, as one incarnation.
func (w *work) launch(g job.Group, incarnation int, indices ...int) {
	w.Helper()
	for _, index := range indices {
		w.ok(w.p.Launch(w.Context(), job.Launch{
			UID: g.UID, Slot: slot(g, index), Incarnation: incarnation, Processes: 1, Ranked: true, Reserved: g.Roles[0].Each,
			Program: job.Program{Command: []string{"train"}}, StopGrace: job.Duration(time.Second), Fingerprint: "f1",
		}))
	}
}

// start prepares a group, waits until it is admitted, and launches so many.
func (w *work) start(g job.Group, count int) {
	w.Helper()
	w.prepare(g)
	w.until(g.Name+" admitted", func(o *providers.Observation) bool { return o.Held[g.UID] == "" })
	w.launch(g, 1, first(count)...)
}

func first(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

func slot(g job.Group, index int) job.Address {
	return job.Address{Job: g.Name, Role: "worker", Index: index}
}

// end stops everything that runs of a group, and forgets it.
func (w *work) end(g job.Group) {
	w.Helper()
	for _, i := range w.of(w.observe(), g) {
		w.ok(w.p.Stop(w.Context(), g.UID, i.Slot, i.Number, 0))
	}
	w.until(g.Name+" stopped", func(o *providers.Observation) bool {
		return !slices.ContainsFunc(w.of(o, g), func(i job.Incarnation) bool { return i.State != job.Gone })
	})
	w.ok(w.p.Forget(w.Context(), g.UID, g.Name))
}

func (w *work) observe() *providers.Observation {
	w.Helper()
	o, err := w.p.Observe(w.Context())
	w.ok(err)
	return o
}

func (w *work) of(o *providers.Observation, g job.Group) []job.Incarnation {
	return slices.DeleteFunc(o.Incarnations.List(), func(i job.Incarnation) bool { return i.UID != g.UID })
}

// up counts the running pods of a group.
func (w *work) up(o *providers.Observation, g job.Group) (n int) {
	for _, i := range w.of(o, g) {
		if i.State == job.Up {
			n++
		}
	}
	return n
}

// until waits for an observation, rechecking on Changes only: a change that is not signaled fails the test.
func (w *work) until(what string, holds func(*providers.Observation) bool) *providers.Observation {
	w.Helper()
	deadline := time.After(w.bound)
	for {
		// New resources of the server must be listed once before anything is observed.
		o, err := w.p.Observe(w.Context())
		if err == nil && holds(o) {
			return o
		}
		select {
		case <-w.p.Changes():
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			w.Fatalf("after %s not %s: %v\nheld %v\n%s", w.bound, what, err, o.Held, w.show(o))
		}
	}
}

func (w *work) show(o *providers.Observation) string {
	var b strings.Builder
	for i := range o.Incarnations.All() {
		fmt.Fprintf(&b, "%s incarnation %d %s on %q, %s %v\n", i.Slot, i.Number, i.State, i.Node, i.Waiting, i.Evidence)
	}
	groups, err := w.volcano.SchedulingV1beta1().PodGroups(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return b.String() + err.Error()
	}
	for _, g := range groups.Items {
		fmt.Fprintf(&b, "PodGroup %s: %+v\n%+v\n", g.Name, g.Spec, g.Status)
	}
	return b.String()
}

func (w *work) podGroup(name string) *v1beta1.PodGroup {
	w.Helper()
	g, err := w.volcano.SchedulingV1beta1().PodGroups(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	w.ok(err)
	return g
}

// nothingLeft waits until the API server has no PodGroup of the forgotten job.
func (w *work) nothingLeft() {
	w.Helper()
	deadline := time.Now().Add(collected)
	for {
		left, err := w.volcano.SchedulingV1beta1().PodGroups(w.namespace).List(w.Context(), metav1.ListOptions{})
		w.ok(err)
		if len(left.Items) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("left behind: %+v", left.Items)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// collected bounds the garbage collector, which checks every 30 s which kinds exist.
const collected = hang.Bound

// settle gives the scheduler time for wrong actions.
func (w *work) settle() { time.Sleep(settle) }

// settle is the time of fifteen sessions of the scheduler.
const settle = 1500 * time.Millisecond
