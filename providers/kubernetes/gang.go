package kubernetes

import (
	"context"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/providers"
)

// Gang makes the pods of a job start together or not at all. gates.go implements it without the scheduler's help, package
// volcano with a scheduler that knows gangs. Its methods are safe for concurrent use.
type Gang interface {
	// Ready waits until the other methods know what they report, at most until ctx ends.
	Ready(ctx context.Context) error
	// Can enters into c what the gang currently cannot do or enforce.
	Can(c *job.Capabilities)
	// Prepare creates or updates the gang's own objects. Before it returns, no pod of the job is created, and none beyond a
	// lowered min is removed. It is idempotent, and costs nothing if nothing changed.
	Prepare(ctx context.Context, j Job) error
	// Schedule returns what the scheduler needs in the pod of a slot.
	Schedule(g job.Group, slot job.Address) Scheduling
	// Complete adds what the gang knows to an observation before it is returned. The gang calls Site.Changed after each change of
	// what it would add.
	Complete(o *providers.Observation)
	// Forget removes what Prepare created. Nothing of the job is running.
	Forget(ctx context.Context, j Job) error
}

// Job is what a gang is given of a job.
type Job struct {
	Group  job.Group             // with Forget only the UID and the name
	Name   string                // of all its objects but the pods
	Labels map[string]string     // of all its objects
	Owner  metav1.OwnerReference // its anchor, which owns all of them; zero with Forget
}

// Scheduling is what a scheduler needs in a pod. Overlays cannot change it.
type Scheduling struct {
	Scheduler   string // name; "" is the cluster's default, unless an overlay sets another
	Annotations map[string]string
	Gated       bool // by eltrain's own scheduling gate
}

// Site is the provider's interface for its gang.
type Site struct{ p *Provider }

// Namespace is the provider's namespace.
func (s Site) Namespace() string { return s.p.namespace }

// Log is the provider's logger.
func (s Site) Log() *slog.Logger { return s.p.log }

// Client is the provider's client.
func (s Site) Client() *kube.Client { return s.p.client }

// Config reaches the API server as Client does and shares its rate limit, but uses JSON, the only encoding of custom
// resources.
func (s Site) Config() *rest.Config {
	config := rest.CopyConfig(s.p.rest)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// Changed signals that the result of Observe changed.
func (s Site) Changed() { s.p.index.signal() }

// Go runs f in a goroutine. Its context ends when the provider is closed, and Close waits for it.
func (s Site) Go(f func(ctx context.Context)) { s.p.owned.Go(func() { f(s.p.ctx) }) }

// Read is the error of a read for the caller: one that may pass by itself is a providers.TransientError.
func (s Site) Read(err error) error { return explain(readError(err)) }

// Write does one write at the provider's pace, once, and explains its error as Read does. what describes the write, such as
// "create the PodGroup": the same writes for one job, by its UID, are refused together and reported together.
func (s Site) Write(ctx context.Context, uid, what string, write func(context.Context) error) error {
	return explain(s.p.pacer.do(ctx, class{uid, what}, write))
}

// Watch is a kind of object to watch.
type Watch struct {
	What string         // as errors name it: `PodGroups in namespace "ml"`
	Lack string         // the consequence of not seeing them, as a sentence without its full stop; "" if nothing works without them
	Kind runtime.Object // an empty one
	List func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Open func(context.Context, metav1.ListOptions) (watch.Interface, error)
	One  func(o runtime.Object, gone bool) // an object as it is now, or its last state if gone
	All  func(all []runtime.Object)        // a complete list: known objects not in it are gone
	// Hidden, if not nil, is called when the API server forbids this master to see them, and when it allows it again.
	Hidden func(bool)
}

// Watch holds a watch open until the provider is closed. It must be called by the function that makes the gang, as Observe
// waits for the first list. If the API server forbids seeing the objects, a caveat says so; if it does not serve the kind,
// the gang has to report that. In both cases All is not called until that changes.
func (s Site) Watch(w Watch) {
	s.p.watches = append(s.p.watches, &watching{
		what: w.What, vital: w.Lack == "", blind: w.Lack, hidden: w.Hidden, kind: w.Kind, list: w.List, open: w.Open, one: w.One,
		strip: func(runtime.Object) {},
		all:   func(all []any, _ string) { w.All(typed[runtime.Object](all)) },
	})
}

// JobOf reads the UID of an object's job from its labels; "" if it belongs to none.
func JobOf(labels map[string]string) (uid string) { return labels[labelUID] }

// Ours is the label selector for everything of all jobs.
func Ours() string { return labelUID }

// jobOf makes a gang's Job of a group.
func jobOf(g job.Group, owner metav1.OwnerReference) Job {
	return Job{Group: g, Name: groupName(g.UID, g.Name), Labels: jobLabels(g.UID, g.Name), Owner: owner}
}

// applyTo sets what the scheduler needs in a pod.
func (s Scheduling) applyTo(pod *corev1.Pod) {
	pod.Spec.SchedulerName = s.Scheduler
	maps.Copy(pod.Annotations, s.Annotations)
	if s.Gated {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gangGate}}
	}
}
