// Package kubelet runs the pods that a real scheduler binds to its nodes as real processes of this machine.
//
// It acts as a kubelet and a container runtime, for tests: it registers nodes and keeps their leases, starts a pod's
// containers in order, expands their commands, mounts their volumes, probes them, stops them with their grace, and
// reports their status in the terms of Kubernetes (reasons, exit codes, conditions).
// A container is a process in mount, pid, uts and ipc namespaces of its own. Its root is an overlay of this
// machine's root, so that every program installed here can run, or, for a scratch image, empty; its changes are
// private and removed with it. What an Image binds into a container is the machine's own.
//
// It must not know what runs in the pods, or eltrain.
//
// Differences from a cluster:
//   - There is one network. Every node and every pod has a loopback address of its own (127.x.y.z), so a program
//     that listens on its pod's IP has no conflicts; one that listens on all addresses may.
//   - The API server rejects loopback addresses in EndpointSlices. So names of Services are resolved by /etc/hosts in
//     every container, from the Services and the pods of this Kubelet, to pods directly: a Service's port must be
//     that of its pods.
//   - A container's root changes when the machine's does.
//   - A Kubelet adopts nothing: processes are killed with the one that started them, and a second Kubelet of the same
//     Dir starts from the API server's pods.
//   - securityContext is ignored except runAsUser, runAsGroup, fsGroup (as a group of the processes) and
//     readOnlyRootFilesystem. A container of a scratch image with a user keeps the capability to change its root. Cpu is
//     not limited; requests are not checked.
//   - There are no sidecars (init containers with a restartPolicy), no ephemeral containers, no postStart hooks, no
//     readiness gates, no attach from outside, no time stamps in logs.
//
// It needs root, to make mounts and namespaces.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Options configure a Kubelet.
type Options struct {
	Config *rest.Config     // its credentials: it reads Secrets and writes Nodes, like a member of system:nodes
	Nodes  []Node           // at least one
	Images map[string]Image // by the name that pods use; any other image cannot be pulled
	Dir    string           // for volumes and logs; it must exist
	Log    *slog.Logger     // nil: no logs

	// APIServer is the host:port that pods find in KUBERNETES_SERVICE_HOST and _PORT. "" is that of Config.
	APIServer string
}

// Node is one node to register.
type Node struct {
	Name     string
	Capacity corev1.ResourceList // capacity and allocatable; pods is 110 unless given
	Labels   map[string]string
	Taints   []corev1.Taint
}

// Image is the content of an image, on top of this machine's root or alone.
type Image struct {
	Scratch    bool   // without this machine's root: FROM scratch, with Mounts as its content
	User       string // UID:GID as numbers, if the pod sets none (USER); "" is root
	Mounts     []Mount
	WorkingDir string   // "" is /
	Env        []string // NAME=value, overridden by the pod
	Command    []string // the default if the pod sets neither command nor args (ENTRYPOINT)
	Args       []string // appended to Command if the pod sets no args (CMD)
}

// Mount binds a file or directory of this machine into the containers of an image.
type Mount struct {
	HostPath string // absolute; it must exist
	Path     string // absolute, in the container
	ReadOnly bool
}

// defaultPods is a kubelet's own default of pods per node (--max-pods).
const defaultPods = "110"

// Bound limits a start and, in package testbed, an injected fault. Some seconds are usual; the rest is for a machine that
// is busy with other work.
const Bound = 2 * time.Minute

