package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/podtest"
	"github.com/eltrain/eltrain/testbed"
)

// These tests are about what the API server stores. Their pods fit no node, so nothing runs.

func nowhere(c *Config) {
	c.Pod = map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"nowhere": "yes"}}}
}

func newPaperwork(t *testing.T) *work {
	bed.start(t)
	return newWork(t, bed.cluster, nowhere)
}

// objects lists the job's objects, as kind/name.
func (w *work) objects() []string {
	w.Helper()
	var all []string
	admin, of := w.cluster.Admin(), metav1.ListOptions{LabelSelector: labelUID + "=" + testUID}
	configMaps, err := admin.CoreV1().ConfigMaps(w.namespace).List(w.Context(), of)
	w.ok(err)
	for _, o := range configMaps.Items {
		all = append(all, "ConfigMap/"+o.Name)
	}
	secrets, err := admin.CoreV1().Secrets(w.namespace).List(w.Context(), of)
	w.ok(err)
	for _, o := range secrets.Items {
		all = append(all, "Secret/"+o.Name)
	}
	services, err := admin.CoreV1().Services(w.namespace).List(w.Context(), of)
	w.ok(err)
	for _, o := range services.Items {
		all = append(all, "Service/"+o.Name)
	}
	budgets, err := admin.PolicyV1().PodDisruptionBudgets(w.namespace).List(w.Context(), of)
	w.ok(err)
	for _, o := range budgets.Items {
		all = append(all, "PodDisruptionBudget/"+o.Name)
	}
	pods, err := admin.CoreV1().Pods(w.namespace).List(w.Context(), of)
	w.ok(err)
	for _, o := range pods.Items {
		all = append(all, "Pod/"+o.Name)
	}
	return all
}

func (w *work) pod(role string, index, incarnation int) *corev1.Pod {
	w.Helper()
	name := podName(testUID, job.Address{Job: "gpt", Role: role, Index: index}, incarnation)
	pod, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	w.ok(err)
	return pod
}

// until polls for a result of the cluster's controllers.
func (w *work) until(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(w.bound); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("after %s: not %s", w.bound, what)
		}
	}
}

func TestPrepareMakesWhatAJobHasBesideItsPods(t *testing.T) {
	w := newPaperwork(t)
	token := w.prepare(job.GroupRole{Role: "worker", Min: 3}, job.GroupRole{Role: "ps", Min: 1}, job.GroupRole{Role: "evaluator"})
	core := w.cluster.Admin().CoreV1()
	anchor, err := core.ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if anchor.Data["service"] != "https://127.0.0.1:1" {
		t.Errorf("the anchor has %v", anchor.Data)
	}
	secret, err := core.Secrets(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if string(secret.Data["token"]) != token {
		t.Errorf("the Secret has %q, Prepare gave %q", secret.Data["token"], token)
	}
	service, err := core.Services(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if service.Spec.ClusterIP != corev1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service is %+v", service.Spec)
	}
	budgetOf := func(role string) (*policyv1.PodDisruptionBudget, error) {
		return w.cluster.Admin().PolicyV1().PodDisruptionBudgets(w.namespace).Get(t.Context(), "gpt-0b0e9-"+role, metav1.GetOptions{})
	}
	for role, least := range map[string]int{"worker": 3, "ps": 1, "evaluator": 0} {
		budget, err := budgetOf(role)
		w.ok(err)
		if budget.Spec.MinAvailable.IntValue() != least {
			t.Errorf("the PodDisruptionBudget of %s is %+v", role, budget.Spec)
		}
	}
	budget, err := budgetOf("worker")
	w.ok(err)
	for _, o := range []metav1.Object{secret, service, budget} {
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != anchor.UID {
			t.Errorf("%s has the owners %+v instead of the anchor", o.GetName(), owners)
		}
	}
	for _, o := range []metav1.Object{anchor, service, budget} {
		applied := slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
			return m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
		})
		if !applied {
			t.Errorf("%T %s is not applied by eltrain: %+v", o, o.GetName(), o.GetManagedFields())
		}
	}

	// If nothing changed, even another master writes nothing; what changed is updated.
	w.prepare(job.GroupRole{Role: "worker", Min: 3}, job.GroupRole{Role: "ps", Min: 1}, job.GroupRole{Role: "evaluator"})
	next := w.open()
	if again, err := next.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 3}, job.GroupRole{Role: "ps", Min: 1})); err != nil || again != token {
		t.Errorf("the next master's token is %q, %v", again, err)
	}
	if now, err := core.ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{}); err != nil || now.ResourceVersion != anchor.ResourceVersion {
		t.Errorf("the anchor was written again, %v", err)
	}
	if now, err := budgetOf("worker"); err != nil || now.Generation != budget.Generation {
		t.Errorf("the PodDisruptionBudget was changed again, %v", err)
	}
	if _, err := next.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 2})); err != nil {
		t.Error(err)
	}
	for _, role := range []string{"ps", "evaluator"} {
		if _, err := budgetOf(role); !apierrors.IsNotFound(err) {
			t.Errorf("role %s was removed, but its PodDisruptionBudget was not: %v", role, err)
		}
	}
	if now, err := budgetOf("worker"); err != nil || now.Spec.MinAvailable.IntValue() != 2 {
		t.Errorf("the PodDisruptionBudget was not updated with the group: %+v, %v", now.Spec, err)
	}
}

