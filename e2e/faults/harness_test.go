// Package faults breaks a real control plane, and the masters on it, while jobs run there: the built eltrain as a
// user runs it, with the rights that deploy/ grants, on pods that are real processes. After each fault the job
// trains on or its status says why not, nothing ran twice, and a destroy leaves nothing behind.
package faults

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

const (
	hostImage   = "host"                           // this machine's own root: sh, python3
	helloImage  = "python:3.13-slim"               // of the sample job in deploy/jobs: this machine's own Python here
	masterImage = "eltrain.invalid/eltrain:v0.1.0" // what deploy/ runs and brings the agent with
	gitImage    = "git-sync.invalid/git-sync:v4.4.0"

	repositories = "/repositories" // where git-sync mounts shared: it has its own /tmp
)

var (
	shared   string        // directory that every container sees at the same path: the programs, the script, what jobs write
	programs site.Programs // in there
)

func TestMain(m *testing.M) {
	site.Main(m, 32, func(built site.Programs) (err error) {
		programs, shared = built, filepath.Dir(built.Eltrain)
		if err := os.Chmod(shared, 0o755); err != nil { // git-sync is not root
			return err
		}
		return os.CopyFS(shared, os.DirFS(filepath.Dir(site.Script)))
	}, func(failed bool) error {
		logs := failed && testing.Verbose()
		return errors.Join(calm.close(logs), rough.close(logs))
	})
}

// bed is a cluster that is started by the first test that asks for it.
type bed struct {
	once    sync.Once
	cluster *testbed.Cluster
	err     error
	bringUp func(testbed.Options) (*testbed.Cluster, error)
}

// calm is for faults that affect only one namespace. The components of rough are killed: the tests that use it, by startRough,
// must not run in parallel.
var calm, rough = bed{bringUp: testbed.Shared}, bed{}

// processNodes together have room for all pods of the package's tests at once.
var processNodes = []string{"process-1", "process-2"}

