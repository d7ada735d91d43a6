package kubernetes

import (
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/providertest"
	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

// TestMain: started as eltrain in a pod, the test binary is the agent; it brings itself there as eltrain does.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		if path, asked := strings.CutPrefix(os.Args[2], "-copy-to="); asked {
			os.Exit(copySelf(path))
		}
		os.Exit(providertest.Agent(os.Args[2:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each agent under the race detector takes a second to end
	code := m.Run()
	bed.close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func copySelf(path string) int {
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, b, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// role is what deploy/ grants eltrain: the tests have no other rights.
var role = filepath.Join("..", "..", "deploy", "base", "rbac.yaml")

// bed is one control plane with a node whose pods are real processes, for all tests of the package.
var bed processBed

type processBed struct {
	once    sync.Once
	err     error
	dir     string
	cluster *testbed.Cluster
	kubelet *kubelet.Kubelet
}

const (
	processNode  = "process-1"
	hostImage    = "host"
	standInImage = "stand-in" // has this very test binary as its eltrain
	realImage    = "eltrain"  // has the real one
	mark         = "ELTRAIN_TEST_MARK"
)

// start brings it up with the first test that asks for it.
func (b *processBed) start(t *testing.T) *processBed {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process kubelet needs root")
	}
	b.once.Do(func() { b.err = b.bringUp(t.Context()) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b
}

func (b *processBed) bringUp(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "eltrain-kubernetes-*"); err != nil {
		return err
	}
	real := filepath.Join(b.dir, "eltrain")
	build := exec.CommandContext(ctx, "go", "build", "-o", real, "github.com/eltrain/eltrain/cmd/eltrain")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build eltrain: %w\n%s", err, out)
	}
	if b.cluster, err = testbed.New(testbed.Options{}); err != nil {
		return err
	}
	b.kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Config: b.cluster.Config(), Dir: filepath.Join(b.dir, "kubelet"), Log: slog.New(slog.DiscardHandler),
		Nodes: []kubelet.Node{{Name: processNode, Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi")}}},
		Images: map[string]kubelet.Image{
			hostImage:    {},
			standInImage: {Mounts: []kubelet.Mount{{HostPath: self, Path: "/usr/local/bin/eltrain", ReadOnly: true}}},
			realImage:    {Mounts: []kubelet.Mount{{HostPath: real, Path: "/usr/local/bin/eltrain", ReadOnly: true}}},
		},
	})
	return err
}

func (b *processBed) close() {
	if b.kubelet != nil {
		b.kubelet.Close()
	}
	if b.cluster != nil {
		if err := b.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// config acts with the rights that deploy/ grants, in the namespace.
func (b *processBed) config(t *testing.T, namespace string) Config {
	return Config{
		Kubeconfig: b.cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{role}}),
		Image:      hostImage, AgentImage: standInImage,
	}
}

func TestConformance(t *testing.T) {
	bed.start(t)
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		namespace := bed.cluster.Namespace(t)
		config := bed.config(t, namespace)
		sh := func(script string) job.Program {
			return job.Program{Command: []string{"/bin/sh", "-c", script}, Env: map[string]string{mark: namespace}}
		}
		t.Cleanup(func() { killAll(t, namespace) })
		return providertest.Harness{
			Open: func() (providers.Provider, error) {
				return New(Options{Config: config, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "0"})
			},
			Node:     processNode,
			Trains:   sh("sleep 300 & setsid sleep 300 & echo training; wait"),
			Stubborn: sh("trap '' TERM; sleep 300 & echo training; while :; do wait; sleep 1; done"),
			Ends:     sh("echo done"),
			KillAgent: func(i job.Incarnation) error {
				pid, err := bed.kubelet.PID(namespace, i.Name, mainContainer)
				if err != nil {
					return err
				}
				return syscall.Kill(pid, syscall.SIGKILL)
			},
			Remains: func() []string { return remains(t, namespace) },
			Removes: true,
			Bound:   time.Minute, // pods are scheduled, copied into and started; many tests run beside this one
		}
	})
}

// remains finds processes by what the pods have in their environment.
func remains(t *testing.T, namespace string) []string {
	entries, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, path := range entries {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(mark+"="+namespace+"\x00")) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		left = append(left, fmt.Sprintf("%s %q", filepath.Base(filepath.Dir(path)), bytes.ReplaceAll(args, []byte{0}, []byte(" "))))
	}
	return left
}

// killAll is for tests that failed half-way.
func killAll(t *testing.T, namespace string) {
	for _, line := range remains(t, namespace) {
		word, _, _ := strings.Cut(line, " ")
		if pid, err := strconv.Atoi(word); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// The real eltrain comes into any image, starts there, and says how it ended when it is asked to go.
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
	w.ok(w.p.Stop(t.Context(), testUID, i.Slot, 1, 10*time.Second))
	if i := w.await("worker", 0, 1, job.Gone); i.Ended != job.EndLeft {
		t.Errorf("its last word is %q", i.Ended)
	}
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

// newWork opens a provider with the rights that deploy/ grants.
func newWork(t *testing.T, cluster *testbed.Cluster, edit func(*Config)) *work {
	t.Helper()
	namespace := cluster.Namespace(t)
	w := &work{T: t, cluster: cluster, namespace: namespace, bound: time.Minute, config: Config{
		Kubeconfig: cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{role}}),
		Image:      hostImage, AgentImage: standInImage,
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
	w.ok(p.Publish(w.Context(), providers.Service{URL: "http://127.0.0.1:1"}))
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
		for _, i := range o.Incarnations {
			if i.Slot == (job.Address{Job: "gpt", Role: role, Index: index}) && i.Number == incarnation {
				last = i
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
	r, err := w.p.Logs(w.Context(), testUID, job.Address{Job: "gpt", Role: role, Index: index}, tail, false)
	if err != nil {
		return ""
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	w.ok(err)
	return string(text)
}
