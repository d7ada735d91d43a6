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

// node is what is kept of a node. A value is never changed once it is in the index.
type node struct {
	node  job.Node // without what others use
	slots int      // pods that it takes, whoever's
	// silent: nothing is heard of what runs there. Why is what closes it ("not ready: Kubelet stopped posting node status.").
	silent bool
	// unlisted: a list did not have it, and nobody has said that it was deleted.
	unlisted bool
	// kept is what places reads: name, labels and taints.
	kept *corev1.Node
}

// transient is the domain of the taints by which a node tells its own state, as not-ready and disk-pressure. They come
// and go: they close a node, and bar no slot. The same goes for a node that its cloud has not set up yet.
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
	if why, n.silent = notReady(o); why != "" { // said rather than a cordon: it is the graver
		n.node.Closed = why
	}
	for i := range o.Spec.Taints {
		t := &o.Spec.Taints[i]
		if n.node.Closed == "" && isTransient(t) && t.Effect != corev1.TaintEffectPreferNoSchedule {
			n.node.Closed = taintText(t)
		}
	}
	return n
}

// notReady is why a node is not ready, in its own words, and whether nothing is heard of it; "" if it is. One that says so
// itself, as when it shuts down, continues to tell what happens to its pods.
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

// observed is the node as the planner sees it, under the load of others. A node that has room for their pods only is
// closed: in job.Node 0 slots stand for no limit.
func (n *node) observed(foreign load) job.Node {
	out := n.node
	out.Foreign = foreign.reserved
	out.Slots = max(n.slots-foreign.pods, 0)
	if out.Slots == 0 && out.Closed == "" {
		out.Closed = "it accepts no more pods"
	}
	return out
}

// amounts reads what Kubernetes counts. Everything that is neither of the kinds every node has nor a volume's is a
// device, under its own name.
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

// requestsOf is what the scheduler counts for a pod: its containers together, or its largest init container, and the
// overhead of its runtime class.
func requestsOf(o *corev1.Pod) job.Resources {
	return amounts(resource.PodRequests(o, resource.PodResourcesOptions{UseStatusResources: true}))
}

// anywhere stands for all nodes where none may be listed: every request fits, and the scheduler decides.
const anywhere = "any node"

// boundless is more than all jobs together reserve, and sums of it are no overflow.
const boundless = math.MaxInt32

// unknownNodes is the one node that is shown where nodes may not be listed.
var unknownNodes = job.Node{Name: anywhere, Capacity: job.Resources{CPU: boundless * 1000, Memory: boundless << 20}, AnyDevice: true}

// cluster is the nodes and what others use of them. It is part of the index and under its lock. Its methods that
// enter something report whether Observe would answer otherwise.
type cluster struct {
	nodes   map[string]*node
	removed recent[string] // nodes that were deleted, as their watch said
	loads   map[string]load
	others  map[types.UID]other
	hidden  bool       // nodes may not be listed
	shown   []job.Node // what Observe tells; nil when it is to be recreated
	classes runtimeClasses
	places  *places // as of the nodes and classes; nil when they are to be recreated
}

// load is what is reserved on a node beside what slots of ours reserve.
type load struct {
	reserved job.Resources
	pods     int // of others
}

// other is a pod that is none of ours. It is bound, or nominated, and has not ended.
type other struct {
	source   source
	node     string
	requests job.Resources
}

// source is the watch by which a pod of others is known.
type source int

const (
	unlabelled source = iota // pods of all namespaces without our label
	elsewhere                // pods with our label in other namespaces: another eltrain's
	odd                      // pods with our label in our namespace whose other labels make no sense
	// Pods that are not bound yet, and for which the scheduler keeps room on a node that it has nominated: what it preempts
	// there is theirs.
	nominated
	nominatedElsewhere
)

// bound reports whether the pods of the source are on their nodes.
func (s source) bound() bool { return s < nominated }

func newCluster() cluster {
	return cluster{nodes: map[string]*node{}, loads: map[string]load{}, others: map[types.UID]other{}}
}

// putNode enters a node as it is now.
func (c *cluster) putNode(n *node) bool {
	old := c.nodes[n.node.Name]
	if old != nil && reflect.DeepEqual(old, n) {
		return false // a heartbeat
	}
	c.nodes[n.node.Name] = n
	c.changed()
	return true
}

// removeNode enters that a node was deleted.
func (c *cluster) removeNode(name string) bool {
	if c.nodes[name] == nil {
		return false
	}
	delete(c.nodes, name)
	c.removed.add(name)
	c.changed()
	return true
}

// listNodes enters a complete list. hosts are the nodes that pods of ours are bound to.
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

// unlisted is what closes a node that a list did not have.
const unlisted = "not ready: the API server no longer lists it"

// missNode enters that a list does not have a node on which pods of ours are. That is no proof of its end: a list from
// a control plane that was restored, or that came up with half of its data, lacks nodes whose pods keep running. It is taken
// for one that is silent. The proof is its deletion, or that of its pods, which the cluster's own garbage
// collection orders once it has made sure.
func (c *cluster) missNode(n *node) bool {
	if n.unlisted {
		return false
	}
	missed := *n
	missed.unlisted, missed.silent, missed.node.Closed = true, true, unlisted
	return c.putNode(&missed)
}

// hide enters whether nodes may not be listed. What was listed before stays.
func (c *cluster) hide(hidden bool) bool {
	if c.hidden == hidden {
		return false
	}
	c.hidden = hidden
	c.changed()
	return true
}

// changed is after a change of a node.
func (c *cluster) changed() { c.shown, c.places = nil, nil }

// enter records of a pod of others.
func (c *cluster) enter(o *corev1.Pod, from source) bool {
	node := cmp.Or(o.Spec.NodeName, o.Status.NominatedNodeName)
	if node == "" || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return c.leave(o.UID, from)
	}
	now := other{source: from, node: node, requests: requestsOf(o)}
	old, known := c.others[o.UID]
	if known && old.source.bound() && !from.bound() {
		return false // old news: the watches are not in step
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

// leave records that a pod of others takes no room anymore by this source. One that was nominated and is bound now
// has left the one for the other.
func (c *cluster) leave(uid types.UID, from source) bool {
	old, known := c.others[uid]
	if !known || old.source != from {
		return false
	}
	delete(c.others, uid)
	c.add(old.node, old.requests, job.Resources{}, -1)
	return true
}

// keep enters a complete list: what else was known from its source is gone.
func (c *cluster) keep(from source, there map[types.UID]struct{}) bool {
	differs := false
	for uid := range c.others {
		if _, is := there[uid]; !is {
			differs = c.leave(uid, from) || differs
		}
	}
	return differs
}

// move follows a pod of ours from one value to the next, either of which may be nil. What it requests beyond what its
// slot reserves and it was launched with, for what a webhook put into it, is load that the planner would not know of.
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
	more.Shm = 0 // it is memory, and counted there
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

// list is every node that takes pods at all, by name.
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

// fate is what happens to a pod by its node. A node that was deleted takes its pods with it. On one that is silent
// nobody confirms an end: a pod whose end is ordered there counts as ended, and its number fences what is left of it.
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