// The field manager distinguishes what it writes of a pod from what others edit.
func TestPodsAreWrittenUnderEltrainsName(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	pod := w.pod("worker", 0, 1)
	for _, path := range [][]any{{"metadata", "labels", labelUID}, {"spec", "restartPolicy"}} {
		if by := managers(pod, path...); !slices.Equal(by, []string{FieldManager}) {
			t.Errorf("%s is written by %q", fmt.Sprint(path...), by)
		}
	}
}

// Masters that race, as in a failover, must not give agents and service different tokens.
func TestMastersThatRaceGiveOneToken(t *testing.T) {
	w := newPaperwork(t)
	tokens := make([]string, 6)
	var all sync.WaitGroup
	for n := range tokens {
		p := w.open()
		all.Go(func() {
			var err error
			if tokens[n], err = p.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1})); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, token := range tokens {
		if token == "" || token != tokens[0] {
			t.Fatalf("tokens %q", tokens)
		}
	}
}

// A master that was killed between any two steps left some of these.
func TestPrepareCompletesWhatWasCutShort(t *testing.T) {
	w := newPaperwork(t)
	token := w.prepare(job.GroupRole{Role: "worker", Min: 1})
	all := len(w.objects())
	admin, now := w.cluster.Admin(), metav1.DeleteOptions{}
	removals := map[string]func() error{
		"the PodDisruptionBudget": func() error {
			return admin.PolicyV1().PodDisruptionBudgets(w.namespace).Delete(t.Context(), "gpt-0b0e9-worker", now)
		},
		"the Service": func() error { return admin.CoreV1().Services(w.namespace).Delete(t.Context(), "gpt-0b0e9", now) },
		"the Secret":  func() error { return admin.CoreV1().Secrets(w.namespace).Delete(t.Context(), "gpt-0b0e9", now) },
	}
	for what, remove := range removals {
		w.ok(remove())
		again, err := w.open().Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
		w.ok(err)
		if now := w.objects(); len(now) != all {
			t.Errorf("without %s, Prepare results in %q", what, now)
		}
		if what != "the Secret" && again != token {
			t.Errorf("without %s, the token is another", what)
		}
		token = again
	}
}

func TestDeletingTheAnchorDeletesAll(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	w.ok(w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), "gpt-0b0e9", metav1.DeleteOptions{}))
	w.until("everything gone", func() bool { return len(w.objects()) == 0 })
}

