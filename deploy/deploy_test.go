// Package deploy has the manifests for installing eltrain in a cluster, and their tests.
package deploy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/trusting"
	"github.com/eltrain/eltrain/lang"
	provider "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/testbed"
)

// build returns the objects that `kubectl apply -k` of a folder creates, in kustomize's order.
func build(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	kubectl := podsite.Kubectl(t)
	if _, err := os.Stat(kubectl); err != nil && testing.Short() {
		t.Skipf("kubectl is not built: run `make testbed` (%v)", err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, out)
	}
	return parse(t, out)
}

func parse(t *testing.T, text []byte) (objects []*unstructured.Unstructured) {
	t.Helper()
	const lookAhead = 4096 // bytes, to distinguish YAML from JSON
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), lookAhead)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

// The namespaces of the installation, and of a second one.
const (
	namespace       = "eltrain"
	secondNamespace = "two"
)

// start returns a cluster without these namespaces, and deletes them after the test.
func start(t *testing.T, options testbed.Options) *testbed.Cluster {
	t.Helper()
	c := testbed.Use(t, options)
	t.Cleanup(func() {
		namespaces := c.Admin().CoreV1().Namespaces()
		for _, name := range []string{namespace, secondNamespace} {
			eventually(t, "namespace "+name+" is gone", func() bool {
				return apierrors.IsNotFound(namespaces.Delete(context.Background(), name, metav1.DeleteOptions{}))
			})
		}
	})
	return c
}

