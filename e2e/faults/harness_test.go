// Package faults breaks a real control plane, and the masters on it, while jobs run there: the built eltrain as a
// user runs it, with the rights that deploy/ grants, on pods that are real processes. After each fault the job
// trains on or says why not, nothing ran twice, and a destroy leaves nothing behind.
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
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
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/testbed"
	"github.com/eltrain/eltrain/testbed/kubelet"
)

const (
	// bound is how long anything may take here before the test says that it does not happen. The machines are
	// shared and slow, and a dozen masters come up at once; nothing is timed by it.
	bound = time.Minute
	// poll is the pause between two looks.
	poll = 50 * time.Millisecond
)

const (
	hostImage   = "host"                   // this machine's own root: sh, python3
	masterImage = "eltrain/eltrain:v0.1.0" // what deploy/ runs and brings the agent with
)

// rights is what deploy/ grants: no test has others.
var rights = filepath.Join("..", "..", "deploy", "base", "rbac.yaml")

var (
	shared string // directory that every container sees at the same path: eltrain, the script, what jobs write
	binary string // the built eltrain, in there
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait far more than they work: for leases, pauses, and each other's pods.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() || os.Geteuid() != 0 {
		return m.Run() // each test says why it is skipped
	}
	var err error
	if shared, err = os.MkdirTemp("", "eltrain-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared)
	if err := buildInto(shared); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, b := range []*bed{&calm, &rough} {
		if err := b.close(code != 0 && testing.Verbose()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func buildInto(dir string) error {
	binary = filepath.Join(dir, "eltrain")
	build := exec.Command("go", "build", "-o", binary, "github.com/eltrain/eltrain/cmd/eltrain")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	script, err := os.ReadFile("../../examples/mnist-local/train.py")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "train.py"), script, 0o644)
}

// bed is a cluster that comes up with the first test that asks for it.
type bed struct {
	once    sync.Once
	cluster *testbed.Cluster
	err     error
}

// calm is for faults that one namespace alone feels. The components of rough are killed: who asks for it is not
// parallel to another who does.
var calm, rough bed

// processNodes take every pod of a run of the whole package at once.
var processNodes = []string{"process-1", "process-2"}

func (b *bed) start(t *testing.T) *testbed.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("the process nodes make mounts and namespaces: needs root")
	}
	b.once.Do(func() {
		mounts := []kubelet.Mount{{HostPath: shared, Path: shared}}
		var nodes []kubelet.Node
		for _, name := range processNodes {
			nodes = append(nodes, kubelet.Node{Name: name, Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("500"), corev1.ResourceMemory: resource.MustParse("500Gi"), corev1.ResourcePods: resource.MustParse("500"),
			}})
		}
		b.cluster, b.err = testbed.New(testbed.Options{ProcessNodes: nodes, Images: map[string]kubelet.Image{
			hostImage: {Mounts: mounts},
			masterImage: { // as deploy/Dockerfile makes it
				Mounts: append(mounts, kubelet.Mount{HostPath: binary, Path: "/usr/local/bin/eltrain", ReadOnly: true}),
				Env:    []string{"PATH=/usr/local/bin", "HOME=/", "USER=eltrain"},
			},
		}})
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.cluster
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

// site is one job directory, with a namespace of its own.
type site struct {
	t          *testing.T
	cluster    *testbed.Cluster
	namespace  string
	dir        string // of the job files
	work       string // in shared: what the training processes write
	kubeconfig string
	env        []string // more environment of the commands
}

// newSite makes a namespace, a user with the rights of deploy/ and a directory. What is left there after the
// test is an error.
func newSite(t *testing.T, c *testbed.Cluster) *site {
	t.Helper()
	s := &site{t: t, cluster: c, namespace: c.Namespace(t), dir: t.TempDir()}
	s.work = filepath.Join(shared, s.namespace)
	if err := os.Mkdir(s.work, 0o755); err != nil {
		t.Fatal(err)
	}
	s.kubeconfig = c.Kubeconfig(t, s.user())
	return s
}

func (s *site) user() testbed.User {
	return testbed.User{Namespace: s.namespace, Roles: []string{rights}}
}

// through makes the user reach the API server by a gate.
func (s *site) through(g *gate) {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = g.server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	}
	s.kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		s.t.Fatal(err)
	}
}

// write replaces a job file in one step: a master may be watching.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path)); err != nil {
		s.t.Fatal(err)
	}
}

