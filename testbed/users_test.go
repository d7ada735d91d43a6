package testbed_test

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/testbed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var podRoles = []string{"testdata/role.yaml"}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestUserHasItsRolesAndNoMore(t *testing.T) {
	c := sharedCluster(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	client := clientOf(t, c.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: podRoles}))
	ctx := t.Context()

	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod("p"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create pods, which it may: %v", err)
	}
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("list nodes, which it may: %v", err)
	}
	refused := map[string]error{
		"delete pods":                   client.CoreV1().Pods(namespace).Delete(ctx, "p", metav1.DeleteOptions{}),
		"delete nodes":                  client.CoreV1().Nodes().Delete(ctx, "kwok-0", metav1.DeleteOptions{}),
		"list secrets":                  second(client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})),
		"list another namespace's pods": second(client.CoreV1().Pods(other).List(ctx, metav1.ListOptions{})),
	}
	for what, err := range refused {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want it forbidden", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestUserLacksOneVerb(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	client := clientOf(t, c.Kubeconfig(t, testbed.User{
		Namespace: namespace, Name: "lacking", Roles: podRoles, Without: []testbed.Permission{{Verb: "create", Resource: "pods"}},
	}))
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create pods: got %v, want it forbidden", err)
	}
	if _, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list pods: %v", err)
	}
}

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	client := clientOf(t, c.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: podRoles, TokenLife: 20 * time.Second}))
	list := func() error { return second(client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})) }
	if err := list(); err != nil {
		t.Fatalf("while it is valid: %v", err)
	}
	await(t, "the API server refuses it", func() bool { return apierrors.IsUnauthorized(list()) })
}
