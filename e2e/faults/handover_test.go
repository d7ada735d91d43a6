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
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// counting is a job that says how far it is, for as long as a test takes. Its lease outlasts the way of a new
// address to the agents: kubelet, volume, and the agent that reads it again.
func (s *site) counting(workers int) string {
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

// install makes what `kubectl apply -k deploy/` makes, with these job files, but for the rights, which the site's
// user has: it is the same account. One thing differs: every pod here shares this machine's ports, so the master
// listens on its own address alone.
func (s *site) install() {
	s.t.Helper()
	ctx, client := s.t.Context(), s.cluster.Admin()
	var deployment appsv1.Deployment
	manifest(s.t, "deployment.yaml", &deployment)
	var service corev1.Service
	manifest(s.t, "service.yaml", &service)
	main := &deployment.Spec.Template.Spec.Containers[0]
	main.Env = append(main.Env, corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	at := slices.Index(main.Command, "-listen=0.0.0.0:7070")
	if at < 0 {
		s.t.Fatalf("the Deployment's command is %q", main.Command)
	}
	main.Command[at] = "-listen=$(POD_IP):7070"
	files := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "eltrain-jobs"}, Data: map[string]string{}}
	for _, name := range []string{"eltrain.hcl", "job.hcl"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			s.t.Fatal(err)
		}
		files.Data[name] = string(text)
	}
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Create(ctx, &files, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := client.CoreV1().Services(s.namespace).Create(ctx, &service, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(s.namespace).Create(ctx, &deployment, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// deployed is the Deployment's pod; nil while there is none.
func (s *site) deployed() *corev1.Pod {
	s.t.Helper()
	list, err := s.cluster.Admin().CoreV1().Pods(s.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=master"})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// deployedSays is the log of the Deployment's pod.
func (s *site) deployedSays() string {
	s.t.Helper()
	p := s.deployed()
	if p == nil {
		return ""
	}
	text, err := s.cluster.Admin().CoreV1().Pods(s.namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(context.Background())
	if err != nil {
		return fmt.Sprintf("%v; the pod is %s", err, p.Status.String())
	}
	return string(text)
}

// beats is how many agents train under the Deployment's master, by its metrics.
func (s *site) beats() int {
	s.t.Helper()
	p := s.deployed()
	secrets, err := s.cluster.Admin().CoreV1().Secrets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job"})
	if err != nil || len(secrets.Items) != 1 || p == nil {
		s.t.Fatalf("the job's Secret and the master's pod: %v", err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+p.Status.PodIP+":7070/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+string(secrets.Items[0].Data["token"]))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0 // it does not listen yet
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	running := regexp.MustCompile(`eltrain_members\{job="gpt",state="running"\} (\d+)`).FindSubmatch(text)
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

// podUIDs tells the job's pods from any others of the same names.
func (s *site) podUIDs() map[string]types.UID {
	s.t.Helper()
	found := map[string]types.UID{}
	for _, p := range s.pods() {
		found[p.Name] = p.UID
	}
	return found
}

// From a laptop's apply -watch to the Deployment in the cluster and back: the same files, the same state. No pod
// is made anew, no training process is started again, no world forms anew, and each master hears from every agent.
func TestHandOverToTheDeploymentAndBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, calm.start(t))
	settings, err := os.ReadFile(filepath.Join("..", "..", "deploy", "jobs", "eltrain.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	// The agent is brought by its default image: the init container of every pod.
	s.write("eltrain.hcl", strings.Replace(string(settings), `provider "kubernetes" {}`, fmt.Sprintf("provider \"kubernetes\" {\n  image = %q\n}", hostImage), 1))
	s.write("job.hcl", s.counting(workers))

	laptop := s.watch()
	world := s.awaitWorld(workers, 1)
	pods, processes := s.podUIDs(), s.processes()
	unchanged := func(who string) {
		t.Helper()
		if now := s.podUIDs(); !maps.Equal(now, pods) {
			t.Errorf("%s: the pods %v became %v", who, pods, now)
		}
		if now := s.processes(); !maps.Equal(training(now), training(processes)) {
			t.Errorf("%s: the training processes %v became %v", who, processes, now)
		}
		s.trainsUndisturbed(workers)
	}

	s.install()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Deployment's master said:\n%s", s.deployedSays())
		}
	})
	await(t, "the Deployment's master waits for the lock", func() bool {
		return strings.Contains(unwrapped(s.deployedSays()), "Acquiring state lock")
	})
	if p := s.deployed(); ready(p) {
		t.Error("the Deployment's master is ready while the laptop's leads")
	}
	laptop.interrupt()
	await(t, "the Deployment's master is ready", func() bool { return ready(s.deployed()) })
	await(t, "every agent beats at the Deployment's master", func() bool { return s.beats() == workers })
	if unchanged("the Deployment"); t.Failed() {
		t.FailNow() // its master's log goes with it
	}

	scale := `{"spec":{"replicas":0}}`
	if _, err := s.cluster.Admin().AppsV1().Deployments(s.namespace).Patch(t.Context(), "eltrain", types.MergePatchType, []byte(scale), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	back := s.watch(waiting)
	later := s.await("every agent beats at the laptop's master", func(j jobStatus) bool {
		return j.Phase == "Running" && j.Step > world.Step && len(j.Slots) == workers && !slices.ContainsFunc(j.Slots, func(s slotStatus) bool { return s.Phase != "Running" })
	})
	if later.Generation != world.Generation {
		t.Errorf("generation %d became %d", world.Generation, later.Generation)
	}
	await(t, "the Deployment's pod is gone", func() bool { return s.deployed() == nil })
	unchanged("the laptop again")
	back.interrupt()

	ctx, client := context.Background(), s.cluster.Admin()
	if err := client.AppsV1().Deployments(s.namespace).Delete(ctx, "eltrain", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.CoreV1().Services(s.namespace).Delete(ctx, "eltrain", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, "eltrain-jobs", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	s.destroyed()
}

// training leaves out what a shell starts and ends while it counts.
func training(processes map[int]string) map[int]string {
	shells := maps.Clone(processes)
	maps.DeleteFunc(shells, func(_ int, args string) bool { return strings.HasPrefix(args, "sleep") })
	return shells
}