func TestALackingRightIsNamed(t *testing.T) {
	bed.start(t)
	for _, lacking := range []testbed.Permission{{Verb: "patch", Resource: "configmaps"}, {Verb: "create", Resource: "secrets"},
		{Verb: "patch", Resource: "services"}, {Verb: "patch", Resource: "poddisruptionbudgets"}, {Verb: "create", Resource: "pods"}} {
		t.Run(lacking.Verb+" "+lacking.Resource, func(t *testing.T) {
			w := newWork(t, bed.cluster, nowhere)
			namespace := bed.cluster.Namespace(t)
			w.config.Kubeconfig = bed.cluster.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: []string{podtest.Rights}, Without: []testbed.Permission{lacking}})
			p := w.open()
			_, err := p.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
			if lacking.Resource == "pods" {
				w.ok(err)
				err = p.Launch(t.Context(), w.launch("worker", 0, 1))
			}
			if err == nil {
				t.Fatal("it worked without")
			}
			for _, word := range []string{lacking.Verb, lacking.Resource, namespace, "deploy/ has the Role"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
		})
	}
}

// The same for permissions that nothing needs while a job starts: a master with all of them has started it, and the next one,
// which lacks one, runs into what needs it.
func TestARightThatIsMissedLaterIsNamed(t *testing.T) {
	bed.start(t)
	first := job.Address{Job: "gpt", Role: "worker"}
	again := func(w *work, p *Provider) error { // the job's other objects are checked when a job is prepared again
		g := w.group(job.GroupRole{Role: "worker", Min: 1})
		if _, err := p.Prepare(w.Context(), g); err != nil {
			return err
		}
		_, err := p.Prepare(w.Context(), g)
		return err
	}
	forget := func(w *work, p *Provider) error {
		w.ok(w.p.Stop(w.Context(), testUID, first, 1, time.Second))
		w.until("the other master sees that it ended", func() bool {
			o, err := p.Observe(w.Context())
			w.ok(err)
			return !o.Incarnations.Any(func(i *job.Incarnation) bool { return i.State != job.Gone })
		})
		return p.Forget(w.Context(), testUID, "gpt")
	}
	for _, c := range []struct {
		lacking testbed.Permission
		meet    func(w *work, p *Provider) error
	}{
		{testbed.Permission{Verb: "delete", Resource: "pods"}, func(w *work, p *Provider) error {
			return p.Stop(w.Context(), testUID, first, 1, time.Second)
		}},
		{testbed.Permission{Verb: "get", Resource: "pods"}, func(w *work, p *Provider) error { // which the watch has not delivered
			return p.Stop(w.Context(), testUID, job.Address{Job: "gpt", Role: "worker", Index: 1}, 1, time.Second)
		}},
		{testbed.Permission{Verb: "get", Resource: "services"}, again},
		{testbed.Permission{Verb: "get", Resource: "poddisruptionbudgets"}, again},
		{testbed.Permission{Verb: "delete", Resource: "services"}, forget},
		{testbed.Permission{Verb: "delete", Resource: "secrets"}, forget},
		{testbed.Permission{Verb: "delete", Resource: "configmaps"}, forget},
	} {
		t.Run(c.lacking.Verb+" "+c.lacking.Resource, func(t *testing.T) {
			w := newWork(t, bed.cluster, nowhere)
			w.prepare(job.GroupRole{Role: "worker", Min: 1})
			w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
			w.config.Kubeconfig = w.short(bed.cluster.Kubeconfig, c.lacking)
			err := c.meet(w, w.open())
			if err == nil {
				t.Fatal("it worked without")
			}
			for _, words := range []string{fmt.Sprintf("cannot %s resource %q", c.lacking.Verb, c.lacking.Resource), w.namespace, "deploy/ has the Role"} {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q is not in: %v", words, err)
				}
			}
		})
	}
}

// short returns the kubeconfig of another account that lacks a permission, made by the given function.
func (w *work) short(kubeconfig func(testbed.T, testbed.User) string, lacking testbed.Permission) string {
	return kubeconfig(w, testbed.User{Namespace: w.namespace, Name: "short", Roles: []string{podtest.Rights}, Without: []testbed.Permission{lacking}})
}

