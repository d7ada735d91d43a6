package podsite

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// RequestsDir is what an administrator installs once, so that operators can ask from anywhere.
var RequestsDir = filepath.Join(site.Root, "deploy", "requests")

// Requests are the objects of operators' requests.
var Requests = schema.GroupVersionResource{Group: "eltrain.dev", Version: "v1", Resource: "requests"}

// DefineRequests installs RequestsDir in a cluster until the test ends. The cluster has it once: no two tests do so at once.
func DefineRequests(t *testing.T, c *testbed.Cluster) {
	t.Helper()
	run := func(arguments ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), site.Bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, Kubectl(t), arguments...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("kubectl %v: %v\n%s", arguments, err, out)
		}
	}
	run("apply", "-k", RequestsDir)
	t.Cleanup(func() { run("delete", "-k", RequestsDir, "--ignore-not-found") })
	run("wait", "--for=condition=Established", "customresourcedefinition/requests.eltrain.dev")
	// The API server learns of the policy by a watch.
	forged := NewRequest("main", "nobody", "suspend", "job.a")
	site.Until(t, "a request in another's name is refused", func() bool {
		_, err := c.Dynamic().Resource(Requests).Namespace(metav1.NamespaceDefault).Create(t.Context(), forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
}

// NewRequest returns the object of a request, as somebody makes it without eltrain.
func NewRequest(state, by, verb, address string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Requests.GroupVersion().String(), "kind": "Request",
		"metadata": map[string]any{"name": "20260102t150405.000000z-0a1b2c", "labels": map[string]any{"eltrain.dev/state": state}},
		"spec":     map[string]any{"state": state, "by": by, "verb": verb, "addresses": []any{address}, "expires": "10m"},
	}}
}
