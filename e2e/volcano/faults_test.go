package volcano

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// plan names what the cluster lacks before anything is created, and apply creates nothing either.

func TestPlanSaysThatTheClusterHasNoVolcano(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	podsite.RequireCluster(t)
	s := podsite.NewDemo(t, testbed.Start(t, testbed.Options{}), programs, podsite.Local("volcano", 2))
	out, _ := s.Run("plan")
	site.Has(t, out, "This cluster has no Volcano", "PodGroups of scheduling.volcano.sh/v1beta1", `choose provider "kubernetes"`)
	if out, code := s.Run("apply", "-auto-approve", "-input=false"); code == 0 {
		t.Errorf("apply succeeds:\n%s", out)
	}
	if made := s.Objects(); len(made) > 0 {
		t.Errorf("for a job that plan refuses it made %v", made)
	}
}

func TestPlanNamesAFieldThatTheInstalledVolcanoLacks(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 2)
	s.Edit("volcano.hcl", "  queue       = var.queue\n", "  queue       = var.queue\n\n  network_topology {\n    mode         = \"hard\"\n    highest_tier = 2\n  }\n")
	out, _ := s.Run("plan")
	site.Has(t, out, `Provider "volcano" uses network_topology, but this cluster's Volcano is too old`,
		"its PodGroups have no spec.networkTopology.mode, only minMember, minResources, minTaskMember")
	if out, code := s.Run("apply", "-auto-approve", "-input=false"); code == 0 {
		t.Errorf("apply succeeds:\n%s", out)
	}
	if made := s.Objects(); len(made) > 0 {
		t.Errorf("for a job that plan refuses it made %v", made)
	}
}

// The chart's configuration does not preempt. plan reads it if configured to, and says what follows from it.
func TestPlanSaysWhatTheSchedulersConfigurationLacks(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 2)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stock"}, Data: map[string]string{
		"volcano-scheduler.conf": strings.Replace(preempting, "preempt, reclaim, ", "", 1)}}
	configMaps := cluster.Admin().CoreV1().ConfigMaps(s.Namespace)
	_, err := configMaps.Create(t.Context(), config, metav1.CreateOptions{})
	s.OK(err)
	if out := s.Must("plan"); strings.Contains(out, "does not preempt") {
		t.Errorf("of a configuration that preempts plan says:\n%s", out)
	}
	s.Edit("volcano.hcl", "  queue       = var.queue\n", "  queue       = var.queue\n\n  scheduler_config = \""+s.Namespace+"/stock\"\n")
	site.Has(t, s.Must("plan"), `The scheduler does not preempt (its actions are "enqueue, allocate, backfill")`)
	s.OK(configMaps.Delete(t.Context(), "stock", metav1.DeleteOptions{}))
}

// A gang waits for its queue, whatever is wrong with it, and trains once it is admitted.
func TestAQueueThatIsAbsentThenFullThenClosed(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	queue := s.Namespace
	s.Edit("volcano.hcl", `default     = "default"`, `default     = "`+queue+`"`)
	absent := `queue "` + queue + `" does not exist: create it, or set another one in the provider's queue`
	out, _ := s.Run("plan")
	site.Has(t, out, absent)
	out, code := s.Run("apply", "-auto-approve", "-input=false")
	if site.Has(t, out, absent); code == 0 {
		t.Error("an apply that started nothing succeeded")
	}
	m := s.Watch()
	m.AwaitOutput(absent)
	s.Await("the reason", func(j site.Job) bool { return j.Says(absent) })
	if made := s.Objects(); len(made) > 0 {
		t.Errorf("for a job that cannot be started there are %v", made)
	}
	cluster.MakeQueue(t, queue, testbed.Queue{Capability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}})
	m.AwaitOutput(`queue "` + queue + `" has no room: the gang needs cpu 2, and of the queue's 1 already 0 are in use`)
	cluster.CloseQueue(t, queue)
	m.AwaitOutput(`queue "` + queue + `" is clos`) // closing, while it has a PodGroup
	if pods := s.Pods(); len(pods) > 0 {
		t.Errorf("%d pods for a queue that admits nothing", len(pods))
	}
	_, err := cluster.Dynamic().Resource(testbed.Queues).Patch(t.Context(), queue, types.MergePatchType, []byte(`{"spec":{"capability":{"cpu":"4"}}}`), metav1.PatchOptions{})
	s.OK(err)
	cluster.OpenQueue(t, queue)
	before := s.AwaitWorld(4, 1)
	cluster.CloseQueue(t, queue)
	closed := s.Await("training on in a queue that closes, and the reason", func(j site.Job) bool {
		return j.Step > before.Step && j.Says(`queue "`+queue+`" is clos`)
	})
	if closed.Generation != before.Generation {
		t.Errorf("a new world formed: generation %d -> %d", before.Generation, closed.Generation)
	}
	cluster.OpenQueue(t, queue)
	s.ContinuesRight(long)
}

