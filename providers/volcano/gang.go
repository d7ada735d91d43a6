package volcano

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/apis/pkg/apis/topology/v1alpha1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/kubernetes"
)

const (
	// keepRetry is when recreating a PodGroup is retried, and keepTimeout bounds one attempt.
	keepRetry   = time.Second
	keepTimeout = 30 * time.Second
	// askRetry is the interval between queries of the server while they fail or it lacks a required field.
	askRetry = 5 * time.Second
	// askAgain is the interval otherwise: an upgrade, or an edit of the scheduler's configuration, takes effect within hours.
	askAgain   = 5 * time.Minute
	askTimeout = 10 * time.Second
)

// gang keeps one PodGroup for each job.
type gang struct {
	site    kubernetes.Site
	config  Config
	client  *client
	asked   chan struct{} // closed once the server was queried successfully
	changed chan struct{} // gets a value when a PodGroup may have to be recreated

	mu       sync.Mutex
	server   *server
	caveats  []string // of the scheduler's configuration
	queryErr error    // why the last query of the server failed
	jobs     map[string]kubernetes.Job
	groups   map[string]*v1beta1.PodGroup   // by UID of the job: as last seen
	queues   queues                         // as last seen
	hidden   bool                           // queues may not be listed now
	nodes    map[string]*v1alpha1.HyperNode // by name
	network  *network                       // of nodes; nil if it must be rebuilt
	labelled map[string]labelled            // by node
}

// labelled is a node's own labels, and those with the network's added.
type labelled struct{ of, with map[string]string }

// newGang starts the watches.
func newGang(site kubernetes.Site, config Config) (kubernetes.Gang, error) {
	client, err := newClient(site.Config())
	if err != nil {
		return nil, err
	}
	g := &gang{
		site: site, config: config, client: client, asked: make(chan struct{}), changed: make(chan struct{}, 1),
		jobs: map[string]kubernetes.Job{}, groups: map[string]*v1beta1.PodGroup{}, nodes: map[string]*v1alpha1.HyperNode{},
	}
	g.watch()
	site.Go(g.ask)
	site.Go(g.keep)
	return g, nil
}

func (g *gang) podGroups() podGroups { return g.client.podGroups(g.site.Namespace()) }

func (g *gang) watch() {
	ours := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = kubernetes.Ours()
		return o
	}
	g.site.Watch(kubernetes.Watch{
		What: fmt.Sprintf("PodGroups in namespace %q", g.site.Namespace()), Kind: &v1beta1.PodGroup{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return g.podGroups().List(ctx, ours(o))
		},
		Open: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return g.podGroups().Watch(ctx, ours(o))
		},
		One: func(o runtime.Object, gone bool) { g.put(o.(*v1beta1.PodGroup), gone) },
		All: g.seeAll,
	})
	all := g.client.queues()
	g.site.Watch(kubernetes.Watch{
		What: "queues", Kind: &v1beta1.Queue{},
		Lack:   "The queue's state and free quota are unknown; a gang that it does not admit waits",
		List:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		Open:   all.Watch,
		One:    func(o runtime.Object, gone bool) { g.seeQueue(o.(*v1beta1.Queue), gone) },
		All:    g.seeQueues,
		Hidden: g.hideQueues,
	})
	tree := g.client.hyperNodes()
	g.site.Watch(kubernetes.Watch{
		What: "HyperNodes", Kind: &v1alpha1.HyperNode{},
		Lack: "The network position of nodes is unknown: topology.rank_by can only use their own labels",
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return tree.List(ctx, o) },
		Open: tree.Watch,
		One:  func(o runtime.Object, gone bool) { g.seeHyperNode(o.(*v1alpha1.HyperNode), gone) },
		All:  g.seeHyperNodes,
	})
}

