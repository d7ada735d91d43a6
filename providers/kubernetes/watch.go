package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/eltrain/eltrain/providers"
)

// watching holds one watch open forever: a client-go reflector, which lists, watches, and lists again when a watch
// cannot continue (410, a restarted server). It delivers into the index without a store in between. A list that
// failed or broke off delivers nothing.
type watching struct {
	what  string // as errors name it: `pods in namespace "ml"`
	vital bool   // nothing works without it
	blind string // the consequence of not seeing them, as a sentence; "" if vital or byRole
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	open  func(context.Context, metav1.ListOptions) (watch.Interface, error)
	kind  runtime.Object
	strip func(runtime.Object) // drops the fields that are not read
	one   func(o runtime.Object, gone bool)
	all   func(all []any, version string)
	log   *slog.Logger
	// hidden, if not nil, is called when the API server forbids this master to see them, and when it allows it again.
	hidden func(bool)
	// byRole: not seeing them concerns some roles only, and Fit reports it.
	byRole bool

	mu      sync.Mutex
	listed  bool // since hiding last began
	opened  bool // since hiding last began
	seen    bool // both listed and opened at least once
	settled chan struct{}
	failed  map[string]error    // the last error by verb
	newest  string              // the verb that failed last
	refusal map[string]*refused // by verb
	hiding  bool                // refused, and not listed and watched since; hidden was called with true
	unseen  bool                // not seen, for whatever reason, and logged as such
}

// refusalStands is how long a refusal is not believed: an API server that has just started knows no roles yet and refuses
// everybody, measured at less than a second, and a new RoleBinding takes as long to take effect. The store of state
// "kubernetes" waits as long.
const refusalStands = 3 * time.Second

// refused is a run of consecutive refusals of one verb.
type refused struct {
	since  time.Time
	err    error // the latest
	stands bool  // it lasted for refusalStands: considered permanent
}

// record enters an answer. Until the refusal stands, any other answer ends it, as an unreachable server may be one that is
// starting. Once it stands, only an answer that requires the permission ends it: a server outage grants nothing.
func (r *refused) record(err error) {
	switch {
	case isRefusal(err):
		if r.since.IsZero() {
			r.since = time.Now()
		}
		r.err, r.stands = err, r.stands || time.Since(r.since) >= refusalStands
	case !r.stands || err == nil || apierrors.IsNotFound(err):
		*r = refused{}
	}
}

func isRefusal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// prepare initializes it to run.
func (w *watching) prepare(log *slog.Logger) {
	w.settled, w.failed, w.log = make(chan struct{}), map[string]error{}, log
	w.refusal = map[string]*refused{"list": {}, "watch": {}}
}

// Retries start quickly, so that a restarted API server is noticed at once, and slow down to one every few seconds for each
// master: client-go's own backoff goes up to 30 s.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

func retryPace() *wait.Backoff {
	return &wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}
}

// run watches until ctx ends.
func (w *watching) run(ctx context.Context) {
	// Failures are kept in failed and logged once, in plain words; klog would log every attempt.
	ctx = klog.NewContext(ctx, klog.Logger{})
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // a new master must not start from a server's stale cache
			}
			list, err := w.list(ctx, o)
			w.recordResult(ctx, "list", err)
			if err == nil {
				err = eachItem(list, w.strip)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			opened, err := w.open(ctx, o)
			w.recordResult(ctx, "watch", err)
			return opened, err
		},
	}
	quiet := klog.Logger{}
	cache.NewReflectorWithOptions(source, w.kind, w, cache.ReflectorOptions{
		Name: Name, Logger: &quiet, Backoff: retryPace(),
	}).RunWithContext(ctx)
}

// Add, Update, Delete, Replace, Resync and Transformer are what a reflector requires of its store.

// Add implements cache.ReflectorStore.
func (w *watching) Add(o any) error { return w.deliver(o, false) }

// Update implements cache.ReflectorStore.
func (w *watching) Update(o any) error { return w.deliver(o, false) }

// Delete implements cache.ReflectorStore. o is the last state.
func (w *watching) Delete(o any) error { return w.deliver(o, true) }

func (w *watching) deliver(o any, gone bool) error {
	object, ok := o.(runtime.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", o)
	}
	w.one(object, gone)
	return nil
}

// Replace implements cache.ReflectorStore: all is complete as of version.
func (w *watching) Replace(all []any, version string) error {
	w.all(all, version)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = true
	w.settle()
	return nil
}

