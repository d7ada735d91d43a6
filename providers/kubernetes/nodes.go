package kubernetes

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"github.com/eltrain/eltrain/job"
)

// node is what is kept of a node. A value is immutable once it is in the index.
type node struct {
	node  job.Node // without foreign load
	slots int      // pods that it accepts, whoever's
	// silent: its kubelet does not report. node.Closed has the reason ("not ready: Kubelet stopped posting node status.").
	silent bool
	// unlisted: a list did not have it, and no deletion was reported.
	unlisted bool
	// kept is what places reads: name, labels and taints.
	kept *corev1.Node
}

// transient prefixes the taints by which a node reports its own state, such as not-ready and disk-pressure. They come
// and go: they close a node, and bar no slot. So does the taint of a node that its cloud has not initialized yet.
const (
	transient     = "node.kubernetes.io/"
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

func isTransient(t *corev1.Taint) bool {
	return strings.HasPrefix(t.Key, transient) || t.Key == uninitialized
}

// readNode makes the compact value of a node.
func readNode(o *corev1.Node) *node {
	n := &node{
		node: job.Node{
			Name: o.Name, Labels: o.Labels, Capacity: amounts(o.Status.Allocatable),
		},
		slots: int(o.Status.Allocatable.Pods().Value()),
		kept: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
			Spec:       corev1.NodeSpec{Taints: o.Spec.Taints},
		},
	}
	switch {
	case o.DeletionTimestamp != nil:
		n.node.Closed, n.node.Drained = "being deleted", "being deleted"
	case o.Spec.Unschedulable:
		n.node.Closed, n.node.Drained = "cordoned", "cordoned"
	}
	var why string
	if why, n.silent = notReady(o); why != "" { // takes precedence over a cordon: it is more severe
		n.node.Closed = why
	}
	for i := range o.Spec.Taints {
		t := &o.Spec.Taints[i]
		if n.node.Closed == "" && isTransient(t) && t.Effect != corev1.TaintEffectPreferNoSchedule {
			n.node.Closed = taintText(t)
		}
	}
	n.node.Problems = problemsOf(o)
	return n
}

// maxProblems and maxProblemText bound what is kept of a node's problems.
const (
	maxProblems    = 8
	maxProblemText = 256
)

// kubeletConditions are those of the kubelet and of the network: they come and go, and close the node.
var kubeletConditions = map[corev1.NodeConditionType]bool{
	corev1.NodeReady: true, corev1.NodeMemoryPressure: true, corev1.NodeDiskPressure: true, corev1.NodePIDPressure: true, corev1.NodeNetworkUnavailable: true,
}

// problemTaint is in the keys of taints that repeat what node-problem-detector reports.
const problemTaint = "node-problem-detector"

// problemsOf lists what node-problem-detector and its like report: a condition that is True, or False if its name says that True is
// well, as of EKS's node monitoring agent (KernelReady), and taints.
func problemsOf(o *corev1.Node) (all []job.NodeProblem) {
	add := func(name, message string) {
		if len(all) < maxProblems {
			all = append(all, job.NodeProblem{Name: cut(name), Message: cut(message)})
		}
	}
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		bad := corev1.ConditionTrue
		if wellIfTrue(string(c.Type)) {
			bad = corev1.ConditionFalse
		}
		if c.Status == bad && !kubeletConditions[c.Type] {
			add(string(c.Type), cmp.Or(c.Message, c.Reason))
		}
	}
	for i := range o.Spec.Taints {
		if t := &o.Spec.Taints[i]; strings.Contains(t.Key, problemTaint) {
			add(t.Key, taintText(t))
		}
	}
	return all
}

// wellIfTrue reports whether a condition's name says that True is well.
func wellIfTrue(name string) bool {
	return strings.HasSuffix(name, "Ready") || strings.HasSuffix(name, "Healthy") || strings.HasSuffix(name, "Available") || name == etcdVoter
}

// etcdVoter is a condition of the servers of k3s and RKE2.
const etcdVoter = "EtcdIsVoter"

func cut(text string) string {
	if len(text) <= maxProblemText {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblemText], "")
}

// notReady is why a node is not ready, in its own words, and whether its kubelet is silent; "" if it is ready. A node that
// reports itself not ready, such as one shutting down, still reports its pods.
func notReady(o *corev1.Node) (why string, silent bool) {
	for _, c := range o.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return "", false
		}
		return sentence("not ready", cmp.Or(c.Message, c.Reason), ""), c.Status != corev1.ConditionFalse
	}
	return "not ready: its kubelet has not reported yet", true
}

func taintText(t *corev1.Taint) string {
	text := "taint " + t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + string(t.Effect)
}

