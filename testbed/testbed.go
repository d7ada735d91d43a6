// Package testbed brings up a real Kubernetes control plane on this machine, for tests and measurements: upstream's etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, simulated nodes by the hundred (KWOK), and fault injection
// for what goes wrong in the field. It knows nothing of eltrain: it could test any client of Kubernetes.
//
// `make testbed` builds the programs once; without them Start says so. In a test:
//
//	c := testbed.Start(t, testbed.Options{Nodes: 200})       // gone when the test ends
//	ns := c.Namespace(t)                                      // of this test alone, deleted after it
//	kubeconfig := c.Kubeconfig(t, testbed.User{               // what the program under test is given:
//		Namespace: ns, Roles: []string{"../deploy/role.yaml"}, // a ServiceAccount, and not one verb more
//	})
//	c.Admin().CoreV1().Pods(ns).List(…)                       // the test's own eyes and hands
//	c.APIServer.Kill(t); c.APIServer.Start(t)                 // same address, same data
//	c.Cordon(t, name); c.Lose(t, name); c.RemoveNode(t, name) // and NotReady, Taint, AddNodes, Recover
//	p := c.Proxy(t); p.Kubeconfig(t, user); p.BreakWatches()  // faults that only the program under test sees
//	p.Inject(testbed.Fault{Verb: "create", Resource: "pods", Status: 429, Times: 3, RetryAfter: time.Second})
//	c.Webhook(t, testbed.Refusals{Namespace: ns, Times: 3})   // admission that refuses
//
// With Options.Volcano the real Volcano runs beside it, its queue named default open:
//
//	c := testbed.Start(t, testbed.Options{Nodes: 4, Volcano: &testbed.Volcano{}}) // API of 1.10; Definitions for newer
//	c.Dynamic().Resource(testbed.PodGroups).Namespace(ns).Get(…)                  // or a typed client from c.Config()
//	c.MakeQueue(t, "small", testbed.Queue{Capability: …}); c.CloseQueue(t, "small"); c.OpenQueue(t, "small")
//	c.VolcanoScheduler.Kill(t); c.VolcanoController.Pause(t)                      // components like the others
//	c.ConfigureVolcano(t, strings.Replace(c.VolcanoConfiguration(t), "backfill", "backfill, preempt", 1))
//	c.DefineVolcano(t, testbed.Volcano114)                                        // the API changes under a running client
//	c.Webhook(t, testbed.Refusals{Namespace: ns, Resource: testbed.PodGroups})    // as for pods
//
// Volcano's own admission webhooks are not run, and its API is absent without Options.Volcano.
//
// With Options.ProcessNodes pods run for real, as processes of this machine. Their nodes have levers of their own in
// c.Kubelet: power off, evict.
//
// Tests of one package share a cluster by New in TestMain and Close after m.Run; several packages share one by Shared, if
// they do not touch its servers and run one after the other. A cluster is up after some five seconds and takes about
// 600 MB. It has a loopback address of its own, so that any number run side by side, and its processes die with the
// process that started it, however that ends.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/testbed/kubelet"
)

// T is what the cluster needs of a test. Every testing.TB is one; a measuring program can implement its own.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}

// The names of the components, for Options.Env and Options.Args.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	KWOK              = "kwok"
	Kubectl           = "kubectl" // not a component: for tests that follow the documentation
	VolcanoScheduler  = "vc-scheduler"
	VolcanoController = "vc-controller-manager"
)

// Options says what cluster to bring up. The zero value is a control plane without a node.
type Options struct {
	Nodes int      // KWOK nodes, Ready when New returns
	Node  KWOKNode // the properties of each

	// ProcessNodes run their pods as real processes of this machine; see package kubelet. They need root.
	ProcessNodes []kubelet.Node
	Images       map[string]kubelet.Image

	// NodeLease is how long a node's lease is good for, and after how long without renewal the controller
	// manager calls the node Unknown. Zero is Kubernetes' own: 40 s, and 50 s. Whole seconds.
	NodeLease time.Duration

	Volcano *Volcano // to install Volcano, which schedules pods with schedulerName volcano; nil for none

	Env  map[string][]string // more environment of a component, "GOGC=400"
	Args map[string][]string // more arguments of a component
}

