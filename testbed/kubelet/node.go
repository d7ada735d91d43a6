package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// heartbeatEvery is how often a node renews its lease and checks its own Ready condition. A kubelet's default is 10 s;
// test clusters have grace periods shorter than 40 s.
const heartbeatEvery = time.Second

// leaseSeconds is a kubelet's default. The node controller uses its own grace period, not this.
const leaseSeconds = 40

// callTimeout bounds one call to the API server.
const callTimeout = 5 * time.Second

// leaseNamespace is where kubelets keep their leases.
const leaseNamespace = corev1.NamespaceNodeLease

// node is one node and the pods bound to it.
//
// Connected, it sends heartbeats, watches its pods and reports them, even while it is not ready. Disconnected, its processes
// continue, but it receives and reports nothing: a zombie to the cluster. Powered off, its processes are dead as well.
type node struct {
	*Kubelet
	name     string
	declared Node
	ip       string
	server   *http.Server

	levers sync.Mutex // serializes injected faults

	mu           sync.Mutex
	pods         map[types.UID]*pod
	online       chan struct{} // closed while connected
	session      func()        // ends the connection and waits; nil while disconnected
	off          bool          // powered off: nothing starts
	notReady     string        // why it reports itself not ready; "" if it is ready
	startFailure string        // the error of every container start; "" if they succeed
	closed       bool
	workers      sync.WaitGroup

	// reports is held shared during every report, so that a disconnection waits for those in flight.
	reports sync.RWMutex
}

func newNode(k *Kubelet, declared Node, certificate tls.Certificate) (*node, error) {
	ip, err := k.subnet.node()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(ip, strconv.Itoa(kubeletPort)))
	if err != nil {
		return nil, fmt.Errorf("serve logs: %w", err)
	}
	n := &node{Kubelet: k, name: declared.Name, declared: declared, ip: ip, pods: map[types.UID]*pod{}, online: make(chan struct{})}
	n.server = n.serveAPI(certificate)
	k.done.Go(func() {
		if err := n.server.ServeTLS(listener, "", ""); err != http.ErrServerClosed {
			k.log.Error("logs are no longer served", "node", n.name, "err", err)
		}
	})
	return n, nil
}

// connect registers the node and starts a session, unless there is one.
func (n *node) connect(ctx context.Context) error {
	n.mu.Lock()
	connected := n.session != nil || n.closed
	n.mu.Unlock()
	if connected {
		return nil
	}
	if err := n.register(ctx); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := n.renew(ctx); err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	session, cancel := context.WithCancel(n.life)
	var done sync.WaitGroup
	n.mu.Lock()
	n.session = func() { cancel(); done.Wait() }
	close(n.online)
	n.mu.Unlock()
	done.Go(func() { n.heartbeats(session) })
	done.Go(func() { n.follow(session) })
	return nil
}

// disconnect ends the session, and returns once the node is silent. Processes continue.
func (n *node) disconnect() {
	n.reports.Lock()
	n.mu.Lock()
	end := n.session
	n.session = nil
	if end != nil {
		n.online = make(chan struct{})
	}
	n.mu.Unlock()
	n.reports.Unlock()
	if end != nil {
		end()
	}
}

// connection returns a channel that is closed while the node is connected.
func (n *node) connection() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.online
}

func (n *node) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.session != nil
}

// close kills the node's processes and waits for everything that serves it. The node must be disconnected.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	for _, p := range n.list() {
		p.abandon()
	}
	n.workers.Wait()
	n.server.Close()
}

// register creates the Node, or takes over an existing one.
func (n *node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The node controller writes to a new node concurrently.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return n.updateStatus(ctx, current)
	})
}

func (n *node) object() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   n.name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}
	for key, value := range n.declared.Labels {
		labels[key] = value
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.declared.Taints},
	}
}