// Resync implements cache.ReflectorStore. It has nothing to do.
func (w *watching) Resync() error { return nil }

// Transformer implements cache.TransformingStore: with it, a streamed first list is never in memory as a whole.
func (w *watching) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if object, ok := o.(runtime.Object); ok {
			w.strip(object)
		}
		return o, nil
	}
}

// recordResult records the result of a request.
func (w *watching) recordResult(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(verb, err)
	switch {
	case !w.seen || apierrors.IsResourceExpired(err):
	case err == nil && verb == "watch" && w.unseen:
		w.unseen = false
		w.log.Info("The cluster is observed again.", "what", w.what)
	case err != nil && !w.unseen && (!isRefusal(err) || w.refusal[verb].stands):
		w.unseen = true
		w.log.Warn("The cluster cannot be observed; what is running there keeps running.", "error", w.explain(verb, err))
	}
	if verb == "watch" && err == nil {
		w.opened = true
		w.note("list", nil) // the watch began with a list or continues, so a failed list no longer matters
	}
	w.settle()
}

// note requires w.mu.
func (w *watching) note(verb string, err error) {
	w.failed[verb] = err
	if err != nil {
		w.newest = verb
	}
	w.refusal[verb].record(err)
}

// settle requires w.mu.
func (w *watching) settle() {
	switch refused := w.refused() != nil; {
	case refused && !w.hiding:
		w.listed, w.opened = false, false
		w.hide(true)
	case !refused && w.listed && w.opened: // only then is a granted permission known to work
		w.seen = true
		w.hide(false)
	}
	if !w.seen && !w.hiding && !w.absent() {
		return
	}
	select {
	case <-w.settled:
	default:
		close(w.settled)
	}
}

// hide requires w.mu.
func (w *watching) hide(hiding bool) {
	if hiding == w.hiding {
		return
	}
	w.hiding = hiding
	if w.hidden != nil {
		w.hidden(hiding)
	}
}

// refused is what the API server currently forbids, considered permanent; nil if nothing.
func (w *watching) refused() error {
	for _, verb := range []string{"watch", "list"} {
		if r := w.refusal[verb]; r.stands {
			return w.explain(verb, r.err)
		}
	}
	return nil
}

// absent reports whether the API server does not serve the kind. Its reader decides what that means.
func (w *watching) absent() bool {
	return apierrors.IsNotFound(w.failed["list"]) || apierrors.IsNotFound(w.failed["watch"])
}

// explain says what a failed request means and what to do about it.
func (w *watching) explain(verb string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this master may not %s %s: its role needs the verbs list and watch there, as in deploy/: %w", verb, w.what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: not authenticated: the token or certificate is wrong or has expired: %w", verb, w.what, err)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return fmt.Errorf("%s %s: %w", verb, w.what, err)
	}
	return fmt.Errorf("%s %s: the API server is unreachable: %w", verb, w.what, err)
}

// ready waits for the first complete list and an open watch, until ctx ends. A refusal by the API server is an
// error only if the watch is vital.
func (w *watching) ready(ctx context.Context) error {
	select {
	case <-w.settled:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen || w.absent() || w.hiding && !w.vital {
		return nil
	}
	err := errors.New("it has not answered yet")
	if e := w.failed[w.newest]; e != nil {
		err = w.explain(w.newest, e)
	}
	return fmt.Errorf("wait for the first list of %s: %w", w.what, errors.Join(context.Cause(ctx), err))
}

// caveats says what cannot be seen at present because the API server refuses it.
func (w *watching) caveats() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.refused()
	switch {
	case err == nil:
		return nil
	case w.seen:
		return []string{fmt.Sprintf("The observation of %s is stale: %s.", w.what, err)}
	case w.vital:
		return nil // Observe fails with it
	}
	return []string{fmt.Sprintf("%s: %s.", w.blind, err)}
}

// Observe reports our pods, and every node that accepts pods at all. It waits for the first complete list, at most until
// ctx ends. From then on it answers at once from the watches: while the API server is unreachable, with the last known
// state, which is not nothing.
func (p *Provider) Observe(ctx context.Context) (*providers.Observation, error) {
	if err := p.ready(ctx); err != nil {
		return nil, fmt.Errorf("observe namespace %q: %w", p.namespace, err)
	}
	return p.observed.get(p.observe), nil
}