// The state is in the cluster, as deploy/ has it, so that faults between its writes are met too.
const settings = `
eltrain {
  state "kubernetes" { name = "main" }
}
`

// provider is for jobs whose agent is in their image.
func provider() string {
	return fmt.Sprintf("provider \"kubernetes\" {\n  image = %q\n  agent_path = %q\n}\n", hostImage, binary)
}

// once is the shell's part of every job here: it notes each start, and says so if a process of the same slot
// runs already, wherever.
func (s *site) once() string {
	return fmt.Sprintf(`cd %s; echo $ELTRAIN_SLOT >> starts; exec 9>>$ELTRAIN_SLOT; flock -n 9 || echo $ELTRAIN_SLOT >> twice; `, s.work)
}

// briefly is a lease for jobs whose masters change without a change of address.
const briefly = "5s"

// resting is a job whose processes only are there: for what happens to pods.
func (s *site) resting(workers int) string {
	return s.job(workers, workers, briefly, "echo step 1 loss 1; exec sleep 1000")
}

// steps of 15 ms are six seconds of training and more, enough for a fault in the middle.
const steps = 400

// training is a job that ends with the same loss whatever happens to it.
func (s *site) training(least, workers, stepMillis int) string {
	return s.job(least, workers, briefly, fmt.Sprintf("exec /usr/bin/python3 %s --steps=%d --step-ms=%d --ckpt-every=20 --events=events", filepath.Join(shared, "train.py"), steps, stepMillis))
}