// updateStatus writes the status that a kubelet reports for its node.
func (n *node) updateStatus(ctx context.Context, current *corev1.Node) error {
	updated := current.DeepCopy()
	updated.Status.Capacity = n.capacity()
	updated.Status.Allocatable = n.capacity()
	// No Hostname: the API server would prefer it when it requests logs, and nothing resolves it.
	updated.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.ip}}
	updated.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	updated.Status.NodeInfo.OperatingSystem = runtime.GOOS
	updated.Status.NodeInfo.Architecture = runtime.GOARCH
	updated.Status.NodeInfo.KubeletVersion = "eltrain-testbed"
	updated.Status.NodeInfo.ContainerRuntimeVersion = "process://1"
	now := metav1.Now()
	for _, c := range []corev1.NodeCondition{
		n.readiness(),
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		setNodeCondition(&updated.Status, c)
	}
	_, err := n.client.CoreV1().Nodes().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return err
}

// readiness is the node's Ready condition.
func (n *node) readiness() corev1.NodeCondition {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.notReady != "" {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: n.notReady}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the process kubelet is posting ready status"}
}

// runtimeError is why no container can be started; nil if they can.
func (n *node) runtimeError() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.startFailure == "" {
		return nil
	}
	return errors.New(n.startFailure)
}

func (n *node) setNotReady(notReady string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notReady = notReady
}

func (n *node) capacity() corev1.ResourceList {
	capacity := n.declared.Capacity.DeepCopy()
	if capacity == nil {
		capacity = corev1.ResourceList{}
	}
	if _, ok := capacity[corev1.ResourcePods]; !ok {
		capacity[corev1.ResourcePods] = resource.MustParse(defaultPods)
	}
	return capacity
}

func setNodeCondition(status *corev1.NodeStatus, c corev1.NodeCondition) {
	for i, old := range status.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}

// heartbeats renews the lease, and updates the Ready condition if it changed, or the node controller has changed it.
func (n *node) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := n.heartbeat(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("heartbeat failed", "node", n.name, "err", err)
		}
	}
}

func (n *node) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := n.renew(ctx); err != nil {
		return err
	}
	current, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range current.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == n.readiness().Status {
			return nil
		}
	}
	return n.updateStatus(ctx, current)
}

func (n *node) renew(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, n.name, metav1.GetOptions{})
	if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	holder, seconds := n.name, int32(leaseSeconds)
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: leaseNamespace},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	return err
}

// follow watches the pods bound to the node until ctx ends.
func (n *node) follow(ctx context.Context) {
	selector := fields.OneTermEqualSelector("spec.nodeName", n.name).String()
	informer := cache.NewSharedIndexInformer(
		cache.NewFilteredListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) { o.FieldSelector = selector }),
		&corev1.Pod{}, 0, cache.Indexers{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { n.sync(o.(*corev1.Pod)) },
		UpdateFunc: func(old, o any) {
			if was := old.(*corev1.Pod); was.UID != o.(*corev1.Pod).UID {
				n.removed(was.UID)
			}
			n.sync(o.(*corev1.Pod))
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			n.removed(o.(*corev1.Pod).UID)
		},
	})
	if err != nil {
		n.log.Error("pods are not watched", "node", n.name, "err", err)
		return
	}
	var done sync.WaitGroup
	done.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return
		}
		// There are no events for pods deleted while nobody watched.
		there := map[types.UID]bool{}
		for _, o := range informer.GetStore().List() {
			there[o.(*corev1.Pod).UID] = true
		}
		for _, p := range n.list() {
			if !there[p.uid] {
				n.removed(p.uid)
			}
		}
	})
	informer.Run(ctx.Done())
	done.Wait()
}

func (n *node) list() []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*pod, 0, len(n.pods))
	for _, p := range n.pods {
		all = append(all, p)
	}
	return all
}

// sync enters the latest version of a pod.
func (n *node) sync(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	p := n.pods[object.UID]
	if p == nil {
		p = newPod(n, object)
		n.pods[object.UID] = p
		n.workers.Go(func() {
			p.run()
			n.mu.Lock()
			delete(n.pods, p.uid)
			n.mu.Unlock()
			n.names.poke()
		})
		return
	}
	p.update(object)
}

// removed enters that a pod is no longer in the API.
func (n *node) removed(uid types.UID) {
	n.mu.Lock()
	p := n.pods[uid]
	n.mu.Unlock()
	if p != nil {
		p.remove()
	}
}

func (n *node) poweredOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.off
}

func (n *node) power(on bool) {
	n.mu.Lock()
	n.off = !on
	n.mu.Unlock()
	for _, p := range n.list() {
		p.stale.Store(true) // for changes while the node was away
		p.poke()
	}
}
