//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Labels of eltrain's pods; see docs/kubernetes.md.
const (
	labelUID         = "eltrain.dev/uid"
	labelIndex       = "eltrain.dev/index"
	labelIncarnation = "eltrain.dev/incarnation"
)

// observer records, through one watch, when the bench saw the pods of a namespace change. All compared times come from
// such observers.
type observer struct {
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	pods    map[string]*sighting // by name
	present int                  // pods that exist now
	bound   int                  // pods ever seen bound
	running int                  // pods ever seen running
	changed chan struct{}        // closed and recreated with every change
}

// sighting is what was seen of one pod. Times are by the bench's clock, zero before the event.
type sighting struct {
	index, incarnation      string
	node                    string
	created, bound, running time.Time
	failed, gone            bool
}

func observe(client kubernetes.Interface, namespace string) *observer {
	ctx, stop := context.WithCancel(context.Background())
	o := &observer{stop: stop, done: make(chan struct{}), pods: map[string]*sighting{}, changed: make(chan struct{})}
	quiet := klog.Logger{}
	ctx = klog.NewContext(ctx, quiet)
	list := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	reflector := cache.NewReflectorWithOptions(list, &corev1.Pod{}, o, cache.ReflectorOptions{Name: "bench", Logger: &quiet})
	go func() {
		defer close(o.done)
		reflector.RunWithContext(ctx)
	}()
	return o
}

func (o *observer) close() {
	o.stop()
	<-o.done
}

// reset forgets all pods.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pods, o.present, o.bound, o.running = map[string]*sighting{}, 0, 0, 0
}

// await waits until holds returns true. It calls holds with the lock held.
func (o *observer) await(ctx context.Context, holds func(*observer) bool) error {
	for {
		o.mu.Lock()
		ok, changed := holds(o), o.changed
		o.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			o.mu.Lock()
			defer o.mu.Unlock()
			return fmt.Errorf("%w: %d pods seen, %d bound, %d running, %d there", context.Cause(ctx), len(o.pods), o.bound, o.running, o.present)
		}
	}
}

// sightings returns all sightings by pod name.
func (o *observer) sightings() map[string]sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]sighting, len(o.pods))
	for name, s := range o.pods {
		all[name] = *s
	}
	return all
}

// span returns the earliest and the latest of one time of all sightings.
func (o *observer) span(of func(*sighting) time.Time) (first, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.pods {
		t := of(s)
		if t.IsZero() {
			continue
		}
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	return first, last
}

func created(s *sighting) time.Time { return s.created }
func bound(s *sighting) time.Time   { return s.bound }
func running(s *sighting) time.Time { return s.running }

// The methods of a reflector's store.

// Add implements cache.ReflectorStore.
func (o *observer) Add(v any) error { o.see(v, false); return nil }

// Update implements cache.ReflectorStore.
func (o *observer) Update(v any) error { o.see(v, false); return nil }

// Delete implements cache.ReflectorStore.
func (o *observer) Delete(v any) error { o.see(v, true); return nil }

// Resync implements cache.ReflectorStore.
func (o *observer) Resync() error { return nil }

// Replace implements cache.ReflectorStore: pods that are not in the list are gone.
func (o *observer) Replace(all []any, _ string) error {
	there := make(map[string]bool, len(all))
	for _, v := range all {
		o.see(v, false)
		if p, ok := v.(metav1.Object); ok {
			there[p.GetName()] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, s := range o.pods {
		if !there[name] && !s.gone {
			s.gone = true
			o.present--
		}
	}
	o.tell()
	return nil
}

func (o *observer) see(v any, gone bool) {
	now := time.Now()
	p, ok := v.(*corev1.Pod)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.pods[p.Name]
	if s == nil {
		s = &sighting{created: now, index: p.Labels[labelIndex], incarnation: p.Labels[labelIncarnation]}
		o.pods[p.Name] = s
		o.present++
	}
	if s.node == "" && p.Spec.NodeName != "" {
		s.node, s.bound = p.Spec.NodeName, now
		o.bound++
	}
	if s.running.IsZero() && p.Status.Phase == corev1.PodRunning {
		s.running = now
		o.running++
	}
	s.failed = s.failed || p.Status.Phase == corev1.PodFailed
	if gone && !s.gone {
		s.gone = true
		o.present--
	}
	o.tell()
}

// tell notifies waiters. o.mu must be held.
func (o *observer) tell() {
	close(o.changed)
	o.changed = make(chan struct{})
}