// install applies objects in order, as the cluster's administrator, after their namespaces. Fields unknown to the API server
// are errors.
func install(t *testing.T, c *testbed.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if o.GetNamespace() == "" {
			continue
		}
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		if _, err := c.Admin().CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	groups, err := restmapper.GetAPIGroupResources(c.Admin().Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client := dynamic.NewForConfigOrDie(c.Config())
	for _, o := range objects {
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		_, err = resource.Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", text,
			metav1.PatchOptions{FieldManager: "deploy", Force: new(true), FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// find returns the only object of a kind.
func find(t *testing.T, objects []*unstructured.Unstructured, kind string, into any) {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects of kind %s", len(found), kind)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found[0].Object, into); err != nil {
		t.Fatal(err)
	}
}

// A real API server accepts the installation, and eltrain's account can then do what eltrain does: no less and no more.
func TestInstallation(t *testing.T) {
	c := start(t, testbed.Options{})
	objects := build(t, ".")
	install(t, c, objects)
	install(t, c, objects) // a repeated installation
	t.Run("rights", func(t *testing.T) { rights(t, c, namespace) })
	t.Run("role", func(t *testing.T) { role(t, objects) })
	t.Run("restricted", func(t *testing.T) { restricted(t, c, objects) })
	t.Run("tls", func(t *testing.T) {
		withTLS := build(t, "tls")
		install(t, c, withTLS)
		restricted(t, c, withTLS)
	})
	t.Run("git-sync", func(t *testing.T) { gitSync(t, c) })
	t.Run("a second one", func(t *testing.T) { second(t, c, objects) })
}

// second is a second installation, as described in docs/kubernetes.md: it shares nothing with the first, so that either can be
// removed, and its account has its own rights.
func second(t *testing.T, c *testbed.Cluster, first []*unstructured.Unstructured) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	page := podsite.OpenPage(t, filepath.Join("..", "docs", "kubernetes.md"), "## Install")
	if err := os.Mkdir(filepath.Join(dir, "two"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "two", "kustomization.yaml"), []byte(page.Block("yaml")), 0o644); err != nil {
		t.Fatal(err)
	}
	objects := build(t, filepath.Join(dir, "two"))
	named := map[string]bool{}
	for _, o := range first {
		named[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
	}
	for _, o := range objects {
		if name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName(); named[name] {
			t.Errorf("both installations have %s", name)
		}
	}
	fitTogether(t, objects)
	install(t, c, objects)
	rights(t, c, secondNamespace)
	rights(t, c, namespace)
}

// used are the rights that eltrain uses, by resource and verb, with the user. New uses of a verb are added here before the Role
// grants it.
var used = map[string]map[string]string{
	"pods": {
		"create": "Launch", "patch": "Launch repairs drift, Prepare removes the gang's gate", "delete": "Stop", "deletecollection": "Forget",
		"get": "Launch and Stop when a name is taken", "list": "Observe, Forget", "watch": "Observe",
	},
	"pods/log":             {"get": "Logs"},
	"configmaps":           {"create": "Prepare, by apply", "patch": "Prepare, Publish", "get": "Prepare, Forget", "delete": "Forget"},
	"services":             {"create": "Prepare, by apply", "patch": "Prepare", "get": "Prepare, Forget", "delete": "Forget"},
	"poddisruptionbudgets": {"create": "Prepare, by apply", "patch": "Prepare", "get": "Prepare", "deletecollection": "Prepare for removed roles, Forget"},
	"namespaces":           {"get": "Capabilities.Site"},
	"podgroups": {
		"create": "Prepare, by apply", "patch": "Prepare", "list": "Observe", "watch": "Observe", "get": "Forget", "delete": "Forget",
	},
	"secrets": {
		"create": "Prepare; state: head and parts", "get": "Prepare, Forget; state", "delete": "Prepare, Forget; state: parts",
		"update": "Prepare takes over leftovers of an earlier anchor; state: head", "list": "state: leftover parts",
	},
	"leases": {"create": "state: lock", "get": "state: lock", "update": "state: lock"},
	"requests": {
		"list": "state: Pending", "watch": "state: Pending", "delete": "state: Pending removes old ones", "get": "state: Reply after a conflict",
		"create": "state: Ask, of a command in the master's pod",
	},
	"requests/status": {"update": "state: Reply"},
}

// inCluster are the rights that it has in the whole cluster.
var inCluster = map[string]map[string]string{
	"nodes":          {"list": "Observe", "watch": "Observe"},
	"pods":           {"list": "Observe: what others use", "watch": "Observe"},
	"runtimeclasses": {"list": "Fit: what a RuntimeClass adds to a pod", "watch": "Fit"},
	// of provider "volcano"
	"queues":     {"list": "Observe: why a job is not admitted", "watch": "Observe"},
	"hypernodes": {"list": "Observe: the labels for rank_by", "watch": "Observe"},
	"configmaps": {"get": "Capabilities: what the scheduler's configuration means"},
	// of requests
	"validatingadmissionpolicies":       {"get": "state: Pending, whether authors are checked"},
	"validatingadmissionpolicybindings": {"get": "state: Pending, whether authors are checked"},
}

// onlyNamed are the objects to which it has rights in the whole cluster by name only.
var onlyNamed = map[string]string{
	"configmaps":                  "volcano-scheduler-configmap",
	"validatingadmissionpolicies": "eltrain-request-author", "validatingadmissionpolicybindings": "eltrain-request-author",
}

// role compares the manifests with what is used.
func role(t *testing.T, objects []*unstructured.Unstructured) {
	var local rbacv1.Role
	find(t, objects, "Role", &local)
	var whole rbacv1.ClusterRole
	find(t, objects, "ClusterRole", &whole)
	for name, c := range map[string]struct {
		rules []rbacv1.PolicyRule
		used  map[string]map[string]string
	}{"Role": {local.Rules, used}, "ClusterRole": {whole.Rules, inCluster}} {
		want := map[string][]string{}
		for resource, verbs := range c.used {
			want[resource] = slices.Sorted(maps.Keys(verbs))
		}
		if diff := cmp.Diff(want, given(c.rules)); diff != "" {
			t.Errorf("%s (-used +given):\n%s", name, diff)
		}
	}
}

// given are the verbs of rules by resource, sorted.
func given(rules []rbacv1.PolicyRule) map[string][]string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			verbs[resource] = append(verbs[resource], rule.Verbs...)
			slices.Sort(verbs[resource])
		}
	}
	return verbs
}