// Kubelet serves nodes. Its methods are safe for concurrent use.
type Kubelet struct {
	client  kubernetes.Interface
	images  map[string]Image
	dir     string
	log     *slog.Logger
	apiHost string
	apiPort string
	cgroups memoryCgroups
	subnet  *subnet
	nodes   map[string]*node
	names   *names

	configMaps listers.ConfigMapLister
	secrets    listers.SecretLister
	services   listers.ServiceLister

	life   context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Start registers the nodes and starts running their pods. ctx bounds the start alone; Close stops the rest.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start the process kubelet: it makes mounts and namespaces, run it as root")
	}
	if len(o.Nodes) == 0 {
		return nil, errors.New("start the process kubelet: no nodes configured")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start the process kubelet: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		return nil, fmt.Errorf("start the process kubelet: %w", err)
	}
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // many nodes share the client, where each kubelet would have a limit of its own
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("start the process kubelet: %w", err)
	}
	host, port, err := apiServer(o)
	if err != nil {
		return nil, fmt.Errorf("start the process kubelet: address of the API server for pods: %w", err)
	}
	k := &Kubelet{client: client, images: o.Images, dir: dir, log: o.Log, apiHost: host, apiPort: port, nodes: map[string]*node{}}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	k.life, k.cancel = context.WithCancel(context.Background())
	k.names = newNames(k)
	if err := k.start(ctx, o.Nodes); err != nil {
		k.Close()
		return nil, fmt.Errorf("start the process kubelet: %w", err)
	}
	return k, nil
}

func (k *Kubelet) start(ctx context.Context, nodes []Node) (err error) {
	ctx, cancel := context.WithTimeout(ctx, Bound)
	defer cancel()
	if k.cgroups, err = newMemoryCgroups(); err != nil {
		k.log.Warn("memory limits are not enforced", "err", err)
	}
	if k.subnet, err = newSubnet(); err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	for _, declared := range nodes {
		if k.nodes[declared.Name] != nil {
			return fmt.Errorf("node %s: declared twice", declared.Name)
		}
		n, err := newNode(k, declared, certificate)
		if err != nil {
			return fmt.Errorf("node %s: %w", declared.Name, err)
		}
		k.nodes[declared.Name] = n
	}
	if err := k.watch(ctx); err != nil { // its events go to the nodes
		return err
	}
	for _, n := range k.nodes {
		if err := n.connect(ctx); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	k.done.Go(func() { k.names.run(k.life) })
	return nil
}

// watch starts following the objects that pods refer to.
func (k *Kubelet) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(k.client, 0)
	core := factory.Core().V1()
	k.configMaps, k.secrets, k.services = core.ConfigMaps().Lister(), core.Secrets().Lister(), core.Services().Lister()
	config := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { k.refreshVolumes() },
		UpdateFunc: func(any, any) { k.refreshVolumes() },
	}
	service := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { k.names.poke() },
		UpdateFunc: func(any, any) { k.names.poke() },
		DeleteFunc: func(any) { k.names.poke() },
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		core.ConfigMaps().Informer(): config,
		core.Secrets().Informer():    config,
		core.Services().Informer():   service,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(k.life.Done())
	k.done.Go(func() { <-k.life.Done(); factory.Shutdown() })
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("list %v: %w", kind, ctx.Err())
		}
	}
	return nil
}

// Close kills every container, stops serving the nodes, and waits for both. The nodes and pods stay in the API.
func (k *Kubelet) Close() {
	for _, n := range k.nodes {
		n.disconnect()
	}
	k.cancel()
	for _, n := range k.nodes {
		n.close()
	}
	k.done.Wait()
	k.cgroups.close()
	if k.subnet != nil {
		k.subnet.close()
	}
}

// pods lists the pods of all nodes.
func (k *Kubelet) pods() []*pod {
	var all []*pod
	for _, n := range k.nodes {
		all = append(all, n.list()...)
	}
	return all
}

// refreshVolumes makes every pod check its ConfigMaps and Secrets.
func (k *Kubelet) refreshVolumes() {
	for _, p := range k.pods() {
		p.stale.Store(true)
		p.poke()
	}
}

// serviceList lists the Services of all namespaces.
func (k *Kubelet) serviceList() []*corev1.Service {
	all, err := k.services.List(labels.Everything())
	if err != nil {
		return nil // the lister of a cache returns no errors
	}
	return all
}

// apiServer is the API server's address for pods.
func apiServer(o Options) (host, port string, err error) {
	if o.APIServer != "" {
		return net.SplitHostPort(o.APIServer)
	}
	address := o.Config.Host
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	return net.SplitHostPort(address)
}
