package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// whereabouts is which namespace of which cluster the provider works in: names are used again, UIDs are not.
type whereabouts struct {
	told chan struct{} // closed once there is an answer, whichever

	mu      sync.Mutex
	site    string // the namespace's UID; "" until it is known
	err     error  // of the last request
	refusal refused
}

func newWhereabouts() *whereabouts { return &whereabouts{told: make(chan struct{})} }

// locate asks until the namespace is known. Where this master may not ask, or there is no such namespace, others go on
// without, and it asks on: either may change.
func (p *Provider) locate(ctx context.Context) {
	pace := retryPace()
	for {
		there, err := p.client.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
		if err == nil {
			p.where.learn(string(there.UID), nil)
			p.index.signal()
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.where.learn("", err)
		select {
		case <-time.After(pace.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// learn enters an answer. A refusal counts as one once it has stood.
func (w *whereabouts) learn(site string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.site, w.err = site, err
	w.refusal.hear(err)
	if err != nil && !apierrors.IsNotFound(err) && !w.refusal.stands() {
		return
	}
	select {
	case <-w.told:
	default:
		close(w.told)
	}
}

// ready waits for an answer, and no longer than ctx.
func (w *whereabouts) ready(ctx context.Context) error {
	select {
	case <-w.told:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("look for the namespace: %w: %w", context.Cause(ctx), explain(w.err))
	}
	return fmt.Errorf("look for the namespace: %w", context.Cause(ctx))
}

// tell enters what is known of the namespace.
func (w *whereabouts) tell(c *job.Capabilities, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Site = w.site
	switch {
	case apierrors.IsNotFound(w.err):
		c.Refused = fmt.Sprintf("There is no namespace %q in the cluster: create it, or name another one.", namespace)
	case w.refusal.stands():
		c.Caveats = append(c.Caveats, fmt.Sprintf("Which namespace %q is, of those that have had or have its name in this and other clusters, is not known, so a job that runs in another one is taken for one that runs nowhere: this master's role needs the verb get on namespaces, as in deploy/: %s.", namespace, w.err))
	}
}
