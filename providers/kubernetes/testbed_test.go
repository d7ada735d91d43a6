package kubernetes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/podtest"
	"github.com/eltrain/eltrain/providers/providertest"
	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

func TestMain(m *testing.M) { os.Exit(podtest.Main(m, bed.close)) }

// bed is one control plane with a node whose pods are real processes, for all tests of the package.
var bed processBed

type processBed struct {
	once    sync.Once
	err     error
	dir     string
	cluster *testbed.Cluster
}

const (
	processNode = "process-1"
	realImage   = "eltrain" // has the real eltrain-agent
)

// start brings it up for the first test that needs it.
func (b *processBed) start(t *testing.T) *processBed {
	t.Helper()
	podtest.Needed(t)
	b.once.Do(func() { b.err = b.bringUp(t.Context()) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b
}

func (b *processBed) bringUp(ctx context.Context) error {
	images, err := podtest.Images()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "eltrain-kubernetes-*"); err != nil {
		return err
	}
	real := filepath.Join(b.dir, "eltrain-agent")
	build := exec.CommandContext(ctx, "go", "build", "-o", real, "github.com/eltrain/eltrain/cmd/eltrain-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build eltrain-agent: %w\n%s", err, out)
	}
	images[realImage] = podtest.AgentImage(real)
	b.cluster, err = testbed.Shared(testbed.Options{ProcessNodes: []kubelet.Node{podtest.Node(processNode)}, Images: images})
	return err
}

func (b *processBed) close() {
	if b.cluster != nil {
		if err := b.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// config has the permissions of deploy/, in the namespace.
func (b *processBed) config(t *testing.T, namespace string) Config {
	return Config{
		Kubeconfig: b.cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{podtest.Rights}}),
		Image:      podtest.HostImage, AgentImage: podtest.StandInImage,
	}
}

func TestConformance(t *testing.T) {
	bed.start(t)
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		namespace := bed.cluster.Namespace(t)
		config := bed.config(t, namespace)
		return podtest.Harness(t, bed.cluster.Kubelet, namespace, processNode, func() (providers.Provider, error) {
			return New(Options{Config: config, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "0"})
		})
	})
}

