package podsite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

const (
	// TrainerImage has the demo's directory as its working directory, AgentImage is that of deploy/.
	TrainerImage = "trainer"
	AgentImage   = "eltrain"

	// foreignImage has nothing of the demo's, so its processes do not count as left by a job.
	foreignImage = "foreign"

	// PoolLabel keeps the pods of a test on its nodes, and other tests' away from them.
	PoolLabel = "e2e.eltrain.dev/pool"
)

// Example is a job of examples/ and where it is run.
type Example struct {
	Dir      string            // below examples/
	Job      string            // its name
	Provider string            // replaces "local" in the job; the one of examples/mnist-PROVIDER
	Nodes    int               // of one core each: two in the first rack, the others in the second
	Memory   resource.Quantity // of each node
}

// Local is the example for one machine.
func Local(provider string, nodes int) Example {
	return Example{Dir: "mnist-local", Job: "mnist", Provider: provider, Nodes: nodes, Memory: resource.MustParse("512Mi")}
}

// Demo is the job of an example with its provider changed, in its own namespace and on its own process nodes.
type Demo struct {
	*Site
	Kubelet *kubelet.Kubelet
}

// NewDemo makes the job directory and the nodes. When the test ends the job is destroyed; it is an error if anything is left
// of it.
func NewDemo(t *testing.T, c *testbed.Cluster, programs site.Programs, e Example) *Demo {
	t.Helper()
	d := &Demo{Site: New(t, c, programs, e.Job)}
	d.Place = d
	d.Work = "/srv/" + d.Namespace
	d.Vars = fmt.Sprintf("image = %q\nagent_image = %q\npod = { spec = { nodeSelector = { %q = %q } } }\n", TrainerImage, AgentImage, PoolLabel, d.Namespace)
	d.UseExample(e.Dir, e.Provider)
	d.Write(e.Provider+".hcl", d.Example("mnist-"+e.Provider, e.Provider+".hcl"))

	var nodes []kubelet.Node
	for n := range e.Nodes {
		rack := min(n/2, 1) + 1
		nodes = append(nodes, kubelet.Node{
			Name:     d.Node(n + 1),
			Labels:   map[string]string{PoolLabel: d.Namespace, "rack": fmt.Sprintf("r%d", rack), "switch": fmt.Sprintf("s%d", rack)},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: e.Memory},
		})
	}
	d.startKubelet(nodes)
	t.Cleanup(d.Clean)
	return d
}

func (d *Demo) startKubelet(nodes []kubelet.Node) {
	d.T.Helper()
	agent, err := AgentImageOf(d.Programs)
	d.OK(err)
	ctx, cancel := bounded()
	defer cancel()
	d.Kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Config: d.Cluster.Config(), Nodes: nodes, Dir: d.T.TempDir(),
		Images: map[string]kubelet.Image{
			TrainerImage: {
				Mounts:     []kubelet.Mount{{HostPath: d.Dir, Path: d.Work}},
				WorkingDir: d.Work, Env: []string{"TRAIN_EVENTS=" + d.Work + "/" + site.EventsFile},
			},
			AgentImage:   agent,
			foreignImage: {},
		},
	})
	d.OK(err)
	d.T.Cleanup(d.Kubelet.Close)
	d.T.Cleanup(func() {
		for _, n := range nodes {
			d.Cluster.RemoveNode(d.T, n.Name)
		}
	})
	for _, n := range nodes {
		site.Until(d.T, "node "+n.Name+" is ready", func() bool { return d.Ready(n.Name) && len(d.GetNode(n.Name).Spec.Taints) == 0 })
	}
}

// MemoryIsLimited skips a test if this machine cannot limit the memory of containers, or fails it if WITH_LIMITS is set.
func (d *Demo) MemoryIsLimited() {
	d.T.Helper()
	err := d.Kubelet.LimitsMemory()
	switch {
	case err == nil:
	case os.Getenv("WITH_LIMITS") != "":
		d.T.Fatalf("memory limits are not enforced here: %v", err)
	default:
		d.T.Skipf("memory limits are not enforced here: %v", err)
	}
}

