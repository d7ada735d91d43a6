package faults

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// While etcd restarts nothing can be written or read. The master waits, and training continues undisturbed.
func TestEtcdRestartedWhileAJobTrains(t *testing.T) {
	soak.Only(t)
	c := startRough(t)
	s := newTrial(t, c)
	s.Write("job.hcl", settings+provider()+s.training(2, 2))
	m := s.Watch()
	s.AwaitWorld(2, 1)
	s.Renewed("main")
	c.Etcd.Kill(t)
	site.Until(t, "the API server cannot read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Admin().CoreV1().ConfigMaps(s.Namespace).List(ctx, metav1.ListOptions{})
		return err != nil
	})
	s.MakesProgress()
	c.Etcd.Start(t)
	m = s.masterAfter(m, time.Now())
	s.EndsRight(steps)
	s.started(workers, 1)
	m.Interrupt()
	s.destroyed()
}

// If the API server dies and comes back, the job trains on in the same generation, under the same master. An agent killed
// meanwhile is replaced once.
func TestAPIServerKilledWhileAJobTrains(t *testing.T) {
	soak.Only(t)
	c := startRough(t)
	s := newTrial(t, c)
	s.Write("job.hcl", settings+provider()+s.training(workers, workers))
	m := s.Watch()
	before := s.AwaitWorld(workers, 1)
	victim := before.Worker(1)
	agent, err := c.Kubelet.PID(s.Namespace, victim.Name, podsite.MainContainer)
	s.OK(err)
	s.Renewed("main")
	c.APIServer.Kill(t)
	s.MakesProgress()
	if starts := s.starts(); starts["worker[0]"] != 1 || starts["worker[1]"] != 1 {
		t.Errorf("while the API server was away training processes were started: %v", starts)
	}
	site.Kill(t, syscall.SIGKILL, agent)
	c.APIServer.Start(t)
	m = s.masterAfter(m, time.Now())
	after := s.AwaitWorld(workers, before.Generation+1)
	s.ReplacedOnce(before, after, victim)
	s.EndsRight(steps)
	s.ReplacedOnce(before, s.Now(), victim) // and not again
	s.ranOnce()
	s.started(workers, 2)
	m.Interrupt()
	s.destroyed()
}

// An API server that dies during the request for a slot's next pod may or may not have created it. Either way there is one pod
// in the end.
func TestAPIServerKilledAmidHealing(t *testing.T) {
	soak.Only(t)
	c := startRough(t)
	all := []*stopped{{kind: "post pods"}, {kind: "post pods", done: true}}
	victims := map[*stopped]corev1.Pod{}
	for _, s := range all {
		s.trial = newTrial(t, c)
		s.gate = s.Through()
		s.Write("job.hcl", settings+provider()+s.resting(workers))
		s.master = s.Watch()
	}
	for _, s := range all {
		s.AwaitWorld(workers, 1)
		victims[s] = s.Pods()[0]
	}
	for _, s := range all {
		s.held, s.release = s.gate.StopAt(s.n, s.kind, s.done)
		s.DeletePod(victims[s].Name, podsite.AtOnce())
	}
	for _, s := range all {
		select {
		case <-s.held:
		case <-time.After(site.Bound):
			t.Fatalf("%v: it makes no pod", s)
		}
	}
	for _, s := range all {
		s.Renewed("main") // so that the lock outlasts the API server's absence
	}
	c.APIServer.Kill(t)
	for _, s := range all {
		close(s.release)
	}
	c.APIServer.Start(t)
	back := time.Now()
	for _, s := range all {
		s.master = s.masterAfter(s.master, back)
		s.AwaitWorld(workers, 2)
		s.replacedOnce(victims[s])
		s.started(workers, 2)
		s.master.Interrupt()
		s.destroyed()
	}
}

// One job's pods are lost again and again; another job, under the same master, is not disturbed.
func TestOneJobsTroubleLeavesTheOthersAlone(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	in := *s.Site
	in.Site, in.Work = s.Of("quiet"), filepath.Join(s.Work, "quiet")
	quiet := &trial{&in}
	s.OK(os.Mkdir(quiet.Work, 0o755))
	s.Write("quiet.hcl", strings.Replace(quiet.resting(workers), `job "gpt"`, `job "quiet"`, 1))
	m := s.Watch()
	j, before := s.AwaitWorld(workers, 1), quiet.AwaitWorld(workers, 1)
	for range 3 {
		s.DeletePod(j.Worker(0).Name, podsite.AtOnce())
		j = s.AwaitWorld(workers, j.Generation+1)
	}
	if after := quiet.Now(); after.Generation != before.Generation || !maps.Equal(after.PodsOrAgents(), before.PodsOrAgents()) {
		t.Errorf("the other job was %+v and is %+v", before, after)
	}
	quiet.started(workers, 1)
	s.ranOnce()
	m.Interrupt()
	s.destroyed()
}