// The real agent is copied into any image, starts there, and reports how it ended when it is stopped.
func TestTheRealAgentRunsInAPod(t *testing.T) {
	bed.start(t)
	w := newWork(t, bed.cluster, func(c *Config) { c.AgentImage = realImage })
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	i := w.await("worker", 0, 1, job.Up)
	if i.Node != processNode || i.Name != podName(testUID, i.Slot, 1) {
		t.Errorf("it runs as %+v", i)
	}
	deadline := time.Now().Add(w.bound)
	for !strings.Contains(w.logs("worker", 0, -1), "service") { // which it cannot reach
		if time.Now().After(deadline) {
			t.Fatalf("the agent's log says nothing of a service:\n%s", w.logs("worker", 0, -1))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if resident := residentOf(t, w.namespace, i.Name); resident > mostResident {
		t.Errorf("an agent takes %d MiB of memory", resident>>20)
	}
	w.ok(w.p.Stop(t.Context(), testUID, i.Slot, 1, 10*time.Second))
	if i := w.await("worker", 0, 1, job.Gone); i.Ended != job.EndLeft {
		t.Errorf("its last word is %q", i.Ended)
	}
}

// The watch selects by a label, and reports a pod without it as deleted. Such a pod still exists, and is repaired.
func TestAPodThatLostItsLabelIsMended(t *testing.T) {
	bed.start(t)
	w := newWork(t, bed.cluster, nil)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	l := w.launch("worker", 0, 1)
	w.ok(w.p.Launch(t.Context(), l))
	up := w.await("worker", 0, 1, job.Up)
	pods := w.cluster.Admin().CoreV1().Pods(w.namespace)
	take := func() {
		_, err := pods.Patch(t.Context(), up.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"eltrain.dev/uid":null}}}`), metav1.PatchOptions{})
		w.ok(err)
		w.until("shown as drift", func() bool {
			o, err := w.p.Observe(t.Context())
			w.ok(err)
			if i := o.Incarnations[0][0]; i.State != job.Up {
				t.Fatalf("it is reported as %+v", i)
			}
			return len(o.Incarnations[0][0].Drift) == 1
		})
	}
	take()
	w.ok(w.p.Launch(t.Context(), l))
	if now := w.await("worker", 0, 1, job.Up); len(now.Drift) > 0 {
		t.Errorf("after it was repaired: %+v", now.Drift)
	}
	take()
	now := int64(0)
	w.ok(pods.Delete(t.Context(), up.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	w.ok(w.p.Launch(t.Context(), l))
	if i := w.await("worker", 0, 1, job.Gone); i.Cause != job.Deletion {
		t.Errorf("it was deleted before it could be repaired, and is reported as %+v", i)
	}
}

// mostResident is far more than an agent needs and far less than a program that links the Kubernetes client library.
const mostResident = 25 << 20

// residentOf is the resident memory of a pod's agent, in bytes.
func residentOf(t *testing.T, namespace, pod string) int {
	t.Helper()
	pid, err := bed.cluster.Kubelet.PID(namespace, pod, mainContainer)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		t.Fatalf("%q, %v", text, err)
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// work is one job on a provider in a namespace of its own.
type work struct {
	*testing.T
	cluster   *testbed.Cluster
	config    Config
	namespace string
	p         *Provider
	bound     time.Duration
}

// newWork opens a provider with the permissions of deploy/.
func newWork(t *testing.T, cluster *testbed.Cluster, edit func(*Config)) *work {
	t.Helper()
	namespace := cluster.Namespace(t)
	w := &work{T: t, cluster: cluster, namespace: namespace, bound: hang.Bound, config: Config{
		Kubeconfig: cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{podtest.Rights}}),
		Image:      podtest.HostImage, AgentImage: podtest.StandInImage,
	}}
	if edit != nil {
		edit(&w.config)
	}
	w.p = w.open()
	return w
}

// open is another master on the same job.
func (w *work) open() *Provider {
	w.Helper()
	return w.openAs("kubernetes ml/main")
}

// openAs is a master with another state.
func (w *work) openAs(owner string) *Provider {
	w.Helper()
	p, err := New(Options{Config: w.config, Logger: slog.New(slog.NewTextHandler(w.Output(), nil)), Version: "0", Owner: owner})
	w.ok(err)
	w.Cleanup(func() { p.Close() })
	w.ok(p.Publish(w.Context(), providers.Service{URL: "https://127.0.0.1:1"}))
	return p
}

func (w *work) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *work) group(roles ...job.GroupRole) job.Group {
	return job.Group{UID: testUID, Name: "gpt", Roles: roles}
}

func (w *work) prepare(roles ...job.GroupRole) string {
	w.Helper()
	token, err := w.p.Prepare(w.Context(), w.group(roles...))
	w.ok(err)
	return token
}

func (w *work) launch(role string, index, incarnation int) job.Launch {
	return job.Launch{
		UID: testUID, Slot: job.Address{Job: "gpt", Role: role, Index: index}, Incarnation: incarnation, Processes: 1, Ranked: true,
		Program: job.Program{Command: []string{"sleep", "300"}}, StopGrace: job.Duration(time.Second), Fingerprint: "f1", Held: true,
	}
}

// await waits for a state of an incarnation.
func (w *work) await(role string, index, incarnation int, state job.IncarnationState) job.Incarnation {
	w.Helper()
	deadline := time.After(w.bound)
	for {
		o, err := w.p.Observe(w.Context())
		w.ok(err)
		var last job.Incarnation
		for i := range o.Incarnations.All() {
			if i.Slot == (job.Address{Job: "gpt", Role: role, Index: index}) && i.Number == incarnation {
				last = *i
			}
		}
		if last.State == state {
			return last
		}
		select {
		case <-w.p.Changes():
		case <-deadline:
			w.Fatalf("%s[%d] incarnation %d is not %s: %+v", role, index, incarnation, state, last)
		}
	}
}

func (w *work) logs(role string, index, tail int) string {
	w.Helper()
	r, err := w.p.Logs(w.Context(), testUID, job.Address{Job: "gpt", Role: role, Index: index}, providers.LogOptions{Tail: tail})
	if err != nil {
		return ""
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	w.ok(err)
	return string(text)
}