// Node names the demo's nodes, from 1.
func (d *Demo) Node(n int) string { return fmt.Sprintf("%s-n%d", d.Namespace, n) }

// GetNode reads a node.
func (d *Demo) GetNode(name string) *corev1.Node {
	d.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	node, err := d.Cluster.Admin().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	d.OK(err)
	return node
}

// Ready reports whether the node is ready according to Kubernetes.
func (d *Demo) Ready(name string) bool {
	d.T.Helper()
	c := d.readiness(name)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readiness returns nil for a node that has not reported it yet.
func (d *Demo) readiness(name string) *corev1.NodeCondition {
	d.T.Helper()
	all := d.GetNode(name).Status.Conditions
	if i := slices.IndexFunc(all, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Delete removes a node as a cloud does: it powers it off, and deletes its Node object.
func (d *Demo) Delete(node string) {
	d.T.Helper()
	d.OK(d.Kubelet.PowerOff(node))
	d.Cluster.RemoveNode(d.T, node)
}

// Reconnect brings a node back.
func (d *Demo) Reconnect(node string) {
	d.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	d.OK(d.Kubelet.Reconnect(ctx, node))
}

// Foreign creates a pod that is not eltrain's and fills one node of the demo. edit may change it.
func (d *Demo) Foreign(name string, edit func(*corev1.Pod)) {
	d.T.Helper()
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{PoolLabel: d.Namespace}, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: MainContainer, Image: foreignImage, Command: []string{"sleep", "3600"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}
	if edit != nil {
		edit(pod)
	}
	_, err := d.Cluster.Admin().CoreV1().Pods(d.Namespace).Create(d.T.Context(), pod, metav1.CreateOptions{})
	d.OK(err)
}

// Urgent creates a priority class above the job's until the test ends. It waits until pods can use it, and returns its name.
func (d *Demo) Urgent() string {
	d.T.Helper()
	name := d.Namespace + "-urgent" // unique: the class is cluster-wide
	classes := d.Cluster.Admin().SchedulingV1().PriorityClasses()
	_, err := classes.Create(d.T.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000}, metav1.CreateOptions{})
	d.OK(err)
	d.T.Cleanup(func() { classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	site.Until(d.T, "admission knows the class", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			PriorityClassName: name, Containers: []corev1.Container{{Name: MainContainer, Image: foreignImage}},
		}}
		_, err := d.Cluster.Admin().CoreV1().Pods(d.Namespace).Create(d.T.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
	return name
}

// AgentOf returns the agent of a slot's pod, by its ID on this machine.
func (d *Demo) AgentOf(slot site.Slot) int {
	d.T.Helper()
	pid, err := d.Kubelet.PID(d.Namespace, slot.Name, MainContainer)
	d.OK(err)
	return pid
}

// TrainerOf returns the training process of a slot, by its ID on this machine: the status has its ID in the pod.
func (d *Demo) TrainerOf(slot site.Slot) int {
	d.T.Helper()
	pod, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", d.AgentOf(slot)))
	d.OK(err)
	for pid := range d.Processes() {
		if namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err != nil || namespace != pod {
			continue
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			if ids, of := strings.CutPrefix(line, "NSpid:"); of && strings.HasSuffix(strings.TrimSpace(ids), "\t"+strconv.Itoa(slot.PID)) {
				return pid
			}
		}
	}
	d.T.Fatalf("%s has no process %d in pod %s", slot.Address, slot.PID, slot.Name)
	return 0
}

// Elsewhere returns a copy of the demo in another job directory, for a second master.
func (d *Demo) Elsewhere() *Demo {
	d.T.Helper()
	in := *d.Site
	in.Site = in.Site.Elsewhere()
	return &Demo{Site: &in, Kubelet: d.Kubelet}
}
