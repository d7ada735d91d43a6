package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/testbed"
)

// Any object of a running master's job can be deleted by hand: the next Prepare recreates it, and running agents still have
// the right token.
func TestWhatWasDeletedByHandIsMadeAgain(t *testing.T) {
	w := newPaperwork(t)
	token := w.prepare(job.GroupRole{Role: "worker", Min: 1}, job.GroupRole{Role: "ps", Min: 1})
	all := w.objects()
	admin, now := w.cluster.Admin(), metav1.DeleteOptions{}
	for what, remove := range map[string]func() error{
		"a PodDisruptionBudget": func() error {
			return admin.PolicyV1().PodDisruptionBudgets(w.namespace).Delete(t.Context(), "gpt-0b0e9-ps", now)
		},
		"the Service": func() error { return admin.CoreV1().Services(w.namespace).Delete(t.Context(), "gpt-0b0e9", now) },
		"the Secret":  func() error { return admin.CoreV1().Secrets(w.namespace).Delete(t.Context(), "gpt-0b0e9", now) },
	} {
		w.ok(remove())
		if again := w.prepare(job.GroupRole{Role: "worker", Min: 1}, job.GroupRole{Role: "ps", Min: 1}); again != token {
			t.Errorf("without %s, the token is another", what)
		}
		if now := w.objects(); !slices.Equal(now, all) {
			t.Errorf("without %s, Prepare results in %q", what, now)
		}
	}
}

// An update that was partly written before it failed, and is then reverted, leaves nothing: the budget is the job's.
func TestAGroupThatIsTakenBackLeavesNothing(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	refused := proxy.Inject(testbed.Fault{Verb: "deletecollection", Resource: "poddisruptionbudgets", Status: 403})
	if _, err := w.p.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 8})); err == nil {
		t.Fatal("nothing was refused")
	}
	refused.Remove()
	w.until("prepared as before", func() bool { // writes like the refused one are delayed
		_, err := w.p.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
		return err == nil
	})
	budgets, err := w.cluster.Admin().PolicyV1().PodDisruptionBudgets(w.namespace).List(t.Context(), metav1.ListOptions{})
	w.ok(err)
	if len(budgets.Items) != 1 || budgets.Items[0].Spec.MinAvailable.IntValue() != 1 {
		t.Errorf("the budgets of a job with a min of 1 are %+v", budgets.Items)
	}
	writes := proxy.Requests("patch", "")
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	if more := proxy.Requests("patch", "") - writes; more > 0 {
		t.Errorf("preparing an unchanged job costs %d writes", more)
	}
}

// A pod whose owner does not exist would be collected: Launch creates none, and its error says what to do first.
func TestAnAnchorThatIsGone(t *testing.T) {
	w := newPaperwork(t)
	if err := w.p.Launch(t.Context(), w.launch("worker", 0, 1)); !errors.Is(err, providers.ErrNotPrepared) {
		t.Errorf("launched before it was prepared: %v", err)
	}
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), "gpt-0b0e9", metav1.DeleteOptions{}))
	w.until("collected", func() bool { return len(w.objects()) == 0 })
	time.Sleep(anchorStands)
	if err := w.p.Launch(t.Context(), w.launch("worker", 0, 1)); !errors.Is(err, providers.ErrNotPrepared) {
		t.Errorf("launched without an anchor: %v", err)
	}
	if left := w.objects(); len(left) > 0 {
		t.Errorf("it made %q", left)
	}
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	w.pod("worker", 0, 1)
}

func TestWhatWasRemovedIsNotLaunchedAgain(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	w.ok(w.cluster.Admin().CoreV1().Pods(w.namespace).Delete(t.Context(), w.pod("worker", 0, 1).Name, metav1.DeleteOptions{}))
	w.await("worker", 0, 1, job.Gone)
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	if n := w.podCount(); n != 0 {
		t.Error("the incarnation was started twice")
	}
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 2)))
	w.pod("worker", 0, 2)
}