// Without a scheduler running jobs train on, new pods wait and plan says for what, and nothing is lost.
func TestTheSchedulerIsDown(t *testing.T) {
	soak.Only(t)
	const long = 6 * site.Steps
	s := newDemoAlone(t, 5) // other tests' pods would wait too
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	cluster.VolcanoScheduler.Kill(t)
	up := false
	t.Cleanup(func() {
		if !up {
			cluster.VolcanoScheduler.Start(t)
		}
	})
	m := s.Watch()
	m.AwaitOutput(`the scheduler "volcano" has not handled PodGroup mnist-`)
	site.Has(t, s.Must("status"), `the scheduler "volcano" has not handled PodGroup mnist-`)
	m.Interrupt()
	site.Has(t, s.Must("plan"), `the scheduler "volcano" has not handled PodGroup mnist-`)
	cluster.VolcanoScheduler.Start(t)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	// The same under a job that trains: a slot lost meanwhile waits.
	cluster.VolcanoScheduler.Kill(t)
	victim := before.Worker(3)
	s.DeletePod(victim.Name, podsite.AtOnce())
	three := s.Await("training without it, and the reason", func(j site.Job) bool {
		return j.WorldSize == 3 && j.Generation > before.Generation && j.Says(`waits for the scheduler "volcano", which has not reported on it`)
	})
	s.Untouched(before, three, victim)
	cluster.VolcanoScheduler.Start(t)
	up = true
	s.AwaitWorld(4, three.Generation+1)
	s.ContinuesRight(long)
}

// A master that is killed between the PodGroup and the first pod leaves a gang without members. The next master uses the same
// PodGroup, and creates the pods.
func TestMasterKilledBetweenThePodGroupAndItsPods(t *testing.T) {
	soak.Only(t)
	s := newDemo(t, 4)
	s.Together()
	killedAt(s, "patch podgroups", true)
	made := podGroup(s)
	if made == nil || len(s.Pods()) > 0 {
		t.Fatalf("it was killed elsewhere: PodGroup %v, %d pods", made, len(s.Pods()))
	}
	s.Watch()
	s.AwaitWorld(4, 1)
	if now := podGroup(s); now.UID != made.UID {
		t.Errorf("PodGroup %s became %s", made.UID, now.UID)
	}
	s.EndsRight(site.Steps)
}

// killedAt starts a master and kills it at its first write of a kind; with done, after the API server has carried it out.
func killedAt(s *podsite.Demo, kind string, done bool) {
	s.T.Helper()
	gate := s.Through()
	held, _ := gate.StopAt(0, kind, done)
	m := s.Watch()
	select {
	case <-held:
		m.Kill()
		gate.Open()
	case <-time.After(site.Bound):
		s.T.Fatalf("it does not come to that write:\n%s", m.Out)
	}
}

// A lower min is written to the PodGroup before pods are deleted. A master that is killed in between leaves more pods than the
// gang wants, which train; the next one deletes the surplus, once.
func TestMasterKilledBetweenALowerMinAndItsPods(t *testing.T) {
	soak.Only(t)
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	s.Edit("job.hcl", "min = 2", "min = 4")
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	m.Interrupt()
	if g := podGroup(s); g.Spec.MinMember != 4 {
		t.Fatalf("minMember is %d", g.Spec.MinMember)
	}
	s.Edit("job.hcl", "min = 4", "min = 2")
	s.Edit("job.hcl", "max = 4", "max = 3")
	s.Edit("job.hcl", "default = 4", "default = 3") // replicas
	killedAt(s, "patch podgroups", true)
	if g := podGroup(s); g.Spec.MinMember != 2 {
		t.Errorf("minMember is %d", g.Spec.MinMember)
	}
	if now := s.Pods(); len(now) != 4 || slices.ContainsFunc(now, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning }) {
		t.Errorf("it was killed too late: %d pods", len(now))
	}
	s.Watch()
	after := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, after, before.Worker(3))
	s.ContinuesRight(long)
}

// A higher min is written to the PodGroup only once that many pods exist: before, the training pods would count as an
// incomplete gang. A master that is killed before that leaves a smaller gang; the next one writes it.
func TestMasterKilledBeforeAHigherMinIsTold(t *testing.T) {
	soak.Only(t)
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	s.Edit("job.hcl", "max = 4", "max = 2")
	s.Edit("job.hcl", "default = 4", "default = 2") // replicas
	m := s.Watch()
	before := s.AwaitWorld(2, 1)
	m.Interrupt()
	s.Edit("job.hcl", "min = 2", "min = 4")
	s.Edit("job.hcl", "max = 2", "max = 4")
	s.Edit("job.hcl", "default = 2", "default = 4")
	killedAt(s, "patch podgroups", false)
	if g := podGroup(s); g.Spec.MinMember != 2 {
		t.Errorf("minMember is %d", g.Spec.MinMember)
	}
	if now := s.Pods(); len(now) < 3 {
		t.Errorf("the higher min is about to be written with only %d pods", len(now))
	}
	s.Watch()
	site.Until(t, "the PodGroup has the higher min", func() bool { return podGroup(s).Spec.MinMember == 4 })
	after := s.AwaitWorld(4, before.Generation+1)
	s.Untouched(before, after, after.Worker(2), after.Worker(3))
	s.ContinuesRight(long)
}

