package kubelet_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eltrain/eltrain/testbed/kubelet"
)

func (b *bed) nodeReady(name string) corev1.ConditionStatus {
	b.Helper()
	n, err := b.client.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (b *bed) running(name string) int {
	b.Helper()
	b.awaitPhase(name, corev1.PodRunning)
	pid, err := b.PID(b.namespace, name, "c")
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

func TestNode(t *testing.T) {
	b := start(t, "node")
	n, err := b.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Status.Allocatable[corev1.ResourceMemory]; got.Cmp(resource.MustParse("16Gi")) != 0 {
		t.Errorf("allocatable memory %s", got.String())
	}
	if got := n.Status.Capacity[corev1.ResourcePods]; got.Value() != 110 {
		t.Errorf("capacity of pods %s", got.String())
	}
	if n.Labels["pool"] != "process" || n.Labels[corev1.LabelHostname] != "node" {
		t.Errorf("labels %v", n.Labels)
	}
	renewed := func() time.Time {
		lease, err := b.client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	first := renewed()
	b.await("the lease is renewed", func() bool { return renewed().After(first) })
	b.await("the node is Ready", func() bool { return b.nodeReady("node") == corev1.ConditionTrue })

	// After its deletion, a newly started kubelet creates it again.
	if err := b.client.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Disconnect("node"); err != nil {
		t.Fatal(err)
	}
	if err := b.Reconnect(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	b.await("the node is Ready again", func() bool { return b.nodeReady("node") == corev1.ConditionTrue })
	if err := b.Disconnect("none"); err == nil {
		t.Error("a node that is not served was disconnected")
	}
}

// final follows a pod until its object is gone and returns the last version.
func (b *bed) final(name string, act func()) *corev1.Pod {
	b.Helper()
	watcher, err := b.client.CoreV1().Pods(b.namespace).Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	act()
	var last *corev1.Pod
	timeout := time.After(patience)
	for {
		select {
		case event := <-watcher.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				b.Fatalf("watch: %v", event)
			}
			if event.Type == watch.Deleted {
				return last
			}
			last = pod
		case <-timeout:
			b.Fatalf("pod %s is not gone within %s", name, patience)
		}
	}
}

func TestDeletion(t *testing.T) {
	b := start(t, "deletion")
	for _, test := range []struct {
		name, script string
		grace        int64
		code         int32
		phase        corev1.PodPhase
		least        time.Duration // the minimum duration; the maximum is patience
	}{
		{"obeys", "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done", 600, 0, corev1.PodSucceeded, 0},
		{"fails", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done", 600, 9, corev1.PodFailed, 0},
		// The first process of a pid namespace ignores signals without a handler, as in any container.
		{"ignores", "echo up; sleep 1000 & wait", 2, 137, corev1.PodFailed, 2 * time.Second},
	} {
		b.create(b.pod(test.name, test.script))
		b.running(test.name)
		b.awaitLog(test.name, "up")
		began := time.Now()
		last := b.final(test.name, func() { b.delete(test.name, seconds(test.grace)) })
		took := time.Since(began)
		ended := last.Status.ContainerStatuses[0].State.Terminated
		if ended == nil || ended.ExitCode != test.code || last.Status.Phase != test.phase {
			t.Errorf("%s: last seen as %s", test.name, show(last.Status))
		}
		if took < test.least {
			t.Errorf("%s: gone after %s", test.name, took)
		}
	}
	dirs, err := os.ReadDir(filepath.Join(b.dir, "pods"))
	if err != nil {
		t.Fatal(err)
	}
	b.await("directories of deleted pods are removed", func() bool {
		dirs, err = os.ReadDir(filepath.Join(b.dir, "pods"))
		return err == nil && len(dirs) == 0
	})
}

// A second deletion with a shorter grace shortens that of the first.
func TestDeletionShortened(t *testing.T) {
	b := start(t, "shortened")
	b.create(b.pod("a", "sleep 1000 & wait"))
	b.running("a")
	b.delete("a", seconds(600))
	b.delete("a", seconds(1))
	b.awaitGone("a")
}

func TestForcedDeletion(t *testing.T) {
	b := start(t, "forced")
	b.create(b.pod("a", "trap '' TERM; sleep 1000 & wait"))
	pid := b.running("a")
	b.delete("a", seconds(0))
	b.await("the process is killed", func() bool { return !alive(pid) })
	// A pod of the same name is a different one.
	b.create(b.pod("a", "echo second"))
	b.awaitPhase("a", corev1.PodSucceeded)
}

func TestPreStop(t *testing.T) {
	b := start(t, "prestop")
	host := t.TempDir()
	pod := b.pod("a", "trap 'cat /host/hook > /host/order; echo term >> /host/order; exit 0' TERM; echo up; while :; do sleep 0.05; done")
	pod.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 0.3; echo hook > /host/hook"}}}}
	b.create(pod)
	b.running("a")
	b.awaitLog("a", "up")
	b.delete("a", seconds(30))
	b.awaitGone("a")
	if order, err := os.ReadFile(filepath.Join(host, "order")); string(order) != "hook\nterm\n" {
		t.Errorf("%q, %v", order, err)
	}
}

func TestEvictionByTheAPI(t *testing.T) {
	b := start(t, "api-eviction")
	b.create(b.pod("a", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"))
	b.running("a")
	b.awaitLog("a", "up")
	last := b.final("a", func() {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: b.namespace}}
		if err := b.client.PolicyV1().Evictions(b.namespace).Evict(t.Context(), eviction); err != nil {
			t.Fatal(err)
		}
	})
	if c := condition(last.Status, corev1.DisruptionTarget); c.Reason != "EvictionByEvictionAPI" {
		t.Errorf("the evictor's condition is lost: %v", last.Status.Conditions)
	}
}

// An evicted pod is stopped, and reported as evicted once it has ended.
func TestEvict(t *testing.T) {
	b := start(t, "evict")
	for _, test := range []struct {
		name, script string
		grace        time.Duration
		code         int32
	}{
		{"obeys", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done", 10 * time.Minute, 9},
		{"takes-its-time", "trap 'sleep 3; exit 9' TERM; echo up; while :; do sleep 0.05; done", 10 * time.Minute, 9},
		{"ignores", "echo up; sleep 1000 & wait", 0, 137},
	} {
		b.create(b.pod(test.name, test.script))
		pid := b.running(test.name)
		b.awaitLog(test.name, "up")
		if err := b.Evict(b.namespace, test.name, "The node was low on resource: memory.", test.grace); err != nil {
			t.Fatal(err)
		}
		status := b.awaitPhase(test.name, corev1.PodFailed)
		if status.Reason != "Evicted" || status.Message != "The node was low on resource: memory." || alive(pid) {
			t.Errorf("%s: %s", test.name, show(status))
		}
		if ended := status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != test.code {
			t.Errorf("%s: %s", test.name, show(status))
		}
		if c := condition(status, corev1.DisruptionTarget); c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
			t.Errorf("%s: %v", test.name, c)
		}
		b.delete(test.name, metav1.DeleteOptions{})
		b.awaitGone(test.name)
	}
}

// A pod that is evicted and then deleted has at most the deletion's grace.
func TestEvictedAndDeleted(t *testing.T) {
	b := start(t, "evict-delete")
	b.create(b.pod("a", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
	b.running("a")
	b.awaitLog("a", "up")
	if err := b.Evict(b.namespace, "a", "The node was low on resource: memory.", time.Hour); err != nil {
		t.Fatal(err)
	}
	if last := b.final("a", func() { b.delete("a", seconds(1)) }); last.Status.Reason != "Evicted" {
		t.Error(show(last.Status))
	}
}

// A node that reports itself not ready still stops its pods, and reports it.
func TestNotReady(t *testing.T) {
	b := start(t, "failing")
	b.create(b.pod("a", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"))
	b.running("a")
	b.awaitLog("a", "up")
	if err := b.NotReady("failing", "node is shutting down"); err != nil {
		t.Fatal(err)
	}
	b.await("the node says so", func() bool { return b.nodeReady("failing") == corev1.ConditionFalse })
	last := b.final("a", func() { b.delete("a", seconds(30)) })
	if ended := last.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 9 {
		t.Error(show(last.Status))
	}
	if err := b.Reconnect(t.Context(), "failing"); err != nil {
		t.Fatal(err)
	}
	b.await("the node is Ready again", func() bool { return b.nodeReady("failing") == corev1.ConditionTrue })
}

// A container runtime that fails, on a ready node.
func TestFailStarts(t *testing.T) {
	b := start(t, "fail-starts")
	if err := b.FailStarts("fail-starts", "context deadline exceeded"); err != nil {
		t.Fatal(err)
	}
	b.create(b.pod("a", "true"))
	status := b.awaitPhase("a", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != 128 || ended.Reason != "StartError" || ended.Message != "failed to create containerd task: context deadline exceeded" {
		t.Error(show(status))
	}
	b.await("the node says that it is ready", func() bool { return b.nodeReady("fail-starts") == corev1.ConditionTrue })
	if err := b.FailStarts("fail-starts", ""); err != nil {
		t.Fatal(err)
	}
	b.create(b.pod("b", "true"))
	b.awaitPhase("b", corev1.PodSucceeded)
}

// A disconnected node becomes NotReady while its processes continue; pods deleted meanwhile are killed when it is
// back.
func TestDisconnect(t *testing.T) {
	b := start(t, "zombie")
	keep := b.pod("keep", "sleep 1000")
	tolerate := int64(600)
	keep.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: &tolerate, Effect: corev1.TaintEffectNoExecute}}
	b.configMap("settings", map[string]string{"x": "1"})
	keep.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
	b.create(keep)
	b.create(b.pod("drop", "sleep 1000"))
	kept, dropped := b.running("keep"), b.running("drop")
	if err := b.Disconnect("zombie"); err != nil {
		t.Fatal(err)
	}
	b.configMap("settings", map[string]string{"x": "2"})
	b.await("the node is NotReady", func() bool { return b.nodeReady("zombie") == corev1.ConditionUnknown })
	b.delete("drop", seconds(0))
	settings := filepath.Join(b.dir, "pods", string(b.get("keep").UID), "volumes", "settings", "x")
	if text, err := os.ReadFile(settings); string(text) != "1" {
		t.Errorf("an update reached a disconnected node: %q, %v", text, err)
	}
	if !alive(kept) || !alive(dropped) {
		t.Error("processes of a disconnected node have ended")
	}
	if _, err := b.client.CoreV1().Pods(b.namespace).GetLogs("keep", &corev1.PodLogOptions{}).DoRaw(t.Context()); err == nil {
		t.Error("a disconnected node serves logs")
	}
	if err := b.Reconnect(t.Context(), "zombie"); err != nil {
		t.Fatal(err)
	}
	b.await("the node is Ready", func() bool { return b.nodeReady("zombie") == corev1.ConditionTrue })
	b.await("the deleted pod is killed", func() bool { return !alive(dropped) })
	b.await("news reach it", func() bool { text, err := os.ReadFile(settings); return err == nil && string(text) == "2" })
	if !alive(kept) {
		t.Error("a pod that was not deleted was killed")
	}
}

func TestPowerOff(t *testing.T) {
	b := start(t, "dark")
	b.create(b.pod("never", "sleep 1000"))
	always := b.pod("always", "sleep 1000")
	always.Spec.RestartPolicy = corev1.RestartPolicyAlways
	b.create(always)
	pids := []int{b.running("never"), b.running("always")}
	if err := b.PowerOff("dark"); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Error("a process outlived its machine")
		}
	}
	if phase := b.get("never").Status.Phase; phase != corev1.PodRunning {
		t.Errorf("a dead machine has reported %s", phase)
	}
	if err := b.Reconnect(t.Context(), "dark"); err != nil {
		t.Fatal(err)
	}
	status := b.awaitPhase("never", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != 255 || ended.Reason != "Unknown" {
		t.Error(show(status))
	}
	b.awaitPod("always", "runs again", func(s corev1.PodStatus) bool {
		return s.ContainerStatuses[0].RestartCount == 1 && s.ContainerStatuses[0].State.Running != nil
	})
}

// The controller manager deletes pods that do not tolerate a NoExecute taint; the kubelet stops them.
func TestNoExecute(t *testing.T) {
	b := start(t, "tainted")
	b.create(b.pod("a", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"))
	b.running("a")
	b.awaitLog("a", "up")
	last := b.final("a", func() {
		cluster.Taint(t, "tainted", corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	})
	if c := condition(last.Status, corev1.DisruptionTarget); c.Reason != "DeletionByTaintManager" {
		t.Errorf("%v", last.Status.Conditions)
	}
}

// What happens while the API server is down is reported when it is back.
func TestAPIServerAway(t *testing.T) {
	b := start(t, "away")
	host := t.TempDir()
	pod := b.pod("a", "until test -e /host/go; do sleep 0.05; done; exit 6")
	pod.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
	b.create(pod)
	pid := b.running("a")
	cluster.APIServer.Kill(t)
	if err := os.WriteFile(filepath.Join(host, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.await("the process ends", func() bool { return !alive(pid) })
	cluster.APIServer.Start(t)
	status := b.awaitPhase("a", corev1.PodFailed)
	if status.ContainerStatuses[0].State.Terminated.ExitCode != 6 {
		t.Error(show(status))
	}
}

// A second Kubelet adopts no process: what ran under the first was killed.
func TestSecondKubelet(t *testing.T) {
	b := start(t, "second")
	b.create(b.pod("a", "echo before; sleep 1000"))
	pid := b.running("a")
	b.awaitLog("a", "before")
	b.Close()
	if alive(pid) {
		t.Fatal("a process outlived its Kubelet")
	}
	n := node("second")
	again, err := kubelet.Start(t.Context(), kubelet.Options{Config: cluster.Config(), Nodes: []kubelet.Node{n}, Images: images, Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	status := b.awaitPhase("a", corev1.PodFailed)
	if ended := status.ContainerStatuses[0].State.Terminated; ended.ExitCode != 255 || ended.Reason != "Unknown" {
		t.Error(show(status))
	}
	if out := b.logs("a", corev1.PodLogOptions{}); out != "before\n" {
		t.Errorf("what it wrote under the first is lost: %q", out)
	}
	b.delete("a", metav1.DeleteOptions{})
	b.awaitGone("a")
}

// Nothing is left on the machine when the process that runs the Kubelet is killed.
func TestOwnerKilled(t *testing.T) {
	b := start(t, "owner-unused")
	config := cluster.Config()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s owned", ownerEnv, config.Host, config.BearerToken, cluster.CAFile()))
	owner.Stderr = os.Stderr
	input, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	fmt.Fscan(output, &dir)
	defer os.RemoveAll(dir)
	defer b.client.CoreV1().Nodes().Delete(context.Background(), "owned", metav1.DeleteOptions{})
	pod := b.pod("a", "setsid sleep 98765 & exec sleep 98765")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "owned"}
	zero := int64(0)
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &[]int64{65534}[0]}
	pod.Spec.TerminationGracePeriodSeconds = &zero
	b.create(pod)
	b.awaitPhase("a", corev1.PodRunning)
	b.await("both processes run", func() bool { return len(sleepers()) == 2 })
	owner.Process.Signal(unix.SIGKILL)
	owner.Wait()
	b.await("the container's processes die with the owner", func() bool { return len(sleepers()) == 0 })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || dir == "" || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts of %q are left (%v)", dir, err)
	}
}

// sleepers are the processes started by TestOwnerKilled's pod.
func sleepers() []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "sleep\x0098765\x00") {
			found = append(found, path)
		}
	}
	return found
}

func TestRunAsUser(t *testing.T) {
	b := start(t, "user")
	pod := b.pod("a", "id -u; id -g; echo bye > /dev/termination-log && touch /tmp/x && echo ok")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &[]int64{1234}[0], RunAsGroup: &[]int64{99}[0]}
	if out := b.output(pod); out != "1234\n99\nok\n" {
		t.Error(out)
	}
}

// A pod's fsGroup may read files of a volume that are otherwise only readable by their owner.
func TestFSGroupReadsVolumes(t *testing.T) {
	b := start(t, "fsgroup")
	b.secret("keys", map[string]string{"token": "s3cret\n"})
	mode := int32(0o400)
	for group, want := range map[int64]string{4321: "s3cret\n", 0: "refused\n"} {
		pod := b.pod(fmt.Sprintf("a%d", group), "cat /secret/token 2>/dev/null || echo refused")
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &[]int64{1234}[0], RunAsGroup: &[]int64{99}[0]}
		if group > 0 {
			pod.Spec.SecurityContext.FSGroup = &group
		}
		pod.Spec.Volumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", DefaultMode: &mode}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/secret"}}
		if out := b.output(pod); out != want {
			t.Errorf("fsGroup %d: %q", group, out)
		}
	}
}