// If an anchor is deleted without what it owns, the token of running agents stays.
func TestASecretThatAFormerAnchorHasLeft(t *testing.T) {
	w := newPaperwork(t)
	token := w.prepare(job.GroupRole{Role: "worker", Min: 1})
	core := w.cluster.Admin().CoreV1()
	// Like a deletion with --cascade=orphan, which depends on what the garbage collector has observed so far.
	_, err := core.Secrets(w.namespace).Patch(t.Context(), "gpt-0b0e9", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	w.ok(err)
	w.ok(core.ConfigMaps(w.namespace).Delete(t.Context(), "gpt-0b0e9", metav1.DeleteOptions{}))
	w.until("gone", func() bool {
		_, err := core.ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	next := w.open()
	again, err := next.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
	w.ok(err)
	if again != token {
		t.Error("the token is another")
	}
	anchor, err := core.ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	secret, err := core.Secrets(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if owners := secret.OwnerReferences; len(owners) != 1 || owners[0].UID != anchor.UID {
		t.Errorf("the Secret's owners are %+v", owners)
	}
	edit := `{"metadata":{"labels":{"eltrain.dev/uid":"another"}}}`
	_, err = core.Secrets(w.namespace).Patch(t.Context(), "gpt-0b0e9", types.MergePatchType, []byte(edit), metav1.PatchOptions{})
	w.ok(err)
	if _, err := w.open().Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1})); err == nil || !strings.Contains(err.Error(), "of another job of this name, of UID another") {
		t.Errorf("another's Secret was taken: %v", err)
	}
}

// 409 is the answer to two simultaneous writes as well as to a write that is for another pod.
func TestAConflictIsNoEnd(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 2})
	proxy.Inject(testbed.Fault{Verb: "patch", Resource: "pods", Status: 409, Times: 2})
	for index := range 2 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", index, 1)))
	}
	w.until("released", func() bool {
		return !gatedBy(w.pod("worker", 0, 1), gangGate) && !gatedBy(w.pod("worker", 1, 1), gangGate)
	})
	proxy.Inject(testbed.Fault{Verb: "delete", Resource: "pods", Status: 409, Times: 2})
	w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 1, time.Second))
	if n := w.podCount(); n != 1 {
		t.Errorf("%d pods after the stop of one of two", n)
	}
	conflicts := proxy.Inject(testbed.Fault{Verb: "delete", Resource: "pods", Status: 409})
	stopped := w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker", Index: 1}, 1, time.Second)
	conflicts.Remove()
	if n := w.podCount(); stopped == nil || n != 1 {
		t.Errorf("nothing but conflicts: %v, %d pods", stopped, n)
	}
}

// A pod whose deletion the API server refused was not deleted by this master, whoever deletes it later.
func TestADeletionThatWasRefused(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	proxy.Inject(testbed.Fault{Verb: "delete", Resource: "pods", Status: 403, Times: 1})
	if err := w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker"}, 1, 0); err == nil {
		t.Fatal("it was not refused")
	}
	w.ok(w.cluster.Admin().CoreV1().Pods(w.namespace).Delete(t.Context(), w.pod("worker", 0, 1).Name, metav1.DeleteOptions{}))
	if i := w.await("worker", 0, 1, job.Gone); i.Cause != job.Deletion {
		t.Errorf("its cause is %q: %q", i.Cause, i.Evidence)
	}
}

// end sets the status that a kubelet reports for a failed pod.
func (w *work) end(role string, index, incarnation int) {
	w.Helper()
	_, err := w.cluster.Admin().CoreV1().Pods(w.namespace).Patch(w.Context(), w.pod(role, index, incarnation).Name,
		types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	w.ok(err)
	w.await(role, index, incarnation, job.Gone)
}

// Ended pods beyond the newest three are removed, even if their removal failed at first; that fails no launch.
func TestEndedPodsAreSwept(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	launch := func(number int) {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, number)))
		w.end("worker", 0, number)
	}
	refusals := proxy.Inject(testbed.Fault{Verb: "delete", Resource: "pods", Status: 403})
	for number := range 5 {
		launch(number + 1)
	}
	if n := w.podCount(); n != 5 {
		t.Fatalf("%d pods of 5", n)
	}
	refusals.Remove()
	time.Sleep(backoffMax) // the refusal is in force for a while
	launch(6)
	if n := w.podCount(); n != keptIncarnations {
		t.Errorf("%d pods of 6 incarnations are kept", n)
	}
}

// Forgetting thousands of pods is one request, not one for each pod or check.
func TestForgetIsOneRequest(t *testing.T) {
	w, proxy := newFaultyWork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 8})
	for index := range 8 {
		w.ok(w.p.Launch(t.Context(), w.launch("worker", index, 1)))
		w.end("worker", index, 1)
	}
	lists := proxy.Requests("list", "pods")
	w.ok(w.p.Forget(t.Context(), testUID, "gpt"))
	if n := proxy.Requests("deletecollection", "pods"); n != 1 {
		t.Errorf("%d requests to delete 8 pods", n)
	}
	if n := proxy.Requests("list", "pods") - lists; n != 0 {
		t.Errorf("%d lists", n)
	}
	if left := w.objects(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// A job whose world has formed once starts a replacement at once, however incomplete its gang is.
func TestOnlyWhatIsHeldWaitsForItsGang(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 3})
	held, free := w.launch("worker", 0, 1), w.launch("worker", 1, 4)
	free.Held = false
	w.ok(w.p.Launch(t.Context(), held))
	w.ok(w.p.Launch(t.Context(), free))
	if !gatedBy(w.pod("worker", 0, 1), gangGate) || gatedBy(w.pod("worker", 1, 4), gangGate) {
		t.Error("the held pod has no gate, or the other has one")
	}
}

