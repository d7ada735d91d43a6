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

// Gang is how the pods of a job come to start together or not at all. gates.go has one that asks nothing of the
// scheduler; package volcano has the one of a scheduler that knows gangs. Its methods are safe for concurrent use.
type Gang interface {
	// Ready waits until the others know what they tell, and no longer than ctx.
	Ready(ctx context.Context) error
	// Can enters into c what the gang cannot do or enforce here and now.
	Can(c *job.Capabilities)
	// Prepare makes what the gang has beside the pods, or brings it up to date. No pod of the job is made before, and
	// none beyond a smaller least is taken away before. It is idempotent, and costs nothing where nothing changed.
	Prepare(ctx context.Context, j Job) error
	// Schedule is what the pod of a slot has for its scheduler.
	Schedule(g job.Group, slot job.Address) Scheduling
	// Complete adds to an observation, before it is given out, what the gang knows. Whatever would have it add something else
	// calls Site.Changed after it has happened.
	Complete(o *providers.Observation)
	// Forget removes what Prepare made. Nothing of the job is running.
	Forget(ctx context.Context, j Job) error
}

// Job is a job as its gang knows it.
type Job struct {
	Group  job.Group             // of Forget: the UID and the name
	Name   string                // of all that it has beside its pods
	Labels map[string]string     // of all that it has
	Owner  metav1.OwnerReference // its anchor, with which all of it goes; zero with Forget
}

// Scheduling is what a pod has for its scheduler. Overlays cannot change it.
type Scheduling struct {
	Scheduler   string // by name; "" is the cluster's default, unless an overlay names another
	Annotations map[string]string
	Gated       bool // by eltrain's own scheduling gate
}

// Site is what the provider does for its gang.
type Site struct{ p *Provider }

// Namespace is the one that the provider works in.
func (s Site) Namespace() string { return s.p.namespace }

// Log is the provider's.
func (s Site) Log() *slog.Logger { return s.p.log }

// Client is the provider's.
func (s Site) Client() *kube.Client { return s.p.client }

// Config reaches the API server as Client does and under the same limit of requests, in JSON, which is all that custom
// resources are served in.
func (s Site) Config() *rest.Config {
	config := rest.CopyConfig(s.p.rest)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// Changed says that Observe answers otherwise from now on.
func (s Site) Changed() { s.p.index.signal() }

// Go runs f until it returns. Its context ends when the provider is closed, and Close waits for it.
func (s Site) Go(f func(ctx context.Context)) { s.p.owned.Go(func() { f(s.p.ctx) }) }

// Read is the error of a read as whoever asked gets it: one that may pass by itself is a providers.TransientError.
func (s Site) Read(err error) error { return explain(ofRead(err)) }

// Write does one write at the provider's pace, once, and says of an error what can be done about it, as Read does. what it does is in words, as
// "create the PodGroup": those that do the same of one job, by its UID, are refused together, and told of together.
func (s Site) Write(ctx context.Context, uid, what string, write func(context.Context) error) error {
	return explain(s.p.pacer.do(ctx, class{uid, what}, write))
}

// Watch is a kind of objects that is watched.
type Watch struct {
	What string         // as an error names it: `PodGroups in namespace "ml"`
	Lack string         // what it means not to see them, as a sentence without its full stop; "" where nothing works without
	Kind runtime.Object // an empty one
	List func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Open func(context.Context, metav1.ListOptions) (watch.Interface, error)
	One  func(o runtime.Object, gone bool) // an object as it is now, or as it was last
	All  func(all []runtime.Object)        // what else was known is gone
	// Hidden is told when the API server does not let this master see them, and when it does again; nil is nobody.
	Hidden func(bool)
}

// Watch holds a watch open for as long as the provider is. It is called from within the function that makes the gang:
// Observe waits for the first list. Where the API server does not let this master see the objects, a caveat says so;
// where it knows no such kind, that is the gang's to say. In both cases All is not called, until that has changed.
func (s Site) Watch(w Watch) {
	s.p.watches = append(s.p.watches, &watching{
		what: w.What, vital: w.Lack == "", blind: w.Lack, hidden: w.Hidden, kind: w.Kind, list: w.List, open: w.Open, one: w.One,
		strip: func(runtime.Object) {},
		all:   func(all []any, _ string) { w.All(typed[runtime.Object](all)) },
	})
}

// JobOf reads from labels whose an object is: the UID of its job, "" if it is of none.
func JobOf(labels map[string]string) (uid string) { return labels[labelUID] }

// Ours selects everything of all jobs.
func Ours() string { return labelUID }

// jobOf is a job as its gang knows it.
func jobOf(g job.Group, owner metav1.OwnerReference) Job {
	return Job{Group: g, Name: groupName(g.UID, g.Name), Labels: jobLabels(g.UID, g.Name), Owner: owner}
}

// dress gives a pod what it has for its scheduler.
func (s Scheduling) dress(pod *corev1.Pod) {
	pod.Spec.SchedulerName = s.Scheduler
	maps.Copy(pod.Annotations, s.Annotations)
	if s.Gated {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gangGate}}
	}
}
