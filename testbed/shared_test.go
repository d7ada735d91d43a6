package testbed_test

import (
	"slices"
	"testing"

	"github.com/eltrain/eltrain/testbed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Another package uses the same cluster, with nodes, users and proxies of its own; it leaves only its namespaces.
func TestASharedClusterIsTakenTurnsIn(t *testing.T) {
	c := sharedCluster(t)
	t.Setenv(testbed.SharedEnv, c.Dir())
	other, err := testbed.Shared(testbed.Options{Nodes: 1, Node: testbed.KWOKNode{Prefix: "guest"}})
	if err != nil {
		t.Fatal(err)
	}
	const node = "guest-0"
	if other.Address() != c.Address() || !slices.Contains(c.Nodes(t), node) || other.HasVolcano() {
		t.Errorf("it is at %s, with Volcano: %v", other.Address(), other.HasVolcano())
	}
	namespace := other.Namespace(t)
	kubeconfig := other.Proxy(t).Kubeconfig(t, testbed.User{Namespace: namespace, Roles: podRoles})
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a user that it makes: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if slices.Contains(c.Nodes(t), node) {
		t.Error("its node is left")
	}
}
