package deploy

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/testbed"
)

// operator is a user with the role for asking, and no other right.
const operator = "ann@example.com"

// laptop is a job directory from which only the API server is reached, not the master.
type laptop struct {
	t          *testing.T
	binary     string
	dir        string
	kubeconfig string
}

// newLaptop makes one with the job files, for a user of the namespace.
func newLaptop(t *testing.T, c *testbed.Cluster, binary string, objects []*unstructured.Unstructured, user string) *laptop {
	t.Helper()
	l := &laptop{t, binary, t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")}
	var files corev1.ConfigMap
	find(t, objects, "ConfigMap", &files)
	for name, text := range files.Data {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.LoadFromFile(c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	at := config.Contexts[config.CurrentContext]
	at.Namespace, config.AuthInfos[at.AuthInfo].Impersonate = namespace, user
	if err := clientcmd.WriteToFile(*config, l.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return l
}

// eltrain runs a command, which has to succeed or not, and returns its output.
func (l *laptop) eltrain(succeeds bool, arguments ...string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.binary, append([]string{"-chdir=" + l.dir}, arguments...)...)
	cmd.Env = []string{"HOME=" + l.dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + l.kubeconfig}
	out, err := cmd.CombinedOutput()
	if succeeds != (err == nil) {
		l.t.Fatalf("eltrain %v: %v\n%s", arguments, err, out)
	}
	return string(out)
}

func (l *laptop) says(succeeds bool, want string, arguments ...string) {
	l.t.Helper()
	if out := strings.Join(strings.Fields(l.eltrain(succeeds, arguments...)), " "); !strings.Contains(out, want) {
		l.t.Errorf("eltrain %v says %s, not %q", arguments, out, want)
	}
}

// requests returns the requests, the oldest first.
func (l *laptop) requests() []view.RequestModel {
	l.t.Helper()
	var all view.RequestsModel
	if err := json.Unmarshal([]byte(l.eltrain(true, "requests", "-json")), &all); err != nil {
		l.t.Fatal(err)
	}
	return all.Requests
}

// allow binds the role for asking to a user in the master's namespace, as its comment says.
func allow(t *testing.T, c *testbed.Cluster, user string) {
	t.Helper()
	_, err := c.Admin().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operators-ask"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "eltrain-ask"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// An operator with a kubeconfig, the role for asking and no way to the master suspends, resumes and cancels a job that a master in the
// cluster leads. Without a master a request waits for one.
func TestOperatorsAskFromElsewhere(t *testing.T) {
	c := start(t, testbed.Options{Nodes: 3})
	objects := build(t, ".")
	install(t, c, objects)
	binary := buildEltrain(t)
	kubeconfig := c.Kubeconfig(t, testbed.User{Namespace: namespace})
	first := startMaster(t, binary, kubeconfig, objects)
	eventually(t, "the master is ready", func() bool { return first.probe(first.readiness) == 200 })

	// Without the definition it works where the master runs, and elsewhere it says what is missing.
	inPod := &laptop{t, binary, first.dir, kubeconfig}
	inPod.says(true, "suspend job.hello: done", "suspend", "job.hello")
	inPod.says(true, "resume job.hello: done", "resume", "job.hello")
	admin := newLaptop(t, c, binary, objects, "")
	admin.says(false, "installs them with kubectl apply -k deploy/requests. Or run this command where the master runs", "suspend", "job.hello")

	podsite.DefineRequests(t, c)
	allow(t, c, operator)
	ann := newLaptop(t, c, binary, objects, operator)
	ann.says(true, "suspend job.hello: done", "suspend", "-reason=a switch is replaced", "job.hello")
	inPod.says(true, "Suspended by "+operator, "status")
	pods := func() int {
		list, err := c.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job=hello"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, "its pods are gone", func() bool { return pods() == 0 })
	ann.says(false, "refused: there is no job.other", "suspend", "job.other")
	ann.says(true, "resume job.hello: done", "resume", "job.hello")
	eventually(t, "its pods are back", func() bool { return pods() > 0 })
	ann.says(false, "secrets", "state", "list") // it has no other right

	first.end()
	ann.says(false, "none leads these jobs", "suspend", "-expires=1s", "job.hello")
	ann.says(true, "cancel job.hello: waiting", "cancel", "-detach", "job.hello")
	second := startMaster(t, binary, kubeconfig, objects)
	eventually(t, "the second master is ready", func() bool { return second.probe(second.readiness) == 200 })
	state := func() (states string) {
		for _, r := range ann.requests() {
			if !strings.HasPrefix(r.By, operator) {
				t.Errorf("%s is by %s", r.ID, r.By)
			}
			states += string(r.Verb) + " " + r.State + ", "
		}
		return states
	}
	want := "suspend done, suspend refused, resume done, suspend refused, cancel done, "
	eventually(t, "all have their replies", func() bool { return state() == want })
	inPod.dir = second.dir
	inPod.says(true, "job.hello Canceled", "status")
	ann.says(true, "restart job.hello: waiting", "restart", "-detach", "job.hello") // its pods have no agents: it is done once they register
	eventually(t, "it runs again", func() bool { return pods() > 0 })
	admin.says(true, "watches these jobs and carries it out", "destroy", "-auto-approve", "-input=false")
	if left := pods(); left > 0 {
		t.Errorf("%d pods are left of a job that was destroyed", left)
	}
	second.end()
	for _, m := range []*master{first, second} {
		if strings.Contains(m.out.String(), "forbidden") {
			t.Error("a right was missing")
		}
	}
}

// Who has the role for asking makes and reads requests in their own name, and nothing else.
func TestWhoMayAskMayNothingElse(t *testing.T) {
	c := start(t, testbed.Options{})
	install(t, c, build(t, "."))
	podsite.DefineRequests(t, c)
	allow(t, c, operator)
	config := c.Config()
	config.Impersonate.UserName = operator
	mine := dynamic.NewForConfigOrDie(config).Resource(podsite.Requests).Namespace(namespace)
	request := podsite.NewRequest("main", operator, "suspend", "job.hello")
	eventually(t, "the API server knows the right", func() bool {
		_, err := mine.Create(t.Context(), request, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	if _, err := mine.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if watch, err := mine.Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	} else {
		watch.Stop()
	}
	made, err := mine.Get(t.Context(), request.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forged := podsite.NewRequest("main", "the boss", "cancel", "job.hello")
	forged.SetName("20260102t150405.000000z-000001")
	replied := made.DeepCopy()
	if err := unstructured.SetNestedMap(replied.Object, map[string]any{"state": "done", "by": operator, "time": "2026-01-02T15:04:05Z"}, "status"); err != nil {
		t.Fatal(err)
	}
	core := kubernetes.NewForConfigOrDie(config)
	elsewhere := dynamic.NewForConfigOrDie(config).Resource(podsite.Requests).Namespace(metav1.NamespaceDefault)
	for what, attempt := range map[string]func() error{
		"ask in another's name": func() error {
			_, err := mine.Create(t.Context(), forged, metav1.CreateOptions{})
			return err
		},
		"ask in another namespace": func() error {
			_, err := elsewhere.Create(t.Context(), request, metav1.CreateOptions{})
			return err
		},
		"reply": func() error {
			_, err := mine.UpdateStatus(t.Context(), replied, metav1.UpdateOptions{})
			return err
		},
		"change a request": func() error {
			_, err := mine.Update(t.Context(), made, metav1.UpdateOptions{})
			return err
		},
		"remove a request": func() error { return mine.Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}) },
		"read the state": func() error {
			_, err := core.CoreV1().Secrets(namespace).Get(t.Context(), "eltrain-state-main", metav1.GetOptions{})
			return err
		},
		"list Secrets": func() error {
			_, err := core.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"read the lock": func() error {
			_, err := core.CoordinationV1().Leases(namespace).Get(t.Context(), "eltrain-state-main", metav1.GetOptions{})
			return err
		},
		"list pods": func() error {
			_, err := core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := attempt(); !apierrors.IsForbidden(err) {
			t.Errorf("may %s: %v", what, err)
		}
	}
}