// put enters a PodGroup, or removes one that is gone. A version older than what is known changes nothing.
func (g *gang) put(o *v1beta1.PodGroup, gone bool) {
	uid := kubernetes.JobOf(o.Labels)
	g.mu.Lock()
	was := g.groups[uid]
	switch {
	case uid == "", was != nil && was.UID == o.UID && !newer(o.ResourceVersion, was.ResourceVersion):
		g.mu.Unlock()
		return
	case !gone:
		g.groups[uid] = o
	case was != nil && was.UID == o.UID:
		delete(g.groups, uid)
	}
	g.mu.Unlock()
	g.notify()
}

// newer compares resource versions of objects of one kind. A version that is not a number counts as newer: then the order of
// arrival decides.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

func (g *gang) seeAll(all []runtime.Object) {
	g.mu.Lock()
	g.groups = map[string]*v1beta1.PodGroup{}
	for _, o := range all {
		group := o.(*v1beta1.PodGroup)
		g.groups[kubernetes.JobOf(group.Labels)] = group
	}
	g.mu.Unlock()
	g.notify()
}

func (g *gang) seeQueue(o *v1beta1.Queue, gone bool) {
	g.mu.Lock()
	if g.queues == nil {
		g.queues = queues{}
	}
	g.queues[o.Name] = o
	if gone {
		delete(g.queues, o.Name)
	}
	ours := g.uses(o.Name)
	g.mu.Unlock()
	if ours { // the state of other queues changes all the time
		g.site.Changed()
	}
}

// uses reports whether a queue is the configured one, or that of an existing PodGroup. g.mu is held.
func (g *gang) uses(queue string) bool {
	if queue == g.config.queue() {
		return true
	}
	for _, group := range g.groups {
		if group.Spec.Queue == queue {
			return true
		}
	}
	return false
}

func (g *gang) seeQueues(all []runtime.Object) {
	g.mu.Lock()
	g.queues = queues{}
	for _, o := range all {
		queue := o.(*v1beta1.Queue)
		g.queues[queue.Name] = queue
	}
	g.mu.Unlock()
	g.site.Changed()
}

// hideQueues enters whether listing queues is forbidden.
func (g *gang) hideQueues(hidden bool) {
	g.mu.Lock()
	g.hidden = hidden
	g.mu.Unlock()
	g.site.Changed()
}

// visibleQueues are the queues, or nil if they may not be listed: their last known state must hold up no job. g.mu is held.
func (g *gang) visibleQueues() queues {
	if g.hidden {
		return nil
	}
	return g.queues
}

func (g *gang) seeHyperNode(o *v1alpha1.HyperNode, gone bool) {
	g.mu.Lock()
	g.nodes[o.Name] = o
	if gone {
		delete(g.nodes, o.Name)
	}
	g.resetNetwork()
	g.mu.Unlock()
	g.site.Changed()
}

func (g *gang) seeHyperNodes(all []runtime.Object) {
	g.mu.Lock()
	g.nodes = map[string]*v1alpha1.HyperNode{}
	for _, o := range all {
		node := o.(*v1alpha1.HyperNode)
		g.nodes[node.Name] = node
	}
	g.resetNetwork()
	g.mu.Unlock()
	g.site.Changed()
}

// resetNetwork discards the network, to be rebuilt when it is next needed. g.mu is held.
func (g *gang) resetNetwork() { g.network, g.labelled = nil, map[string]labelled{} }

