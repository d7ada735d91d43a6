package testbed_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/testbed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// throughProxy returns a client that reaches the shared cluster through the proxy, and its namespace. It does not
// retry.
func throughProxy(t *testing.T) (*testbed.Proxy, *kubernetes.Clientset, string) {
	t.Helper()
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	p := c.Proxy(t)
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig(t, testbed.User{Namespace: namespace, Roles: podRoles}))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	clientset, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return p, clientset, namespace
}

// list lists pods with a single request.
func list(t *testing.T, client *kubernetes.Clientset, namespace string) error {
	t.Helper()
	return client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").MaxRetries(0).Do(t.Context()).Error()
}

func TestProxyAnswersInTheAPIServersPlace(t *testing.T) {
	p, client, namespace := throughProxy(t)
	for status, is := range map[int]func(error) bool{
		http.StatusConflict:            apierrors.IsConflict,
		http.StatusTooManyRequests:     apierrors.IsTooManyRequests,
		http.StatusInternalServerError: apierrors.IsInternalError,
		http.StatusGone:                apierrors.IsResourceExpired,
	} {
		fault := p.Inject(testbed.Fault{Verb: "list", Resource: "pods", Status: status, RetryAfter: 3 * time.Second, Times: 2})
		for range 2 {
			err := list(t, client, namespace)
			if !is(err) {
				t.Errorf("status %d gives %v", status, err)
			}
			if seconds, ok := apierrors.SuggestsClientDelay(err); is(err) && status == http.StatusTooManyRequests && (!ok || seconds != 3) {
				t.Errorf("status %d has a Retry-After of %d s", status, seconds)
			}
		}
		if err := list(t, client, namespace); err != nil {
			t.Errorf("after the two: %v", err)
		}
		if fault.Hits() != 2 {
			t.Errorf("the fault affected %d requests", fault.Hits())
		}
		fault.Remove()
	}
	if got := p.Requests("list", "pods"); got != 12 {
		t.Errorf("%d lists of pods were counted, want 12", got)
	}
	if got := p.Requests("create", ""); got != 0 {
		t.Errorf("%d creates were counted, want none", got)
	}
}

func TestProxyHitsOnlyWhatIsNamed(t *testing.T) {
	p, client, namespace := throughProxy(t)
	p.Inject(testbed.Fault{Verb: "create", Resource: "pods", Status: http.StatusInternalServerError})
	if err := list(t, client, namespace); err != nil {
		t.Errorf("list pods: %v", err)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "passes"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Errorf("create configmaps: %v", err)
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("create pods: %v", err)
	}
	if err := getPod(shared, namespace, "p"); !apierrors.IsNotFound(err) {
		t.Errorf("the API server got it: %v", err)
	}
}

func TestProxyHitsAFraction(t *testing.T) {
	p, client, namespace := throughProxy(t)
	fault := p.Inject(testbed.Fault{Fraction: 0.5, Status: http.StatusInternalServerError})
	const requests = 100
	for range requests {
		_ = list(t, client, namespace) // counted below
	}
	if hits := fault.Hits(); hits < 20 || hits > 80 { // fails by chance once in 10⁹ runs
		t.Errorf("%d of %d", hits, requests)
	}
}

func TestProxyDelays(t *testing.T) {
	p, client, namespace := throughProxy(t)
	const delay = 300 * time.Millisecond
	p.Inject(testbed.Fault{Verb: "list", Delay: delay})
	start := time.Now()
	if err := list(t, client, namespace); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < delay {
		t.Errorf("it took %s", took)
	}
}

func TestProxyLetsWatchesLag(t *testing.T) {
	p, client, namespace := throughProxy(t)
	const lag = time.Second
	p.Inject(testbed.Fault{Verb: "watch", Lag: lag})
	watch, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	start := time.Now()
	for _, name := range []string{"first", "second"} {
		if _, err := shared.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var came []string // the scheduler's changes of them come in between
	for len(came) < 2 {
		select {
		case event := <-watch.ResultChan():
			if seen, ok := event.Object.(*corev1.Pod); ok && event.Type == apiwatch.Added {
				came = append(came, seen.Name)
			}
		case <-time.After(patience):
			t.Fatalf("only %q came through", came)
		}
		if took := time.Since(start); took < lag {
			t.Errorf("%q took %s", came, took)
		}
	}
	if !slices.Equal(came, []string{"first", "second"}) {
		t.Errorf("they came in the order %q", came)
	}
	if broken := p.BreakWatches(); broken != 1 {
		t.Errorf("%d watches were open", broken)
	}
}

func TestProxyLosesAnswers(t *testing.T) {
	p, client, namespace := throughProxy(t)
	p.Inject(testbed.Fault{Verb: "create", Resource: "pods", LoseAnswer: true, Times: 1})
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); err == nil {
		t.Error("the client got an answer")
	}
	if err := getPod(shared, namespace, "p"); err != nil {
		t.Errorf("the API server did not get it: %v", err)
	}
}

