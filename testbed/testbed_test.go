package testbed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/testbed"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestPodsRunOnKWOKNodes(t *testing.T) {
	c := sharedCluster(t)
	nodes, err := c.Admin().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < sharedNodes {
		t.Errorf("%d of %d nodes are Ready, want %d", ready, len(nodes.Items), sharedNodes)
	}
	namespace := c.Namespace(t)
	running := runPod(t, c, namespace, pod("p"))
	if running.Spec.NodeName == "" || running.Status.PodIP == "" {
		t.Errorf("it runs on node %q with IP %q", running.Spec.NodeName, running.Status.PodIP)
	}
	if err := c.Admin().CoreV1().Pods(namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a deleted pod goes", func() bool { return apierrors.IsNotFound(getPod(c, namespace, "p")) })
}

func TestVersionIsKubernetes(t *testing.T) {
	version, err := sharedCluster(t).Admin().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36" {
		t.Errorf("the API server calls itself %s (%s.%s)", version.GitVersion, version.Major, version.Minor)
	}
}

func TestSchedulerTellsItsFigures(t *testing.T) {
	c := sharedCluster(t)
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(c.SchedulerMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), "scheduler_schedule_attempts_total") {
		t.Errorf("%s, %v: %.200s", response.Status, err, text)
	}
}

func TestBadArgumentIsToldWithTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	c, err := testbed.New(testbed.Options{Args: map[string][]string{testbed.Scheduler: {"--no-such-flag"}}})
	if err == nil {
		t.Fatal(errors.Join(errors.New("it came up"), c.Close()))
	}
	if !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v, want what the scheduler says", err)
	}
}

func TestRestartsKeepData(t *testing.T) {
	t.Parallel()
	c := testbed.Start(t, testbed.Options{
		Nodes: 1,
		Node: testbed.KWOKNode{
			Prefix:   "gpu",
			Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			Labels:   map[string]string{"zone": "a"},
		},
		Env:  map[string][]string{testbed.Scheduler: {"GOGC=321"}},
		Args: map[string][]string{testbed.Scheduler: {"--v=3"}},
	})
	namespace := c.Namespace(t)
	for _, component := range []*testbed.Component{c.APIServer, c.Etcd, c.ControllerManager, c.Scheduler} {
		before := component.Pid()
		component.Restart(t)
		if now := component.Pid(); now == before || now == 0 {
			t.Errorf("process %d was %d before the restart", now, before)
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(before)); err == nil {
			t.Errorf("process %d is still there after the restart", before)
		}
	}
	for file, want := range map[string]string{"environ": "GOGC=321", "cmdline": "--v=3"} {
		said, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.Scheduler.Pid()), file))
		if err != nil || !slices.Contains(strings.Split(string(said), "\x00"), want) {
			t.Errorf("the restarted scheduler's %s does not have %s: %v", file, want, err)
		}
	}
	await(t, "the API server finds etcd again", func() bool {
		_, err := c.Admin().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return err == nil
	})
	// This needs all of them to work.
	wanted := pod("after")
	wanted.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	wanted.Spec.NodeSelector = map[string]string{"zone": "a"}
	if got := runPod(t, c, namespace, wanted).Spec.NodeName; got != "gpu-0" {
		t.Errorf("it runs on %s", got)
	}
}

// A signal does not stop all threads of a process at the same time.
func TestPausedComponentHasStopped(t *testing.T) {
	t.Parallel()
	c := testbed.Start(t, testbed.Options{})
	for range 50 {
		c.APIServer.Pause(t)
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.APIServer.Pid()))
		if err != nil || len(threads) == 0 {
			t.Fatalf("it has the threads %q: %v", threads, err)
		}
		for _, thread := range threads {
			said, err := os.ReadFile(thread)
			if err != nil {
				t.Fatal(err)
			}
			_, state, _ := strings.Cut(string(said), ") ") // after its name
			if !strings.HasPrefix(state, "T") {
				t.Fatalf("a thread still runs: %s", said)
			}
		}
		c.APIServer.Resume(t)
		await(t, "it answers again", func() bool {
			return c.Admin().Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error() == nil
		})
	}
}

func TestPausedAPIServerAnswersAfterwards(t *testing.T) {
	t.Parallel()
	c := testbed.Start(t, testbed.Options{})
	c.APIServer.Pause(t)
	answered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		_, err := c.Admin().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("it answered while it was paused: %v", err)
	case <-time.After(300 * time.Millisecond): // a hundred times the duration of an answer
	}
	c.APIServer.Resume(t)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	before := goleak.IgnoreCurrent()
	c, err := testbed.New(testbed.Options{Nodes: 1, Volcano: &testbed.Volcano{}})
	if err != nil {
		t.Fatal(err)
	}
	components := []*testbed.Component{
		c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler, c.KWOK, c.VolcanoScheduler, c.VolcanoController,
	}
	var pids []string
	for _, component := range components {
		pids = append(pids, strconv.Itoa(component.Pid()))
	}
	dir := filepath.Dir(c.AdminKubeconfig())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s is left: %v", pid, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s is left: %v", dir, err)
	}
	goleak.VerifyNone(t, before)
}

func TestComponentsDieWithTheirOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	temp := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"=1", "TMPDIR="+temp)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := errors.Join(err, owner.Process.Kill()); err != nil {
		t.Error(err)
	}
	_ = owner.Wait() // it was killed
	pids := strings.Fields(line)
	if len(pids) != 5 {
		t.Fatalf("it printed %q", line)
	}
	await(t, "its components end", func() bool {
		for _, pid := range pids {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				return false
			}
		}
		return true
	})
	if left, _ := filepath.Glob(filepath.Join(temp, "eltrain-testbed-*")); len(left) != 1 {
		t.Fatalf("want its folder left by the kill, got %v", left)
	}
	t.Setenv("TMPDIR", temp)
	testbed.Start(t, testbed.Options{})
	if left, _ := filepath.Glob(filepath.Join(temp, "eltrain-testbed-*")); len(left) != 1 {
		t.Errorf("the next cluster did not remove it: %v", left)
	}
}
