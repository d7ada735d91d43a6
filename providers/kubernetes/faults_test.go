package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/podtest"
	"github.com/eltrain/eltrain/testbed"
)

// newFaultyWork is newPaperwork behind a proxy.
func newFaultyWork(t *testing.T) (*work, *testbed.Proxy) {
	bed.start(t)
	proxy := bed.cluster.Proxy(t)
	w := newPaperwork(t)
	w.config.Kubeconfig = proxy.Kubeconfig(t, testbed.User{Namespace: w.namespace, Roles: []string{podtest.Rights}})
	w.p = w.open()
	return w, proxy
}

func (w *work) podCount() (n int) {
	for _, name := range w.objects() {
		if len(name) > 4 && name[:4] == "Pod/" {
			n++
		}
	}
	return n
}

// The API server created the pod, and the answer was lost: it is not created twice, and the launch does not fail.
func TestALostAnswerStartsNothingTwice(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	proxy.Inject(testbed.Fault{Verb: "create", Resource: "pods", LoseAnswer: true, Times: 1})
	w.ok(retryTransient(t.Context(), func() error { return w.p.Launch(t.Context(), w.launch("worker", 0, 1)) }))
	if n := w.podCount(); n != 1 {
		t.Errorf("%d pods of one slot", n)
	}
	proxy.Inject(testbed.Fault{Verb: "delete", Resource: "pods", LoseAnswer: true, Times: 1})
	w.ok(retryTransient(t.Context(), func() error {
		return w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 1, time.Second)
	}))
	if n := w.podCount(); n != 0 {
		t.Errorf("%d pods after the stop", n)
	}
}

// No more pods are created at once than the provider's parallelism, however many successes the API server reports.
func TestNoMoreAreCreatedAtOnceThanParallelism(t *testing.T) {
	const parallelism, first, later = 3, 12, 12
	w, proxy := newFaultyWork(t)
	w.config.Parallelism = parallelism
	w.p = w.open()
	w.prepare(job.GroupRole{Role: "worker", Min: first + later})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	launch := func(index int, judge func(error)) {
		all.Go(func() { judge(w.p.Launch(ctx, w.launch("worker", index, 1))) })
	}
	for index := range first {
		launch(index, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	before := proxy.Requests("create", "pods")
	held := proxy.Inject(testbed.Fault{Verb: "create", Resource: "pods", Delay: time.Hour})
	for index := range later {
		launch(first+index, func(err error) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the error of the canceled launch is %v", err)
			}
		})
	}
	defer all.Wait()
	defer cancel()
	w.until("as many are under way as may be", func() bool { return held.Hits() >= parallelism })
	time.Sleep(500 * time.Millisecond) // in which no more may follow
	if n := proxy.Requests("create", "pods") - before; n != parallelism {
		t.Errorf("%d are created at once, want %d", n, parallelism)
	}
	if most := w.p.Capabilities().Parallelism; most != parallelism {
		t.Errorf("the capabilities have a parallelism of %d", most)
	}
}