// The documentation lists everything that eltrain may do, and why.
func TestPageHasEveryRight(t *testing.T) {
	objects := build(t, ".")
	var local rbacv1.Role
	find(t, objects, "Role", &local)
	var whole rbacv1.ClusterRole
	find(t, objects, "ClusterRole", &whole)
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| where | resource | verbs | for |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	aside := regexp.MustCompile(` \([^)]*\)`) // "configmaps (one name)", "get (its own)"
	words := func(cell string) []string {
		return slices.Sorted(strings.SplitSeq(aside.ReplaceAllString(cell, ""), ", "))
	}
	told, where := map[string]map[string][]string{}, ""
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 6 { // including the empty ones outside of the outer bars
			t.Fatalf("a row is %q", row)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[1] != "" {
			where = cells[1]
			told[where] = map[string][]string{}
		}
		for _, resource := range words(cells[2]) {
			told[where][resource] = words(cells[3])
			if name := onlyNamed[resource]; where == "the cluster" && !strings.Contains(cells[2], name) {
				t.Errorf("%q: the right is for %s only", row, name)
			}
		}
		if cells[4] == "" {
			t.Errorf("%q: the purpose is missing", row)
		}
	}
	want := map[string]map[string][]string{"its namespace": given(local.Rules), "the cluster": given(whole.Rules)}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-given +documented):\n%s", diff)
	}
}

var groupOf = map[string]string{
	"podgroups": "scheduling.volcano.sh", "queues": "scheduling.volcano.sh", "hypernodes": "topology.volcano.sh",
	"poddisruptionbudgets": "policy", "runtimeclasses": "node.k8s.io", "leases": "coordination.k8s.io", "deployments": "apps",
	"requests": "eltrain.dev", "validatingadmissionpolicies": "admissionregistration.k8s.io", "validatingadmissionpolicybindings": "admissionregistration.k8s.io",
	"roles": rbacv1.GroupName, "rolebindings": rbacv1.GroupName, "clusterroles": rbacv1.GroupName, "clusterrolebindings": rbacv1.GroupName,
}

// rights asks the API server what eltrain's account of a namespace may do.
func rights(t *testing.T, c *testbed.Cluster, namespace string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(t, testbed.User{Namespace: namespace}))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // there are hundreds of requests, and client-go's default is five per second
	client := kubernetes.NewForConfigOrDie(config)
	mayNamed := func(namespace, verb, resource, object string) bool {
		t.Helper()
		name, sub, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: groupOf[name], Resource: name, Subresource: sub, Name: object},
		}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	may := func(namespace, verb, resource string) bool {
		t.Helper()
		return mayNamed(namespace, verb, resource, "")
	}
	lacks := func() (all []string) {
		for resource, verbs := range used {
			for verb, by := range verbs {
				if !may(namespace, verb, resource) {
					all = append(all, fmt.Sprintf("%s %s, which is for %s", verb, resource, by))
				}
			}
		}
		for resource, verbs := range inCluster {
			for verb, by := range verbs {
				if !mayNamed("", verb, resource, onlyNamed[resource]) {
					all = append(all, fmt.Sprintf("%s %s in the cluster, which is for %s", verb, resource, by))
				}
			}
		}
		return all
	}
	lacking := lacks() // the API server learns of roles by a watch
	for deadline := time.Now().Add(patience); len(lacking) > 0 && time.Now().Before(deadline); lacking = lacks() {
		time.Sleep(50 * time.Millisecond)
	}
	for _, right := range lacking {
		t.Errorf("may not %s", right)
	}
	for resource, verbs := range used {
		for verb := range verbs {
			if elsewhere := may("kube-system", verb, resource); elsewhere && (inCluster[resource][verb] == "" || onlyNamed[resource] != "") {
				t.Errorf("may %s %s in another namespace", verb, resource)
			}
		}
	}
	for _, refused := range []struct{ verb, resource string }{
		{"create", "pods/exec"}, {"create", "pods/attach"}, {"create", "pods/portforward"}, {"create", "serviceaccounts/token"},
		{"watch", "secrets"}, {"create", "roles"}, {"bind", "roles"}, {"escalate", "roles"}, {"create", "rolebindings"},
		{"create", "clusterrolebindings"}, {"impersonate", "users"}, {"update", "deployments"}, {"patch", "nodes"}, {"delete", "nodes"}, {"*", "*"},
		{"update", "requests"}, {"list", "validatingadmissionpolicies"}, {"update", "validatingadmissionpolicies"},
	} {
		for _, where := range []string{namespace, ""} {
			if may(where, refused.verb, refused.resource) {
				t.Errorf("may %s %s in %q", refused.verb, refused.resource, where)
			}
		}
	}
}

