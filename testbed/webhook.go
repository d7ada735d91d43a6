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

// Refusals says what an admission webhook does to the objects of one kind that are created in a namespace.
type Refusals struct {
	Namespace string
	Resource  schema.GroupVersionResource // zero: pods; PodGroups, say
	Times     int                         // refuses so many creates, then lets them pass; zero: each
	Message   string                      // told to who is refused
	Delay     time.Duration               // before each answer; beyond Timeout the API server gives up and refuses itself
	Timeout   time.Duration               // whole seconds, up to 30; zero: 10
}

// Webhook is an admission webhook at work. The API server asks it for every object, and refuses the object when
// it does not answer. Dry runs pass, and are not counted.
type Webhook struct {
	refusals Refusals

	mu      sync.Mutex
	asked   int
	refused int
	inForce bool
}

// Webhook sets an admission webhook between the API server and the pods, or what else is asked for, of a namespace
// until the test ends. It is in force when this returns.
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
		_ = server.Close() // the listener is closed, whatever it says
		<-served
	})

	name := "refuse-" + refusals.Resource.Resource + "-in-" + refusals.Namespace
	configurations := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c.lever(t, "register webhook", func(ctx context.Context) error {
		_, err := configurations.Create(ctx, c.webhookConfiguration(name, "https://"+listener.Addr().String(), refusals), metav1.CreateOptions{})
		return err
	})
	// Registered before the server's end, and so done before it: nobody is refused for a server that is gone.
	t.Cleanup(func() {
		c.lever(t, "remove webhook", func(ctx context.Context) error {
			return configurations.Delete(ctx, name, metav1.DeleteOptions{})
		})
	})
	c.lever(t, "wait until the webhook is in force", func(ctx context.Context) error { return c.awaitWebhook(ctx, w) })
	return w
}

// awaitWebhook makes dry runs until the API server asks the webhook about one: it hears of its configurations by a watch.
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
	if kinds.APIResources[at].Kind == "Pod" { // one that is not valid is refused before any webhook is asked
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
		case <-time.After(webhookLook):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// webhookLook is the pause between two dry runs.
const webhookLook = 20 * time.Millisecond

// webhookTimeout is when the API server gives a webhook up, if nobody says otherwise: Kubernetes' own.
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

// Asked and Refused return how many creates the webhook was asked about so far, and how many it refused.
func (w *Webhook) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Refused is explained at Asked.
func (w *Webhook) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// ServeHTTP answers the API server's question about one object.
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

// decide counts a create and says whether it may pass.
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