// If the first list is not streamed by a watch, as by an older API server, the verb list is needed, and named if missing.
func TestAListThatIsNotAllowedIsNamed(t *testing.T) {
	bed.start(t)
	for _, resource := range []string{"pods", "nodes"} {
		t.Run(resource, func(t *testing.T) {
			w := newWork(t, bed.cluster, nowhere)
			proxy := bed.cluster.Proxy(t)
			proxy.Inject(testbed.Fault{Verb: "watch", Resource: resource, Status: http.StatusUnprocessableEntity}) // as an older API server answers
			w.config.Kubeconfig = w.short(proxy.Kubeconfig, testbed.Permission{Verb: "list", Resource: resource})
			p := w.open()
			var said string
			w.until("named", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*refusalStands)
				defer cancel()
				_, err := p.Observe(ctx)
				said = fmt.Sprint(err, p.Capabilities().Caveats)
				return strings.Contains(said, "may not list "+resource)
			})
			if !strings.Contains(said, fmt.Sprintf("cannot list resource %q", resource)) || !strings.Contains(said, "as in deploy/") {
				t.Errorf("it says: %s", said)
			}
		})
	}
}

// Other masters keep jobs in the same namespace: their agents must not get this master's service.
func TestPublishTellsOwnJobsAlone(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	other := w.open()
	_, err := other.Prepare(t.Context(), job.Group{UID: "other-uid", Name: "theirs"})
	w.ok(err)
	w.ok(w.p.Publish(t.Context(), providers.Service{URL: "https://10.0.0.9:7000"}))
	for name, want := range map[string]string{"gpt-0b0e9": "https://10.0.0.9:7000", "theirs-other": "https://127.0.0.1:1"} {
		anchor, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
		w.ok(err)
		if anchor.Data["service"] != want {
			t.Errorf("%s has %q, want %q", name, anchor.Data["service"], want)
		}
	}
}

// A master that took over with another address or certificate reports how long its agents may take to notice.
func TestNewsOfANextMasterTakeTheirTime(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	if news := w.p.Capabilities().News; news != 0 {
		t.Errorf("with the same address News is %s", news)
	}
	anchors := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace)
	age := func(by time.Duration) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, annotationMoved, time.Now().Add(-by).UTC().Format(time.RFC3339))
		_, err := anchors.Patch(t.Context(), "gpt-0b0e9", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		w.ok(err)
	}
	for _, step := range []struct {
		name    string
		service providers.Service
		aged    time.Duration // the age of the move in the anchor before
		takes   time.Duration
	}{
		{"another address", providers.Service{URL: "https://10.0.0.9:7000", Certificates: []byte("first")}, 0, configMapDelay},
		{"the same, by a third master soon after", providers.Service{URL: "https://10.0.0.9:7000", Certificates: []byte("first")}, 0, configMapDelay},
		{"the same, after a while", providers.Service{URL: "https://10.0.0.9:7000", Certificates: []byte("first")}, configMapDelay, 0},
		{"the same, after that", providers.Service{URL: "https://10.0.0.9:7000", Certificates: []byte("first")}, 0, 0},
		{"another certificate", providers.Service{URL: "https://10.0.0.9:7000", Certificates: []byte("second")}, 0, configMapDelay},
	} {
		if step.aged > 0 {
			age(step.aged)
		}
		next := w.open()
		w.ok(next.Publish(t.Context(), step.service))
		_, err := next.Prepare(t.Context(), job.Group{UID: testUID, Name: "gpt", Roles: []job.GroupRole{{Role: "worker", Min: 1}}})
		w.ok(err)
		if news := next.Capabilities().News.Std(); news != step.takes {
			t.Errorf("%s: News is %s", step.name, news)
		}
	}
}

