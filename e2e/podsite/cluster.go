package podsite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

// MainContainer is the container that runs the agent.
const MainContainer = "main"

// bounded returns a context that does not end with the test's own.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), site.Bound)
}

// Pods returns the pods of eltrain's jobs, including ended ones, by name.
func (s *Site) Pods() []corev1.Pod {
	s.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	list, err := s.Cluster.Admin().CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "eltrain.dev/job"})
	s.OK(err)
	return list.Items
}

// Pod reads a pod.
func (s *Site) Pod(name string) *corev1.Pod {
	s.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	pod, err := s.Cluster.Admin().CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	s.OK(err)
	return pod
}

// DeletePod deletes a pod as kubectl does; with no grace, as with --grace-period=0 --force.
func (s *Site) DeletePod(name string, options metav1.DeleteOptions) {
	s.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	s.OK(s.Cluster.Admin().CoreV1().Pods(s.Namespace).Delete(ctx, name, options))
}

// AtOnce is a deletion without a grace period.
func AtOnce() metav1.DeleteOptions {
	now := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &now}
}

// NodeOf waits until a pod runs, and returns its node.
func (s *Site) NodeOf(pod string) (node string) {
	s.T.Helper()
	site.Until(s.T, "pod "+pod+" runs", func() bool {
		now := s.Pod(pod)
		node = now.Spec.NodeName
		return now.Status.Phase == corev1.PodRunning
	})
	return node
}

// Objects returns what eltrain's jobs have in the namespace, as kind/name: eltrain's pods and pod groups, and all objects of
// other kinds except the state and what every namespace has.
func (s *Site) Objects() []string {
	s.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	ours, all := metav1.ListOptions{LabelSelector: "eltrain.dev/job"}, metav1.ListOptions{}
	client := s.Cluster.Admin()
	var found []string
	enter := func(kind string, names []string, err error) {
		s.T.Helper()
		s.OK(err)
		for _, name := range names {
			o := kind + "/" + name
			if o != "configmap/kube-root-ca.crt" && !strings.HasPrefix(o, "secret/eltrain-state-") && !strings.HasPrefix(o, "secret/eltrain-key-") {
				found = append(found, o)
			}
		}
	}
	pods, err := client.CoreV1().Pods(s.Namespace).List(ctx, ours)
	enter("pod", names(pods.Items), err)
	configMaps, err := client.CoreV1().ConfigMaps(s.Namespace).List(ctx, all)
	enter("configmap", names(configMaps.Items), err)
	secrets, err := client.CoreV1().Secrets(s.Namespace).List(ctx, all)
	enter("secret", names(secrets.Items), err)
	services, err := client.CoreV1().Services(s.Namespace).List(ctx, all)
	enter("service", names(services.Items), err)
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).List(ctx, all)
	enter("poddisruptionbudget", names(budgets.Items), err)
	if s.Cluster.HasVolcano() {
		groups, err := s.Cluster.Dynamic().Resource(testbed.PodGroups).Namespace(s.Namespace).List(ctx, ours)
		s.OK(err)
		enter("podgroup", names(groups.Items), err)
	}
	return found
}

func names[T any, P interface {
	*T
	metav1.Object
}](items []T) []string {
	var all []string
	for i := range items {
		all = append(all, P(&items[i]).GetName())
	}
	return all
}

// Lease reads the lock of a state in the site's namespace.
func (s *Site) Lease(state string) coordinationv1.LeaseSpec {
	s.T.Helper()
	ctx, cancel := bounded()
	defer cancel()
	lease, err := s.Cluster.Admin().CoordinationV1().Leases(s.Namespace).Get(ctx, "eltrain-state-"+state, metav1.GetOptions{})
	s.OK(err)
	return lease.Spec
}

// Renewed waits until the holder of a lock renews it. A standby counts the lease from when it first sees a renewal, so only
// after the next one does its count start at the renewal itself.
func (s *Site) Renewed(state string) {
	s.T.Helper()
	before := s.Lease(state)
	site.Until(s.T, "the lock is renewed", func() bool { return s.Lease(state).RenewTime.After(before.RenewTime.Time) })
}

// TakenOver waits until a standby, which waited since before Renewed, takes over a lock whose holder was just stopped. It checks
// that this was not before the lease expired, counted from the last renewal, which may have been in flight when the holder
// was stopped.
func (s *Site) TakenOver(state string) {
	s.T.Helper()
	left := s.Lease(state)
	if left.HolderIdentity == nil {
		s.T.Fatal("nobody holds the lock")
	}
	lease := time.Duration(*left.LeaseDurationSeconds) * time.Second
	var taken coordinationv1.LeaseSpec
	site.Until(s.T, "another master has the lock", func() bool {
		if taken = s.Lease(state); taken.HolderIdentity == nil {
			s.T.Fatalf("%s, which was stopped, has given the lock back", *left.HolderIdentity)
		}
		if *taken.HolderIdentity != *left.HolderIdentity {
			return true
		}
		left = taken
		return false
	})
	if after := taken.AcquireTime.Sub(left.RenewTime.Time); after < lease {
		s.T.Errorf("a lock of %v was taken over %v after it was renewed last", lease, after)
	}
	if *taken.LeaseTransitions != *left.LeaseTransitions+1 {
		s.T.Errorf("the lock was held by %s (%d) and is held by %s (%d)", *left.HolderIdentity, *left.LeaseTransitions, *taken.HolderIdentity, *taken.LeaseTransitions)
	}
}

// Processes returns the processes of the site's pods by their ID on this machine. They are found by their working directory.
func (s *Site) Processes() map[int]string {
	if s.Work == "" {
		return nil
	}
	return site.ProcessesIn(s.Work)
}

// Left returns all objects and processes of the site's jobs.
func (s *Site) Left() []string {
	s.T.Helper()
	found := s.Objects()
	for pid, args := range s.Processes() {
		found = append(found, fmt.Sprintf("process %d %s", pid, args))
	}
	return found
}

// Log logs the status and output of the pods.
func (s *Site) Log() {
	ctx, cancel := bounded()
	defer cancel()
	pods := s.Cluster.Admin().CoreV1().Pods(s.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Log(err)
		return
	}
	for _, p := range list.Items {
		status, _ := json.Marshal(p.Status)
		text, _ := pods.GetLogs(p.Name, &corev1.PodLogOptions{Container: MainContainer}).DoRaw(ctx)
		s.T.Logf("pod %s on %q: deleted %v\n%s\n%s", p.Name, p.Spec.NodeName, p.DeletionTimestamp, status, text)
	}
}