// restricted: the master's pod meets the strictest of the Pod Security Standards.
func restricted(t *testing.T, c *testbed.Cluster, objects []*unstructured.Unstructured) {
	strict := c.Namespace(t)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := c.Admin().CoreV1().Namespaces().Patch(t.Context(), strict, "application/merge-patch+json", label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CoreV1().ServiceAccounts(strict).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "eltrain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "eltrain-"}, Spec: masterPod(t, objects).Spec}
	loose := pod.DeepCopy()
	loose.Spec.SecurityContext.RunAsNonRoot = nil
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	eventually(t, "a pod that may run as root is refused", func() bool { // the API server learns of the label by a watch
		_, err := c.Admin().CoreV1().Pods(strict).Create(t.Context(), loose, dry)
		return apierrors.IsForbidden(err)
	})
	if _, err := c.Admin().CoreV1().Pods(strict).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func masterPod(t *testing.T, objects []*unstructured.Unstructured) corev1.PodTemplateSpec {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	find(t, objects, "Deployment", &deployment)
	return deployment.Spec.Template
}

// With git-sync the job directory is filled by git-sync.
func gitSync(t *testing.T, c *testbed.Cluster) {
	withGit := build(t, "git-sync")
	install(t, c, withGit)
	pod := masterPod(t, withGit)
	for _, v := range pod.Spec.Volumes {
		if v.Name == "jobs" && (v.ConfigMap != nil || v.EmptyDir == nil) {
			t.Errorf("with git-sync the job directory is %+v", v.VolumeSource)
		}
	}
	if len(pod.Spec.InitContainers) != 1 || len(pod.Spec.Containers) != 2 {
		t.Errorf("with git-sync there are %d init containers and %d containers", len(pod.Spec.InitContainers), len(pod.Spec.Containers))
	}
}

// Selectors match, probed paths exist, and everything needed is reachable.
func TestManifestsFitTogether(t *testing.T) {
	for _, dir := range []string{".", "tls", "git-sync"} {
		t.Run(dir, func(t *testing.T) { fitTogether(t, build(t, dir)) })
	}
}

func fitTogether(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	pod := masterPod(t, objects)
	var service corev1.Service
	find(t, objects, "Service", &service)
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, the pod has %q", key, value, pod.Labels[key])
		}
	}
	var policy networkingv1.NetworkPolicy
	find(t, objects, "NetworkPolicy", &policy)
	if diff := cmp.Diff(service.Spec.Selector, policy.Spec.PodSelector.MatchLabels); diff != "" {
		t.Errorf("the NetworkPolicy and the Service select different pods (-service +policy):\n%s", diff)
	}
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "eltrain" }) // next to git-sync's
	master := pod.Spec.Containers[at]
	advertised := ""
	for _, e := range master.Env {
		if e.Name == "ELTRAIN_VAR_advertise" {
			advertised = e.Value
		}
	}
	if want := fmt.Sprintf("%s.$(POD_NAMESPACE).svc:%d", service.Name, service.Spec.Ports[0].Port); advertised != want {
		t.Errorf("advertised is %q, the Service is %q", advertised, want)
	}
	port := master.Ports[0]
	if !slices.Contains(master.Command, fmt.Sprintf("-listen=0.0.0.0:%d", port.ContainerPort)) || service.Spec.Ports[0].TargetPort.StrVal != port.Name {
		t.Errorf("the command %v, the port %+v and the Service %+v do not match", master.Command, port, service.Spec.Ports)
	}
	cfg := sampleJobs(t)
	metrics := slices.IndexFunc(master.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" })
	if _, listens, _ := net.SplitHostPort(cfg.Settings.Service.Metrics); metrics < 0 || fmt.Sprint(master.Ports[metrics].ContainerPort) != listens ||
		pod.Annotations["prometheus.io/port"] != listens || pod.Annotations["prometheus.io/scrape"] != "true" {
		t.Errorf("the metrics are at %q, the ports %+v, the annotations %v", cfg.Settings.Service.Metrics, master.Ports, pod.Annotations)
	}
	// A policy applies to the pod's port, whatever the Service's port is.
	if in := policy.Spec.Ingress; len(in) != 1 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.IntVal != port.ContainerPort || *in[0].Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("the NetworkPolicy allows %+v, the pod listens on %d", in, port.ContainerPort)
	}
	needed := []string{"TCP 443", "TCP 53", "TCP 6443", "UDP 53"} // the API server and DNS, at any address
	if len(pod.Spec.Containers) > 1 {
		needed = append(needed, "TCP 22") // git-sync's repository, if not at 443
	}
	var reached []string
	for _, rule := range policy.Spec.Egress {
		for _, p := range rule.Ports {
			if len(rule.To) == 0 {
				reached = append(reached, fmt.Sprintf("%s %d", *p.Protocol, p.Port.IntVal))
			}
		}
	}
	slices.Sort(needed)
	slices.Sort(reached)
	if diff := cmp.Diff(needed, reached); diff != "" {
		t.Errorf("egress of the NetworkPolicy (-needed +allowed):\n%s", diff)
	}
	if want := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}; !slices.Equal(policy.Spec.PolicyTypes, want) {
		t.Errorf("the NetworkPolicy covers only %v", policy.Spec.PolicyTypes)
	}
	waits := elastic.NewServer(elastic.ServerOptions{}).Handler() // of a master that is alive and does not lead yet
	for _, probed := range []struct {
		by   *corev1.Probe
		want int
	}{{master.LivenessProbe, http.StatusOK}, {master.ReadinessProbe, http.StatusServiceUnavailable}} {
		answer := httptest.NewRecorder()
		waits.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, probed.by.HTTPGet.Path, nil))
		if answer.Code != probed.want || probed.by.HTTPGet.Port.StrVal != port.Name {
			t.Errorf("a waiting master answers the probe of %+v with %d, want %d", probed.by.HTTPGet, answer.Code, probed.want)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		hasToken := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "token" })
		if hasToken != (c.Name == "eltrain") || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("container %s: it has the account's token: %v", c.Name, hasToken)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("container %s has no memory limit", c.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil && v.Name == "jobs" && v.ConfigMap.Name != "eltrain-jobs" {
			t.Errorf("the name of the ConfigMap %s changes with its content, which would start another master", v.ConfigMap.Name)
		}
	}
	source, err := os.ReadFile("../cmd/eltrain/version.go")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`const version = "(.+)"`).FindSubmatch(source)
	if version == nil || master.Image != "eltrain.invalid/eltrain:v"+string(version[1]) {
		t.Errorf("the image is %s, the version %s", master.Image, version)
	}
}