func (s *site) job(least, workers int, lease, script string) string {
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
`, workers, s.once()+script, least, workers, filepath.Join(s.work, "ckpt"), lease)
}

// command is eltrain in the directory.
func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "KUBECONFIG="+s.kubeconfig)
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// run runs one command to its end.
func (s *site) run(args ...string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := s.command(ctx, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("eltrain %v: %v", args, err)
	}
	if ctx.Err() != nil {
		s.t.Fatalf("eltrain %v does not end in %v:\n%s", args, bound, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// must is run that has to succeed.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("eltrain %v: exit code %d\n%s", args, code, out)
	}
	return out
}

// waiting is how a command is told to wait for the lock of a master that was killed: its lease runs out.
const waiting = "-lock-timeout=60s"

// master is an eltrain in the background.
type master struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *lines
	ended chan struct{} // closed when it has ended
}

// start starts a command in the background, which is killed at the latest when the test ends.
func (s *site) start(args ...string) *master {
	s.t.Helper()
	m := &master{t: s.t, cmd: s.command(context.Background(), args...), out: &lines{}, ended: make(chan struct{})}
	m.cmd.Stdout, m.cmd.Stderr = m.out, m.out
	if err := m.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(m.ended)
		m.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		m.cmd.Process.Kill()
		<-m.ended
	})
	return m
}

// watch starts a master that goes on for ever.
func (s *site) watch(flags ...string) *master {
	s.t.Helper()
	m := s.start(append([]string{"apply", "-watch", "-auto-approve", "-input=false"}, flags...)...)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the master said:\n%s", m.out)
		}
	})
	return m
}

// kill ends it as kill -9 does.
func (m *master) kill() {
	m.t.Helper()
	m.cmd.Process.Kill()
	<-m.ended
}

// interrupt asks it to end, and waits for that.
func (m *master) interrupt() {
	m.t.Helper()
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.wait()
}

// wait waits for its end and gives its exit code.
func (m *master) wait() int {
	m.t.Helper()
	select {
	case <-m.ended:
	case <-time.After(bound):
		m.t.Fatalf("the master does not end:\n%s", m.out)
	}
	return m.cmd.ProcessState.ExitCode()
}

// heard waits until it has said this. Lines are wrapped, so white space counts as one blank.
func (m *master) heard(text string) {
	m.t.Helper()
	await(m.t, fmt.Sprintf("the master's word %q", text), func() bool { return strings.Contains(unwrapped(m.out.String()), text) })
}

// unwrapped is text with every run of white space, and of the lines that frame a diagnostic, as one blank.
func unwrapped(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " ")
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

// await waits until something is so.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bound); !holds(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, bound)
		}
	}
}

// has checks a command's output for its parts.
func has(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(unwrapped(out), part) {
			t.Errorf("%q is missing in:\n%s", part, out)
		}
	}
}

// status is `eltrain status -json`, as docs/commands.md has it.
type status struct {
	Jobs []jobStatus `json:"jobs"`
}

type jobStatus struct {
	Address    string       `json:"address"`
	Phase      string       `json:"phase"`
	Generation int          `json:"generation"`
	WorldSize  int          `json:"world_size"`
	Step       int64        `json:"step"`
	Reasons    []string     `json:"reasons"`
	Slots      []slotStatus `json:"slots"`
	Incidents  []struct {
		Cause    string   `json:"cause"`
		Culprits []string `json:"culprits"`
		Action   string   `json:"action"`
	} `json:"incidents"`
}

type slotStatus struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Phase       string `json:"phase"`
	Node        string `json:"node"`
}

// status is that of the job; the zero value if it is not there, or the API server is not.
func (s *site) status() jobStatus {
	s.t.Helper()
	out, _ := s.run("status", "-json")
	var st status
	if err := json.Unmarshal([]byte(out), &st); err != nil || len(st.Jobs) == 0 {
		return jobStatus{}
	}
	return st.Jobs[0]
}

// await waits until the job is as wanted, and gives it.
func (s *site) await(what string, holds func(jobStatus) bool) jobStatus {
	s.t.Helper()
	var j jobStatus
	for deadline := time.Now().Add(bound); ; time.Sleep(poll) {
		if j = s.status(); holds(j) {
			return j
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(j, "", " ")
			s.t.Fatalf("%s: not in %v; the job is\n%s", what, bound, text)
		}
	}
}

// awaitWorld waits for a world of so many that trains, in a generation of at least that.
func (s *site) awaitWorld(size, generation int) jobStatus {
	s.t.Helper()
	return s.await(fmt.Sprintf("a world of %d in generation %d or later", size, generation), func(j jobStatus) bool {
		return j.Phase == "Running" && j.WorldSize == size && j.Generation >= generation && j.Step > 0
	})
}

// pods are the job's, ended ones too.
func (s *site) pods() []corev1.Pod {
	s.t.Helper()
	list, err := s.cluster.Admin().CoreV1().Pods(s.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "eltrain.dev/job"})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// trainsUndisturbed checks that there is one pod for each of so many slots, that none was ever made twice, that no
// training process was started again, and that the job has what it is to have beside its pods, once.
func (s *site) trainsUndisturbed(workers int) {
	s.t.Helper()
	for _, problem := range s.disturbances(workers) {
		s.t.Error(problem)
	}
}

func (s *site) disturbances(workers int) (problems []string) {
	s.t.Helper()
	var names, want []string
	for _, p := range s.pods() {
		names = append(names, fmt.Sprintf("%s[%s] incarnation %s %s", p.Labels["eltrain.dev/role"], p.Labels["eltrain.dev/index"], p.Labels["eltrain.dev/incarnation"], p.Status.Phase))
	}
	for i := range workers {
		want = append(want, fmt.Sprintf("worker[%d] incarnation 1 Running", i))
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		problems = append(problems, fmt.Sprintf("the pods are %q", names))
	}
	if starts := s.starts(); len(starts) != workers || slices.Max(slices.Collect(maps.Values(starts))) != 1 {
		problems = append(problems, fmt.Sprintf("training processes were started: %v", starts))
	}
	if twice := s.noted("twice"); len(twice) > 0 {
		problems = append(problems, fmt.Sprintf("ran twice at a time: %q", twice))
	}
	for kind, n := range s.kinds() {
		if n != 1 {
			problems = append(problems, fmt.Sprintf("%d of the kind %s", n, kind))
		}
	}
	return problems
}

// kinds counts what the job has beside its pods.
func (s *site) kinds() map[string]int {
	s.t.Helper()
	kinds := map[string]int{"configmap": 0, "secret": 0, "service": 0, "poddisruptionbudget": 0}
	for _, o := range s.objects() {
		if kind, name, _ := strings.Cut(o, "/"); kind != "pod" && name != "eltrain-jobs" && name != "eltrain" { // those are of deploy/
			kinds[kind]++
		}
	}
	return kinds
}

// starts counts the starts of training processes by slot.
func (s *site) starts() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for _, slot := range s.noted("starts") {
		counts[slot]++
	}
	return counts
}

// ranOnce checks that never two training processes of a slot ran at a time.
func (s *site) ranOnce() {
	s.t.Helper()
	if twice := s.noted("twice"); len(twice) > 0 {
		s.t.Errorf("ran twice at a time: %q", twice)
	}
}

func (s *site) noted(file string) []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.work, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// objects are the namespace's, as kind/name, but for what every namespace has and the state.
func (s *site) objects() []string {
	s.t.Helper()
	ctx, all := context.Background(), metav1.ListOptions{}
	client := s.cluster.Admin()
	var found []string
	list := func(kind string, names []string, err error) {
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			found = append(found, kind+"/"+name)
		}
	}
	pods, err := client.CoreV1().Pods(s.namespace).List(ctx, all)
	list("pod", namesOf(pods.Items), err)
	maps, err := client.CoreV1().ConfigMaps(s.namespace).List(ctx, all)
	list("configmap", namesOf(maps.Items), err)
	secrets, err := client.CoreV1().Secrets(s.namespace).List(ctx, all)
	list("secret", namesOf(secrets.Items), err)
	services, err := client.CoreV1().Services(s.namespace).List(ctx, all)
	list("service", namesOf(services.Items), err)
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.namespace).List(ctx, all)
	list("poddisruptionbudget", namesOf(budgets.Items), err)
	return slices.DeleteFunc(found, func(o string) bool {
		return o == "configmap/kube-root-ca.crt" || strings.HasPrefix(o, "secret/eltrain-state-")
	})
}

func namesOf[T any, P interface {
	*T
	metav1.Object
}](items []T) []string {
	var names []string
	for i := range items {
		names = append(names, P(&items[i]).GetName())
	}
	return names
}

// destroyed destroys the job and checks that nothing of it is left, no process either.
func (s *site) destroyed() {
	s.t.Helper()
	s.must("destroy", "-auto-approve", "-input=false", waiting)
	s.nothingLeft()
}

func (s *site) nothingLeft() {
	s.t.Helper()
	for _, problem := range s.remains() {
		s.t.Error(problem)
	}
}

// remains is what is left of the job on the API server, and of its processes after some time.
func (s *site) remains() (problems []string) {
	s.t.Helper()
	if left := s.objects(); len(left) > 0 {
		problems = append(problems, fmt.Sprintf("left over after destroy: %v", left))
	}
	for deadline := time.Now().Add(bound); ; time.Sleep(poll) {
		left := s.processes()
		if len(left) == 0 {
			return problems
		}
		if time.Now().After(deadline) {
			return append(problems, fmt.Sprintf("processes left over after destroy: %v", left))
		}
	}
}

// processes are the job's training processes on this machine, by pid: they work in a directory of their own.
func (s *site) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cwd, err := os.Readlink(d + "/cwd")
		if err != nil || !strings.HasSuffix(cwd, s.work) {
			continue
		}
		args, _ := os.ReadFile(d + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(d))
		found[pid] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
	}
	return found
}

// alone is the last loss of the same training by one process without eltrain.
var alone = sync.OnceValues(func() (string, error) {
	events := filepath.Join(shared, "alone.events")
	cmd := exec.Command("/usr/bin/python3", filepath.Join(shared, "train.py"), fmt.Sprintf("--steps=%d", steps), "--step-ms=0", "--ckpt-dir="+filepath.Join(shared, "alone"), "--events="+events)
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the training alone: %w\n%s", err, out)
	}
	return lastLoss(events)
})

// lastLoss is the loss of the last step in the events that the script wrote.
func lastLoss(events string) (string, error) {
	text, err := os.ReadFile(events)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Event string      `json:"ev"`
			Step  int         `json:"step"`
			Loss  json.Number `json:"loss"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return "", err
		}
		if e.Event == "step" && e.Step == steps {
			return e.Loss.String(), nil
		}
	}
	return "", fmt.Errorf("no loss of step %d in %s", steps, text)
}

// endsRight waits for the job's success and compares its last loss with an undisturbed run's.
func (s *site) endsRight() {
	s.t.Helper()
	s.await("success", func(j jobStatus) bool {
		if j.Phase == "Failed" {
			s.t.Fatalf("the job failed: %v", j.Reasons)
		}
		return j.Phase == "Succeeded"
	})
	want, err := alone()
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := lastLoss(filepath.Join(s.work, "events"))
	if err != nil {
		s.t.Fatal(err)
	}
	if got != want {
		s.t.Errorf("it ends with loss %s, undisturbed with %s", got, want)
	}
}