// notify wakes the master's loop and keep.
func (g *gang) notify() {
	g.site.Changed()
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// ask periodically reads what the server supports and how the scheduler is configured.
func (g *gang) ask(ctx context.Context) {
	for again := time.NewTimer(0); ; {
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
		again.Reset(g.query(ctx))
	}
}

// query returns when to ask again.
func (g *gang) query(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	known, err := askServer(ctx, g.client.scheduling)
	var caveats []string
	if err == nil {
		caveats, err = g.config.askScheduler(ctx, g.site.Client())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queryErr = err
	if err != nil {
		return askRetry // what was known stays
	}
	differs := !reflect.DeepEqual(known, g.server) || !slices.Equal(caveats, g.caveats)
	g.server, g.caveats = known, caveats
	select {
	case <-g.asked:
	default:
		close(g.asked)
	}
	if differs {
		g.site.Changed()
	}
	if known.lacks(g.config) != "" {
		return askRetry
	}
	return askAgain
}

// Ready implements kubernetes.Gang.
func (g *gang) Ready(ctx context.Context) error {
	select {
	case <-g.asked:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queryErr != nil {
		return g.queryErr
	}
	return fmt.Errorf("ask the API server which fields PodGroups have: %w", ctx.Err())
}

// Can implements kubernetes.Gang.
func (g *gang) Can(c *job.Capabilities) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.asked:
	default:
		return // Observe reports the reason
	}
	if c.Refused = g.server.lacks(g.config); c.Refused != "" {
		return
	}
	if why := g.visibleQueues().closed(g.config.queue()); why != "" {
		c.Refused = fmt.Sprintf("No job is admitted: %s.", why)
		return
	}
	c.Caveats = append(c.Caveats, g.caveats...)
	if !g.server.knows("minTaskMember") {
		c.Caveats = append(c.Caveats, "This Volcano does not support spec.minTaskMember of PodGroups: for a job with several roles it counts the pods of all roles together.")
	}
}

// Prepare implements kubernetes.Gang.
func (g *gang) Prepare(ctx context.Context, j kubernetes.Job) error {
	if err := g.Ready(ctx); err != nil {
		return err
	}
	if err := g.make(ctx, j); err != nil {
		return err
	}
	g.mu.Lock()
	before, known := g.jobs[j.Group.UID]
	g.jobs[j.Group.UID] = j
	g.mu.Unlock()
	if !known || before.Name != j.Name {
		g.site.Changed()
	}
	return nil
}

// make applies the PodGroup of a job, unless it is up to date.
func (g *gang) make(ctx context.Context, j kubernetes.Job) error {
	g.mu.Lock()
	server, there := g.server, g.groups[j.Group.UID]
	g.mu.Unlock()
	if why := server.lacks(g.config); why != "" {
		return fmt.Errorf("its PodGroup cannot be created: %s", why)
	}
	spec := g.config.specOf(j.Group, server)
	if there != nil && current(there, j, spec) {
		return nil
	}
	var made *v1beta1.PodGroup
	err := g.site.Write(ctx, j.Group.UID, "create the PodGroup", func(ctx context.Context) (err error) {
		made, err = g.podGroups().Apply(ctx, declared(j, spec),
			metav1.ApplyOptions{FieldManager: kubernetes.FieldManager, Force: true}, "minMember")
		return err
	})
	if err != nil {
		return fmt.Errorf("create the PodGroup: %w", err)
	}
	g.put(made, false)
	return nil
}

// keep recreates deleted PodGroups: without one the scheduler does not know the gang.
func (g *gang) keep(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	fails, reported := 0, false
	for {
		select {
		case <-g.changed:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		err := g.restore(ctx)
		if err == nil || ctx.Err() != nil {
			fails, reported = 0, false
			continue
		}
		retry.Reset(keepRetry)
		fails++
		if !reported && (!providers.MayPass(err) || fails >= providers.Persists) {
			reported = true
			g.site.Log().Warn("Cannot recreate a deleted PodGroup; retrying.", "error", err)
		}
	}
}

// restore recreates every missing PodGroup.
func (g *gang) restore(ctx context.Context) error {
	var errs []error
	for _, j := range g.missing() {
		if err := g.restoreOne(ctx, j); err != nil {
			errs = append(errs, fmt.Errorf("job.%s: %w", j.Group.Name, err))
		}
	}
	return errors.Join(errs...)
}

// restoreOne recreates the PodGroup of a job that still has its anchor. Otherwise another master has forgotten the job, or
// all its objects were deleted, and the next Prepare creates a new anchor.
func (g *gang) restoreOne(ctx context.Context, j kubernetes.Job) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	anchor, err := g.site.Client().CoreV1().ConfigMaps(g.site.Namespace()).Get(ctx, j.Owner.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look up its anchor: %w", g.site.Read(err))
	}
	if err == nil && anchor.UID == j.Owner.UID {
		return g.make(ctx, j)
	}
	g.mu.Lock()
	if g.jobs[j.Group.UID].Owner.UID == j.Owner.UID {
		delete(g.jobs, j.Group.UID)
	}
	g.mu.Unlock()
	g.site.Changed()
	return nil
}

// missing are the prepared jobs without a PodGroup.
func (g *gang) missing() []kubernetes.Job {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []kubernetes.Job
	for uid, j := range g.jobs {
		if g.groups[uid] == nil {
			all = append(all, j)
		}
	}
	return all
}

// Schedule implements kubernetes.Gang.
func (g *gang) Schedule(group job.Group, slot job.Address) kubernetes.Scheduling {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config.schedule(g.jobs[group.UID].Name, group, slot)
}

// schedulableAlone prefixes the scheduler's message about a pod that fits while its gang does not.
const schedulableAlone = "Schedulable:"

// Complete implements kubernetes.Gang. It reports which jobs are not admitted yet; for pods on which the scheduler has not
// reported, the state of their PodGroup; and where nodes are in the network.
func (g *gang) Complete(o *providers.Observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o.Held = map[string]string{}
	for uid, group := range g.groups {
		if why := g.visibleQueues().held(group, g.config.scheduler()); why != "" {
			o.Held[uid] = why
		}
	}
	for uid, j := range g.jobs {
		if g.groups[uid] == nil {
			o.Held[uid] = fmt.Sprintf("PodGroup %s was deleted and is being recreated", j.Name)
		}
	}
	for inc := range o.Incarnations.All() {
		if inc.Waiting == kubernetes.WaitsForScheduler || strings.HasPrefix(inc.Waiting, schedulableAlone) {
			inc.Waiting = g.waiting(inc.UID)
		}
	}
	g.label(o.Nodes)
}

// waiting is why a pod waits on which its scheduler has not reported. g.mu is held.
func (g *gang) waiting(uid string) string {
	group := g.groups[uid]
	if group == nil {
		return kubernetes.WaitsForScheduler
	}
	if why := g.visibleQueues().held(group, g.config.scheduler()); why != "" {
		return why
	}
	if why := unschedulable(group); why != "" {
		return why
	}
	return fmt.Sprintf("%s %q, which has not reported on it", kubernetes.WaitsForScheduler, g.config.scheduler())
}

// label adds the network's labels to nodes. g.mu is held.
func (g *gang) label(nodes []job.Node) {
	if len(g.nodes) == 0 {
		return
	}
	if g.network == nil {
		g.network = newNetwork(slices.Collect(maps.Values(g.nodes)))
	}
	for i := range nodes {
		n := &nodes[i]
		l, known := g.labelled[n.Name]
		if !known || !maps.Equal(l.of, n.Labels) {
			l = labelled{of: n.Labels, with: n.Labels}
			if tiers := g.network.tiers(n); tiers != nil {
				maps.Copy(tiers, n.Labels)
				l.with = tiers
			}
			g.labelled[n.Name] = l
		}
		n.Labels = l.with
	}
}

// Forget implements kubernetes.Gang.
func (g *gang) Forget(ctx context.Context, j kubernetes.Job) error {
	uid := j.Group.UID
	g.mu.Lock()
	delete(g.jobs, uid)
	g.mu.Unlock()
	g.site.Changed()
	there, err := g.podGroups().Get(ctx, j.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // also if Volcano is not installed
		g.forget(uid)
		return nil
	case err != nil:
		return fmt.Errorf("look up its PodGroup: %w", g.site.Read(err))
	case kubernetes.JobOf(there.Labels) != uid:
		return nil
	}
	err = g.site.Write(ctx, uid, "delete the PodGroup", func(ctx context.Context) error {
		return g.podGroups().Delete(ctx, j.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &there.UID}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete PodGroup %s/%s: %w", g.site.Namespace(), j.Name, err)
	}
	g.forget(uid)
	return nil
}

func (g *gang) forget(uid string) {
	g.mu.Lock()
	delete(g.groups, uid)
	g.mu.Unlock()
	g.site.Changed()
}