// A provider with qps makes at most that many requests per second, after the first second.
func TestQPSIsTheMostRequestsASecond(t *testing.T) {
	soak.Only(t)
	const qps, n = 5, 20
	w, proxy := newFaultyWork(t)
	w.config.QPS = qps
	w.p = w.open()
	w.prepare(job.GroupRole{Role: "worker", Min: n})
	before := proxy.Requests("create", "pods")
	start := time.Now()
	var all sync.WaitGroup
	for index := range n {
		all.Go(func() {
			if err := w.p.Launch(t.Context(), w.launch("worker", index, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	if asked := proxy.Requests("create", "pods") - before; asked != n {
		t.Errorf("%d requests for %d pods", asked, n)
	}
	if least := time.Second * (n - qps) / qps; took < least {
		t.Errorf("%d pods were created in %s, and at %d requests a second they take %s at least", n, took, qps, least)
	}
}

// A gang's own requests count too.
func TestAGangIsUnderTheSameLimitOfRequests(t *testing.T) {
	w, _ := newFaultyWork(t)
	w.config.QPS = 5
	p := w.open()
	groups, err := kube.NewGroup(Site{p}.Config(), corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	if of := groups.GetRateLimiter(); of == nil || of != p.client.CoreV1().GetRateLimiter() {
		t.Error("a gang's client has a limit of its own")
	}
}

// 429 with Retry-After: all wait that long, each is launched in the end, and few requests are in vain.
func TestTooManyRequestsAreObeyed(t *testing.T) {
	w, proxy := newFaultyWork(t)
	const n, refusals = 40, 3
	w.prepare(job.GroupRole{Role: "worker", Min: n})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1))) // at its slowest, one at a time
	before := proxy.Requests("create", "pods")
	proxy.Inject(testbed.Fault{Verb: "create", Resource: "pods", Status: 429, RetryAfter: 2 * time.Second, Times: refusals})
	var all sync.WaitGroup
	for index := 1; index < n; index++ {
		all.Go(func() {
			if err := retryTransient(t.Context(), func() error { return w.p.Launch(t.Context(), w.launch("worker", index, 1)) }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if asked := proxy.Requests("create", "pods") - before; asked != n-1+refusals {
		t.Errorf("%d requests for %d pods and %d refusals", asked, n-1, refusals)
	}
}

// A complete gang that is not released reports why, instead of its pods' own reason.
func TestAGateThatCannotBeLifted(t *testing.T) {
	w, proxy := newFaultyWork(t)
	refusals := proxy.Inject(testbed.Fault{Verb: "patch", Resource: "pods", Status: 403})
	w.prepare(job.GroupRole{Role: "worker", Min: 2})
	waiting := func() (all []string) {
		o, err := w.p.Observe(t.Context())
		w.ok(err)
		for i := range o.Incarnations.All() {
			all = append(all, i.Waiting)
		}
		return all
	}
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	if reported := waiting(); !slices.Equal(reported, []string{heldTogether}) {
		t.Errorf("half of it waits for %q", reported)
	}
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 1, 1)))
	w.until("told", func() bool {
		reported := waiting()
		return !slices.ContainsFunc(reported, func(s string) bool {
			return !strings.Contains(s, "its scheduling gate cannot be removed") || !strings.Contains(s, "injected")
		})
	})
	refusals.Remove()
	w.until("let go", func() bool {
		return !gatedBy(w.pod("worker", 0, 1), gangGate) && !gatedBy(w.pod("worker", 1, 1), gangGate)
	})
	w.until("told no more", func() bool {
		return !slices.ContainsFunc(waiting(), func(s string) bool { return strings.Contains(s, "its scheduling gate") })
	})
}

// The gates of a gang are removed concurrently. If a master is killed before any answer, or half-way, the next one
// continues.
func TestMastersKilledWhileTheyLiftGates(t *testing.T) {
	w, proxy := newFaultyWork(t)
	const n = 24
	gang := job.GroupRole{Role: "worker", Min: n}
	w.prepare(gang)
	const longer = 2 * gateTimeout // longer than the master waits
	hold := func() *testbed.Injected {
		return proxy.Inject(testbed.Fault{Verb: "patch", Resource: "pods", Delay: longer})
	}
	held := hold()
	for index := range n {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", index, 1)))
	}
	w.until("asked for all at once", func() bool { return held.Hits() == n })
	killed := func(gated int) {
		t.Helper()
		w.ok(w.p.Close())
		if left := w.gated(); left != gated {
			t.Fatalf("%d are held, want %d", left, gated)
		}
		held.Remove()
	}
	killed(n)

	pass := proxy.Inject(testbed.Fault{Verb: "patch", Resource: "pods", Times: n / 2})
	held = hold()
	w.p = w.open()
	w.prepare(gang)
	w.until("half let go, and the other half asked for", func() bool { return held.Hits() == n/2 && w.gated() == n/2 })
	pass.Remove()
	killed(n / 2)

	w.p = w.open()
	w.prepare(gang)
	w.until("let go", func() bool { return w.gated() == 0 })
	if pods := w.podCount(); pods != n {
		t.Errorf("%d pods of %d slots", pods, n)
	}
}

// An unchanged job costs the API server no write, and no request of its own.
func TestASteadyStateWritesNothing(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 3})
	for index := range 3 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", index, 1)))
	}
	w.until("let go", func() bool {
		for index := range 3 {
			if gatedBy(w.pod("worker", index, 1), gangGate) {
				return false
			}
		}
		return true
	})
	writes := func() (n int) {
		for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
			n += proxy.Requests(verb, "")
		}
		return n
	}
	before := writes()
	w.prepare(job.GroupRole{Role: "worker", Min: 3})
	for index := range 3 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", index, 1)))
	}
	time.Sleep(2 * time.Second) // in which nothing must happen
	if n := writes() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
}

