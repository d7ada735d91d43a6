package testbed

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRequestInfo(t *testing.T) {
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/api/v1/nodes", "list nodes"},
		{"GET", "/api/v1/nodes/n", "get nodes"},
		{"GET", "/api/v1/pods?watch=true", "watch pods"},
		{"GET", "/api/v1/namespaces/ns/pods?watch=1&labelSelector=a", "watch pods"},
		{"GET", "/api/v1/namespaces/ns/pods?watch=0", "list pods"},
		{"GET", "/api/v1/namespaces/ns/pods/p", "get pods"},
		{"GET", "/api/v1/namespaces/ns", "get namespaces"},
		{"GET", "/api/v1/namespaces", "list namespaces"},
		{"POST", "/api/v1/namespaces/ns/pods", "create pods"},
		{"POST", "/api/v1/namespaces/ns/pods/p/eviction", "create pods/eviction"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "update leases"},
		{"PATCH", "/api/v1/namespaces/ns/pods/p/status", "patch pods/status"},
		{"DELETE", "/api/v1/namespaces/ns/pods/p", "delete pods"},
		{"DELETE", "/api/v1/namespaces/ns/pods", "deletecollection pods"},
		{"GET", "/version", "get /version"},
		{"GET", "/apis/apps/v1", "get /apis/apps/v1"},
	} {
		verb, resource := requestInfo(httptest.NewRequest(test.method, test.path, http.NoBody))
		if got := verb + " " + resource; got != test.want {
			t.Errorf("%s %s is %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

func TestWithoutTakesOnePermission(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{Resources: []string{"pods", "services"}, Verbs: []string{"get", "create"}},
		{Resources: []string{"leases"}, Verbs: []string{"get"}},
	}
	got := without(rules, []Permission{{"create", "pods"}, {"get", "leases"}})
	want := []rbacv1.PolicyRule{
		{Resources: []string{"services"}, Verbs: []string{"get", "create"}},
		{Resources: []string{"pods"}, Verbs: []string{"get"}},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(rules[0].Resources) != 2 {
		t.Errorf("the manifest's own rules were changed: %v", rules)
	}
}

func TestBinariesMissing(t *testing.T) {
	t.Setenv(binariesEnv, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ready := t.TempDir()
	for _, find := range []func() (string, error){Binaries, VolcanoBinaries} {
		t.Setenv(binariesEnv, "")
		if _, err := find(); err == nil || !strings.Contains(err.Error(), "make testbed") {
			t.Errorf("got %v, want what to do", err)
		}
		t.Setenv(binariesEnv, ready)
		if dir, err := find(); err != nil || dir != ready {
			t.Errorf("got %s, %v, want the given folder", dir, err)
		}
	}
}

// A module's programs get the components' names, and their files are copied along.
func TestBuildNamesProgramsAndCopiesFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program: not with -short")
	}
	checkout := t.TempDir()
	for name, content := range map[string]string{
		"testbed/pins/go.mod":      "module pins\n\ngo 1.26.0\n\nrequire upstream v0.0.0\n\nreplace upstream => ../../upstream\n",
		"testbed/pins/go.sum":      "",
		"upstream/go.mod":          "module upstream\n\ngo 1.26.0\n",
		"upstream/cmd/run/main.go": "package main\n\nfunc main() {}\n",
		"upstream/crds/a.yaml":     "a",
		"upstream/more/b.yaml":     "b",
	} {
		path := filepath.Join(checkout, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(goCache))) // the compiled packages stay in the user's cache
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(checkout)
	m := module{
		name: "pins", holds: "a program",
		programs: map[string]string{"component": "upstream/cmd/run"},
		built:    map[string]string{"run": "component"},
		copies:   []copied{{"upstream", "crds", "files"}, {"upstream", "more", "files"}},
	}
	var said strings.Builder
	dir, err := m.ensure(t.Context(), &said)
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for _, name := range []string{"component", "files/a.yaml", "files/b.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if found, err := m.binaries(); err != nil || found != dir {
		t.Errorf("it is in %s, and found in %s: %v", dir, found, err)
	}
	said.Reset()
	if again, err := m.ensure(t.Context(), &said); err != nil || again != dir || said.Len() > 0 {
		t.Errorf("built again into %s: %v, %s", again, err, said.String())
	}

	m.copies = []copied{{"upstream", "missing", "files"}}
	m.linkFlags = "-s" // a different build
	if _, err := m.ensure(t.Context(), &said); err == nil || !strings.Contains(err.Error(), "missing of upstream") {
		t.Errorf("a missing folder: %v", err)
	}
	if found, err := m.binaries(); err == nil {
		t.Errorf("the failed build is found in %s", found)
	}
}

func TestUnknownVersionOfVolcano(t *testing.T) {
	err := addPodGroupFields(&unstructured.Unstructured{}, "1.13")
	if err == nil || !strings.Contains(err.Error(), `version "1.13"`) {
		t.Errorf("got %v, want its name", err)
	}
}

// A build that fails or is killed must not be taken for a complete one.
func TestFailedBuildLeavesNothing(t *testing.T) {
	cache, checkout := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	source := filepath.Join(checkout, "testbed", "controlplane")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": "module broken\n\ngo 1.26.0\n", "go.sum": ""} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(checkout)
	var said strings.Builder
	if dirs, err := Build(t.Context(), &said); err == nil {
		t.Errorf("it built %s from nothing", dirs)
	}
	left, err := filepath.Glob(filepath.Join(cache, "eltrain", "testbed", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if filepath.Base(path) != "lock" {
			t.Errorf("%s is left", path)
		}
	}
	if _, err := Binaries(); err == nil {
		t.Error("the failed build is taken for a complete one")
	}
}
