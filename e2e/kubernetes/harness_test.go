// Package kubernetes runs the built eltrain on a real control plane, as a user does: the job file of the local demo
// with another provider, pods that a real scheduler binds, real training processes in them, the rights that deploy/
// grants, and faults by what a cluster has for them. Every test ends by checking that a destroy leaves nothing in
// the namespace and no process, and what was healed that it ends with the losses of an undisturbed run.
package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

var (
	binary  string           // the built eltrain
	cluster *testbed.Cluster // shared: every test has a namespace and nodes of its own in it
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() || os.Geteuid() != 0 {
		return m.Run() // every test skips
	}
	dir, err := os.MkdirTemp("", "eltrain-e2e-kubernetes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "eltrain")
	cmd := exec.Command("go", "build", "-o", binary, "github.com/eltrain/eltrain/cmd/eltrain")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // it has to run in any image
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	if cluster, err = testbed.New(testbed.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

const (
	// bound is how long anything may take here before the test says that it does not happen. The machines are
	// shared and slow; nothing is timed by it.
	bound = 90 * time.Second
	// look is how often a test looks whether something has happened.
	look = 30 * time.Millisecond

	jobName       = "mnist"
	trainerImage  = "trainer" // has the test's directory as its working directory
	agentImage    = "eltrain" // has the built eltrain
	mainContainer = "main"

	// poolLabel keeps the pods of a test on its nodes, and other tests' away from them.
	poolLabel = "e2e.eltrain.dev/pool"

	eventsFile = "events.jsonl" // what the training script writes of each step
)

// rights is what deploy/ grants eltrain: it has no others here.
var rights = filepath.Join("..", "..", "deploy", "base", "rbac.yaml")

// site is one job directory, a namespace, and nodes that run its pods.
type site struct {
	t         *testing.T
	name      string // of its job
	dir       string
	work      string // where the pods have dir
	namespace string
	kubelet   *kubelet.Kubelet
	environ   []string

	master *exec.Cmd
	out    *lines
	ended  chan struct{} // closed when master has ended
}

// steps of 20 ms: some ten seconds of training, enough for a fault and its healing in the middle.
const steps = 500

// newSite makes the demo's job directory with the provider changed, for so many nodes of one core: two in the first
// rack, the others in the second. The test runs beside others.
func newSite(t *testing.T, nodes int) *site {
	t.Helper()
	t.Parallel()
	return newSiteOf(t, "mnist-local", "mnist", resource.MustParse("512Mi"), nodes)
}

// newSiteOf is newSite of any example, its job's name and the memory of each node. Without t.Parallel no other test's
// nodes are there.
func newSiteOf(t *testing.T, example, name string, memory resource.Quantity, nodes int) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process kubelet needs root")
	}
	namespace := cluster.Namespace(t)
	s := &site{t: t, name: name, dir: t.TempDir(), work: "/srv/" + namespace, namespace: namespace}
	kubeconfig := cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{rights}})
	s.environ = append(os.Environ(), "NO_COLOR=1", "KUBECONFIG="+kubeconfig)

	text := s.example(example, "job.hcl")
	if !strings.Contains(text, `provider = "local"`) {
		t.Fatalf("the job of %s names no local provider to be changed", example)
	}
	s.write("job.hcl", strings.Replace(text, `provider = "local"`, `provider = "kubernetes"`, 1))
	s.write("train.py", s.example(example, "train.py"))
	s.write("kubernetes.hcl", s.example("mnist-kubernetes", "kubernetes.hcl"))
	s.setSteps(steps)

	var declared []kubelet.Node
	for n := range nodes {
		declared = append(declared, kubelet.Node{
			Name: s.node(n + 1),
			Labels: map[string]string{
				poolLabel: namespace, "rack": fmt.Sprintf("r%d", min(n/2, 1)+1), "switch": fmt.Sprintf("s%d", min(n/2, 1)+1),
			},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: memory},
		})
	}
	s.startKubelet(declared)
	t.Cleanup(s.clean)
	return s
}

