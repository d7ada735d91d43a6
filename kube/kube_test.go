package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const two = `apiVersion: v1
kind: Config
current-context: near
clusters:
- {name: a, cluster: {server: "https://a.example"}}
- {name: b, cluster: {server: "https://b.example"}}
contexts:
- {name: near, context: {cluster: a, namespace: ml}}
- {name: far, context: {cluster: b}}
`

func TestAccess(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	path := filepath.Join(home, "config")
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		access          Access
		host, namespace string
	}{
		"the current context":   {Access{Kubeconfig: path}, "https://a.example", "ml"},
		"from home":             {Access{Kubeconfig: "~/config"}, "https://a.example", "ml"},
		"another context":       {Access{Kubeconfig: path, Context: "far"}, "https://b.example", "default"},
		"a namespace of choice": {Access{Kubeconfig: path, Namespace: "mine"}, "https://a.example", "mine"},
	} {
		config, namespace, err := c.access.Client(0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if config.Host != c.host || namespace != c.namespace {
			t.Errorf("%s: %s in %s; want %s in %s", name, namespace, config.Host, c.namespace, c.host)
		}
	}
	t.Setenv("KUBECONFIG", path)
	if config, _, err := (Access{}).Client(0); err != nil || config.Host != "https://a.example" {
		t.Errorf("$KUBECONFIG is not used: %v", err)
	}
}

// client-go's default limit of 5 requests per second must not apply: users would not find the cause.
func TestNoLimitButTheUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		qps   float64
		limit float32
	}{{0, -1}, {0.5, 0.5}, {100, 100}} {
		config, _, err := Access{Kubeconfig: path}.Client(c.qps)
		if err != nil {
			t.Fatal(err)
		}
		if config.QPS != c.limit || c.qps > 0 && config.Burst < 1 {
			t.Errorf("qps %v: %v requests a second in bursts of %d", c.qps, config.QPS, config.Burst)
		}
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good")
	if err := os.WriteFile(good, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		access Access
		told   string
	}{
		{Access{Kubeconfig: filepath.Join(dir, "none")}, "none"},
		{Access{Kubeconfig: broken}, broken},
		{Access{Kubeconfig: good, Context: "nowhere"}, "nowhere"},
	} {
		if _, _, err := c.access.Client(0); err == nil || !strings.Contains(err.Error(), c.told) {
			t.Errorf("%+v: %v; want an error with %q", c.access, err, c.told)
		}
	}
}
