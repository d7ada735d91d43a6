package kubernetes

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/eltrain/eltrain/job"
)

// The largest benchmarked cluster.
const (
	manyPods  = 10_000
	manyNodes = 1_000
)

// fill enters nodes, our pods and foreign pods, each decoded from the API server's encoding, so that nothing is shared
// unintentionally.
func fill(t testing.TB) *index {
	x := newIndex()
	for n := range manyNodes {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n), Labels: map[string]string{"kubernetes.io/hostname": nodeName(n), "topology.kubernetes.io/zone": "a"}}}
		o.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: apiresource.MustParse("96"), corev1.ResourceMemory: apiresource.MustParse("1Ti"),
			corev1.ResourcePods: apiresource.MustParse("110"), "nvidia.com/gpu": apiresource.MustParse("8"),
		}
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		x.watchedNode(o, false)
	}
	template, err := Config{Image: "train:1"}.pod(job.Launch{
		UID: jobUID, Slot: job.Address{Job: "gpt", Role: "worker"}, Incarnation: 1, Processes: 8, Fingerprint: "0123456789abcdef",
		Program:  job.Program{Command: []string{"python", "train.py", "--model", "gpt"}, Env: map[string]string{"NCCL_DEBUG": "INFO"}},
		Reserved: job.Resources{CPU: 8000, Memory: 64 << 30, Devices: map[string]int{"nvidia.com/gpu": 1}},
	}, podContext{namespace: "ml", version: "0.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range manyPods {
		o := running(t, template, n)
		stripOurs(o)
		x.watched(o, false)
		foreign := running(t, template, n)
		foreign.UID += "-other"
		stripOther(foreign)
		x.watchedOther(foreign, unlabelled, false)
	}
	return x
}

func nodeName(n int) string { return fmt.Sprintf("gpu-node-%04d.cluster.example", n) }

// running is a pod as the API server sends it.
func running(t testing.TB, template *corev1.Pod, n int) *corev1.Pod {
	o := template.DeepCopy()
	slot := job.Address{Job: "gpt", Role: "worker", Index: n}
	o.Name, o.UID, o.ResourceVersion = podName(jobUID, slot, 1), types.UID(fmt.Sprintf("7f0c6f6e-0000-4000-8000-%012d", n)), "123456"
	o.Labels = podLabels(jobUID, slot, 1)
	o.Spec.NodeName = nodeName(n % manyNodes)
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: mainContainer, Image: "train:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}}
	bytes, err := o.Marshal()
	utilruntime.Must(err)
	decoded := &corev1.Pod{}
	if err := decoded.Unmarshal(bytes); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// TestMemory: the whole master should stay under 200 MB while watching 10,000 pods, with the index a small part of it.
func TestMemory(t *testing.T) {
	const most = 40 << 20 // measured: a little more than half
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // the first leaves what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	x := fill(t)
	used := heap() - before
	seen := x.observe()
	t.Logf("%d pods of ours, %d of others, %d nodes: %.1f MB", seen.Incarnations.Len(), len(x.cluster.others), len(seen.Nodes), float64(used)/1e6)
	if used > most {
		t.Errorf("the index takes %d bytes, more than %d", used, most)
	}
	runtime.KeepAlive(x)
}

// BenchmarkObserve copies 10,000 incarnations and 1,000 nodes.
func BenchmarkObserve(b *testing.B) {
	x := fill(b)
	b.ReportAllocs()
	for b.Loop() {
		x.observe()
	}
}

// BenchmarkObserveAfterLaunch does the same with one more pod each time.
func BenchmarkObserveAfterLaunch(b *testing.B) {
	x := fill(b)
	template := &corev1.Pod{}
	n := manyPods
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		o := running(b, template, n)
		n++
		b.StartTimer()
		x.put(o)
		x.observe()
	}
}

// BenchmarkEvent enters one status change of one pod, from the decoded object to the index.
func BenchmarkEvent(b *testing.B) {
	x := fill(b)
	o := running(b, &corev1.Pod{}, 7)
	stripOurs(o)
	version := 200_000
	b.ReportAllocs()
	for b.Loop() {
		version++
		o.ResourceVersion = fmt.Sprint(version)
		x.watched(o, false)
	}
}

// BenchmarkBars computes the bars of a role on 1,000 nodes.
func BenchmarkBars(b *testing.B) {
	x := fill(b)
	x.config = Config{Image: "train:1"}
	r := &job.Role{Name: "worker", Program: job.Program{Command: []string{"train"}}}
	places := x.observe().Places
	b.ReportAllocs()
	for b.Loop() {
		places.Fit(r)
	}
}