// Cluster is a running control plane.
type Cluster struct {
	Etcd, APIServer, ControllerManager, Scheduler *Component

	VolcanoScheduler, VolcanoController *Component // nil without Options.Volcano

	KWOK    *Component       // when restarted, it has its nodes back once the leases of its predecessor have expired
	Kubelet *kubelet.Kubelet // of the process nodes; nil without any

	address  string // this cluster's own loopback address
	reserved net.Listener
	dir      string // shared by all users of the cluster
	own      string // used by this process alone; dir if it started the cluster
	ca       *authority
	accounts *tokenSigner
	admin    *rest.Config
	client   *kubernetes.Clientset
	dynamic  dynamic.Interface
	options  Options
	launcher *launcher

	volcanoDir string // its programs and their files
	kwokNodes  []string
	kubeletLog *os.File
}

const (
	// Kubernetes' usual ports.
	apiPort         = 6443
	etcdPort        = 2379
	etcdPeerPort    = 2380
	controllersPort = 10257
	schedulerPort   = 10259

	// startTimeout bounds the wait for a cluster, or for one component started again.
	startTimeout = kubelet.Bound
)

// Start brings up a cluster for one test and takes it down afterwards. The test is skipped with -short. If it
// fails, the end of each component's log is printed.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	return start(t, New, options)
}

func start(t testing.TB, make func(Options) (*Cluster, error), options Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	began := time.Now()
	c, err := make(options)
	if err != nil {
		t.Fatalf("testbed: %v", err)
	}
	t.Logf("testbed: the cluster is up after %s", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		if err := c.Close(); err != nil {
			t.Errorf("testbed: %v", err)
		}
	})
	return c
}

// New brings up a cluster that tests share. The caller closes it.
func New(options Options) (*Cluster, error) {
	binaries, err := Binaries()
	if err != nil {
		return nil, err
	}
	removeStale()
	address, reserved, err := reserveAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return nil, errors.Join(err, reserved.Close())
	}
	c := &Cluster{address: address, reserved: reserved, dir: dir, own: dir, options: options, launcher: newLauncher()}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err = c.bringUp(ctx, binaries)
	if err == nil {
		err = c.populate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, c.Logs()), c.Close())
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context, binaries string) error {
	if err := c.makeCredentials(); err != nil {
		return err
	}
	if err := c.configure(binaries); err != nil {
		return err
	}
	// An API server without etcd fills its log, and a controller manager without an API server gives up after 10 s, which
	// a busy machine sometimes needs. The others start together.
	for _, component := range []*Component{c.Etcd, c.APIServer} {
		if err := component.start(); err != nil {
			return err
		}
		if err := component.awaitReady(ctx); err != nil {
			return err
		}
	}
	others := []*Component{c.ControllerManager, c.Scheduler, c.KWOK}
	for _, component := range others {
		if err := component.start(); err != nil {
			return err
		}
	}
	for _, component := range others {
		if err := component.awaitReady(ctx); err != nil {
			return err
		}
	}
	return c.startVolcano(ctx)
}

// populate adds the nodes of the options to the cluster.
func (c *Cluster) populate(ctx context.Context) error {
	if _, err := c.addNodes(ctx, c.options.Nodes, c.options.Node); err != nil {
		return err
	}
	return c.startKubelet(ctx)
}

func (c *Cluster) startKubelet(ctx context.Context) error {
	if len(c.options.ProcessNodes) == 0 {
		return nil
	}
	var err error
	if c.kubeletLog, err = os.Create(filepath.Join(c.own, "kubelet.log")); err != nil {
		return err
	}
	c.Kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Config: c.Config(),
		Nodes:  c.options.ProcessNodes,
		Images: c.options.Images,
		Dir:    filepath.Join(c.own, "kubelet"),
		Log:    slog.New(slog.NewTextHandler(c.kubeletLog, nil)),
	})
	if err != nil {
		return err
	}
	for _, node := range c.options.ProcessNodes {
		if err := c.awaitNode(ctx, node.Name, schedulable); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) components() []*Component {
	var all []*Component
	for _, component := range []*Component{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler, c.KWOK, c.VolcanoScheduler, c.VolcanoController} {
		if component != nil {
			all = append(all, component)
		}
	}
	return all
}

