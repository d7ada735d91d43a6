package kubernetes

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
	"github.com/eltrain/eltrain/testbed"
)

// requestsPlace is a place whose operators may ask and nothing else.
type requestsPlace struct {
	*place
	asker Options
}

const operator = "ann"

func newRequestsPlace(t *testing.T) *requestsPlace {
	t.Helper()
	p := &requestsPlace{place: newPlace(t)}
	p.asker = p.options
	p.asker.Kubeconfig = cluster.Kubeconfig(t, testbed.User{Namespace: p.namespace, Name: operator, Roles: []string{filepath.Join(podsite.RequestsDir, "asker.yaml")}})
	return p
}

func (p *requestsPlace) open(o Options) *Requests {
	p.t.Helper()
	s, err := New(o)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.of(s)
}

func (p *requestsPlace) of(s *Store) *Requests {
	q := s.Requests()
	p.t.Cleanup(q.Close)
	return q
}

func (p *requestsPlace) Asker() state.Requests  { return p.open(p.asker) }
func (p *requestsPlace) Leader() state.Requests { return p.open(p.options) }

func (p *requestsPlace) user(name string) string {
	return "system:serviceaccount:" + p.namespace + ":" + name
}

func (p *requestsPlace) objects() dynamic.ResourceInterface {
	return cluster.Dynamic().Resource(podsite.Requests).Namespace(p.namespace)
}

