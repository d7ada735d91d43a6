package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/eltrain/eltrain/lang"
)

// What is launched is marked with its state's owner: two states must never have the same.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `apiVersion: v1
kind: Config
current-context: near
clusters: [{name: a, cluster: {server: "https://a.example"}}]
contexts: [{name: near, context: {cluster: a, namespace: ml}}]
`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		settings lang.State
		want     string
	}{
		{lang.State{}, "file " + host + ":" + filepath.Join(dir, "eltrain.state")},
		{lang.State{Type: "file", Path: "/srv/jobs.state"}, "file " + host + ":/srv/jobs.state"},
		{lang.State{Type: "kubernetes", Name: "team-a", Kubeconfig: kubeconfig}, "kubernetes ml/team-a"},
		{lang.State{Type: "kubernetes", Name: "team-a", Kubeconfig: kubeconfig, Namespace: "other"}, "kubernetes other/team-a"},
	} {
		got, err := ownerOf(test.settings)
		if err != nil || got != test.want {
			t.Errorf("%+v: %q, %v; want %q", test.settings, got, err, test.want)
		}
	}
}