// A deleted PodGroup is created again, and training is not disturbed.
func TestPodGroupDeletedByHand(t *testing.T) {
	const long = 6 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	group := podGroup(s)
	s.OK(cluster.Dynamic().Resource(testbed.PodGroups).Namespace(s.Namespace).Delete(t.Context(), group.Name, metav1.DeleteOptions{}))
	site.Until(t, "it is there again, with its pods", func() bool {
		now := podGroup(s)
		return now != nil && now.UID != group.UID && now.Status.Phase == v1beta1.PodGroupRunning
	})
	after := s.AwaitWorld(4, 1)
	s.Undisturbed(before, after)
	// It is still a gang: a lost pod is replaced and placed.
	s.DeletePod(after.Worker(2).Name, podsite.AtOnce())
	s.AwaitWorld(4, after.Generation+1)
	s.ContinuesRight(long)
}

// The API server calls Volcano's webhooks for every PodGroup and pod, and they time out under load. The master says what it
// waits for before it has a response, retries, and creates nothing twice.
func TestWebhooksThatTimeOut(t *testing.T) {
	soak.Only(t)
	const (
		longest = 30 * time.Second // the longest timeout that the API server allows a webhook
		slow    = 3 * time.Second
	)
	s := newDemo(t, 4)
	s.Together()
	t.Run("pods", func(t *testing.T) {
		ofPods := cluster.Webhook(t, testbed.Refusals{Namespace: s.Namespace, Delay: 2 * longest, Timeout: longest})
		m := s.Watch()
		t.Run("PodGroups", func(t *testing.T) {
			cluster.Webhook(t, testbed.Refusals{Namespace: s.Namespace, Resource: testbed.PodGroups, Delay: slow, Timeout: slow / 3})
			m.AwaitOutput("create the PodGroup: the API server failed; retrying: Internal error occurred: failed calling webhook")
		})
		site.Until(t, "a pod is asked for", func() bool { return ofPods.Asked() > 0 })
		asked := time.Now()
		m.AwaitOutput("Job mnist is delayed")
		m.AwaitOutput("create pods of worker: the API server has not answered for 5s; an admission webhook may be slow")
		if waited := time.Since(asked); waited > longest {
			t.Errorf("it was reported only after %s, when there was a response", waited)
		}
		site.Has(t, s.Must("status"), "create pods of worker: the API server has not answered for 5s")
		m.AwaitOutput(`create pods of worker: the API server failed; retrying: Internal error occurred: failed calling webhook "refuse.testbed.eltrain.dev"`)
		site.Has(t, s.Must("status"), `failed calling webhook "refuse.testbed.eltrain.dev"`)
	})
	j := s.AwaitWorld(4, 1)
	if pods := s.Pods(); len(pods) != 4 || len(j.Slots) != 4 {
		t.Errorf("%d pods for %d slots", len(pods), len(j.Slots))
	}
	if status := s.Must("status"); strings.Contains(status, "create pods") {
		t.Errorf("it is over, and status says\n%s", status)
	}
	s.EndsRight(site.Steps)
}

// written returns eltrain's entries among a PodGroup's managed fields: what it has written, and when.
func written(g *v1beta1.PodGroup) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(g.ManagedFields), func(f metav1.ManagedFieldsEntry) bool { return f.Manager != "eltrain" })
}

// Of two masters one leads. When it is killed the other finds the gang and its PodGroup as they were.
func TestTwoMastersOneLeads(t *testing.T) {
	const long = 8 * site.Steps
	s := newDemo(t, 4)
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	s.Edit("job.hcl", "eltrain {", "eltrain {\n  state \"kubernetes\" {\n    name = \"e2e\"\n  }")
	first := s.Watch()
	before := s.AwaitWorld(4, 1)
	group := podGroup(s)
	standby := s.Elsewhere()
	second := standby.Watch("-lock-timeout=1h")
	second.AwaitOutput("Acquiring state lock")
	first.Kill()
	second.AwaitOutput("Watching.")
	after := standby.AwaitWorld(4, 1)
	s.Undisturbed(before, after)
	// Do not compare the generation, which also counts Volcano's writes of the status.
	if now := podGroup(s); now.UID != group.UID || !reflect.DeepEqual(written(now), written(group)) {
		t.Errorf("the second master wrote a PodGroup that needed no change: %s %v -> %s %v", group.UID, written(group), now.UID, written(now))
	}
	s.ContinuesRight(long)
}
