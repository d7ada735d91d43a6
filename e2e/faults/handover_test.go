package faults

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/eltrain/eltrain/e2e/site"
)

// counting is a job that prints its progress until the test ends. Its lease outlasts the propagation of a new address to the
// agents: by kubelet and volume to the agent that reads it again.
func (s *trial) counting(workers int) string {
	return s.job(workers, workers, "30s", "i=0; while :; do i=$((i+1)); echo step $i loss 1; sleep 0.1; done")
}

// manifest reads one of deploy/base's objects.
func manifest(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "base", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// deployment returns the Deployment of `kubectl apply -k deploy/`.
func deployment(t *testing.T) (d appsv1.Deployment) {
	t.Helper()
	manifest(t, "deployment.yaml", &d)
	return d
}

// install creates what `kubectl apply -k deploy/` does, with the site's job files, except the rights, which the site's user
// already has: it is the same account. One thing differs: all pods here share this machine's ports, so the master listens only
// on its own address.
func (s *trial) install(deployment appsv1.Deployment) {
	s.T.Helper()
	ctx, client := s.T.Context(), s.Cluster.Admin()
	var service corev1.Service
	manifest(s.T, "service.yaml", &service)
	main := &deployment.Spec.Template.Spec.Containers[0]
	main.Env = append(main.Env, corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	at := slices.Index(main.Command, "-listen=0.0.0.0:7070")
	if at < 0 {
		s.T.Fatalf("the Deployment's command is %q", main.Command)
	}
	main.Command[at] = "-listen=$(POD_IP):7070"
	files := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "eltrain-jobs"}, Data: map[string]string{}}
	paths, err := filepath.Glob(filepath.Join(s.Dir, "*.*"))
	s.OK(err)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			name := filepath.Base(path)
			files.Data[name] = s.Read(name)
		}
	}
	if _, err := client.CoreV1().ConfigMaps(s.Namespace).Create(ctx, &files, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
	if _, err := client.CoreV1().Services(s.Namespace).Create(ctx, &service, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(s.Namespace).Create(ctx, &deployment, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
}

// deployed returns the Deployment's pod; nil if there is none.
func (s *trial) deployed() *corev1.Pod {
	s.T.Helper()
	list, err := s.Cluster.Admin().CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=master"})
	if err != nil {
		s.T.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// deployedSays returns the log of the Deployment's pod.
func (s *trial) deployedSays() string {
	s.T.Helper()
	p := s.deployed()
	if p == nil {
		return ""
	}
	text, err := s.Cluster.Admin().CoreV1().Pods(s.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: "eltrain"}).DoRaw(context.Background())
	if err != nil {
		return fmt.Sprintf("%v; the pod is %s", err, p.Status.String())
	}
	return string(text)
}

// beats returns how many agents train under the Deployment's master, according to its metrics. The certificates are those that
// the agents get if cert is nil.
func (s *trial) beats(cert []byte) int {
	s.T.Helper()
	p := s.deployed()
	secrets, err := s.Cluster.Admin().CoreV1().Secrets(s.Namespace).List(s.T.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job"})
	s.OK(err)
	if len(secrets.Items) != 1 || p == nil {
		return 0 // not yet
	}
	if cert == nil {
		cert = []byte(s.trusted())
	}
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, "https://"+p.Status.PodIP+":7070/metrics", nil)
	if err != nil {
		s.T.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+string(secrets.Items[0].Data["token"]))
	answer, err := s.trusting(cert).Do(request)
	if err != nil {
		return 0 // it does not listen yet
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0 // it exited during its response
	}
	running := regexp.MustCompile(`eltrain_members\{job_name="` + s.Job + `",state="running"\} (\d+)`).FindSubmatch(text)
	if running == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(running[1]))
	return n
}

func ready(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podUIDs returns the UIDs of the job's pods, which distinguish them from others of the same names.
func (s *trial) podUIDs() map[string]types.UID {
	s.T.Helper()
	found := map[string]types.UID{}
	for _, p := range s.Pods() {
		found[p.Name] = p.UID
	}
	return found
}

// unchanged records the pods and their processes, and returns a function that checks that they are still the same.
func (s *trial) unchanged() (check func(who string)) {
	s.T.Helper()
	s.started(workers, 1) // so that their shells have started
	pods, processes := s.podUIDs(), training(s.Processes())
	return func(who string) {
		s.T.Helper()
		if now := s.podUIDs(); !maps.Equal(now, pods) {
			s.T.Errorf("%s: the pods %v became %v", who, pods, now)
		}
		if now := training(s.Processes()); !maps.Equal(now, processes) || len(now) != workers {
			s.T.Errorf("%s: the training processes %v became %v", who, processes, now)
		}
		s.trainsUndisturbed(workers)
	}
}

// deployedSettings returns the settings of deploy/jobs, for jobs in this machine's own root. The agent comes from its default
// image, by the init container of every pod.
func deployedSettings(t *testing.T) string {
	t.Helper()
	settings, err := os.ReadFile(filepath.Join("..", "..", "deploy", "jobs", "eltrain.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(settings), "agent_image = var.agent_image\n", fmt.Sprintf("agent_image = var.agent_image\n  image       = %q\n", hostImage), 1)
}

// From a laptop's apply -watch to the Deployment in the cluster and back, with the same files and the same state. No pod is
// recreated, no training process restarts, no new world forms, and each master hears from every agent.
func TestHandOverToTheDeploymentAndBack(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("eltrain.hcl", deployedSettings(t))
	s.Write("job.hcl", s.counting(workers))

	laptop := s.Watch()
	world := s.AwaitWorld(workers, 1)
	unchanged := s.unchanged()

	s.install(deployment(t))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Deployment's master said:\n%s", s.deployedSays())
		}
	})
	site.Until(t, "the Deployment's master waits for the lock", func() bool {
		return strings.Contains(site.Unwrapped(s.deployedSays()), "Acquiring state lock")
	})
	if p := s.deployed(); ready(p) {
		t.Error("the Deployment's master is ready while the laptop's leads")
	}
	laptop.Interrupt()
	site.Until(t, "the Deployment's master is ready", func() bool { return ready(s.deployed()) })
	site.Until(t, "every agent beats at the Deployment's master", func() bool { return s.beats(nil) == workers })
	if unchanged("the Deployment"); t.Failed() {
		t.FailNow() // the master's log is deleted with the Deployment
	}

	s.scale(0)
	back := s.Watch(waiting)
	later := s.Await("every agent beats at the laptop's master", func(j site.Job) bool {
		return j.Phase == "Running" && j.Step > world.Step && len(j.Slots) == workers && !slices.ContainsFunc(j.Slots, func(s site.Slot) bool { return s.Phase != "Running" })
	})
	if later.Generation != world.Generation {
		t.Errorf("generation %d became %d", world.Generation, later.Generation)
	}
	site.Until(t, "the Deployment's pod is gone", func() bool { return s.deployed() == nil })
	unchanged("the laptop again")
	back.Interrupt()

	s.uninstall()
	s.destroyed()
}

// uninstall deletes what install created.
func (s *trial) uninstall() {
	s.T.Helper()
	ctx, client := context.Background(), s.Cluster.Admin()
	if err := client.AppsV1().Deployments(s.Namespace).Delete(ctx, "eltrain", metav1.DeleteOptions{}); err != nil {
		s.T.Error(err)
	}
	if err := client.CoreV1().Services(s.Namespace).Delete(ctx, "eltrain", metav1.DeleteOptions{}); err != nil {
		s.T.Error(err)
	}
	if err := client.CoreV1().ConfigMaps(s.Namespace).Delete(ctx, "eltrain-jobs", metav1.DeleteOptions{}); err != nil {
		s.T.Error(err)
	}
}

// scale sets the Deployment's number of masters.
func (s *trial) scale(masters int) {
	s.T.Helper()
	replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, masters)
	_, err := s.Cluster.Admin().AppsV1().Deployments(s.Namespace).Patch(s.T.Context(), "eltrain", types.MergePatchType, replicas, metav1.PatchOptions{})
	s.OK(err)
}

// training leaves out the short-lived children of shells: what an agent starts leads its own process group.
func training(processes map[int]string) map[int]string {
	leaders := maps.Clone(processes)
	maps.DeleteFunc(leaders, func(pid int, _ string) bool {
		group, err := syscall.Getpgid(pid)
		return err != nil || group != pid
	})
	return leaders
}