func TestProxyCutsAnswers(t *testing.T) {
	p, client, namespace := throughProxy(t)
	if _, err := shared.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fault := p.Inject(testbed.Fault{Verb: "list", Resource: "pods", CutAnswer: true})
	if err := list(t, client, namespace); err == nil {
		t.Error("half an answer is accepted as complete")
	}
	fault.Remove()
	if err := list(t, client, namespace); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestProxyCutsTheFirstListOfAWatch(t *testing.T) {
	p, client, namespace := throughProxy(t)
	const pods = 4
	for n := range pods {
		if _, err := shared.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod(fmt.Sprintf("p-%d", n)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	streamed := true
	listed := func() (came int, whole bool) {
		t.Helper()
		watch, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &streamed, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
		for end := time.After(patience); ; {
			select {
			case event, open := <-watch.ResultChan():
				switch {
				case event.Type == apiwatch.Added:
					came++
				case !open, event.Type == apiwatch.Error:
					return came, false
				case event.Type == apiwatch.Bookmark:
					return came, true
				}
			case <-end:
				t.Fatal("the watch is still open")
			}
		}
	}
	fault := p.Inject(testbed.Fault{Verb: "watch", CutAnswer: true})
	if came, whole := listed(); whole || came == 0 || came == pods {
		t.Errorf("%d of %d arrived, and the list is complete: %v", came, pods, whole)
	}
	if _, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a watch without an initial list is open")
	}
	fault.Remove()
	if came, whole := listed(); !whole || came != pods {
		t.Errorf("afterwards %d of %d arrived, and the list is complete: %v", came, pods, whole)
	}
}

func TestProxyBreaksWatches(t *testing.T) {
	p, client, namespace := throughProxy(t)
	watch, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := shared.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod("seen"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-watch.ResultChan():
		if seen, ok := event.Object.(*corev1.Pod); !ok || seen.Name != "seen" {
			t.Errorf("got %v", event)
		}
	case <-time.After(patience):
		t.Fatal("no event comes through")
	}
	if broken := p.BreakWatches(); broken != 1 {
		t.Errorf("%d watches were open", broken)
	}
	end := time.After(patience)
	for {
		select {
		case _, open := <-watch.ResultChan():
			if !open {
				if err := list(t, client, namespace); err != nil {
					t.Errorf("the next request: %v", err)
				}
				return
			}
		case <-end:
			t.Fatal("the watch is still open")
		}
	}
}

func TestProxyRefusesConnections(t *testing.T) {
	p, client, namespace := throughProxy(t)
	if err := list(t, client, namespace); err != nil {
		t.Fatal(err)
	}
	p.Refuse(t)
	await(t, "connections are refused", func() bool { return errors.Is(list(t, client, namespace), syscall.ECONNREFUSED) })
	p.Accept(t)
	if err := list(t, client, namespace); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestWebhookRefusesTheFirst(t *testing.T) {
	c := sharedCluster(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	webhook := c.Webhook(t, testbed.Refusals{Namespace: namespace, Times: 2, Message: "not today"})
	create := func(namespace, name string) error {
		return second(c.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod(name), metav1.CreateOptions{}))
	}
	for _, name := range []string{"first", "second"} {
		if err := create(namespace, name); !apierrors.IsForbidden(err) {
			t.Errorf("the %s create: %v", name, err)
		}
	}
	if err := create(namespace, "third"); err != nil {
		t.Errorf("the third create: %v", err)
	}
	if err := create(other, "elsewhere"); err != nil {
		t.Errorf("a create elsewhere: %v", err)
	}
	if webhook.Asked() != 3 || webhook.Refused() != 2 {
		t.Errorf("it was asked %d times and refused %d", webhook.Asked(), webhook.Refused())
	}
}

func TestWebhookHangs(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	webhook := c.Webhook(t, testbed.Refusals{Namespace: namespace, Delay: time.Hour, Timeout: 2 * time.Second})
	if _, err := c.Admin().CoreV1().Pods(namespace).Create(t.Context(), pod("p"), metav1.CreateOptions{}); err == nil {
		t.Error("a create for which the webhook does not answer")
	}
	await(t, "it was asked", func() bool { return webhook.Asked() > 0 }) // possibly after the API server gave up
}