// Images come from the release file, by digest. The names in the manifests resolve to nothing, so no stranger can own them.
func TestImagesAreNamedByDigest(t *testing.T) {
	const digest = "@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	check := func(dir string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../scripts/check-images.sh", filepath.Join(copied, dir))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(podsite.Kubectl(t))+":"+os.Getenv("PATH"))
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	release := func(digest string) {
		t.Helper()
		text, err := os.ReadFile("images/kustomization.yaml")
		if err != nil {
			t.Fatal(err)
		}
		commented := regexp.MustCompile(`(?m)^# (images:|  .*)$`)
		text = commented.ReplaceAll(text, []byte("$1"))
		text = bytes.ReplaceAll(text, []byte("REGISTRY"), []byte("registry.example"))
		text = bytes.ReplaceAll(text, []byte("sha256:DIGEST"), []byte(digest))
		if err := os.WriteFile(filepath.Join(copied, "images/kustomization.yaml"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{".", "tls", "git-sync"}
	for _, dir := range dirs {
		build(t, dir) // skips without kubectl
		if said, err := check(dir); err == nil || !strings.Contains(said, "eltrain.invalid/eltrain:v") {
			t.Errorf("%s as it is: %v, %s", dir, err, said)
		}
	}
	release(digest[1:])
	for _, dir := range dirs {
		if said, err := check(dir); err != nil {
			t.Errorf("%s with digests: %s", dir, said)
		}
		pod := masterPod(t, build(t, filepath.Join(copied, dir)))
		agent := ""
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, e := range c.Env {
				if e.Name == "ELTRAIN_VAR_agent_image" {
					agent = e.Value
				}
			}
			want := "registry.example/git-sync" + digest
			if c.Name == "eltrain" {
				want = "registry.example/eltrain" + digest
			}
			if c.Image != want {
				t.Errorf("%s: container %s has image %s, want %s", dir, c.Name, c.Image, want)
			}
		}
		if agent != "registry.example/eltrain"+digest {
			t.Errorf("%s: agents come from %s", dir, agent)
		}
	}
	release("sha256:0")
	if said, err := check("."); err == nil || !strings.Contains(said, "registry.example/eltrain@sha256:0") {
		t.Errorf("with half a digest: %v, %s", err, said)
	}
}

// sampleJobs are those of jobs/.
func sampleJobs(t *testing.T) *lang.Config {
	t.Helper()
	t.Setenv("ELTRAIN_VAR_advertise", "eltrain.eltrain.svc:7070")
	cfg, diags := lang.Load("jobs", lang.Options{
		Version: "0.1.0", Environ: os.Environ(),
		Providers: map[string]reflect.Type{"local": reflect.TypeFor[struct{}](), provider.Name: reflect.TypeFor[provider.Config]()},
	})
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return cfg
}

func TestSampleJobsAreValid(t *testing.T) {
	cfg := sampleJobs(t)
	if cfg.Settings.State.Type != "kubernetes" || cfg.Settings.Service.Advertise != "eltrain.eltrain.svc:7070" || len(cfg.Jobs) != 1 {
		t.Errorf("settings %+v, %d jobs", cfg.Settings, len(cfg.Jobs))
	}
	files, err := filepath.Glob("jobs/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if clean, diags := lang.Format(text, file); diags.HasErrors() || !bytes.Equal(clean, text) {
			t.Errorf("%s is not in canonical format: %v", file, diags)
		}
	}
}