// Close kills the components and the processes of the process nodes, waits for them, and removes their files. Of a
// shared cluster it removes only the nodes that this process added.
func (c *Cluster) Close() error {
	var errs []error
	if c.Kubelet != nil {
		c.Kubelet.Close()
	}
	if c.kubeletLog != nil {
		errs = append(errs, c.kubeletLog.Close())
	}
	if c.shared() {
		return errors.Join(append(errs, c.removeNodes(), removeUnmounted(c.own))...)
	}
	// Clients first: without the API server they would only log errors.
	all := c.components()
	for i := len(all) - 1; i >= 0; i-- {
		errs = append(errs, all[i].kill())
	}
	c.launcher.close()
	errs = append(errs, c.reserved.Close(), removeUnmounted(c.dir))
	return errors.Join(errs...)
}

// Logs returns the end of each component's log.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, dir := range slices.Compact([]string{c.dir, c.own}) {
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the only error is of the pattern
		for _, log := range logs {
			fmt.Fprintf(&b, "--- %s\n%s", strings.TrimSuffix(filepath.Base(log), ".log"), logTail(log))
		}
	}
	return b.String()
}

// Admin returns a client with all permissions and no rate limit, for the test itself, never for the program under
// test.
func (c *Cluster) Admin() *kubernetes.Clientset { return c.client }

// Config returns the configuration of Admin's client.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Dynamic returns a client with all permissions for any resource, such as Volcano's PodGroups and Queues.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// Dir returns the folder with the cluster's files, for SharedEnv.
func (c *Cluster) Dir() string { return c.dir }

// AdminKubeconfig returns the path of the administrator's kubeconfig, for tools.
func (c *Cluster) AdminKubeconfig() string { return c.path("admin.kubeconfig") }

// Address returns the host and port that the API server listens on.
func (c *Cluster) Address() string { return net.JoinHostPort(c.address, strconv.Itoa(apiPort)) }

// SchedulerMetrics returns the address of the scheduler's metrics, which need the administrator's token.
func (c *Cluster) SchedulerMetrics() string {
	url, _ := c.served(schedulerPort)
	return url + "/metrics"
}

// CAFile returns the path of the certificate that signed the API server's certificate.
func (c *Cluster) CAFile() string { return c.path("ca.crt") }

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// dirPrefix is the prefix of a cluster's folder; the process id of its owner follows.
const dirPrefix = "eltrain-testbed-"

// removeStale removes the folders of owners that were killed. Their processes died with them.
func removeStale() {
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, folder := range folders {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), dirPrefix), "-")
		if _, err := os.Stat("/proc/" + owner); errors.Is(err, os.ErrNotExist) {
			_ = removeUnmounted(folder) // if this fails, the next call tries again
		}
	}
}

// removeUnmounted removes a folder, unless something is mounted in it: it would delete the machine's own files
// through a mount that a killed process left.
func removeUnmounted(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("%s is not removed: something is still mounted in it", dir)
	}
	return os.RemoveAll(dir)
}

// reserveAddress finds a loopback address that no other cluster of this machine uses, and reserves it by a listener
// that lives as long as the cluster: every component can then use its default port, and no outgoing connection of
// the machine can take the API server's port while it is down.
func reserveAddress() (string, net.Listener, error) {
	const (
		reservedPort = 6444
		blocks       = 250 // 127.255.0.1 to 127.255.249.1; process nodes and their pods stay below
	)
	first := os.Getpid()
	for i := range blocks {
		address := fmt.Sprintf("127.255.%d.1", (first+i)%blocks)
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(reservedPort)))
		if err == nil {
			return address, listener, nil
		}
	}
	return "", nil, fmt.Errorf("all %d loopback addresses for clusters are taken on this machine", blocks)
}