func (p *requestsPlace) ask(verb job.Verb) job.Request {
	p.t.Helper()
	now := time.Now()
	r, err := p.Asker().Ask(p.t.Context(), job.Request{Verb: verb, On: []job.Selector{{Job: "a"}}, At: now, Expires: now.Add(time.Hour)})
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// pending waits until a request is pending, and returns it.
func (p *requestsPlace) pending(q state.Requests, id string) (found job.Request) {
	p.t.Helper()
	site.Until(p.t, "it is pending", func() bool {
		all, err := q.Pending(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		for _, r := range all {
			if r.ID == id {
				found = r
			}
		}
		return found.ID != ""
	})
	return found
}

// The definition belongs to the whole cluster: one test after the other installs it.
func TestRequests(t *testing.T) {
	real(t)
	t.Run("undefined", undefinedRequests)
	podsite.DefineRequests(t, cluster)
	t.Run("conformance", func(t *testing.T) {
		statetest.RunRequests(t, func(t *testing.T) statetest.RequestsOpener { return newRequestsPlace(t) })
	})
	t.Run("author", requestAuthors)
	t.Run("others' objects", othersObjects)
	t.Run("rules", requestRules)
	t.Run("old ones", oldRequests)
	t.Run("rights", requestRights)
	t.Run("lost answers", requestAnswersLost)
}

// Without the definition a leader has no requests, and who asks is told that. Once it is installed, the same leader takes
// requests.
func undefinedRequests(t *testing.T) {
	p := newRequestsPlace(t)
	leader := p.Leader()
	for range 2 {
		if pending, err := leader.Pending(t.Context()); len(pending) > 0 || err != nil {
			t.Errorf("pending are %v, %v", pending, err)
		}
	}
	q := p.open(p.options) // one without the right to ask is refused first
	var undefined *UndefinedError
	if _, err := q.All(t.Context()); !errors.As(err, &undefined) || !strings.Contains(err.Error(), "does not define requests (requests.eltrain.dev)") {
		t.Errorf("all: %v", err)
	}
	if _, err := p.Asker().Ask(t.Context(), job.Request{Verb: job.AskCancel, On: []job.Selector{{Job: "a"}}}); !errors.As(err, &undefined) {
		t.Errorf("ask: %v", err)
	}
	if _, err := q.Get(t.Context(), "20260102T150405.000000Z-0a1b2c"); !errors.As(err, &undefined) {
		t.Errorf("get: %v", err)
	}
	t.Run("until it is installed", func(t *testing.T) {
		podsite.DefineRequests(t, cluster)
		p.pending(leader, p.ask(job.AskCancel).ID)
	})
}

// The API server refuses a request in another's name, as long as the policy is installed. A request from a time without it shows its
// author as unverified, also after the policy was installed.
func requestAuthors(t *testing.T) {
	p := newRequestsPlace(t)
	leader := p.Leader()
	site.Until(p.t, "the author is verified", func() bool { // some seconds after the installation
		r := p.ask(job.AskSuspend)
		by := p.pending(leader, r.ID).By
		if want := p.user(operator); by != want && by != want+" (unverified)" {
			t.Fatalf("it is by %q", by)
		}
		if err := leader.Reply(t.Context(), job.Reply{ID: r.ID, State: job.Done}); err != nil {
			t.Fatal(err)
		}
		asked, err := p.Asker().Get(t.Context(), r.ID)
		if err != nil || asked.By != by {
			t.Fatalf("its reply is by %q, %v, not %q", asked.By, err, by)
		}
		return by == p.user(operator)
	})

	forged := podsite.NewRequest("training", "the boss", "cancel", "job.a")
	if _, err := p.objects().Create(t.Context(), forged, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "who makes the request") {
		t.Errorf("a request in another's name: %v", err)
	}
	policies := cluster.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := policies.Get(t.Context(), policyName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.Delete(t.Context(), policyName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	site.Until(p.t, "a request in another's name is made", func() bool {
		_, err := p.objects().Create(t.Context(), forged, metav1.CreateOptions{})
		return err == nil
	})
	again := binding.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
	if _, err := policies.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	late := p.Leader()
	if r := p.pending(late, "20260102T150405.000000Z-0a1b2c"); r.By != "the boss (unverified)" {
		t.Errorf("it is by %q", r.By)
	}
}

// Requests of another state in the namespace, and what is no address, hold up nothing.
func othersObjects(t *testing.T) {
	p := newRequestsPlace(t)
	other := p.asker
	other.Name = "other"
	if _, err := p.open(other).Ask(t.Context(), job.Request{Verb: job.AskCancel, On: []job.Selector{{Job: "a"}}}); err != nil {
		t.Fatal(err)
	}
	admin := func(name, state, label, address string) {
		t.Helper()
		o := podsite.NewRequest(label, "system:admin", "cancel", address)
		o.SetName(name)
		if err := unstructured.SetNestedField(o.Object, state, "spec", "state"); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(o.Object, p.admin(), "spec", "by"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.objects().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	admin("20260102t150405.000000z-000001", "training", "training", "not an address")
	admin("20260102t150405.000000z-000002", "other", "training", "job.a")
	r := p.ask(job.AskSuspend)
	leader := p.Leader()
	p.pending(leader, r.ID)
	all, err := leader.Pending(t.Context())
	if err != nil || len(all) != 2 || all[0].Verb != "" || len(all[0].On) > 0 || all[1].Verb != job.AskSuspend {
		t.Errorf("pending are %+v, %v", all, err)
	}
	if asked, err := p.Asker().All(t.Context()); err != nil || len(asked) != 1 || asked[0].ID != r.ID {
		t.Errorf("all are %+v, %v", asked, err)
	}
}

// admin is the API server's name of the administrator.
func (p *requestsPlace) admin() string {
	p.t.Helper()
	s, err := New(Options{Kubeconfig: cluster.AdminKubeconfig(), Namespace: p.namespace, Name: "training"})
	if err != nil {
		p.t.Fatal(err)
	}
	name, err := p.of(s).user(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return name
}

// Not even an administrator changes what was asked, or a final reply.
func requestRules(t *testing.T) {
	p := newRequestsPlace(t)
	r := p.ask(job.AskSuspend)
	refused := func(what, patch string, subresources ...string) {
		t.Helper()
		_, err := p.objects().Patch(t.Context(), objectName(r.ID), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, subresources...)
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another verb", `{"spec":{"verb":"cancel"}}`)
	refused("another author", `{"spec":{"by":"somebody"}}`)
	if err := p.Leader().Reply(t.Context(), job.Reply{ID: r.ID, State: job.Done}); err != nil {
		t.Fatal(err)
	}
	refused("another reply", `{"status":{"state":"refused"}}`, "status")
	named := podsite.NewRequest("training", p.admin(), "suspend", "job.a")
	named.SetName("my-request")
	if _, err := p.objects().Create(t.Context(), named, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the name is a time") {
		t.Errorf("a name without a time: %v", err)
	}
}

func oldRequests(t *testing.T) {
	p := newRequestsPlace(t)
	old, recent := p.ask(job.AskSuspend), p.ask(job.AskResume)
	leader := p.Leader()
	for _, r := range []job.Request{old, recent} {
		p.pending(leader, r.ID)
		if err := leader.Reply(t.Context(), job.Reply{ID: r.ID, State: job.Done}); err != nil {
			t.Fatal(err)
		}
	}
	// A final reply does not change, so an old one is made as such.
	aged := podsite.NewRequest("training", p.admin(), "suspend", "job.a")
	if _, err := p.objects().Create(t.Context(), aged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"state":"done","by":"x","time":"` + time.Now().Add(-state.KeptRequestDays*24*time.Hour).UTC().Format(time.RFC3339) + `"}}`
	if _, err := p.objects().Patch(t.Context(), aged.GetName(), "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	next := p.Leader()
	if pending, err := next.Pending(t.Context()); err != nil || len(pending) > 0 {
		t.Errorf("pending are %v, %v", pending, err)
	}
	all, err := p.Asker().All(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != old.ID || all[1].ID != recent.ID {
		t.Errorf("left are %+v, %v", all, err)
	}
}

// The role for operators is for asking only: no reply, no Secret, no record.
func requestRights(t *testing.T) {
	p := newRequestsPlace(t)
	r := p.ask(job.AskSuspend)
	var refused *ForbiddenError
	if err := p.Asker().Reply(t.Context(), job.Reply{ID: r.ID, State: job.Done}); !errors.As(err, &refused) || refused.Verb != "update" || refused.Resource != "requests/status" {
		t.Errorf("a reply: %v", err)
	}
	s, err := New(p.asker)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context()); !errors.As(err, &refused) || refused.Resource != "secrets" {
		t.Errorf("read the records: %v", err)
	}
	if _, err := s.Key(t.Context()); !errors.As(err, &refused) || refused.Resource != "secrets" {
		t.Errorf("read the key: %v", err)
	}
	if _, err := s.Lock(t.Context(), who, 0); !errors.As(err, &refused) || refused.Resource != "leases" {
		t.Errorf("lead: %v", err)
	}
	// Who asks in the master's pod does so with the master's account.
	if _, err := p.Leader().Ask(t.Context(), job.Request{Verb: job.AskCancel, On: []job.Selector{{Job: "a"}}}); err != nil {
		t.Errorf("a master asks: %v", err)
	}
	// A master with an older role says what it lacks, and takes what it knows of for nothing.
	old := p.options
	old.Kubeconfig = cluster.Kubeconfig(t, testbed.User{Namespace: p.namespace, Name: "old", Roles: rights, Without: []testbed.Permission{{Verb: "list", Resource: "requests"}, {Verb: "watch", Resource: "requests"}}})
	if pending, err := p.open(old).Pending(t.Context()); !errors.As(err, &refused) || refused.Resource != "requests" {
		t.Errorf("pending are %v, %v", pending, err)
	}
}

// Every request and reply is made once, though the API server's answers are lost.
func requestAnswersLost(t *testing.T) {
	p := newRequestsPlace(t)
	unreliable := func(o Options) *Requests {
		direct := p.options
		defer func() { p.options = direct }()
		p.options = o
		s := p.through(new(lossy).trip)
		return p.of(s)
	}
	now := time.Now()
	r, err := unreliable(p.asker).Ask(t.Context(), job.Request{Verb: job.AskRestart, On: []job.Selector{{Job: "a"}}, At: now, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	leader := unreliable(p.options)
	p.pending(leader, r.ID)
	for _, s := range []job.ReplyState{job.Accepted, job.Done} {
		if err := leader.Reply(t.Context(), job.Reply{ID: r.ID, State: s}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := p.Asker().All(t.Context())
	if err != nil || len(all) != 1 || all[0].Reply.State != job.Done {
		t.Errorf("all are %+v, %v", all, err)
	}
}