// The job directory follows the repository: added, removed and changed files.
func TestGitSyncLinks(t *testing.T) {
	root, jobs := t.TempDir(), t.TempDir()
	commit := func(name string, files map[string]string) {
		t.Helper()
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(root, "link")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
		hook := exec.CommandContext(context.Background(), "git-sync/link.sh")
		hook.Env = []string{"PATH=" + os.Getenv("PATH"), "GITSYNC_ROOT=" + root, "GITSYNC_LINK=current", "JOB_DIRECTORY=" + jobs}
		if out, err := hook.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Mkdir(filepath.Join(jobs, ".eltrain"), 0o755); err != nil { // the master's own
		t.Fatal(err)
	}
	holds := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		files, err := filepath.Glob(filepath.Join(jobs, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range append(files, filepath.Join(jobs, ".eltrain")) {
			text, err := os.ReadFile(file)
			if err == nil {
				got[filepath.Base(file)] = string(text)
			} else if filepath.Base(file) != ".eltrain" {
				t.Errorf("%s: %v", file, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	first := map[string]string{"a.hcl": "1", "b.hcl": "1"}
	commit("one", first)
	holds(first)
	second := map[string]string{"b.hcl": "2", "c.hcl": "2", "with space.hcl": "2"}
	commit("two", second)
	holds(second)
}

// master is eltrain as the Deployment runs it: its command, its account, the ConfigMap's files. Unlike there, it is a process
// on this machine, with another job directory and address.
type master struct {
	t     *testing.T
	dir   string
	url   string
	http  *http.Client
	cmd   *exec.Cmd
	out   *bytes.Buffer
	ended chan error
	// The probes of the kubelet.
	liveness, readiness string
}

func buildEltrain(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "eltrain")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/eltrain").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// The programs run in an empty image: without libc and loader.
func TestProgramsAreStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs: not with -short")
	}
	says := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-n", "build")
	says.Dir = ".."
	recipe, err := says.Output()
	if err != nil {
		t.Fatalf("make -n build: %v", err)
	}
	dir := t.TempDir()
	elsewhere := strings.Replace(string(recipe), " -o bin/ ", " -o "+dir+"/ ", 1)
	if elsewhere == string(recipe) {
		t.Fatalf("make build does not build into bin/: %s", recipe)
	}
	making := exec.CommandContext(t.Context(), "sh", "-e", "-c", elsewhere)
	making.Dir = ".."
	if out, err := making.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", elsewhere, err, out)
	}
	for _, name := range []string{"eltrain", "eltrain-agent"} {
		program, err := elf.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s needs a loader", name)
		}
	}
}

func startMaster(t *testing.T, binary, kubeconfig string, objects []*unstructured.Unstructured, env ...string) *master {
	t.Helper()
	m := &master{t: t, dir: t.TempDir(), out: &bytes.Buffer{}, ended: make(chan error, 1), http: trusting.Kubelet(t)}
	var files corev1.ConfigMap
	find(t, objects, "ConfigMap", &files)
	for name, text := range files.Data {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := loopback.Free(t)
	m.url = "https://" + address
	container := masterPod(t, objects).Spec.Containers[0]
	m.liveness, m.readiness = container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path
	command := slices.Clone(container.Command)
	for i, word := range command {
		switch {
		case strings.HasPrefix(word, "-chdir="):
			command[i] = "-chdir=" + m.dir
		case strings.HasPrefix(word, "-listen="):
			command[i] = "-listen=" + address
		}
	}
	m.cmd = exec.Command(binary, command[1:]...)
	m.cmd.Env = []string{"HOME=" + m.dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "ELTRAIN_VAR_advertise=" + address}
	m.cmd.Env = append(m.cmd.Env, env...)
	m.cmd.Stdout, m.cmd.Stderr = m.out, m.out
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(func() {
		m.cmd.Process.Kill()
		if m.ended != nil {
			<-m.ended
		}
		if t.Failed() {
			t.Logf("output of the master:\n%s", m.out)
		}
	})
	return m
}

// probe is the status of a path of the service; 0 without an answer.
func (m *master) probe(path string) int {
	answer, err := m.http.Get(m.url + path)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// end terminates it as the kubelet does, and waits for its exit.
func (m *master) end() {
	m.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	select {
	case err := <-m.ended:
		m.ended = nil
		if err != nil {
			m.t.Errorf("exit of the master: %v", err)
		}
	case <-time.After(patience):
		m.t.Fatal("the master does not exit")
	}
}

// patience bounds waits.
const patience = hang.Bound

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// With TLS the service answers only TLS clients, and the jobs' agents get its CA certificates.
func TestMasterWithTLS(t *testing.T) {
	c := start(t, testbed.Options{})
	objects := build(t, "tls")
	install(t, c, objects)
	pod := masterPod(t, objects)
	cert, key := selfSigned(t)
	files := t.TempDir() // instead of the Secret's volume
	for name, text := range map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key} {
		if err := os.WriteFile(filepath.Join(files, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mounted := func(m corev1.VolumeMount) bool { return m.Name == "tls" }
	main := pod.Spec.Containers[0]
	at := main.VolumeMounts[slices.IndexFunc(main.VolumeMounts, mounted)].MountPath
	var env []string
	for _, e := range main.Env {
		if path, is := strings.CutPrefix(e.Value, at+"/"); is {
			env = append(env, e.Name+"="+filepath.Join(files, path))
		}
	}
	m := startMaster(t, buildEltrain(t), c.Kubeconfig(t, testbed.User{Namespace: namespace}), objects, env...)
	plain := *m
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "eltrain.eltrain.svc"}}
	defer transport.CloseIdleConnections()
	m.http = &http.Client{Transport: transport}
	plain.http, plain.url = http.DefaultClient, strings.Replace(m.url, "https", "http", 1)
	eventually(t, "the master is ready", func() bool { return m.probe(m.readiness) == http.StatusOK })
	if got := plain.probe(plain.readiness); got == http.StatusOK {
		t.Error("it also answers without TLS")
	}
	for _, probe := range []*corev1.Probe{main.LivenessProbe, main.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Path == "" {
			t.Errorf("probed by %+v", probe.HTTPGet)
		}
	}
	eventually(t, "agents are told", func() bool {
		anchors, err := c.Admin().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/uid"})
		if err != nil {
			t.Fatal(err)
		}
		return len(anchors.Items) == 1 && anchors.Items[0].Data["ca.crt"] == string(cert) && strings.HasPrefix(anchors.Items[0].Data["service"], "https://")
	})
	m.end()
}

// selfSigned is a certificate for the Service of deploy/tls, and its key, in PEM.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"eltrain.eltrain.svc"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bare})
}

// admits checks that the NetworkPolicy allows the jobs' pods, as the provider creates them, to reach the master, and no others.
func admits(t *testing.T, c *testbed.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	var policy networkingv1.NetworkPolicy
	find(t, objects, "NetworkPolicy", &policy)
	from := policy.Spec.Ingress[0].From
	if len(from) != 1 || from[0].NamespaceSelector != nil || from[0].IPBlock != nil {
		t.Fatalf("the NetworkPolicy allows %+v", from)
	}
	selector, err := metav1.LabelSelectorAsSelector(from[0].PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if ofJob := p.Labels["eltrain.dev/job"] != ""; selector.Matches(labels.Set(p.Labels)) != ofJob {
			t.Errorf("pod %s of a job: %v; the NetworkPolicy says otherwise: %v", p.Name, ofJob, p.Labels)
		}
	}
}

// The master of the manifests, with their rights: it leads, creates the sample job's pods, a second one waits and takes over
// without recreating a pod, and destroy leaves only the state behind.
func TestMasterAndItsSuccessor(t *testing.T) {
	c := start(t, testbed.Options{Nodes: 3})
	objects := build(t, ".")
	install(t, c, objects)
	kubeconfig := c.Kubeconfig(t, testbed.User{Namespace: namespace})
	binary := buildEltrain(t)
	// The Deployment's own pods are not the job's.
	pods := func() map[types.UID]string {
		list, err := c.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job=hello"})
		if err != nil {
			t.Fatal(err)
		}
		found := map[types.UID]string{}
		for _, p := range list.Items {
			found[p.UID] = p.Name
		}
		return found
	}
	first := startMaster(t, binary, kubeconfig, objects)
	eventually(t, "the first master is ready", func() bool { return first.probe(first.readiness) == http.StatusOK })
	eventually(t, "the job has its pods", func() bool { return len(pods()) >= 2 })
	before := pods()
	admits(t, c, objects)

	second := startMaster(t, binary, kubeconfig, objects)
	eventually(t, "the second master is alive", func() bool { return second.probe(second.liveness) == http.StatusOK })
	if got := second.probe(second.readiness); got != http.StatusServiceUnavailable {
		t.Errorf("a waiting master answers %s with %d", second.readiness, got)
	}
	first.end()
	eventually(t, "the second master is ready", func() bool { return second.probe(second.readiness) == http.StatusOK })
	if diff := cmp.Diff(before, pods()); diff != "" {
		t.Errorf("the hand-over changed the job's pods (-before +after):\n%s", diff)
	}
	second.end()

	destroy := exec.Command(binary, "-chdir="+second.dir, "destroy", "-auto-approve", "-input=false")
	destroy.Env = second.cmd.Env
	if out, err := destroy.CombinedOutput(); err != nil {
		t.Fatalf("destroy: %v\n%s", err, out)
	}
	if left := pods(); len(left) > 0 {
		t.Errorf("pods are left over: %v", left)
	}
	var left []string
	labelled := metav1.ListOptions{LabelSelector: "eltrain.dev/uid"}
	core := c.Admin().CoreV1()
	if secrets, err := core.Secrets(namespace).List(t.Context(), labelled); err != nil {
		t.Error(err)
	} else {
		for _, s := range secrets.Items {
			left = append(left, "Secret "+s.Name)
		}
	}
	if services, err := core.Services(namespace).List(t.Context(), labelled); err != nil {
		t.Error(err)
	} else {
		for _, s := range services.Items {
			left = append(left, "Service "+s.Name)
		}
	}
	if anchors, err := core.ConfigMaps(namespace).List(t.Context(), labelled); err != nil {
		t.Error(err)
	} else {
		for _, m := range anchors.Items {
			left = append(left, "ConfigMap "+m.Name)
		}
	}
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	for _, m := range []*master{first, second} {
		if strings.Contains(m.out.String(), "forbidden") {
			t.Error("a right was missing")
		}
	}
}