func (s *site) startKubelet(nodes []kubelet.Node) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var err error
	s.kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Config: cluster.Config(), Nodes: nodes, Dir: s.t.TempDir(),
		Images: map[string]kubelet.Image{
			trainerImage: {
				Mounts:     []kubelet.Mount{{HostPath: s.dir, Path: s.work}},
				WorkingDir: s.work, Env: []string{"TRAIN_EVENTS=" + s.work + "/" + eventsFile},
			},
			agentImage: {Mounts: []kubelet.Mount{{HostPath: binary, Path: "/usr/local/bin/eltrain", ReadOnly: true}}},
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kubelet.Close)
	s.t.Cleanup(func() {
		for _, n := range nodes {
			cluster.RemoveNode(s.t, n.Name)
		}
	})
	for _, n := range nodes {
		s.until("node "+n.Name+" is ready", func() bool { return s.ready(n.Name) && !s.tainted(n.Name) })
	}
}

// node names the test's nodes, from 1.
func (s *site) node(n int) string { return fmt.Sprintf("%s-n%d", s.namespace, n) }

func (s *site) getNode(name string) *corev1.Node {
	s.t.Helper()
	node, err := cluster.Admin().CoreV1().Nodes().Get(s.t.Context(), name, metav1.GetOptions{})
	s.ok(err)
	return node
}

// ready tells whether Kubernetes thinks that the node is.
func (s *site) ready(name string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.getNode(name).Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (s *site) tainted(name string) bool { return len(s.getNode(name).Spec.Taints) > 0 }

func (s *site) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// example reads a file of an example.
func (s *site) example(example, name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", example, name))
	s.ok(err)
	return string(text)
}

// setSteps writes the variables: those of the example, and for how many steps it trains.
func (s *site) setSteps(n int) {
	s.t.Helper()
	s.write("eltrain.vars", fmt.Sprintf("steps = %d\nimage = %q\nagent_image = %q\npod = { spec = { nodeSelector = { %q = %q } } }\n",
		n, trainerImage, agentImage, poolLabel, s.namespace))
}

// write puts a file into the directory, whole or not at all.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	s.ok(os.WriteFile(path+".new", []byte(text), 0o644))
	s.ok(os.Rename(path+".new", path))
}

// edit replaces a part of a file, which has to be there.
func (s *site) edit(name, old, new string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	s.ok(err)
	if !strings.Contains(string(text), old) {
		s.t.Fatalf("%s has no %q to be edited", name, old)
	}
	s.write(name, strings.Replace(string(text), old, new, 1))
}

// dropBlock takes a block at the top of a file out of it, which has to be there.
func (s *site) dropBlock(name, header string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	s.ok(err)
	before, rest, there := strings.Cut(string(text), header+" {\n")
	_, after, ends := strings.Cut(rest, "\n}\n")
	if !there || !ends {
		s.t.Fatalf("%s has no block %s to be dropped", name, header)
	}
	s.write(name, before+after)
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = s.dir, s.environ
	return cmd
}