func TestWholeGangs(t *testing.T) {
	g := job.Group{Roles: []job.GroupRole{{Role: "ps", Min: 2}, {Role: "worker"}}}
	for name, test := range map[string]struct {
		have liveByRole
		want bool
	}{
		"nothing":                   {liveByRole{}, false},
		"half":                      {liveByRole{"ps": 1, "worker": 9}, false},
		"worker starts when ps run": {liveByRole{"ps": 2}, true},
		"more":                      {liveByRole{"ps": 3, "worker": 1}, true},
	} {
		if got := whole(g, test.have); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Two states may share a namespace: each knows its own jobs, and takes none of the other's.
func TestWhoseAJobIs(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	pod := w.pod("worker", 0, 1)
	if pod.Annotations[annotationState] != "kubernetes ml/main" || len(pod.Labels[labelState]) != stateHash {
		t.Errorf("the pod has %v and %v", pod.Labels, pod.Annotations)
	}
	other := w.openAs("file laptop:/jobs/eltrain.state")
	o, err := other.Observe(t.Context())
	w.ok(err)
	if o.Incarnations.Len() != 1 || o.Incarnations[0][0].Owner != "kubernetes ml/main" {
		t.Errorf("observed %+v", o.Incarnations)
	}
	namespace, err := w.cluster.Admin().CoreV1().Namespaces().Get(t.Context(), w.namespace, metav1.GetOptions{})
	w.ok(err)
	if c := other.Capabilities(); c.Owner != "file laptop:/jobs/eltrain.state" || c.Site != string(namespace.UID) || c.NodesUnknown {
		t.Errorf("capabilities %+v", c)
	}
	theirs := w.group(job.GroupRole{Role: "worker", Min: 1})
	theirs.UID = testUID[:5] + "-of-another-job"
	if _, err := other.Prepare(t.Context(), theirs); err == nil || !strings.Contains(err.Error(), `in the state "kubernetes ml/main"`) {
		t.Errorf("another's anchor was taken: %v", err)
	}
	// The same job in another state: it was moved there.
	_, err = other.Prepare(t.Context(), w.group(job.GroupRole{Role: "worker", Min: 1}))
	w.ok(err)
	anchor, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if anchor.Annotations[annotationState] != "file laptop:/jobs/eltrain.state" {
		t.Errorf("the anchor has %v", anchor.Annotations)
	}
}

func TestANamespaceThatIsNotKnown(t *testing.T) {
	w := newPaperwork(t)
	w.config.Kubeconfig = w.short(w.cluster.Kubeconfig, testbed.Permission{Verb: "get", Resource: "namespaces"})
	p := w.openAs("")
	if _, err := p.Observe(t.Context()); err != nil {
		t.Errorf("it does not work without it: %v", err)
	}
	c := p.Capabilities()
	caveat := slices.ContainsFunc(c.Caveats, func(s string) bool { return strings.Contains(s, "the verb get on namespaces") })
	if c.Site != "" || !caveat || c.Refused != "" {
		t.Errorf("capabilities %+v", c)
	}
}

// TestPodSecurityStandards: jobs' pods are admitted to a namespace that enforces baseline, and with the overlay of
// docs/kubernetes.md to one that enforces restricted.
func TestPodSecurityStandards(t *testing.T) {
	w := newPaperwork(t)
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	enforce := func(standard string) {
		label := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"` + standard + `"}}}`
		_, err := w.cluster.Admin().CoreV1().Namespaces().Patch(t.Context(), w.namespace, types.MergePatchType, []byte(label), metav1.PatchOptions{})
		w.ok(err)
	}
	enforce("baseline")
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 0, 1)))
	enforce("restricted")
	// The init container complies without an overlay.
	incarnation := 0
	w.until("enforced", func() bool {
		incarnation++ // a launched incarnation is not launched again
		err := w.p.Launch(t.Context(), w.launch("worker", 1, incarnation))
		if err == nil {
			w.ok(w.p.Stop(t.Context(), testUID, job.Address{Job: "gpt", Role: "worker", Index: 1}, incarnation, 0))
			return false
		}
		if !strings.Contains(err.Error(), "restricted") || strings.Contains(err.Error(), agentContainer) && !strings.Contains(err.Error(), "runAsNonRoot") {
			t.Errorf("the error is %v", err)
		}
		return true
	})
	w.ok(w.p.Close())
	w.config.Pod = documentedOverlay(t)
	w.p = w.open()
	w.prepare(job.GroupRole{Role: "worker", Min: 1})
	w.ok(w.p.Launch(t.Context(), w.launch("worker", 2, 1)))
	if pod := w.pod("worker", 2, 1); pod.Spec.SecurityContext.SeccompProfile == nil || *pod.Spec.SecurityContext.RunAsUser == 0 {
		t.Errorf("its security context is %+v", pod.Spec.SecurityContext)
	}
}

// documentedOverlay is the first provider's block in the section on Pod Security Standards.
func documentedOverlay(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "### Pod Security Standards")
	_, block, fenced := strings.Cut(section, "```hcl\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !fenced || !closed {
		t.Fatal("docs/kubernetes.md has no overlay for the standard restricted")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "eltrain.hcl"), []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, diags := lang.Load(dir, lang.Options{Version: "0.1.0", Providers: map[string]reflect.Type{Name: reflect.TypeFor[Config]()}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg.Providers[0].Value.(Config).Pod
}