// observed is the node as the planner sees it, given the load of others. If that takes all its slots the node is closed: in
// job.Node, 0 slots means no limit.
func (n *node) observed(foreign load) job.Node {
	out := n.node
	out.Foreign = foreign.reserved
	out.Slots = max(n.slots-foreign.pods, 0)
	if out.Slots == 0 && out.Closed == "" {
		out.Closed = "it accepts no more pods"
	}
	return out
}

// amounts converts Kubernetes quantities. A resource that is neither standard on every node nor for volumes is a device,
// under its own name.
func amounts(list corev1.ResourceList) job.Resources {
	var r job.Resources
	for name, q := range list {
		switch {
		case name == corev1.ResourceCPU:
			r.CPU = job.CPU(q.MilliValue())
		case name == corev1.ResourceMemory:
			r.Memory = job.Bytes(q.Value())
		case !strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
			strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix) || q.IsZero():
		default:
			if r.Devices == nil {
				r.Devices = map[string]int{}
			}
			r.Devices[string(name)] = int(q.Value())
		}
	}
	return r
}

// requestsOf is what the scheduler counts for a pod: the larger of the sum of its containers and its largest init container,
// plus the overhead of its runtime class.
func requestsOf(o *corev1.Pod) job.Resources {
	return amounts(resource.PodRequests(o, resource.PodResourcesOptions{UseStatusResources: true}))
}

// anywhere represents all nodes if listing them is forbidden: every request fits, and the scheduler decides.
const anywhere = "any node"

// unlimited is more than all jobs together reserve, and sums of it do not overflow.
const unlimited = math.MaxInt32

// unknownNodes is the one node that is shown if listing nodes is forbidden.
var unknownNodes = job.Node{Name: anywhere, Capacity: job.Resources{CPU: unlimited * 1000, Memory: unlimited << 20}, AnyDevice: true}

// cluster holds the nodes and the foreign load on them. It is part of the index and under its lock. Its methods that
// enter something report whether the result of Observe changed.
type cluster struct {
	nodes   map[string]*node
	removed recent[string] // deleted nodes, as reported by the watch
	loads   map[string]load
	others  map[types.UID]other
	hidden  bool       // listing nodes is forbidden
	shown   []job.Node // what Observe reports; nil if it must be rebuilt
	classes runtimeClasses
	places  *places // as of the nodes and classes; nil if they must be rebuilt
}

// load is what is reserved on a node in addition to our slots.
type load struct {
	reserved job.Resources
	pods     int // number of foreign pods
}

// other is a foreign pod. It is bound or nominated, and has not ended.
type other struct {
	source   source
	node     string
	requests job.Resources
}

// source is the watch that reported a foreign pod.
type source int

const (
	unlabelled source = iota // pods of all namespaces without our label
	elsewhere                // pods with our label in other namespaces: another eltrain's
	malformed                // pods with our label in our namespace whose other labels are invalid
	// Unbound pods for which the scheduler keeps room on their nominated node: what they preempt there is theirs.
	nominated
	nominatedElsewhere
)

// bound reports whether the pods of the source are on their nodes.
func (s source) bound() bool { return s < nominated }

func newCluster() cluster {
	return cluster{nodes: map[string]*node{}, loads: map[string]load{}, others: map[types.UID]other{}}
}

// putNode enters the current state of a node.
func (c *cluster) putNode(n *node) bool {
	old := c.nodes[n.node.Name]
	if old != nil && reflect.DeepEqual(old, n) {
		return false // a heartbeat
	}
	c.nodes[n.node.Name] = n
	c.changed()
	return true
}

// removeNode enters a node's deletion.
func (c *cluster) removeNode(name string) bool {
	if c.nodes[name] == nil {
		return false
	}
	delete(c.nodes, name)
	c.removed.add(name)
	c.changed()
	return true
}

// listNodes enters a complete list. hosts are the nodes that our pods are bound to.
func (c *cluster) listNodes(all []*node, hosts map[string]bool) bool {
	there := make(map[string]bool, len(all))
	differs := c.hide(false)
	for _, n := range all {
		there[n.node.Name] = true
		differs = c.putNode(n) || differs
	}
	for name, n := range c.nodes {
		switch {
		case there[name]:
		case hosts[name]:
			differs = c.missNode(n) || differs
		default:
			delete(c.nodes, name)
			differs = true
		}
	}
	if differs {
		c.changed()
	}
	return differs
}

// unlisted is the reason for closing a node that a list did not have.
const unlisted = "not ready: the API server no longer lists it"

// missNode enters that a list does not have a node on which our pods are. That is no proof of deletion: a list from a
// restored or partly started control plane lacks nodes whose pods keep running. The node counts as silent until it is
// deleted, or its pods are, which the cluster's garbage collection does once it has made sure.
func (c *cluster) missNode(n *node) bool {
	if n.unlisted {
		return false
	}
	missed := *n
	missed.unlisted, missed.silent, missed.node.Closed = true, true, unlisted
	return c.putNode(&missed)
}