// eltrain runs one command to its end.
func (s *site) eltrain(args ...string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	cmd := s.command(ctx, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("eltrain %v: %v", args, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// must is eltrain that has to succeed.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, code := s.eltrain(args...)
	if code != 0 {
		s.t.Fatalf("eltrain %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// watch starts a master in the background.
func (s *site) watch(flags ...string) {
	s.t.Helper()
	s.master = s.command(context.Background(), append([]string{"apply", "-watch", "-auto-approve"}, flags...)...)
	s.out = &lines{}
	s.master.Stdout, s.master.Stderr = s.out, s.out
	s.ok(s.master.Start())
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(s.master, s.ended)
}

// signalMaster ends the master.
func (s *site) signalMaster(sig syscall.Signal) {
	s.t.Helper()
	s.master.Process.Signal(sig)
	select {
	case <-s.ended:
	case <-time.After(bound):
		s.t.Fatalf("the master does not end on %v:\n%s", sig, s.out)
	}
	s.master = nil
}

// until waits for a fact that no status shows.
func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(bound); !holds(); time.Sleep(look) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: this does not happen", what)
		}
	}
}

// has checks a text for its parts. Lines are wrapped, so white space counts as one blank.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// lines collects output from several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// clean destroys what runs and checks that nothing is left.
func (s *site) clean() {
	if s.t.Failed() {
		if s.out != nil {
			s.t.Logf("the master said:\n%s", s.out)
		}
		events, _ := s.eltrain("events")
		s.t.Logf("events:\n%s", events)
		s.logPods()
	}
	if s.master != nil {
		s.signalMaster(syscall.SIGTERM)
	}
	if out, code := s.eltrain("destroy", "-auto-approve", "-lock-timeout=30s"); code != 0 {
		s.t.Errorf("destroy: exit code %d\n%s", code, out)
	}
	// What the anchor owns is deleted by the cluster's own garbage collector, after the destroy.
	var left []string
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(look) {
		if left = s.left(); len(left) == 0 {
			return
		}
	}
	s.t.Errorf("left after destroy: %v", left)
}

// left lists the objects of eltrain's in the namespace, and the processes of its pods.
func (s *site) left() []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound) // the test's own has ended when this is asked
	defer cancel()
	var found []string
	core, all := cluster.Admin().CoreV1(), metav1.ListOptions{LabelSelector: "eltrain.dev/uid"}
	pods, err := core.Pods(s.namespace).List(ctx, all)
	s.ok(err)
	for _, o := range pods.Items {
		found = append(found, "Pod "+o.Name)
	}
	secrets, err := core.Secrets(s.namespace).List(ctx, all)
	s.ok(err)
	for _, o := range secrets.Items {
		found = append(found, "Secret "+o.Name)
	}
	configMaps, err := core.ConfigMaps(s.namespace).List(ctx, metav1.ListOptions{})
	s.ok(err)
	for _, o := range configMaps.Items {
		if o.Name != "kube-root-ca.crt" {
			found = append(found, "ConfigMap "+o.Name)
		}
	}
	services, err := core.Services(s.namespace).List(ctx, metav1.ListOptions{})
	s.ok(err)
	for _, o := range services.Items {
		found = append(found, "Service "+o.Name)
	}
	budgets, err := cluster.Admin().PolicyV1().PodDisruptionBudgets(s.namespace).List(ctx, metav1.ListOptions{})
	s.ok(err)
	for _, o := range budgets.Items {
		found = append(found, "PodDisruptionBudget "+o.Name)
	}
	for pid, args := range s.processes() {
		found = append(found, fmt.Sprintf("process %d %s", pid, args))
	}
	return found
}

// pods are those of the job by name.
func (s *site) pods() map[string]corev1.Pod {
	s.t.Helper()
	list, err := cluster.Admin().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job=" + s.name})
	s.ok(err)
	found := map[string]corev1.Pod{}
	for _, p := range list.Items {
		found[p.Name] = p
	}
	return found
}

// logPods shows how the pods are and what they wrote.
func (s *site) logPods() {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	pods := cluster.Admin().CoreV1().Pods(s.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Log(err)
		return
	}
	for _, p := range list.Items {
		status, _ := json.Marshal(p.Status)
		text, _ := pods.GetLogs(p.Name, &corev1.PodLogOptions{Container: mainContainer}).DoRaw(ctx)
		s.t.Logf("pod %s on %q: deleted %v\n%s\n%s", p.Name, p.Spec.NodeName, p.DeletionTimestamp, status, text)
	}
}

// processes are those of the test's pods, by their process id on this machine.
func (s *site) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cwd, err := os.Readlink(d + "/cwd")
		if err != nil || !strings.HasPrefix(cwd, s.work) {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		args, _ := os.ReadFile(d + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(d))
		found[pid] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
	}
	return found
}

// agentOf is the agent of a slot's pod on this machine.
func (s *site) agentOf(slot slotStatus) int {
	s.t.Helper()
	pid, err := s.kubelet.PID(s.namespace, slot.Name, mainContainer)
	s.ok(err)
	return pid
}

