package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
)

// reader follows docs/kubernetes.md exactly as written.
type reader struct {
	*trial
	page *podsite.Page
	dir  string // with deploy/ in it
}

// documented is where deploy/ installs to.
const documented = "eltrain"

// newReader opens the page at the installation.
func newReader(t *testing.T) *reader {
	t.Helper()
	r := unpack(&trial{podsite.In(t, calm.start(t), programs, "hello", documented)})
	r.page = podsite.OpenPage(t, filepath.Join("..", "..", "docs", "kubernetes.md"), "## Install")
	return r
}

// unpack copies deploy/ for the reader, with two differences: the master listens only on its own address, since all pods here
// share this machine's ports, and the sample job's lease outlasts a change of masters on a busy machine. The namespace is
// deleted with the test.
func unpack(s *trial) *reader {
	t := s.T
	t.Helper()
	r := &reader{trial: s, dir: t.TempDir()}
	r.OK(os.CopyFS(filepath.Join(r.dir, "deploy"), os.DirFS(filepath.Join("..", "..", "deploy"))))
	r.edit("deploy/jobs/hello.hcl", "  progress {\n", "  detect { lease = \"30s\" }\n\n  progress {\n")
	r.edit("deploy/base/deployment.yaml", "-listen=0.0.0.0:7070", "-listen=$(POD_IP):7070")
	r.edit("deploy/base/deployment.yaml", "          env:\n", "          env:\n            - name: POD_IP\n              valueFrom:\n                fieldRef:\n                  fieldPath: status.podIP\n")
	t.Cleanup(func() {
		namespaces := r.Cluster.Admin().CoreV1().Namespaces()
		if err := namespaces.Delete(context.Background(), s.Namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		site.Until(t, "the namespace is gone", func() bool { // for a second run
			_, err := namespaces.Get(context.Background(), s.Namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Deployment's master said:\n%s", r.deployedSays())
		}
	})
	return r
}

func (r *reader) edit(name, old, new string) {
	r.T.Helper()
	path := filepath.Join(r.dir, name)
	text, err := os.ReadFile(path)
	r.OK(err)
	if !strings.Contains(string(text), old) {
		r.T.Fatalf("%s has no %q to be edited", name, old)
	}
	r.OK(os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

// inMaster matches a command that the page runs in the master's container with kubectl.
var inMaster = regexp.MustCompile(`^kubectl -n eltrain exec deployment/eltrain -c eltrain -- (.*)$`)

// runNext runs the page's next block of commands, with name for NAME, a pod, and returns their output.
func (r *reader) runNext(name string) (said string) {
	r.T.Helper()
	for line := range strings.Lines(r.page.Block("sh")) {
		line = strings.TrimSpace(line)
		if command := inMaster.FindStringSubmatch(line); command != nil {
			said += r.inMaster(strings.Fields(command[1])...)
			continue
		}
		said += r.Shell(r.dir, strings.ReplaceAll(line, "NAME", name))
	}
	return said
}

// inMaster does what kubectl exec does, which the process nodes do not serve: it runs a command in the namespaces of the
// master's container, as its user, with its environment.
func (r *reader) inMaster(command ...string) string {
	r.T.Helper()
	pod := r.deployed()
	pid, err := r.Cluster.Kubelet.PID(pod.Namespace, pod.Name, "eltrain")
	r.OK(err)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	r.OK(err)
	as := pod.Spec.SecurityContext
	args := []string{"--target", strconv.Itoa(pid), "--mount", "--root", "--uts", "--ipc", "--pid", fmt.Sprintf("--setuid=%d", *as.RunAsUser), fmt.Sprintf("--setgid=%d", *as.RunAsGroup)}
	ctx, cancel := context.WithTimeout(context.Background(), site.Bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append(args, command...)...)
	cmd.Env = strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.T.Fatalf("%v in the master's container: %v\n%s", command, err, out)
	}
	return string(out)
}

// docs/kubernetes.md from installation through a healed job to removal: all that `kubectl apply -k deploy/` creates, with its
// own rights and its own sample job.
func TestTheSampleJobIsHealedAndTakenAway(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	site.Has(t, r.page.Block("sh"), "docker build", "docker push") // masterImage stands in for the result, from podsite.Dockerfile
	site.Has(t, r.runNext(""), "successfully rolled out")
	const most = 4 // slots, which it grows to
	all := func() bool { return ready(r.deployed()) && r.beats(nil) == most }
	site.Until(t, "the sample job trains", all)
	before := r.podUIDs()
	r.page.To("## The first job")
	looking := r.runNext("")
	for name := range before {
		site.Has(t, looking, name)
	}
	site.Has(t, looking, "job.hello", "worker[3]", "world_formed job.hello")

	victim := r.Pods()[1]
	r.runNext(victim.Name)
	site.Until(t, "its pod is replaced", func() bool {
		_, there := r.podUIDs()[victim.Name]
		return !there && len(r.podUIDs()) == most && all()
	})
	told := "deleted in worker[" + victim.Labels["eltrain.dev/index"] + "] -> replace"
	site.Until(t, "events shows the decision", func() bool {
		return strings.Contains(r.inMaster("eltrain", "-chdir=/jobs", "events"), told)
	})
	stay := 0
	for name, uid := range r.podUIDs() {
		if before[name] == uid {
			stay++
		}
	}
	if stay != most-1 {
		t.Errorf("of %d pods %d are those of before", most, stay)
	}

	master, healed := r.deployed().UID, r.podUIDs()
	r.runNext("")
	site.Until(t, "the next master hears from every agent", func() bool {
		p := r.deployed()
		return p != nil && p.UID != master && all()
	})
	for name, uid := range r.podUIDs() {
		if healed[name] != uid {
			t.Errorf("pod %s was recreated under the next master", name)
		}
	}
	site.Has(t, r.inMaster("eltrain", "-chdir=/jobs", "status"), "job.hello", "deleted")
	if said := r.deployedSays(); strings.Contains(said, "forbidden") {
		t.Errorf("a right is missing:\n%s", said)
	}

	r.page.To("## Taking it away")
	r.edit("deploy/jobs/kustomization.yaml", "      - hello.hcl\n", "")
	r.runNext("")
	r.remembered()
	site.Has(t, strings.Join(r.inNamespace(), " "), "secret/eltrain-state-main", "secret/eltrain-state-main-part", "secret/eltrain-key-main", "lease.coordination.k8s.io/eltrain-state-main")
	r.runNext("")
	site.Until(t, "nothing is left", func() bool { return len(r.inNamespace()) == 0 }) // a Deployment's ReplicaSets are deleted after it
	if _, err := r.Cluster.Admin().RbacV1().ClusterRoleBindings().Get(t.Context(), "eltrain-capacity", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its cluster role is bound still: %v", err)
	}
}

// remembered creates what a state of some ten thousand slots has beside its head: a part. The sample job's has none, and its
// master would delete a part that no head names.
func (r *reader) remembered() {
	r.T.Helper()
	secrets := r.Cluster.Admin().CoreV1().Secrets(documented)
	head, err := secrets.Get(r.T.Context(), "eltrain-state-main", metav1.GetOptions{})
	r.OK(err)
	labels := maps.Clone(head.Labels)
	labels["eltrain.dev/kind"] = "part"
	_, err = secrets.Create(r.T.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "eltrain-state-main-part", Labels: labels}}, metav1.CreateOptions{})
	r.OK(err)
}

// inNamespace lists the namespace's objects, except those that every namespace has.
func (r *reader) inNamespace() (found []string) {
	r.T.Helper()
	said := r.Shell("", "kubectl -n "+documented+" get pods,deployments,replicasets,services,configmaps,secrets,leases,poddisruptionbudgets,networkpolicies,serviceaccounts,roles,rolebindings -o name")
	for o := range strings.Lines(said) {
		if o = strings.TrimSpace(o); o != "configmap/kube-root-ca.crt" && o != "serviceaccount/default" {
			found = append(found, o)
		}
	}
	return found
}
