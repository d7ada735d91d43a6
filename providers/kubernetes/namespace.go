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

// namespaceIdentity is which namespace of which cluster the provider works in: names are reused, UIDs are not.
type namespaceIdentity struct {
	answered chan struct{} // closed once there is any answer
	again    chan struct{} // gets a value to ask at once

	mu      sync.Mutex
	site    string // the namespace's UID; "" if it is unknown, may not be read, or there is no namespace
	missing bool   // the namespace does not exist
	err     error  // of the last request
	refusal refused
}

func newNamespaceIdentity() *namespaceIdentity {
	return &namespaceIdentity{answered: make(chan struct{}), again: make(chan struct{}, 1)}
}

// locateEach is how often the namespace's UID is read: nothing reports that it was deleted and recreated while nothing ran
// in it. If something did, checkSite notices.
const locateEach = 30 * time.Second

// locate keeps reading the namespace's UID. If this is forbidden, or there is no such namespace, the provider works
// without: either may change.
func (p *Provider) locate(ctx context.Context) {
	pace := retryPace()
	for {
		there, err := p.client.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
		if ctx.Err() != nil {
			return
		}
		site, pause := "", locateEach
		if err == nil {
			site, pace = string(there.UID), retryPace()
		} else {
			pause = pace.Step()
		}
		if p.where.learn(site, err) {
			p.index.signal()
		}
		select {
		case <-time.After(pause):
		case <-p.where.again:
		case <-ctx.Done():
			return
		}
	}
}

// learn enters an answer, and reports whether it differs from the last. A refusal counts once it stands. Other errors
// change nothing.
func (w *namespaceIdentity) learn(site string, err error) (differs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.refusal.record(err)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing && !w.refusal.stands {
		return false
	}
	differs = site != w.site || missing != w.missing
	w.site, w.missing = site, missing
	select {
	case <-w.answered:
	default:
		close(w.answered)
	}
	return differs
}

// known is the namespace's UID; "" if unknown.
func (w *namespaceIdentity) known() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.site
}

// checkSite ensures that the namespace still has the UID site. One that was deleted and recreated is empty, and a plan for the
// former does not apply to it.
func (p *Provider) checkSite(ctx context.Context, site string) error {
	if site == "" {
		return nil
	}
	there, err := p.client.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
	if err == nil && string(there.UID) == site || isRefusal(err) {
		return nil
	}
	select {
	case p.where.again <- struct{}{}:
	default:
	}
	if err != nil {
		return fmt.Errorf("look up the namespace: %w", explain(readError(err)))
	}
	return fmt.Errorf("namespace %q was deleted and recreated since the job was started", p.namespace)
}

// ready waits for an answer, at most until ctx ends.
func (w *namespaceIdentity) ready(ctx context.Context) error {
	select {
	case <-w.answered:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("look up the namespace: %w: %w", context.Cause(ctx), explain(w.err))
	}
	return fmt.Errorf("look up the namespace: %w", context.Cause(ctx))
}

// addTo enters into c what is known of the namespace.
func (w *namespaceIdentity) addTo(c *job.Capabilities, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Site = w.site
	switch {
	case w.missing:
		c.Refused = fmt.Sprintf("The namespace %q does not exist in the cluster: create it, or use another one.", namespace)
	case w.refusal.stands:
		c.Caveats = append(c.Caveats, fmt.Sprintf("The UID of namespace %q is unknown, so a job in another namespace of this name, in this or another cluster, is taken for one that does not run: this master's role needs the verb get on namespaces, as in deploy/: %s.", namespace, w.refusal.err))
	}
}