func (b *bed) start(t *testing.T) *testbed.Cluster {
	t.Helper()
	podsite.RequireCluster(t)
	b.once.Do(func() {
		var image kubelet.Image
		if image, b.err = podsite.AgentImageOf(programs); b.err != nil {
			return
		}
		var standIn string
		if standIn, b.err = filepath.Abs(filepath.Join("testdata", "git-sync")); b.err != nil {
			return
		}
		mounts := []kubelet.Mount{{HostPath: shared, Path: shared}}
		var nodes []kubelet.Node
		for _, name := range processNodes {
			nodes = append(nodes, kubelet.Node{Name: name, Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("500"), corev1.ResourceMemory: resource.MustParse("500Gi"), corev1.ResourcePods: resource.MustParse("500"),
			}})
		}
		b.cluster, b.err = b.bringUp(testbed.Options{ProcessNodes: nodes, Images: map[string]kubelet.Image{
			hostImage:   {Mounts: mounts},
			helloImage:  {},
			masterImage: image,
			gitImage: {
				Mounts:  []kubelet.Mount{{HostPath: shared, Path: repositories}, {HostPath: standIn, Path: "/git-sync", ReadOnly: true}},
				Command: []string{"/bin/sh", "/git-sync"},
			},
		}})
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.cluster
}

func startRough(t *testing.T) *testbed.Cluster {
	rough.bringUp = testbed.New
	return rough.start(t)
}

// startOwn starts a cluster for this test alone: a kubelet that keeps losing its API server backs off for up to a minute, as
// client-go does, and the next test's pods would have to wait.
func startOwn(t *testing.T) *testbed.Cluster {
	t.Helper()
	own := &bed{bringUp: testbed.New}
	t.Cleanup(func() {
		if err := own.close(t.Failed() && testing.Verbose()); err != nil {
			t.Error(err)
		}
	})
	return own.start(t)
}

func (b *bed) close(logs bool) error {
	if b.cluster == nil {
		return nil
	}
	if logs {
		fmt.Fprintln(os.Stderr, b.cluster.Logs())
	}
	return b.cluster.Close()
}

// trial is a job directory whose jobs record what happens to them.
type trial struct{ *podsite.Site }

// newTrial makes a site with a directory for the jobs' processes. It is an error if anything is left there after the test.
func newTrial(t *testing.T, c *testbed.Cluster) *trial {
	t.Helper()
	s := &trial{podsite.New(t, c, programs, "gpt")}
	s.Work = filepath.Join(shared, s.Namespace)
	s.Output = s.Work
	s.OK(os.Mkdir(s.Work, 0o755))
	return s
}

// The state is in the cluster, as in deploy/, so that faults can hit between its writes too.
const settings = `
eltrain {
  state "kubernetes" { name = "main" }
}
`

// provider is the provider block for jobs that have the agent in their image.
func provider() string {
	return fmt.Sprintf("provider \"kubernetes\" {\n  image = %q\n  agent_path = %q\n}\n", hostImage, programs.Agent)
}

// once begins the shell script of every job here: it records each start, and also if a process of the same slot is already
// running anywhere.
func (s *trial) once() string {
	return fmt.Sprintf(`cd %s; echo $ELTRAIN_SLOT >> starts; exec 9>>$ELTRAIN_SLOT; flock -n 9 || echo $ELTRAIN_SLOT >> twice; `, s.Work)
}

// briefly is a lease for jobs whose masters change but keep the address.
const briefly = "15s"

// resting is a job whose processes only sleep, for tests of pods.
func (s *trial) resting(workers int) string {
	return s.job(workers, workers, briefly, "echo step 1 loss 1; exec sleep 1000")
}

// steps of stepMillis each are 40 seconds of training, enough for a fault in the middle on a busy machine.
const (
	steps      = 800
	stepMillis = 50
)

// training is a job that ends with the same loss whatever happens to it.
func (s *trial) training(least, workers int) string {
	return s.job(least, workers, briefly, fmt.Sprintf("exec /usr/bin/python3 %s --steps=%d --step-ms=%d --ckpt-every=20 --events=%s", filepath.Join(shared, "train.py"), steps, stepMillis, site.EventsFile))
}

func (s *trial) job(least, workers int, lease, script string) string {
	return fmt.Sprintf(`
job "gpt" {
  provider = "kubernetes"
  role "worker" {
    replicas   = %d
    command    = ["/bin/sh", "-c", %q]
    stop_grace = "2s"
    scaling {
      min = %d
      max = %d
    }
    resources {
      cpu    = 0.1
      memory = "64MiB"
    }
  }
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  checkpoint { dir = %q }
  rendezvous { settle = "1s" }
  detect { lease = %q }
}
`, workers, s.once()+script, least, workers, filepath.Join(s.Work, "ckpt"), lease)
}

// waiting makes a command wait until the lock of a killed master expires.
const waiting = "-lock-timeout=60s"

const (
	// renewal is the interval of a lock's renewals, and the longest time until the next try once the API server is back.
	renewal = 5 * time.Second
	// trying is how long a command tries to get a lock without an answer, and oneTry how long one try may take.
	trying = 20 * time.Second
	oneTry = 10 * time.Second
)

// awayTooLong reports whether a command that started at begun ended because its lock could not be kept or taken while the API
// server was away until back. On a slow machine that may happen; the next command continues.
func (s *trial) awayTooLong(m *site.Master, begun, back time.Time) bool {
	s.T.Helper()
	switch said := m.Out.String(); {
	case strings.Contains(said, "lock was lost"):
		lease := s.Lease("main")
		over := lease.RenewTime.Add(time.Duration(*lease.LeaseDurationSeconds) * time.Second)
		return back.Add(renewal).After(over)
	case strings.Contains(said, "Cannot lock the state"):
		return back.Add(oneTry).After(begun.Add(trying))
	}
	return false
}

// masterAfter returns the master once the API server is back: m, or a new one if m lost its lock because that took too long.
func (s *trial) masterAfter(m *site.Master, back time.Time) *site.Master {
	s.T.Helper()
	ended := func() bool {
		select {
		case <-m.Ended:
			return true
		default:
			return false
		}
	}
	leases := s.Cluster.Admin().CoordinationV1().Leases(s.Namespace)
	site.Until(s.T, "the master has its lock still, or ends", func() bool {
		lease, err := leases.Get(s.T.Context(), "eltrain-state-main", metav1.GetOptions{})
		return ended() || err == nil && lease.Spec.RenewTime.After(back)
	})
	if !ended() {
		return m
	}
	if !s.awayTooLong(m, back, back) {
		s.T.Fatalf("the master has ended:\n%s", m.Out)
	}
	return s.Watch(waiting)
}

// trainsUndisturbed checks that each slot has one pod, that none was ever created twice, that no training process was
// restarted, and that the job has each of its other objects, once.
func (s *trial) trainsUndisturbed(workers int) {
	s.T.Helper()
	for _, problem := range s.disturbances(workers) {
		s.T.Error(problem)
	}
}

func (s *trial) disturbances(workers int) (problems []string) {
	s.T.Helper()
	var names, want []string
	for _, p := range s.settled() {
		names = append(names, fmt.Sprintf("%s[%s] incarnation %s %s", p.Labels["eltrain.dev/role"], p.Labels["eltrain.dev/index"], p.Labels["eltrain.dev/incarnation"], p.Status.Phase))
	}
	for i := range workers {
		want = append(want, fmt.Sprintf("worker[%d] incarnation 1 Running", i))
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		problems = append(problems, fmt.Sprintf("the pods are %q", names))
	}
	problems = append(problems, s.startedOtherThan(workers, 1)...)
	if twice := s.noted("twice"); len(twice) > 0 {
		problems = append(problems, fmt.Sprintf("ran twice at a time: %q", twice))
	}
	return append(problems, s.unaccompanied()...)
}

// settled returns the job's pods once none is pending. A kubelet may report that only after the apply has ended.
func (s *trial) settled() (pods []corev1.Pod) {
	s.T.Helper()
	pending := func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }
	for deadline := time.Now().Add(site.Bound); ; time.Sleep(site.Poll) {
		if pods = s.Pods(); !slices.ContainsFunc(pods, pending) || time.Now().After(deadline) {
			return pods
		}
	}
}