// ready waits until Observe can report everything, at most until ctx ends.
func (p *Provider) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, w := range p.watches {
		if err := w.ready(ctx); err != nil {
			return err
		}
	}
	if err := p.where.ready(ctx); err != nil {
		return err
	}
	return p.gang.Ready(ctx)
}

// observe makes an observation of the current state.
func (p *Provider) observe() *providers.Observation {
	o := p.index.observe()
	p.gang.Complete(o)
	o.Delayed = p.pacer.delayedJobs()
	return o
}

// observationCache keeps an observation until something changes: making one iterates over every pod.
type observationCache struct {
	version *atomic.Uint64 // grows after each change of what is observed

	mu   sync.Mutex
	of   uint64 // the version of last
	last *providers.Observation
}

func (c *observationCache) get(observe func() *providers.Observation) *providers.Observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.version.Load(); c.last == nil || now != c.of { // read first, so that a change during observe invalidates it
		c.of, c.last = now, observe()
	}
	return c.last
}

// takesRoom selects the pods that take room on a node: those that are bound and have not ended.
var takesRoom = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// nominatedOnly selects the unbound pods for which the scheduler keeps room on a node, such as preemptors.
var nominatedOnly = fields.AndSelectors(
	fields.OneTermEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.nominatedNodeName", ""),
)

const (
	unseenNodes = "The nodes and their capacity are unknown, so the plan assumes that every job fits; what does not waits for the scheduler"
	unseenLoad  = "What others use on the nodes is unknown, so the plan counts it as free"
)

// ownWatches adds the watches of every provider; its gang may add others.
func (p *Provider) ownWatches() {
	x := p.index
	ours := p.podWatch(p.namespace, metav1.ListOptions{LabelSelector: labelUID})
	ours.vital, ours.what, ours.strip = true, fmt.Sprintf("pods in namespace %q", p.namespace), stripOurs
	ours.one = func(o runtime.Object, gone bool) { p.watched(o.(*corev1.Pod), gone) }
	ours.all = func(all []any, version string) { x.listed(typed[*corev1.Pod](all), version) }

	nodes := &watching{
		what: "nodes", blind: unseenNodes, kind: &corev1.Node{}, strip: stripNode, hidden: x.hideNodes,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return p.client.CoreV1().Nodes().List(ctx, o)
		},
		open: p.client.CoreV1().Nodes().Watch,
		one:  func(o runtime.Object, gone bool) { x.watchedNode(o.(*corev1.Node), gone) },
		all:  func(all []any, _ string) { x.listedNodes(typed[*corev1.Node](all)) },
	}

	p.watches = []*watching{
		ours, nodes, p.classWatch(),
		p.unlabelledWatch(unlabelled, takesRoom), p.elsewhereWatch(elsewhere, takesRoom),
		p.unlabelledWatch(nominated, nominatedOnly), p.elsewhereWatch(nominatedElsewhere, nominatedOnly),
	}
}

// strayTimeout bounds the check whether a pod still exists; the watch waits for it.
const strayTimeout = 5 * time.Second

// watched enters a watch event of our pods. The watch also reports a pod as deleted when its selecting label was removed, so a
// pod that disappears without a deletion timestamp is looked up. Without that label a pod is not watched until it is repaired:
// what happens to it meanwhile shows then, or with the next list.
func (p *Provider) watched(o *corev1.Pod, gone bool) {
	if gone && o.DeletionTimestamp == nil && p.index.runs(o.UID) {
		ctx, cancel := context.WithTimeout(p.ctx, strayTimeout)
		there, err := p.client.CoreV1().Pods(p.namespace).Get(ctx, o.Name, metav1.GetOptions{})
		cancel()
		if err == nil && there.UID == o.UID {
			p.index.put(there)
			return
		}
	}
	p.index.watched(o, gone)
}

// runs reports whether a pod of ours is on a node, has not ended, and was not deleted by this process.
func (x *index) runs(uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	return e != nil && e.pod.node != "" && !e.pod.over() && !x.asked.has(uid)
}

// unlabelledWatch watches pods of all namespaces that no eltrain made.
func (p *Provider) unlabelledWatch(from source, which fields.Selector) *watching {
	return p.othersWatch(from, metav1.ListOptions{LabelSelector: "!" + labelUID, FieldSelector: which.String()})
}

