package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// What is applied is what was said: no status, no zero that would take a field from somebody else.
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
		t.Errorf("asked was %s as %s", asked, kind)
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
		t.Errorf("asked was %s", asked)
	}
	for port, want := range map[int32]float64{0: 0, 30000: 30000} { // a 0 that is meant
		if _, err := client.CoreV1().Services("ml").Apply(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "gpt"}, Spec: corev1.ServiceSpec{HealthCheckNodePort: port},
		}, options, "healthCheckNodePort"); err != nil {
			t.Error(err)
		}
		if got := sent["spec"]; !reflect.DeepEqual(got, map[string]any{"healthCheckNodePort": want}) {
			t.Errorf("sent of it is %v, want %v", got, want)
		}
	}
}

// A limit of the user's is one for all that is asked, not one for each group.
func TestGroupsShareALimit(t *testing.T) {
	client, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1", QPS: 3, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	if core := client.CoreV1().GetRateLimiter(); core == nil || core != client.PolicyV1().GetRateLimiter() || core != client.NodeV1().GetRateLimiter() {
		t.Error("each group has its own")
	}
}