// While one launch checks the anchor and the API server is slow to answer, the others continue.
func TestALookAtTheAnchorHoldsNobodyUp(t *testing.T) {
	soak.Only(t)
	w, proxy := newFaultyWork(t)
	const n = 8
	w.prepare(job.GroupRole{Role: "worker", Min: n})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	j, _ := w.p.jobs.get(testUID)
	<-j.check
	j.check <- anchorCheck{seen: time.Now().Add(time.Hour)} // the next one checks, and the others need not, even if the machine is slow
	const late = 20 * time.Second                           // longer than any create takes
	proxy.Inject(testbed.Fault{Verb: "get", Resource: "configmaps", Delay: late, Times: 1})
	begun := time.Now()
	took := make(chan time.Duration, n)
	var all sync.WaitGroup
	for index := 1; index < n; index++ {
		all.Go(func() {
			if err := w.p.Launch(t.Context(), w.launch("worker", index, 1)); err != nil {
				t.Error(err)
			}
			took <- time.Since(begun)
		})
	}
	all.Wait()
	close(took)
	waited := 0
	for d := range took {
		if d >= late {
			waited++
		}
	}
	if waited != 1 {
		t.Errorf("%d of %d launches waited for the check", waited, n-1)
	}
}

// A move of the service is known even if the answer to its write was lost.
func TestAMoveOfWhichTheAnswerIsLostIsKnown(t *testing.T) {
	w, proxy := newFaultyWork(t)
	worker := job.GroupRole{Role: "worker", Min: 1}
	w.prepare(worker)
	next := w.open()
	w.ok(next.Publish(t.Context(), providers.Service{URL: "https://10.0.0.9:7000"}))
	proxy.Inject(testbed.Fault{Verb: "patch", Resource: "configmaps", LoseAnswer: true, Times: 1})
	if _, err := next.Prepare(t.Context(), w.group(worker)); err == nil {
		t.Fatal("it was prepared without an answer")
	}
	_, err := next.Prepare(t.Context(), w.group(worker))
	w.ok(err)
	if news := next.Capabilities().News.Std(); news != configMapDelay {
		t.Errorf("News is %s", news)
	}
}

// A refused budget does not keep the job's Service from being created.
func TestARefusedBudgetRefusesNoService(t *testing.T) {
	w, proxy := newFaultyWork(t)
	proxy.Inject(testbed.Fault{Verb: "patch", Resource: "poddisruptionbudgets", Status: 403})
	if _, err := w.p.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1})); err == nil {
		t.Fatal("it was prepared without a budget")
	}
	if there := w.objects(); !slices.ContainsFunc(there, func(name string) bool { return strings.HasPrefix(name, "Service/") }) {
		t.Errorf("there are %v", there)
	}
}

// The last writer of a budget uses the job's latest group, even if it knows an older one.
func TestTheNewestBudgetStays(t *testing.T) {
	w, _ := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	before, _ := w.p.jobs.get(testUID)
	w.prepare(job.GroupRole{Role: "worker", Min: 3})
	w.ok(w.p.writeObjects(t.Context(), before))
	budgets, err := w.cluster.Admin().PolicyV1().PodDisruptionBudgets(w.namespace).List(t.Context(), metav1.ListOptions{})
	w.ok(err)
	if len(budgets.Items) != 1 || budgets.Items[0].Spec.MinAvailable.IntValue() != 3 {
		t.Errorf("the budgets are %+v", budgets.Items)
	}
}

// Writing the budgets while the job is prepared again reads the latest group.
func TestBudgetsAreWrittenWhileTheJobIsPrepared(t *testing.T) {
	w, _ := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	before, _ := w.p.jobs.get(testUID)
	written := make(chan error, 1)
	go func() {
		var errs []error
		for range 20 {
			errs = append(errs, w.p.writeObjects(t.Context(), before))
		}
		written <- errors.Join(errs...)
	}()
	for least := range 10 {
		w.prepare(job.GroupRole{Role: "worker", Min: 2 + least})
	}
	w.ok(<-written)
}

// A job may be forgotten during a launch.
func TestAPodOfAForgottenJobIsGated(t *testing.T) {
	g := &gates{p: &Provider{jobs: newPreparations()}}
	if !g.Schedule(job.Group{UID: testUID, Roles: []job.GroupRole{{Role: "worker", Min: 2}}}, job.Address{}).Gated {
		t.Error("it is not")
	}
}
