package kubelet_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// cluster is shared: every test has its own nodes and namespace in it.
var cluster *testbed.Cluster

// nodeLease is short, so that a lost node is noticed within a test's patience.
const nodeLease = 8 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(ownerEnv) != "" {
		ownKubelet()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	var err error
	if cluster, err = testbed.New(testbed.Options{NodeLease: nodeLease}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, cluster.Logs())
	}
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// ownerEnv makes this test binary a program that runs a Kubelet and can be killed: the API server's URL, the
// token, and the node's name.
const ownerEnv = "KUBELET_TEST_OWNER"

// ownKubelet serves a node until its standard input is closed or it is killed.
func ownKubelet() {
	words := strings.Fields(os.Getenv(ownerEnv))
	dir, err := os.MkdirTemp("", "kubelet-owner-")
	if err == nil {
		_, err = kubelet.Start(context.Background(), kubelet.Options{
			Config: &rest.Config{Host: words[0], BearerToken: words[1], TLSClientConfig: rest.TLSClientConfig{CAFile: words[2]}},
			Nodes:  []kubelet.Node{node(words[3])},
			Images: images, Dir: dir,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
	bufio.NewReader(os.Stdin).ReadByte()
}

const image = "host"

var images = map[string]kubelet.Image{
	image:   {},
	"entry": {Command: []string{"/bin/sh", "-c"}, Args: []string{"pwd; echo $FROM_IMAGE; exit 4"}, WorkingDir: "/opt/made/here", Env: []string{"FROM_IMAGE=$(literal)"}},
}

const testLabel = "test"

func node(name string) kubelet.Node {
	return kubelet.Node{
		Name:     name,
		Labels:   map[string]string{"pool": "process"},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")},
	}
}

// bed is a Kubelet with its nodes, and a namespace whose pods are bound to them.
type bed struct {
	*testing.T
	*kubelet.Kubelet
	client    kubernetes.Interface
	namespace string
	label     string
	dir       string
}

// start runs a Kubelet with nodes of these names until the test ends.
func start(t *testing.T, nodes ...string) *bed {
	t.Helper()
	return startWith(t, images, nodes...)
}

// startWith is start with images for the test.
func startWith(t *testing.T, images map[string]kubelet.Image, nodes ...string) *bed {
	t.Helper()
	if cluster == nil {
		t.Skip("needs a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes mounts and namespaces: needs root")
	}
	goroutines := goleak.IgnoreCurrent()
	b := &bed{T: t, client: cluster.Admin(), dir: t.TempDir(), label: nodes[0]}
	o := kubelet.Options{Config: cluster.Config(), Images: images, Dir: b.dir, APIServer: cluster.Address()}
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	for _, name := range nodes {
		n := node(name)
		n.Labels[testLabel] = b.label
		o.Nodes = append(o.Nodes, n)
	}
	var err error
	if b.Kubelet, err = kubelet.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		for _, name := range nodes {
			b.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		}
		goleak.VerifyNone(t, goroutines,
			// Idle connections of the test's own client to the API server.
			goleak.IgnoreAnyFunction("github.com/eltrain/eltrain/testbed.(*Component).start.func1"), // of the cluster
			goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"), goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"))
	})
	b.namespace = cluster.Namespace(t)
	return b
}

// pod is a pod of one container "c" that runs a shell script once.
func (b *bed) pod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec: corev1.PodSpec{
			NodeSelector:  map[string]string{testLabel: b.label},
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{sh("c", script)},
		},
	}
}

func sh(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: image, Command: []string{"/bin/sh", "-c", script}}
}

func (b *bed) create(pod *corev1.Pod) {
	b.Helper()
	if _, err := b.client.CoreV1().Pods(b.namespace).Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) get(name string) *corev1.Pod {
	b.Helper()
	pod, err := b.client.CoreV1().Pods(b.namespace).Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return pod
}

// patience bounds the waits: each is for an action of a few seconds, on a machine that may be busy.
const patience = 2 * time.Minute

func (b *bed) await(what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	b.Fatalf("%s: not within %s", what, patience)
}

// awaitPod waits for a status of the pod.
func (b *bed) awaitPod(name, what string, holds func(corev1.PodStatus) bool) corev1.PodStatus {
	b.Helper()
	var last corev1.PodStatus
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		last = b.get(name).Status
		if holds(last) {
			return last
		}
	}
	b.Fatalf("pod %s: %s: not within %s: %s", name, what, patience, show(last))
	return last
}

func show(s corev1.PodStatus) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s %s", s.Phase, s.Reason, s.Message)
	for _, c := range append(append([]corev1.ContainerStatus{}, s.InitContainerStatuses...), s.ContainerStatuses...) {
		fmt.Fprintf(&out, "\n  %s restarts=%d ready=%v waiting=%v running=%v terminated=%v last=%v", c.Name, c.RestartCount, c.Ready, c.State.Waiting, c.State.Running, c.State.Terminated, c.LastTerminationState.Terminated)
	}
	return out.String()
}

func (b *bed) awaitPhase(name string, phase corev1.PodPhase) corev1.PodStatus {
	b.Helper()
	return b.awaitPod(name, string(phase), func(s corev1.PodStatus) bool { return s.Phase == phase })
}

// awaitWaiting waits for a container's waiting reason.
func (b *bed) awaitWaiting(name, reason string) corev1.PodStatus {
	b.Helper()
	return b.awaitPod(name, reason, func(s corev1.PodStatus) bool {
		return len(s.ContainerStatuses) > 0 && s.ContainerStatuses[0].State.Waiting != nil && s.ContainerStatuses[0].State.Waiting.Reason == reason
	})
}

func (b *bed) awaitGone(name string) {
	b.Helper()
	b.await("pod "+name+" is gone", func() bool {
		_, err := b.client.CoreV1().Pods(b.namespace).Get(b.Context(), name, metav1.GetOptions{})
		return err != nil
	})
}

func (b *bed) delete(name string, options metav1.DeleteOptions) {
	b.Helper()
	if err := b.client.CoreV1().Pods(b.namespace).Delete(b.Context(), name, options); err != nil {
		b.Fatal(err)
	}
}

// logs is the output of `kubectl logs`.
func (b *bed) logs(name string, options corev1.PodLogOptions) string {
	b.Helper()
	stream, err := b.client.CoreV1().Pods(b.namespace).GetLogs(name, &options).Stream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// awaitLog waits until the pod has written the line.
func (b *bed) awaitLog(name, line string) {
	b.Helper()
	b.await(fmt.Sprintf("pod %s writes %q", name, line), func() bool {
		s, err := b.client.CoreV1().Pods(b.namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(b.Context())
		return err == nil && strings.Contains("\n"+string(s), "\n"+line+"\n")
	})
}

// output runs a script in a pod to its end and returns its output.
func (b *bed) output(pod *corev1.Pod) string {
	b.Helper()
	b.create(pod)
	status := b.awaitPod(pod.Name, "ends", func(s corev1.PodStatus) bool {
		return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	})
	if status.Phase != corev1.PodSucceeded {
		b.Error(show(status)) // a container that could not be started has no log
	}
	return b.logs(pod.Name, corev1.PodLogOptions{})
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func seconds(n int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &n} }

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