// elsewhereWatch watches pods that an eltrain made in other namespaces.
func (p *Provider) elsewhereWatch(from source, which fields.Selector) *watching {
	which = fields.AndSelectors(which, fields.OneTermNotEqualSelector("metadata.namespace", p.namespace))
	return p.othersWatch(from, metav1.ListOptions{LabelSelector: labelUID, FieldSelector: which.String()})
}

// podWatch watches selected pods of one namespace, or of all.
func (p *Provider) podWatch(namespace string, selected metav1.ListOptions) *watching {
	pods := p.client.CoreV1().Pods(namespace)
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
		return o
	}
	return &watching{
		kind: &corev1.Pod{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, narrow(o))
		},
		open: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, narrow(o))
		},
	}
}

// othersWatch follows the load of pods that are not ours.
func (p *Provider) othersWatch(from source, selected metav1.ListOptions) *watching {
	w := p.podWatch(metav1.NamespaceAll, selected)
	w.what, w.blind, w.strip = "pods of all namespaces", unseenLoad, stripOther
	w.one = func(o runtime.Object, gone bool) { p.index.watchedOther(o.(*corev1.Pod), from, gone) }
	w.all = func(all []any, _ string) { p.index.listedOthers(typed[*corev1.Pod](all), from) }
	return w
}

func typed[T any](all []any) []T {
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// eachItem iterates over a list without copying it.
func eachItem(list runtime.Object, do func(runtime.Object)) error {
	switch l := list.(type) {
	case *corev1.PodList:
		for i := range l.Items {
			do(&l.Items[i])
		}
	case *corev1.NodeList:
		for i := range l.Items {
			do(&l.Items[i])
		}
	default:
		return meta.EachListItem(list, func(o runtime.Object) error { do(o); return nil })
	}
	return nil
}

var readAnnotations = []string{annotationLaunch, annotationSlot, annotationState, annotationSafeToEvict, annotationDoNotDisrupt}

// stripOurs drops most of a pod: all that read and drift do not use.
func stripOurs(o runtime.Object) {
	p := o.(*corev1.Pod)
	p.OwnerReferences = nil
	maps.DeleteFunc(p.Annotations, func(name, _ string) bool { return !slices.Contains(readAnnotations, name) })
	stripSpec(&p.Spec)
}

// stripOther keeps a pod's requests and its node.
func stripOther(o runtime.Object) {
	p := o.(*corev1.Pod)
	p.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion}
	p.Status.Conditions, p.Status.Message = nil, ""
	stripSpec(&p.Spec)
}

func stripSpec(s *corev1.PodSpec) {
	s.Volumes, s.Affinity, s.Tolerations, s.TopologySpreadConstraints = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			c := &containers[i]
			containers[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
}

// stripNode drops the long fields: images and managed fields.
func stripNode(o runtime.Object) {
	n := o.(*corev1.Node)
	n.ManagedFields, n.Annotations, n.Status.Images = nil, nil, nil
}

// hideNodes enters whether listing nodes is forbidden.
func (x *index) hideNodes(hidden bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cluster.hide(hidden) {
		x.nodesDiffer()
	}
}

// blind reports whether listing nodes is forbidden.
func (x *index) blind() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cluster.hidden
}

func (x *index) watchedNode(o *corev1.Node, gone bool) {
	n := readNode(o)
	x.mu.Lock()
	defer x.mu.Unlock()
	differs := false
	if gone {
		differs = x.cluster.removeNode(o.Name)
	} else {
		differs = x.cluster.putNode(n)
	}
	if differs {
		x.nodesDiffer()
	}
}

func (x *index) listedNodes(all []*corev1.Node) {
	nodes := make([]*node, len(all))
	for i, o := range all {
		nodes[i] = readNode(o)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cluster.listNodes(nodes, x.hosts()) {
		x.nodesDiffer()
	}
}

// nodesDiffer signals a changed node, which may change the state of pods too.
func (x *index) nodesDiffer() {
	x.signal()
	x.notify()
}

func (x *index) watchedOther(o *corev1.Pod, from source, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	differs := false
	if gone {
		differs = x.cluster.leave(o.UID, from)
	} else {
		differs = x.cluster.enter(o, from)
	}
	if differs {
		x.signalLoad()
	}
}

func (x *index) listedOthers(all []*corev1.Pod, from source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	there := make(map[types.UID]struct{}, len(all))
	differs := false
	for _, o := range all {
		there[o.UID] = struct{}{}
		differs = x.cluster.enter(o, from) || differs
	}
	if x.cluster.keep(from, there) || differs {
		x.signalLoad()
	}
}