// unaccompanied lists the kinds of objects other than pods that the job does not have exactly once.
func (s *trial) unaccompanied() (problems []string) {
	s.T.Helper()
	for kind, n := range s.kinds() {
		if n != 1 {
			problems = append(problems, fmt.Sprintf("%d of the kind %s", n, kind))
		}
	}
	return problems
}

// kinds counts the job's objects other than pods.
func (s *trial) kinds() map[string]int {
	s.T.Helper()
	kinds := map[string]int{"configmap": 0, "secret": 0, "service": 0, "poddisruptionbudget": 0}
	for _, o := range s.Objects() {
		if kind, name, _ := strings.Cut(o, "/"); kind != "pod" && name != "eltrain-jobs" && name != "eltrain" && name != "eltrain-tls" { // those are of deploy/
			kinds[kind]++
		}
	}
	return kinds
}

// starts counts the starts of training processes by slot.
func (s *trial) starts() map[string]int {
	s.T.Helper()
	counts := map[string]int{}
	for _, slot := range s.noted("starts") {
		counts[slot]++
	}
	return counts
}

// startedOtherThan returns a problem unless each slot's training process was started this many times. It waits for missing
// starts: a command may end, or a world form, before a shell has run its first lines.
func (s *trial) startedOtherThan(workers, times int) []string {
	s.T.Helper()
	want := map[string]int{}
	for i := range workers {
		want[fmt.Sprintf("worker[%d]", i)] = times
	}
	lacking := func() bool {
		starts := s.starts()
		for slot := range want {
			if starts[slot] < times {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(site.Bound); lacking() && time.Now().Before(deadline); {
		time.Sleep(site.Poll)
	}
	if starts := s.starts(); !maps.Equal(starts, want) {
		return []string{fmt.Sprintf("training processes were started: %v", starts)}
	}
	return nil
}

// started checks that each slot's training process was started exactly this many times.
func (s *trial) started(workers, times int) {
	s.T.Helper()
	for _, problem := range s.startedOtherThan(workers, times) {
		s.T.Error(problem)
	}
}

// ranOnce checks that a slot never had two training processes at a time.
func (s *trial) ranOnce() {
	s.T.Helper()
	if twice := s.noted("twice"); len(twice) > 0 {
		s.T.Errorf("ran twice at a time: %q", twice)
	}
}

func (s *trial) noted(file string) []string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Work, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.T.Fatal(err)
	}
	return strings.Fields(string(text))
}

// destroyed destroys the job and checks that no trace of it was found, processes included.
func (s *trial) destroyed() {
	s.T.Helper()
	s.Must("destroy", "-auto-approve", "-input=false", waiting)
	s.nothingLeft()
}

func (s *trial) nothingLeft() {
	s.T.Helper()
	for _, problem := range s.remains() {
		s.T.Error(problem)
	}
}

// remains lists what is left of the job on the API server, and of its processes after some time.
func (s *trial) remains() (problems []string) {
	s.T.Helper()
	if left := s.Objects(); len(left) > 0 {
		problems = append(problems, fmt.Sprintf("left over after destroy: %v", left))
	}
	for deadline := time.Now().Add(site.Bound); ; time.Sleep(site.Poll) {
		left := s.Processes()
		if len(left) == 0 {
			return problems
		}
		if time.Now().After(deadline) {
			return append(problems, fmt.Sprintf("processes left over after destroy: %v", left))
		}
	}
}