// trainerOf is the training process of a slot on this machine: the status has its number in its pod.
func (s *site) trainerOf(slot slotStatus) int {
	s.t.Helper()
	agent := s.agentOf(slot)
	pod, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", agent))
	s.ok(err)
	for pid := range s.processes() {
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
	s.t.Fatalf("%s has no process %d in pod %s", slot.Address, slot.PID, slot.Name)
	return 0
}

// trainers are the training processes of all slots that train.
func (s *site) trainers(j jobStatus) map[string]int {
	s.t.Helper()
	pids := map[string]int{}
	for _, slot := range j.running() {
		pids[slot.Address] = s.trainerOf(slot)
	}
	return pids
}

// gone waits until a process has ended. The pid cannot be reused so soon.
func (s *site) gone(pid int) {
	s.t.Helper()
	s.until(fmt.Sprintf("process %d has ended", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func kill(t *testing.T, sig syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if pid <= 1 {
			t.Fatalf("no process to send %v to", sig)
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatalf("kill -%d %d: %v", sig, pid, err)
		}
	}
}

// status is `eltrain status -json`, as docs/commands.md has it.
type status struct {
	Jobs []jobStatus `json:"jobs"`
}

type jobStatus struct {
	Address    string   `json:"address"`
	Provider   string   `json:"provider"`
	Phase      string   `json:"phase"`
	Generation int      `json:"generation"`
	WorldSize  int      `json:"world_size"`
	Step       int64    `json:"step"`
	Reasons    []string `json:"reasons"`
	Slots      []slotStatus
	Incidents  []incident
}

type slotStatus struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	Rank        int    `json:"rank"`
	Node        string `json:"node"`
	Name        string `json:"name"` // of its pod
	PID         int    `json:"pid"`  // in its pod
	Restarts    int    `json:"restarts"`
	Memory      int64  `json:"memory_bytes"`
}

type incident struct {
	Cause    string   `json:"cause"`
	Culprits []string `json:"culprits"`
	Action   string   `json:"action"`
	Evidence []string `json:"evidence"`
}

// job reads the job's status; it is zero while there is none.
func (s *site) job() jobStatus {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := s.command(ctx, "status", "-json")
	out, said := bytes.Buffer{}, bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var st status
	if bad := json.Unmarshal(out.Bytes(), &st); bad != nil {
		s.t.Fatalf("status -json: %v, %v\n%s\n%s", err, bad, &out, &said)
	}
	if said.Len() > 0 {
		s.t.Errorf("status says beside its JSON:\n%s", &said)
	}
	for _, j := range st.Jobs {
		if j.Address == "job."+s.name {
			return j
		}
	}
	return jobStatus{}
}

// worker finds a slot; the zero one if it is not there.
func (j jobStatus) worker(index int) slotStatus {
	for _, s := range j.Slots {
		if s.Address == fmt.Sprintf("%s.worker[%d]", j.Address, index) {
			return s
		}
	}
	return slotStatus{}
}

// on finds the slot that is on a node.
func (j jobStatus) on(node string) slotStatus {
	for _, s := range j.Slots {
		if s.Node == node {
			return s
		}
	}
	return slotStatus{}
}

// running are the slots that train.
func (j jobStatus) running() []slotStatus {
	var r []slotStatus
	for _, s := range j.Slots {
		if s.Phase == "Running" && s.PID > 0 {
			r = append(r, s)
		}
	}
	return r
}

// podNames are the pods of the slots by address, but for some slots.
func (j jobStatus) podNames(but ...slotStatus) map[string]string {
	names := map[string]string{}
	for _, s := range j.Slots {
		if s.Name != "" {
			names[s.Address] = s.Name
		}
	}
	for _, s := range but {
		delete(names, s.Address)
	}
	return names
}

// last is the newest incident.
func (j jobStatus) last() incident {
	if len(j.Incidents) == 0 {
		return incident{}
	}
	return j.Incidents[len(j.Incidents)-1]
}

// trains tells whether n slots train together in a generation of at least g, past the first step.
func (j jobStatus) trains(n, g int) bool {
	return j.Phase == "Running" && len(j.running()) == n && j.WorldSize == n && j.Generation >= g && j.Step > 0
}

// await waits until the job is as wanted, and gives it.
func (s *site) await(what string, holds func(j jobStatus) bool) jobStatus {
	s.t.Helper()
	deadline := time.Now().Add(bound)
	for {
		j := s.job()
		if holds(j) {
			return j
		}
		if time.Now().After(deadline) || s.t.Context().Err() != nil {
			text, _ := json.MarshalIndent(j, "", " ")
			s.t.Fatalf("%s does not happen; the job is\n%s", what, text)
		}
		time.Sleep(look)
	}
}

func (s *site) awaitWorld(slots, generation int) jobStatus {
	s.t.Helper()
	return s.await(fmt.Sprintf("a world of %d in generation %d or later", slots, generation),
		func(j jobStatus) bool { return j.trains(slots, generation) })
}

// blamed checks the newest incident: its cause and slots, and what its evidence has to name.
func (s *site) blamed(j jobStatus, cause string, culprits []slotStatus, evidence ...string) {
	s.t.Helper()
	last := j.last()
	var want []string
	for _, c := range culprits {
		want = append(want, c.Address)
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(last.Culprits)); last.Cause != cause || !slices.Equal(got, want) {
		s.t.Errorf("the incident is %+v, want %s in %v", last, cause, want)
	}
	for _, part := range evidence {
		if !strings.Contains(strings.Join(last.Evidence, "\n"), part) {
			s.t.Errorf("%q is missing in the evidence %q", part, last.Evidence)
		}
	}
}

// untouched checks that the pods of all slots but these are those of before.
func (s *site) untouched(before, after jobStatus, but ...slotStatus) {
	s.t.Helper()
	if a, b := before.podNames(but...), after.podNames(but...); !maps.Equal(a, b) {
		s.t.Errorf("pods of other slots were replaced: %v -> %v", a, b)
	}
}

// losses reads what the script says of its steps. Two losses for one step have to be the same, but for what they may
// differ by: that is what makes a recovery right.
func losses(t *testing.T, path string, close float64) map[int]float64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]float64{}
	for line := range strings.Lines(string(text)) {
		var event struct {
			Ev   string  `json:"ev"`
			Step int     `json:"step"`
			Loss float64 `json:"loss"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if event.Ev != "step" {
			continue
		}
		if old, known := found[event.Step]; known && math.Abs(old-event.Loss) > close {
			t.Errorf("the loss at step %d is %v and %v", event.Step, old, event.Loss)
		}
		found[event.Step] = event.Loss
	}
	return found
}

// exact: the script sums integers, so that its losses do not depend on the world.
const exact = 0

var undisturbed struct {
	sync.Mutex
	losses map[int]map[int]float64 // by number of steps
}

// alone is the same training by one process, without eltrain.
func alone(t *testing.T, steps int) map[int]float64 {
	t.Helper()
	undisturbed.Lock()
	defer undisturbed.Unlock()
	if known := undisturbed.losses[steps]; known != nil {
		return known
	}
	dir := t.TempDir()
	cmd := exec.Command("python3", filepath.Join("..", "..", "examples", "mnist-local", "train.py"),
		fmt.Sprintf("--steps=%d", steps), "--step-ms=0", "--ckpt-dir="+filepath.Join(dir, "ckpt"), "--events="+filepath.Join(dir, eventsFile))
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the training alone: %v\n%s", err, out)
	}
	if undisturbed.losses == nil {
		undisturbed.losses = map[int]map[int]float64{}
	}
	undisturbed.losses[steps] = losses(t, filepath.Join(dir, eventsFile), exact)
	return undisturbed.losses[steps]
}

// succeeds waits for the job's success.
func (s *site) succeeds() {
	s.t.Helper()
	s.await("success", func(j jobStatus) bool {
		if j.Phase == "Failed" {
			s.t.Fatalf("the job failed: %v", j.Reasons)
		}
		return j.Phase == "Succeeded"
	})
}

// endsRight waits for the job's success and compares all its losses with those of an undisturbed run.
func (s *site) endsRight(steps int) {
	s.t.Helper()
	s.succeeds()
	want := alone(s.t, steps)
	if got := losses(s.t, filepath.Join(s.dir, eventsFile), exact); !maps.Equal(got, want) {
		s.t.Errorf("the healed run ends with loss %v at step %d, an undisturbed one with %v; they printed %d and %d steps",
			got[steps], steps, want[steps], len(got), len(want))
	}
}