// hide enters whether listing nodes is forbidden. Nodes listed before stay.
func (c *cluster) hide(hidden bool) bool {
	if c.hidden == hidden {
		return false
	}
	c.hidden = hidden
	c.changed()
	return true
}

// changed drops what was derived from the nodes.
func (c *cluster) changed() { c.shown, c.places = nil, nil }

// enter enters a foreign pod.
func (c *cluster) enter(o *corev1.Pod, from source) bool {
	node := cmp.Or(o.Spec.NodeName, o.Status.NominatedNodeName)
	if node == "" || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return c.leave(o.UID, from)
	}
	now := other{source: from, node: node, requests: requestsOf(o)}
	old, known := c.others[o.UID]
	if known && old.source.bound() && !from.bound() {
		return false // stale: the watches are not in sync
	}
	c.others[o.UID] = now
	if known && old.node == now.node && old.requests.Equal(now.requests) {
		return false
	}
	if known {
		c.add(old.node, old.requests, job.Resources{}, -1)
	}
	c.add(now.node, job.Resources{}, now.requests, 1)
	return true
}

// leave enters that a foreign pod of this source takes no room anymore. A nominated pod that is bound now has another source,
// and stays.
func (c *cluster) leave(uid types.UID, from source) bool {
	old, known := c.others[uid]
	if !known || old.source != from {
		return false
	}
	delete(c.others, uid)
	c.add(old.node, old.requests, job.Resources{}, -1)
	return true
}

// keep removes the pods of a source that are not in a complete list.
func (c *cluster) keep(from source, there map[types.UID]struct{}) bool {
	differs := false
	for uid := range c.others {
		if _, is := there[uid]; !is {
			differs = c.leave(uid, from) || differs
		}
	}
	return differs
}

// move replaces the excess load of one of our pods; either value may be nil. What it requests beyond its reservation and its
// Extra, such as for a webhook's sidecar, is load that the planner would not know of.
func (c *cluster) move(from, to *pod) bool {
	before, after := from.excess(), to.excess()
	if before.Equal(after) && from.boundTo() == to.boundTo() {
		return false
	}
	differs := false
	if !before.Equal(job.Resources{}) {
		c.add(from.node, before, job.Resources{}, 0)
		differs = true
	}
	if !after.Equal(job.Resources{}) {
		c.add(to.node, job.Resources{}, after, 0)
		differs = true
	}
	return differs
}

func (p *pod) boundTo() string {
	if p == nil {
		return ""
	}
	return p.node
}

func (p *pod) excess() job.Resources {
	if p == nil || p.node == "" || p.over() {
		return job.Resources{}
	}
	more := p.requests.Beyond(p.seen.Reserved.Add(p.seen.Extra))
	more.Shm = 0 // part of memory, and counted there
	return more
}

func (c *cluster) add(name string, less, more job.Resources, pods int) {
	l := c.loads[name]
	l.reserved = l.reserved.Sub(less).Add(more)
	l.pods += pods
	if l.pods == 0 && l.reserved.Beyond(job.Resources{}).Equal(job.Resources{}) {
		delete(c.loads, name)
	} else {
		c.loads[name] = l
	}
	c.shown = nil
}

// list returns every node that accepts pods at all, by name.
func (c *cluster) list() []job.Node {
	if c.shown == nil {
		c.shown = []job.Node{}
		for name, n := range c.nodes {
			if n.slots > 0 {
				c.shown = append(c.shown, n.observed(c.loads[name]))
			}
		}
		if c.hidden && len(c.nodes) == 0 {
			c.shown = append(c.shown, unknownNodes)
		}
		slices.SortFunc(c.shown, func(a, b job.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	return slices.Clone(c.shown)
}

// lostNodes reports whether any node was deleted since this process began to watch.
func (c *cluster) lostNodes() bool { return len(c.removed.in) > 0 }

// fate applies the state of a pod's node to it. A deleted node takes its pods with it. On a silent node nothing confirms an
// end: a pod being deleted there counts as ended, and its number fences what is left of it.
func (c *cluster) fate(p *pod, seen job.Incarnation) job.Incarnation {
	if p.node == "" || c.hidden || p.over() {
		return seen
	}
	switch n := c.nodes[p.node]; {
	case n == nil && (p.deleting || c.removed.has(p.node)):
		if seen.Cause == "" || seen.Cause == job.Deletion {
			seen.Cause = job.NodeGone
			seen.Evidence = []string{"node " + p.node + " was deleted, and pod " + p.name + " with it"}
		}
	case n != nil && n.silent && p.deleting:
		seen.Evidence = append(slices.Clip(seen.Evidence),
			"node "+p.node+" is "+n.node.Closed, "pod "+p.name+" was terminating there, and nothing can report when it ends")
	default:
		return seen
	}
	seen.State, seen.Waiting, seen.Drift = job.Gone, "", nil
	return seen
}
