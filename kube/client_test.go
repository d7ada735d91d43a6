package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// Only the given fields are applied: no status, and no zero value that would take a field from another manager.
func TestApplySendsWhatIsSaid(t *testing.T) {
	var asked, kind string
	var sent map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, kind = r.Method+" "+r.URL.String(), r.Header.Get("Content-Type")
		body, err := io.ReadAll(r.Body)
		if err == nil {
			sent = nil
			err = json.Unmarshal(body, &sent)
		}
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	least := intstr.FromInt32(0)
	options := metav1.ApplyOptions{FieldManager: "eltrain", Force: true}
	budget, err := client.PolicyV1().PodDisruptionBudgets("ml").Apply(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "gpt"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least},
	}, options)
	if err != nil || budget.Name != "gpt" {
		t.Errorf("the answer is %+v, %v", budget, err)
	}
	want := map[string]any{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
		"metadata": map[string]any{"name": "gpt"}, "spec": map[string]any{"minAvailable": 0.0},
	}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent is %v, want %v", sent, want)
	}
	if path := "PATCH /apis/policy/v1/namespaces/ml/poddisruptionbudgets/gpt?fieldManager=eltrain&force=true"; asked != path || kind != "application/apply-patch+yaml" {
		t.Errorf("the request was %s as %s", asked, kind)
	}
	if _, err := client.CoreV1().Services("ml").Apply(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "gpt"}, Spec: corev1.ServiceSpec{PublishNotReadyAddresses: true},
	}, options); err != nil {
		t.Error(err)
	}
	want = map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "gpt"}, "spec": map[string]any{"publishNotReadyAddresses": true},
	}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent is %v, want %v", sent, want)
	}
	if path := "PATCH /api/v1/namespaces/ml/services/gpt?fieldManager=eltrain&force=true"; asked != path {
		t.Errorf("the request was %s", asked)
	}
	for port, want := range map[int32]float64{0: 0, 30000: 30000} { // 0 is a value here
		if _, err := client.CoreV1().Services("ml").Apply(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "gpt"}, Spec: corev1.ServiceSpec{HealthCheckNodePort: port},
		}, options, "healthCheckNodePort"); err != nil {
			t.Error(err)
		}
		if got := sent["spec"]; !reflect.DeepEqual(got, map[string]any{"healthCheckNodePort": want}) {
			t.Errorf("sent is %v, want %v", got, want)
		}
	}
}

// client-go retries reads only, when the API server has too many requests; callers retry writes.
func TestNoWriteIsRepeatedBehindItsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		client, err := NewClient(&rest.Config{Host: "http://api", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		pods := client.CoreV1().Pods("ml")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gpt"}}
		for name, c := range map[string]struct {
			ask   func() error
			times int
		}{
			"create": {func() error { _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); return err }, 1},
			"update": {func() error { _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); return err }, 1},
			"patch": {func() error {
				_, err := pods.Patch(t.Context(), "gpt", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
				return err
			}, 1},
			"apply":  {func() error { _, err := pods.Apply(t.Context(), pod, metav1.ApplyOptions{}); return err }, 1},
			"delete": {func() error { return pods.Delete(t.Context(), "gpt", metav1.DeleteOptions{}) }, 1},
			"delete all": {func() error {
				return pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
			}, 1},
			"create, by its group": {func() error { return client.CoreV1().Post().Resource("pods").Body(pod).Do(t.Context()).Error() }, 1},
			"get":                  {func() error { _, err := pods.Get(t.Context(), "gpt", metav1.GetOptions{}); return err }, 11},
		} {
			asked = 0
			if err := c.ask(); !apierrors.IsTooManyRequests(err) || asked != c.times {
				t.Errorf("%s: %d requests, want %d: %v", name, asked, c.times, err)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// The user's limit applies to all requests together, not to each group.
func TestGroupsShareALimit(t *testing.T) {
	client, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1", QPS: 3, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	if core := client.CoreV1().GetRateLimiter(); core == nil || core != client.PolicyV1().GetRateLimiter() || core != client.NodeV1().GetRateLimiter() {
		t.Error("each group has its own rate limiter")
	}
}