func TestAPodOfAnothersIsNotTaken(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	_, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gpt-0b0e9-e1-worker-0"},
		Spec:       corev1.PodSpec{NodeSelector: map[string]string{"nowhere": "yes"}, Containers: []corev1.Container{{Name: "c", Image: podtest.HostImage}}},
	}, metav1.CreateOptions{})
	w.ok(err)
	if err := w.p.Launch(t.Context(), w.launch("worker", 0, 1)); err == nil || !strings.Contains(err.Error(), "is not this incarnation") {
		t.Errorf("launched over it: %v", err)
	}
	w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 1, time.Second))
	if _, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Get(t.Context(), "gpt-0b0e9-e1-worker-0", metav1.GetOptions{}); err != nil {
		t.Errorf("it was stopped: %v", err)
	}
}

// A pod that took another's name meanwhile must not be stopped.
func TestADeletionIsOfOnePod(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	there := w.p.index.get(key{testUID, "worker", 0, 1})
	stale := *there
	stale.uid = "of-one-before"
	w.ok(w.p.remove(t.Context(), &stale, 1))
	if now := w.pod("worker", 0, 1); now.UID != there.uid || now.DeletionTimestamp != nil {
		t.Error("another pod was deleted")
	}
}

// gated counts the pods held until their gang exists.
func (w *work) gated() (n int) {
	w.Helper()
	pods, err := w.cluster.Admin().CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
	w.ok(err)
	for _, p := range pods.Items {
		if gatedBy(&p, gangGate) {
			n++
		}
	}
	return n
}

func TestAGangIsLetGoTogether(t *testing.T) {
	w := newPaperwork(t)
	roles := []job.GroupRole{{Role: "worker", Min: 3}, {Role: "ps", Min: 1}, {Role: "evaluator", Min: 0}}
	w.prepare(roles...)
	for n := range 3 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", n, 1)))
	}
	// The next master completes the gang of a master that dies now.
	w.ok(w.p.Close())
	if n := w.gated(); n != 3 {
		t.Fatalf("%d of 3 are held while the ps is missing", n)
	}
	w.p = w.open()
	w.prepare(roles...)
	time.Sleep(4 * gatePause) // passes that must not lift the gates
	if n := w.gated(); n != 3 {
		t.Fatalf("%d of 3 are held while the ps is missing", n)
	}
	w.ok(w.p.Launch(t.Context(), w.launch("ps", 0, 1)))
	w.until("released", func() bool { return w.gated() == 0 })
	// Further pods of a whole gang are not held.
	w.until("known to be whole", func() bool { made, _ := w.p.jobs.get(testUID); return w.p.index.whole(made.group) })
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 3, 1)))
	if gatedBy(w.pod("worker", 3, 1), gangGate) {
		t.Error("a pod of a whole gang is held")
	}
}

// The next master removes the remaining gates of a gang whose master died while removing them.
func TestAGateIsLiftedByTheNextMaster(t *testing.T) {
	w := newPaperwork(t)
	roles := []job.GroupRole{{Role: "worker", Min: 2}}
	w.prepare(roles...)
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	w.ok(w.p.Close())
	made, _ := w.p.jobs.get(testUID)
	second, err := w.config.pod(w.launch("worker", 1, 1), podContext{namespace: w.namespace, anchor: made.anchor, scheduling: Scheduling{Gated: true}})
	w.ok(err)
	_, err = w.cluster.Admin().CoreV1().Pods(w.namespace).Create(t.Context(), second, metav1.CreateOptions{})
	w.ok(err)
	w.p = w.open()
	w.prepare(roles...)
	w.until("released", func() bool {
		return !gatedBy(w.pod("worker", 0, 1), gangGate) && !gatedBy(w.pod("worker", 1, 1), gangGate)
	})
}

