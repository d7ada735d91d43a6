//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/testbed"
)

// bed is the cluster for all measurements, with one namespace for eltrain and one for the clients that it is compared
// with. Each has its own user, with the same rights.
type bed struct {
	cluster  *testbed.Cluster
	host     *host
	provider string // of the jobs
	eltrain  string
	roles    string
	dir      string // of job directories

	ours, bare place
	// template is a pod created by eltrain, which the other clients copy exactly.
	template *corev1.Pod
}

// place is a namespace, its user, and the bench's own observer of it.
type place struct {
	namespace  string
	kubeconfig string
	client     *kubernetes.Clientset     // as the user
	groups     dynamic.ResourceInterface // PodGroups, as the user
	seen       *observer
}

const (
	// clearTimeout bounds the removal of everything that a measurement created: 10,000 pods take some 10 s.
	clearTimeout = 3 * time.Minute
	// restTime lets controllers and garbage collectors finish, which are still busy when the last pod is gone.
	restTime = 3 * time.Second
)

func newBed(cfg config) (*bed, error) {
	b := &bed{host: &host{}, provider: cfg.provider, eltrain: cfg.eltrain, roles: cfg.roles}
	options := testbed.Options{
		Nodes: cfg.nodes,
		// This only speeds up the cleanup between measurements.
		Args: map[string][]string{testbed.APIServer: {"--delete-collection-workers=16"}},
	}
	if cfg.provider == withVolcano {
		options.Volcano = &testbed.Volcano{} // as installed by its chart, except for a session every 100 ms instead of every second
	}
	cluster, err := testbed.New(options)
	if err != nil {
		return nil, err
	}
	b.cluster = cluster
	if b.dir, err = os.MkdirTemp("", "eltrain-bench-*"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	err = b.host.attempt(func() (err error) {
		if b.ours, err = b.place(); err != nil {
			return err
		}
		b.bare, err = b.place()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bed) place() (place, error) {
	p := place{namespace: b.cluster.Namespace(b.host)}
	p.kubeconfig = b.cluster.Kubeconfig(b.host, testbed.User{Namespace: p.namespace, Roles: []string{b.roles}})
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return place{}, err
	}
	if p.client, err = unlimited(config, runtime.ContentTypeProtobuf); err != nil {
		return place{}, err
	}
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return place{}, err
	}
	p.groups = objects.Resource(testbed.PodGroups).Namespace(p.namespace)
	watcher, err := unlimited(b.cluster.Config(), runtime.ContentTypeProtobuf)
	if err != nil {
		return place{}, err
	}
	p.seen = observe(watcher, p.namespace)
	return p, nil
}

// unlimited returns a client without client-go's rate limit.
func unlimited(config *rest.Config, contentType string) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.QPS = contentType, -1
	config.AcceptContentTypes = contentType + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// clear removes everything that a measurement left in the namespace, and waits until the observer has seen all pods go.
func (b *bed) clear(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	admin := b.cluster.Admin()
	now := int64(0)
	atOnce, all := metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}
	labelled := metav1.ListOptions{LabelSelector: labelUID}
	// Budgets first and the owners of pods last, so that controllers have nothing to recompute or collect.
	err := errors.Join(
		admin.PolicyV1().PodDisruptionBudgets(p.namespace).DeleteCollection(ctx, atOnce, all),
		// client-go has no DeleteCollection for Services, but the API server does.
		admin.CoreV1().RESTClient().Delete().Namespace(p.namespace).Resource("services").Body(&atOnce).Do(ctx).Error(),
		admin.CoreV1().Pods(p.namespace).DeleteCollection(ctx, atOnce, all),
		admin.CoreV1().Secrets(p.namespace).DeleteCollection(ctx, atOnce, all),
		admin.CoreV1().ConfigMaps(p.namespace).DeleteCollection(ctx, atOnce, labelled),
		admin.CoordinationV1().Leases(p.namespace).DeleteCollection(ctx, atOnce, all),
	)
	if b.provider == withVolcano {
		err = errors.Join(err, b.cluster.Dynamic().Resource(testbed.PodGroups).Namespace(p.namespace).DeleteCollection(ctx, atOnce, all))
	}
	if err != nil {
		return fmt.Errorf("clear namespace %s: %w", p.namespace, err)
	}
	if err := p.seen.await(ctx, func(o *observer) bool { return o.present == 0 }); err != nil {
		return fmt.Errorf("clear namespace %s: %w", p.namespace, err)
	}
	p.seen.reset()
	return pause(ctx, restTime)
}

// serverTime starts measuring the API server's CPU time, and returns a function for the milliseconds per pod since then.
// Unlike rates, this does not depend on other load.
func (b *bed) serverTime() (perPod func(pods int) (float64, error), err error) {
	pid := b.cluster.APIServer.Pid()
	before, err := cpuTime(pid)
	return func(pods int) (float64, error) {
		after, err := cpuTime(pid)
		return (after - before).Seconds() * 1000 / float64(pods), err
	}, err
}

func (b *bed) close() error {
	var errs []error
	for _, p := range []place{b.ours, b.bare} {
		if p.seen != nil {
			p.seen.close()
		}
	}
	errs = append(errs, b.host.close())
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(append(errs, b.cluster.Close())...)
}

// host implements the testing interface that the testbed needs; a failure ends the measurement.
type host struct{ cleanups []func() }

// failure is the panic value of Fatalf; attempt turns it into an error.
type failure struct{ error }

func (*host) Helper() {}

func (*host) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (*host) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// attempt calls a function that uses the testbed, and returns the testbed's failure as an error.
func (*host) attempt(do func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return do()
}

func (h *host) close() error {
	var errs []error
	for _, f := range slices.Backward(h.cleanups) {
		errs = append(errs, h.attempt(func() error { f(); return nil }))
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