// An admission webhook that refuses three times costs three tries.
func TestWebhookRefusesTheFirstThreeCreates(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	hook := s.Cluster.Webhook(t, testbed.Refusals{Namespace: s.Namespace, Times: 3, Message: "the policy is not loaded yet"})
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	out := s.Must(applying...)
	site.Has(t, out, "the policy is not loaded yet")
	if hook.Refused() != 3 {
		t.Errorf("%d creates were refused", hook.Refused())
	}
	s.trainsUndisturbed(workers)
	s.destroyed()
}

// quota limits the namespace's pods, and waits until that is in force.
func (s *trial) quota(pods string) {
	s.T.Helper()
	quotas := s.Cluster.Admin().CoreV1().ResourceQuotas(s.Namespace)
	small := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}}}
	_, err := quotas.Create(s.T.Context(), small, metav1.CreateOptions{})
	s.OK(err)
	site.Until(s.T, "the quota is in force", func() bool {
		q, err := quotas.Get(s.T.Context(), "small", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
}

// raise raises the quota to enough pods.
func (s *trial) raise() {
	s.T.Helper()
	raised := []byte(`{"spec":{"hard":{"pods":"4"}}}`)
	quotas := s.Cluster.Admin().CoreV1().ResourceQuotas(s.Namespace)
	_, err := quotas.Patch(s.T.Context(), "small", types.MergePatchType, raised, metav1.PatchOptions{})
	s.OK(err)
	site.Until(s.T, "that is in force", func() bool {
		q, err := quotas.Get(s.T.Context(), "small", metav1.GetOptions{})
		return err == nil && q.Status.Hard.Pods().Value() == 4
	})
}

// A watching master names a quota that is too small. Once it is raised, the job comes up by itself.
func TestQuotaExceededThenRaised(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.quota("1")
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	m := s.Watch()
	m.AwaitOutput("exceeded quota: small")
	if n := len(s.Pods()); n > 1 {
		t.Errorf("%d pods under a quota of 1", n)
	}
	s.raise()
	s.AwaitWorld(workers, 1)
	s.trainsUndisturbed(workers)
	m.Interrupt()
	s.destroyed()
}

// A plain apply gives up at a quota that is too small, and names it. The next one, with the quota raised, does the rest.
func TestQuotaExceededByAPlainApply(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.quota("1")
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	out, code := s.Run(applying...)
	if code != 1 {
		t.Errorf("apply under a quota that is too small ends with exit code %d", code)
	}
	site.Has(t, out, "exceeded quota: small")
	if n := len(s.Pods()); n > 1 {
		t.Errorf("%d pods under a quota of 1", n)
	}
	if j := s.Now(); len(j.Running()) > 0 || !j.Says("exceeded quota: small") {
		t.Errorf("status says %q of %+v", j.Reasons, j.Slots)
	}
	s.raise()
	s.Must(applying...)
	s.trainsUndisturbed(workers)
	s.destroyed()
}

// plan shows a manual edit of a pod, and the next apply reverts it without a restart.
func TestPodEditedByHandIsShownThenMended(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	s.Must(applying...)
	edited := s.Pods()[0].Name
	pods := s.Cluster.Admin().CoreV1().Pods(s.Namespace)
	if _, err := pods.Patch(t.Context(), edited, types.MergePatchType, []byte(`{"metadata":{"labels":{"app.kubernetes.io/name":"mine"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	site.Has(t, s.Must("plan"), "1 to change", "it was edited")
	s.Must(applying...)
	site.Has(t, s.Must("plan"), "No changes")
	s.trainsUndisturbed(workers)
	s.destroyed()
}

// A deleted namespace takes the job with it. The master says so, creates nothing more there, and exits when its lock is gone
// too.
func TestNamespaceThatTerminates(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	g := s.Through()
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	m := s.Watch()
	s.AwaitWorld(workers, 1)
	g.StopAt(0, "", false)
	if err := s.Cluster.Admin().CoreV1().Namespaces().Delete(t.Context(), s.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	site.Until(t, "the namespace is gone", func() bool {
		_, err := s.Cluster.Admin().CoreV1().Namespaces().Get(t.Context(), s.Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if code := m.Wait(); code == 0 {
		t.Error("a master whose namespace is gone ends as if nothing had been")
	}
	site.Has(t, m.Out.String(), "nothing can be created in a namespace that is being deleted")
	if tries := len(g.Asked()); tries > 40 { // each slot, and the state, with backoff
		t.Errorf("%d writes into a namespace that is being deleted", tries)
	}
	if out, code := s.Run(applying...); code == 0 {
		t.Errorf("apply into a namespace that is gone:\n%s", out)
	}
	s.ranOnce()
	s.nothingLeft()
}

// A namespace that was deleted and recreated is empty. The jobs of a state that outlived it are not started there again until
// they are removed from the state.
func TestNamespaceMadeAnew(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", provider()+s.resting(workers)) // its state is a file
	s.Must(applying...)
	namespaces := s.Cluster.Admin().CoreV1().Namespaces()
	s.OK(namespaces.Delete(t.Context(), s.Namespace, metav1.DeleteOptions{}))
	site.Until(t, "the namespace is gone", func() bool {
		_, err := namespaces.Get(t.Context(), s.Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}, metav1.CreateOptions{})
	s.OK(err)
	s.As(s.User()) // the rights were deleted with it
	out, _ := s.Run("plan")
	site.Has(t, out, "It was launched at", "it is left unchanged", "eltrain state rm")
	out, _ = s.Run(applying...)
	if pods := s.Pods(); len(pods) > 0 {
		t.Errorf("%d pods were made in the new namespace:\n%s", len(pods), out)
	}
	s.Must("state", "rm", "job.gpt")
	site.Has(t, s.Must(applying...), fmt.Sprintf("%d added", workers))
	s.started(workers, 2) // once in each namespace
	s.destroyed()
}

// If a master's token expires, training continues, the master says what is wrong and loses its lock, and the next one, with a
// new token, finds everything as it was.
func TestTokenExpires(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	s.Must(applying...)
	user := s.User()
	user.TokenLife = 30 * time.Second // enough to get the lock on a busy machine
	s.As(user)
	m := s.Watch()
	if code := m.Wait(); code == 0 {
		t.Error("a master without a valid token ends as if nothing had been")
	}
	site.Has(t, m.Out.String(), "lock was lost", "jobs keep running")
	out, code := s.Run("plan")
	if code == 0 {
		t.Error("plan without a valid token succeeds")
	}
	site.Has(t, out, "may have expired")
	s.As(s.User())
	site.Has(t, s.Must(applying...), "No changes")
	s.trainsUndisturbed(workers)
	s.destroyed()
}

// Whatever happens to requests in transit, it converges and no pod is created twice.
func TestRequestsMeetFaultsOnTheirWay(t *testing.T) {
	const busy = http.StatusTooManyRequests
	for name, faults := range map[string][]testbed.Fault{
		"429 with Retry-After":     {{Verb: "create", Status: busy, RetryAfter: time.Second, Times: 4}, {Verb: "patch", Status: busy, RetryAfter: time.Second, Times: 4}},
		"a storm of 429":           {{Status: busy, RetryAfter: time.Second, Fraction: 0.3, Times: 40}},
		"409 and 500":              {{Verb: "patch", Status: http.StatusConflict, Times: 2}, {Verb: "create", Status: http.StatusInternalServerError, Times: 3}},
		"503":                      {{Status: http.StatusServiceUnavailable, Fraction: 0.1, Times: 30}},
		"lost answers to creates":  {{Verb: "create", LoseAnswer: true, Times: 4}},
		"lost answers to patches":  {{Verb: "patch", LoseAnswer: true, Times: 5}},
		"lost answers to updates":  {{Verb: "update", LoseAnswer: true, Fraction: 0.5, Times: 5}},
		"410 to watches and lists": {{Verb: "watch", Status: http.StatusGone, Times: 4}, {Verb: "list", Status: http.StatusGone, Times: 2}},
		"latency":                  {{Delay: 300 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTrial(t, calm.start(t))
			g := s.Through()
			s.Write("job.hcl", settings+provider()+s.resting(workers))
			var out string
			hits := make([]int, len(faults))
			for _, round := range [][]string{applying, destroying} {
				var injected []*testbed.Injected
				for _, f := range faults {
					injected = append(injected, g.Proxy.Inject(f))
				}
				out = s.Must(round...)
				for i, fault := range injected {
					hits[i] += fault.Hits()
					fault.Remove()
				}
				if round[0] == "apply" {
					s.trainsUndisturbed(workers)
				}
			}
			if slices.Contains(hits, 0) {
				t.Errorf("requests that met each of the faults: %v", hits)
			}
			if problems := s.remains(); len(problems) > 0 {
				t.Errorf("%v\n%s", problems, out)
			}
		})
	}
}

// Watches that keep breaking are reopened, and miss nothing: a pod deleted just after they broke is observed as deleted, not
// found by its lease, and is replaced once.
func TestWatchesBreakAllTheTime(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	g := s.Through()
	// A watch that keeps breaking is reopened with a backoff of up to 5 s: the lease must be longer.
	s.Write("job.hcl", settings+provider()+strings.Replace(s.training(workers, workers), fmt.Sprintf("lease = %q", briefly), `lease = "30s"`, 1))
	m := s.Watch()
	m.AwaitOutput("Watching.") // the first lists come by watches, and are complete now
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			n += g.Proxy.BreakWatches()
			time.Sleep(time.Second)
		}
		broken <- n
	}()
	before := s.AwaitWorld(workers, 1)
	victim := before.Worker(1)
	pod := s.Pod(victim.Name)
	g.Proxy.BreakWatches()
	s.DeletePod(victim.Name, podsite.AtOnce())
	after := s.AwaitWorld(workers, before.Generation+1)
	s.Blamed(after, "deleted", []site.Slot{victim}, "pod "+victim.Name)
	s.replacedOnce(*pod)
	s.EndsRight(steps)
	cancel()
	if n := <-broken; n < 10 {
		t.Errorf("%d watches were broken", n)
	}
	s.started(workers, 2)
	m.Interrupt()
	s.destroyed()
}