func TestWhatWasEditedByHandIsMended(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	l := w.launch("worker", 0, 1)
	w.ok(w.p.Launch(t.Context(), l))
	w.until("written to by the scheduler", func() bool { return len(w.pod("worker", 0, 1).Status.Conditions) > 0 })
	before := w.pod("worker", 0, 1)
	w.ok(w.p.Launch(t.Context(), l))
	if now := w.pod("worker", 0, 1); now.ResourceVersion != before.ResourceVersion {
		t.Error("launching an unchanged pod again wrote something")
	}
	edit := `{"metadata":{"labels":{"app.kubernetes.io/component":"mine","added":"by-hand"}},"spec":{"containers":[{"name":"main","image":"other:1"}]}}`
	_, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Patch(t.Context(), before.Name, types.StrategicMergePatchType, []byte(edit), metav1.PatchOptions{})
	w.ok(err)
	drift := func() int { return len(w.p.index.get(key{testUID, "worker", 0, 1}).seen.Drift) }
	w.until("shown as drift", func() bool { return drift() == 2 })
	w.ok(w.p.Launch(t.Context(), l))
	now := w.pod("worker", 0, 1)
	if now.UID != before.UID || now.Labels["app.kubernetes.io/component"] != "worker" || now.Spec.Containers[0].Image != podtest.HostImage {
		t.Errorf("after the repair: %v, image %s", now.Labels, now.Spec.Containers[0].Image)
	}
	if now.Labels["added"] != "by-hand" {
		t.Error("a label of others was removed")
	}
	if drift() != 0 {
		t.Error("the next observation still shows it")
	}
}

// What identifies a pod's incarnation is repaired as well, by a master that saw it before the edit and by one that did
// not; so is what keeps it on its node.
func TestAnEditedIdentityIsMended(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	l := w.launch("worker", 0, 1)
	w.ok(w.p.Launch(t.Context(), l))
	before := w.pod("worker", 0, 1)
	pods := w.cluster.Admin().CoreV1().Pods(w.namespace)
	edits := map[string]string{
		"labels":      `{"metadata":{"labels":{"eltrain.dev/uid":"another","eltrain.dev/incarnation":"7","eltrain.dev/role":null}}}`,
		"annotations": `{"metadata":{"annotations":{"eltrain.dev/launch":null,"eltrain.dev/slot":"mine","eltrain.dev/state":"mine","karpenter.sh/do-not-disrupt":"false"}}}`,
	}
	for what, edit := range edits {
		for who, open := range map[string]func() *Provider{"this": func() *Provider { return w.p }, "the next": w.open} {
			if who == "the next" && what == "annotations" {
				edit = strings.Replace(edit, `"eltrain.dev/launch":null,`, "", 1) // a new master cannot know the original
			}
			_, err := pods.Patch(t.Context(), before.Name, types.MergePatchType, []byte(edit), metav1.PatchOptions{})
			w.ok(err)
			master := open()
			_, err = master.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
			w.ok(err)
			seen := func() job.Incarnation {
				o, err := master.Observe(t.Context())
				w.ok(err)
				if o.Incarnations.Len() != 1 || o.Incarnations[0][0].Number != 1 || o.Incarnations[0][0].Slot != l.Slot {
					t.Fatalf("%s edited, %s master sees %+v", what, who, o.Incarnations)
				}
				return o.Incarnations[0][0]
			}
			w.until("shown as drift", func() bool { return len(seen().Drift) > 2 })
			if i := seen(); i.Fingerprint != l.Fingerprint {
				t.Errorf("%s edited, %s master sees the fingerprint %q", what, who, i.Fingerprint)
			}
			w.ok(master.Launch(t.Context(), l))
			if i := seen(); len(i.Drift) > 0 {
				t.Errorf("%s edited, repaired by %s master: %+v", what, who, i.Drift)
			}
			now := w.pod("worker", 0, 1)
			if now.UID != before.UID || !maps.Equal(now.Labels, before.Labels) || !maps.Equal(now.Annotations, before.Annotations) {
				t.Errorf("%s edited, repaired by %s master into\n%v\n%v, was\n%v\n%v", what, who, now.Labels, now.Annotations, before.Labels, before.Annotations)
			}
		}
	}
}

