package kubernetes

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eltrain/eltrain/job"
)

func TestReadiness(t *testing.T) {
	g := job.Group{Roles: []job.GroupRole{{Role: "worker", Min: 2}, {Role: "ps", Min: 1}}}
	pods := func(role string, up, coming int) (all []*pod) {
		for range up {
			all = append(all, &pod{key: key{role: role}, seen: job.Incarnation{State: job.Up}})
		}
		for range coming {
			all = append(all, &pod{key: key{role: role}, seen: job.Incarnation{State: job.Starting}})
		}
		return all
	}
	ended := []*pod{{key: key{role: "worker"}, seen: job.Incarnation{State: job.Gone}}, {key: key{role: "worker"}, deleting: true}}
	var a readiness
	start := time.Unix(0, 0)
	for _, step := range []struct {
		what  string
		at    time.Duration
		pods  []*pod
		allUp bool
		due   time.Duration // 0: when a pod has changed
	}{
		{"none is there", 0, nil, false, 0},
		{"what has ended is not on its way", 0, ended, false, 0},
		{"all workers, and no ps", 0, pods("worker", 4, 0), false, 0},
		{"not enough workers", 10 * time.Second, append(pods("worker", 1, 3), pods("ps", 1, 0)...), false, 0},
		{"enough, and more come", 11 * time.Second, append(pods("worker", 2, 2), pods("ps", 1, 0)...), false, 11*time.Second + quietPeriod},
		{"another has come", 11500 * time.Millisecond, append(pods("worker", 3, 1), pods("ps", 1, 0)...), false, 11500*time.Millisecond + quietPeriod},
		{"one that cannot be placed is not awaited", 13 * time.Second, append(pods("worker", 3, 1), pods("ps", 1, 0)...), true, 11500*time.Millisecond + quietPeriod},
	} {
		allUp, due := a.allUp(start.Add(step.at), g, step.pods)
		if step.due == 0 != due.IsZero() || step.due > 0 && !due.Equal(start.Add(step.due)) {
			t.Errorf("%s: due %v, want %v", step.what, due.Sub(start), step.due)
		}
		if allUp != step.allUp {
			t.Errorf("%s: allUp is %v", step.what, allUp)
		}
	}
	a = readiness{}
	if allUp, _ := a.allUp(start, g, append(pods("worker", 2, 0), pods("ps", 1, 0)...)); !allUp {
		t.Error("it waits although all are up")
	}

	// Pods that keep coming delay it only for a while.
	a = readiness{}
	at, up := start, 2
	for allUp := false; !allUp; at, up = at.Add(quietPeriod/2), up+1 {
		if at.Sub(start) > 2*readinessLimit {
			t.Fatal("it waits forever")
		}
		allUp, _ = a.allUp(at, g, append(pods("worker", up, 1), pods("ps", 1, 0)...))
	}
	if took := at.Sub(start); took < readinessLimit {
		t.Errorf("up after %v", took)
	}
}

// If names and a budget cannot be written, other jobs are not affected, and they are written in the end.
func TestNamesThatHangHoldUpNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, quick := uidOf(1), uidOf(2)
		var back atomic.Bool
		var written sync.Map
		p := answered(t, 4, func(r *http.Request) (*http.Response, error) {
			if jobOfPath(r) == hangs[:5] && !back.Load() {
				return slowly(r, time.Hour, named)
			}
			if strings.Contains(r.URL.Path, "/services/") {
				written.Store(jobOfPath(r), true)
			}
			return named(r)
		})
		p.owned.Go(p.activateLoop)
		selected := func(uid string) bool {
			_, is := written.Load(uid[:5])
			return is
		}
		for _, uid := range []string{hangs, quick} {
			p.gangOf(t, uid, 1)
			up := gatedPod(t, uid, 0, 1)
			up.ResourceVersion, up.Spec = "200", corev1.PodSpec{NodeName: "n1"}
			up.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: mainContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			p.index.put(up)
			time.Sleep(time.Second)
		}
		if !selected(quick) {
			t.Error("another job's writes hang, and it has no names")
		}
		time.Sleep(2 * readinessWrite)
		back.Store(true)
		time.Sleep(2 * (readinessWrite + readinessRetry))
		if !selected(hangs) {
			t.Error("they could be written again, but are not")
		}
	})
}

// While pods start, the controllers of Services and budgets have no work with them.
func TestNamesAndBudgetsSelectPodsThatAreUp(t *testing.T) {
	bed.start(t)
	w := newWork(t, bed.cluster, nil)
	selected := func() (byService, byBudget int) {
		t.Helper()
		core, policy := w.cluster.Admin().CoreV1(), w.cluster.Admin().PolicyV1()
		service, err := core.Services(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
		w.ok(err)
		budget, err := policy.PodDisruptionBudgets(w.namespace).Get(t.Context(), "gpt-0b0e9-worker", metav1.GetOptions{})
		w.ok(err)
		count := func(selector map[string]string) int {
			pods, err := core.Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(selector)})
			w.ok(err)
			return len(pods.Items)
		}
		return count(service.Spec.Selector), count(budget.Spec.Selector.MatchLabels)
	}
	all := func(n int) func() bool {
		return func() bool {
			t.Helper()
			named, protected := selected()
			return named == n && protected == n
		}
	}
	roles := []job.GroupRole{{Role: "worker", Min: 2}}
	w.prepare(roles...)
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1))) // its gate is not removed
	w.prepare(roles...)
	if !all(0)() {
		t.Error("the selectors match pods before the job's are up")
	}
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 1, 1)))
	w.await("worker", 0, 1, job.Up)
	w.await("worker", 1, 1, job.Up)
	w.until("the pods have names and a budget", all(2))

	// That does not change, whatever happens to single pods, and with another master.
	w.ok(w.p.Stop(t.Context(), testUID, w.launch("worker", 1, 1).Slot, 1, time.Second))
	w.prepare(roles...)
	next := w.open()
	_, err := next.Observe(t.Context())
	w.ok(err)
	if _, err := next.Prepare(t.Context(), w.group(roles...)); err != nil {
		t.Fatal(err)
	}
	if !all(w.podCount())() {
		t.Error("one pod ended, and the other has lost its name or its budget")
	}
}
