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

// namespaceIdentity is which namespace of which cluster the provider works in: names are used again, UIDs are not.
type namespaceIdentity struct {
	told  chan struct{} // closed once there is an answer, whichever
	again chan struct{} // gets a value when it is to be asked at once

	mu      sync.Mutex
	site    string // the namespace's UID; "" until it is known, and where there is none or nobody may know
	missing bool   // there is no namespace
	err     error  // of the last request
	refusal refused
}

func newNamespaceIdentity() *namespaceIdentity {
	return &namespaceIdentity{told: make(chan struct{}), again: make(chan struct{}, 1)}
}

// locateEach is how often it is asked whether the namespace is still the one that it was: nothing tells of one that was
// deleted and recreated while nothing ran in it. Where something did, remains finds out.
const locateEach = 30 * time.Second

// locate asks which namespace it is, and asks on. Where this master may not ask, or there is no such namespace, others go
// on without: either may change.
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

// learn enters an answer, and reports whether it is another than before. A refusal counts as one once it has stood. What is
// no answer changes nothing.
func (w *namespaceIdentity) learn(site string, err error) (differs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.refusal.hear(err)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing && !w.refusal.stands {
		return false
	}
	differs = site != w.site || missing != w.missing
	w.site, w.missing = site, missing
	select {
	case <-w.told:
	default:
		close(w.told)
	}
	return differs
}

// known is the namespace's UID, as far as it is known.
func (w *namespaceIdentity) known() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.site
}

// remains makes sure that the namespace is still the one at a site. One that was deleted and recreated has nothing of what
// was in it, and a plan for what was there is none for it.
func (p *Provider) remains(ctx context.Context, site string) error {
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
		return fmt.Errorf("look up the namespace: %w", explain(ofRead(err)))
	}
	return fmt.Errorf("namespace %q was deleted and recreated since the job was started", p.namespace)
}

// ready waits for an answer, and no longer than ctx.
func (w *namespaceIdentity) ready(ctx context.Context) error {
	select {
	case <-w.told:
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

// tell enters what is known of the namespace.
func (w *namespaceIdentity) tell(c *job.Capabilities, namespace string) {
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