func TestForgetLeavesNothing(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 2})
	for n := range 2 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", n, 1)))
	}
	if err := w.p.Forget(t.Context(), testUID, "gpt"); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Fatalf("a running job was forgotten: %v", err)
	}
	for n := range 2 {
		w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker", Index: n}, 1, time.Second))
	}
	// A Forget that was cut short: the anchor still exists, what it owns does not.
	w.ok(w.cluster.Admin().CoreV1().Services(w.namespace).Delete(t.Context(), "gpt-0b0e9", metav1.DeleteOptions{}))
	w.ok(w.p.Forget(t.Context(), testUID, "gpt"))
	if left := w.objects(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

func TestAQuotaIsTold(t *testing.T) {
	w := newPaperwork(t)
	const none = corev1.ResourceName("example.com/none") // shows whether admission knows the quota
	_, err := w.cluster.Admin().CoreV1().ResourceQuotas(w.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "two-pods"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("2"), "requests." + none: resource.MustParse("0"),
		}},
	}, metav1.CreateOptions{})
	w.ok(err)
	w.until("in force", func() bool {
		one := corev1.ResourceList{none: resource.MustParse("1")}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: one, Limits: one},
		}}}}
		_, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota: two-pods")
	})
	w.prepare(job.GroupRole{Role: "worker", Min: 40})
	errs := make(chan error)
	for n := range 40 {
		go func() { errs <- w.p.Launch(t.Context(), w.launch("worker", n, 1)) }()
	}
	refused := 0
	for range 40 {
		if err := <-errs; err != nil {
			refused++
			if !strings.Contains(err.Error(), "exceeded quota: two-pods") || strings.Contains(err.Error(), "deploy/") {
				t.Errorf("the error is %v", err)
			}
			if strings.Contains(err.Error(), "worker-") { // the error of one is returned to many
				t.Errorf("it names a pod: %v", err)
			}
			if !apierrors.IsForbidden(err) {
				t.Errorf("it is no longer a refusal: %v", err)
			}
		}
	}
	if refused != 38 {
		t.Errorf("%d of 38 were refused", refused)
	}
}

func TestAWebhookThatRefusesTheFirstThree(t *testing.T) {
	w := newPaperwork(t)
	w.cluster.Webhook(t, testbed.Refusals{Namespace: w.namespace, Times: 3, Message: "not today"})
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	refusals := 0
	w.until("launched", func() bool {
		err := w.p.Launch(t.Context(), w.launch("worker", 0, 1))
		if err != nil {
			refusals++
			if !strings.Contains(err.Error(), "not today") {
				t.Errorf("the error is %v", err)
			}
		}
		return err == nil
	})
	if refusals < 3 {
		t.Errorf("%d refusals were reported", refusals)
	}
}

// The API server is killed and restarted while pods are created: each exists once, and none is missing.
func TestTheAPIServerIsKilledWhilePodsAreCreated(t *testing.T) {
	soak.Only(t)
	w := newPaperwork(t)
	const n = 60
	w.prepare(job.GroupRole{Role: "worker", Min: n})
	ctx, cancel := context.WithTimeout(t.Context(), 2*w.bound)
	defer cancel()
	var all sync.WaitGroup
	for index := range n {
		all.Go(func() {
			for ctx.Err() == nil { // as apply does
				if w.p.Launch(ctx, w.launch("worker", index, 1)) == nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Errorf("worker[%d] was never launched", index)
		})
	}
	w.until("begun", func() bool { return len(w.p.index.ofJob(testUID)) > 5 })
	w.cluster.APIServer.Kill(t)
	w.cluster.APIServer.Start(t)
	all.Wait()
	pods, err := w.cluster.Admin().CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	w.ok(err)
	if len(pods.Items) != n {
		t.Errorf("%d pods of %d slots", len(pods.Items), n)
	}
	w.until("released", func() bool {
		for index := range n {
			if gatedBy(w.pod("worker", index, 1), gangGate) {
				return false
			}
		}
		return true
	})
}

func TestANamespaceThatTerminates(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.cluster.Admin().CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
	err := w.p.Launch(t.Context(), w.launch("worker", 0, 1))
	if err == nil || !strings.Contains(err.Error(), "being deleted") && !apierrors.IsNotFound(err) {
		t.Errorf("the error is %v", err)
	}
}
