package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/eltrain/eltrain/kube"
)

// follower keeps a copy of the requests by a client-go reflector. It is that reflector's store.
type follower struct {
	cache.Store
	namespace string
	stop      context.CancelFunc
	done      chan struct{}

	mu      sync.Mutex // guards what follows
	synced  bool
	absent  bool      // the API server does not know the kind
	refused time.Time // since when the API server refuses; zero if it does not
	why     error     // the last failure, since the last success
	news    chan struct{}
}

// refusedError is a refusal by the API server that stands.
type refusedError struct {
	verb  string
	cause error
}

func (e *refusedError) Error() string { return e.cause.Error() }

// lastRetry bounds the time between two attempts to watch again: a definition that is installed takes effect by then.
const lastRetry = 5 * time.Second

func startFollower(objects kube.Resource[*request, *requestList], selection string) *follower {
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // failures are reported by all
	f := &follower{
		Store: cache.NewStore(cache.MetaNamespaceKeyFunc), namespace: objects.GetNamespace(),
		stop: stop, done: make(chan struct{}), news: make(chan struct{}),
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selection
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // from a server's stale cache a request that is in effect could be missing, and come back
			}
			list, err := objects.List(ctx, o)
			f.record(ctx, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selection
			opened, err := objects.Watch(ctx, o)
			f.record(ctx, "watch", err)
			return opened, err
		},
	}
	backoff := retryBackoff()
	backoff.Steps, backoff.Cap = 10, lastRetry
	reflector := cache.NewReflectorWithOptions(source, &request{}, f, cache.ReflectorOptions{Name: manager, Logger: &klog.Logger{}, Backoff: &backoff})
	go func() {
		defer close(f.done)
		reflector.RunWithContext(ctx)
	}()
	return f
}

func (f *follower) close() {
	f.stop()
	<-f.done
}

// record records the result of a request to the API server.
func (f *follower) record(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	refusal := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	switch {
	case !refusal:
		f.refused = time.Time{}
	case f.refused.IsZero():
		f.refused = time.Now()
	}
	f.absent, f.why = undefined(err), err
	if refusal {
		f.why = &refusedError{verb, err}
	}
	f.tell()
}

// tell requires f.mu.
func (f *follower) tell() {
	close(f.news)
	f.news = make(chan struct{})
}

// all returns all requests. It waits until they are known.
func (f *follower) all(ctx context.Context) ([]*request, error) {
	for {
		f.mu.Lock()
		stands := !f.refused.IsZero() && time.Since(f.refused) >= refusalStands
		synced, absent, why, news := f.synced, f.absent, f.why, f.news
		f.mu.Unlock()
		switch {
		case absent:
			return nil, nil
		case stands:
			return nil, why
		case synced:
			return f.requests(), nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			if why == nil {
				why = fmt.Errorf("the API server has not answered: %w", context.Cause(ctx))
			}
			return nil, why
		}
	}
}

func (f *follower) requests() (all []*request) {
	for _, o := range f.List() {
		if r, is := o.(*request); is {
			all = append(all, r)
		}
	}
	return all
}

// get returns a request as last seen; nil if it was not seen.
func (f *follower) get(name string) *request {
	o, _, _ := f.GetByKey(f.namespace + "/" + name)
	r, _ := o.(*request)
	return r
}

// strip drops what is not read: of a request with its final reply that is nearly all.
func strip(o any) {
	r, is := o.(*request)
	if !is {
		return
	}
	r.ManagedFields = nil
	if r.finished() {
		r.Spec, r.Status.Reason = requestSpec{State: r.Spec.State}, nil
	}
}

// Add implements cache.ReflectorStore.
func (f *follower) Add(o any) error {
	strip(o)
	return f.Store.Add(o)
}

// Update implements cache.ReflectorStore.
func (f *follower) Update(o any) error {
	strip(o)
	return f.Store.Update(o)
}

// Replace implements cache.ReflectorStore: all is complete.
func (f *follower) Replace(all []any, version string) error {
	for _, o := range all {
		strip(o)
	}
	if err := f.Store.Replace(all, version); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	f.tell()
	return nil
}
