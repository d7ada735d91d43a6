package testbed_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/testbed"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shared is the cluster of tests that undo their changes.
var shared *testbed.Cluster

const sharedNodes = 200

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(ownerEnv) != "" {
		ownCluster()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	var err error
	if shared, err = testbed.New(testbed.Options{Nodes: sharedNodes}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, shared.Logs())
	}
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// sharedCluster is for tests that need any control plane.
func sharedCluster(t *testing.T) *testbed.Cluster {
	t.Helper()
	if shared == nil {
		t.Skip("needs a Kubernetes control plane: not with -short")
	}
	return shared
}

// ownerEnv makes this test binary a program that owns a cluster and can be killed.
const ownerEnv = "TESTBED_TEST_OWNER"

// ownCluster brings up a cluster, prints its processes, and waits to be killed.
func ownCluster() {
	c, err := testbed.New(testbed.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Etcd.Pid(), c.APIServer.Pid(), c.ControllerManager.Pid(), c.Scheduler.Pid(), c.KWOK.Pid())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
}

// patience bounds the waits of these tests: each is for an action of a few seconds, on a machine that may be busy.
const patience = 2 * time.Minute

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("%s: not within %s", what, patience)
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// runPod creates a pod and waits until it runs.
func runPod(t *testing.T, c *testbed.Cluster, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := c.Admin().CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var now *corev1.Pod
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pod %s on node %q: %+v", pod.Name, now.Spec.NodeName, now.Status)
		}
	})
	await(t, "pod "+pod.Name+" runs", func() bool {
		var err error
		now, err = pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning
	})
	return now
}

func getPod(c *testbed.Cluster, namespace, name string) error {
	_, err := c.Admin().CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	return err
}
