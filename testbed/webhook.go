package testbed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Refusals configures an admission webhook for the objects of one kind that are created in a namespace.
type Refusals struct {
	Namespace string
	Resource  schema.GroupVersionResource // such as PodGroups; zero: pods
	Times     int                         // how many creates to refuse before the others pass; zero: all
	Message   string                      // the reason of a refusal
	Delay     time.Duration               // before each answer; beyond Timeout the API server gives up and refuses the object itself
	Timeout   time.Duration               // whole seconds, up to 30; zero: 10
}

// Webhook is an active admission webhook. The API server asks it about every object, and refuses the object if it
// does not answer. Dry runs pass, and are not counted.
type Webhook struct {
	refusals Refusals

	mu      sync.Mutex
	asked   int
	refused int
	inForce bool
}

// Webhook registers an admission webhook for the pods, or another kind of object, of a namespace until the test ends. It
// is in force when this returns.
func (c *Cluster) Webhook(t T, refusals Refusals) *Webhook {
	t.Helper()
	if refusals.Resource.Empty() {
		refusals.Resource = corev1.SchemeGroupVersion.WithResource("pods")
	}
	tlsConfig, err := c.ca.serveTLS(c.address)
	if err != nil {
		t.Fatalf("testbed: make the webhook's certificate: %v", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(c.address, "0"))
	if err != nil {
		t.Fatalf("testbed: webhook: %v", err)
	}
	w := &Webhook{refusals: refusals}
	server := &http.Server{Handler: w, TLSConfig: tlsConfig, ReadHeaderTimeout: leverTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "") // returns when it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close() // the listener is closed even if this fails
		<-served
	})

	name := "refuse-" + refusals.Resource.Resource + "-in-" + refusals.Namespace
	configurations := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c.lever(t, "register webhook", func(ctx context.Context) error {
		_, err := configurations.Create(ctx, c.webhookConfiguration(name, "https://"+listener.Addr().String(), refusals), metav1.CreateOptions{})
		return err
	})
	// Cleanups run in reverse: unregistered before the server closes, so that no object is refused because the server is gone.
	t.Cleanup(func() {
		c.lever(t, "remove webhook", func(ctx context.Context) error {
			return configurations.Delete(ctx, name, metav1.DeleteOptions{})
		})
	})
	c.lever(t, "wait until the webhook is in force", func(ctx context.Context) error { return c.awaitWebhook(ctx, w) })
	return w
}

// awaitWebhook makes dry runs until the API server, which watches its configurations, calls the webhook.
func (c *Cluster) awaitWebhook(ctx context.Context, w *Webhook) error {
	resource := w.refusals.Resource
	kinds, err := c.client.Discovery().ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	at := slices.IndexFunc(kinds.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource })
	if at < 0 {
		return fmt.Errorf("the API server has no %s", resource.Resource)
	}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kinds.APIResources[at].Kind,
		"metadata": map[string]any{"name": "in-force"},
	}}
	if kinds.APIResources[at].Kind == "Pod" { // an invalid one is rejected before any webhook is called
		probe.Object["spec"] = map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none"}}}
	}
	for {
		_, err := c.dynamic.Resource(resource).Namespace(w.refusals.Namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		w.mu.Lock()
		inForce := w.inForce
		w.mu.Unlock()
		if inForce {
			return nil
		}
		select {
		case <-time.After(webhookPoll):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// webhookPoll is the pause between two dry runs.
const webhookPoll = 20 * time.Millisecond

// webhookTimeout is the API server's default timeout of a webhook.
const webhookTimeout = 10 * time.Second

func (c *Cluster) webhookConfiguration(name, url string, refusals Refusals) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	timeout := int32(cmp.Or(refusals.Timeout, webhookTimeout) / time.Second)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "refuse.testbed.eltrain.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: c.ca.pem},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             &none,
			FailurePolicy:           &fail,
			TimeoutSeconds:          &timeout,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: refusals.Namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{refusals.Resource.Group},
					APIVersions: []string{refusals.Resource.Version},
					Resources:   []string{refusals.Resource.Resource},
				},
			}},
		}},
	}
}

// Asked returns how many creates the webhook was asked about so far.
func (w *Webhook) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Refused returns how many of them it refused.
func (w *Webhook) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// ServeHTTP answers an AdmissionReview of the API server.
func (w *Webhook) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(out, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	allowed := true
	if dry := review.Request.DryRun; dry != nil && *dry {
		w.mu.Lock()
		w.inForce = true
		w.mu.Unlock()
	} else {
		allowed = w.decide()
		select {
		case <-time.After(w.refusals.Delay):
		case <-r.Context().Done():
			return
		}
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
	if !allowed {
		review.Response.Result = &metav1.Status{Message: w.refusals.Message, Code: http.StatusForbidden}
	}
	review.Request = nil
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review) // the API server gave up
}

// decide counts a create and reports whether it may pass.
func (w *Webhook) decide() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.refusals.Times > 0 && w.refused >= w.refusals.Times {
		return true
	}
	w.refused++
	return false
}
