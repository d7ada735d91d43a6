package volcano

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/apis/pkg/apis/topology/v1alpha1"

	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/testbed"
)

// A PodGroup exists before any pod, and has everything that the scheduler needs.
func TestPrepareMakesThePodGroup(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := job.Group{UID: "0b0e9c52", Name: "gpt", Roles: []job.GroupRole{
		{Role: "ps", Min: 1, Each: job.Resources{CPU: core, Memory: 1 << 30}},
		{Role: "worker", Min: 2, Each: job.Resources{CPU: core / 2}},
		{Role: "evaluator", Each: job.Resources{CPU: 64 * core}},
	}}
	w.prepare(g)
	made := w.podGroup("gpt-0b0e9")
	anchor, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "gpt-0b0e9", metav1.GetOptions{})
	w.ok(err)
	if len(made.OwnerReferences) != 1 || made.OwnerReferences[0].UID != anchor.UID {
		t.Errorf("its owners are %+v, not the anchor", made.OwnerReferences)
	}
	s := made.Spec
	if s.MinMember != 3 || len(s.MinTaskMember) != 2 || s.MinTaskMember["ps"] != 1 || s.MinTaskMember["worker"] != 2 || s.Queue != "default" {
		t.Errorf("its spec is %+v", s)
	}
	if cpu, memory := (*s.MinResources)["cpu"], (*s.MinResources)["memory"]; cpu.String() != "2" || memory.String() != "1Gi" {
		t.Errorf("minResources are %v", *s.MinResources)
	}

	w.preparedWithoutWriting(g)
	// Changes are applied: a min is lowered before the job shrinks.
	g.Roles[1].Min = 1
	next := w.open()
	_, err = next.Prepare(t.Context(), g)
	w.ok(err)
	if now := w.podGroup("gpt-0b0e9").Spec; now.MinMember != 2 || now.MinTaskMember["worker"] != 1 {
		t.Errorf("it was not lowered: %+v", now)
	}
	w.ok(next.Forget(t.Context(), g.UID, g.Name))
	w.nothingLeft() // nor a PodGroup that the first master recreated before it was closed: its anchor is gone
}

func TestPodsAreOfTheirPodGroup(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("pods", 1, core)
	w.start(g, 2)
	for index, preemptable := range []string{"false", "true"} {
		w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 2 })
		pods, err := w.cluster.Admin().CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/index=" + []string{"0", "1"}[index]})
		w.ok(err)
		pod := pods.Items[0]
		want := map[string]string{"scheduling.k8s.io/group-name": podGroupOf(g), "volcano.sh/task-spec": "worker", "volcano.sh/preemptable": preemptable}
		for key, value := range want {
			if pod.Annotations[key] != value {
				t.Errorf("worker[%d]: %s is %q, not %q", index, key, pod.Annotations[key], value)
			}
		}
		if pod.Spec.SchedulerName != "volcano" || len(pod.Spec.SchedulingGates) > 0 {
			t.Errorf("worker[%d] is for scheduler %q under gates %v", index, pod.Spec.SchedulerName, pod.Spec.SchedulingGates)
		}
	}
	w.end(g)
}

func TestWithRoomForLessThanMinNothingIsBound(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("five", 5, 3*core) // one fits on a node, and there are four nodes
	w.start(g, 5)
	w.until("a reason", func(o *providers.Observation) bool {
		return len(w.of(o, g)) == 5 && !slices.ContainsFunc(w.of(o, g), func(i job.Incarnation) bool { return !strings.Contains(i.Waiting, "Insufficient cpu") })
	})
	w.settle()
	o := w.observe()
	for _, i := range w.of(o, g) {
		if i.Node != "" || i.State != job.Starting {
			t.Errorf("%s is %s on %q", i.Slot, i.State, i.Node)
		}
	}
	added := w.cluster.AddNodes(t, 1, fourCores)
	w.until("all up", func(o *providers.Observation) bool { return w.up(o, g) == 5 })
	w.end(g)
	w.cluster.RemoveNode(t, added[0])
}

func TestTwoGangsThatEachNeedMoreThanHalfRunOneAfterTheOther(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	a, b := group("one", 3, 3*core), group("two", 3, 3*core)
	w.prepare(a)
	w.prepare(b)
	w.launch(a, 1, 0, 1, 2)
	w.launch(b, 1, 0, 1, 2)
	w.until("one of them up", func(o *providers.Observation) bool { return w.up(o, a) == 3 || w.up(o, b) == 3 })
	w.settle()
	o := w.observe()
	if w.up(o, a)+w.up(o, b) != 3 {
		t.Errorf("%d and %d are up:\n%s", w.up(o, a), w.up(o, b), w.show(o))
	}
	if w.up(o, b) == 3 {
		a, b = b, a
	}
	w.end(a)
	w.until("the other up", func(o *providers.Observation) bool { return w.up(o, b) == 3 })
	w.end(b)
}

// A node that dies takes a member of a gang with it. Its next incarnation is placed before a waiting job, and before the
// gang's remaining pods count as broken: its PodGroup kept its age.
func TestAGangIsFormedAgainAfterANodeDied(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g, other := group("ill", 4, 3*core), group("late", 4, 3*core)
	w.start(g, 4)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 4 })
	made := w.podGroup(podGroupOf(g))
	w.prepare(other)
	w.launch(other, 1, 0, 1, 2, 3)
	dead := w.of(w.observe(), g)[2]
	w.cluster.RemoveNode(t, dead.Node)
	o := w.until("reported as gone", func(o *providers.Observation) bool { return w.up(o, g) == 3 })
	if why := o.Held[g.UID]; why != "" {
		t.Errorf("its replacement is held: %s", why)
	}
	w.ok(w.p.Stop(t.Context(), g.UID, dead.Slot, 1, 0))
	w.launch(g, 2, dead.Slot.Index)
	w.until("reported as waiting", func(o *providers.Observation) bool {
		return slices.ContainsFunc(w.of(o, g), func(i job.Incarnation) bool { return i.Number == 2 && i.Waiting != "" })
	})
	w.cluster.AddNodes(t, 1, fourCores)
	o = w.until("formed again", func(o *providers.Observation) bool { return w.up(o, g) == 4 })
	if n := w.up(o, other); n > 0 {
		t.Errorf("%d of a waiting gang came first", n)
	}
	if now := w.podGroup(podGroupOf(g)); now.UID != made.UID {
		t.Error("its PodGroup did not outlive its pods")
	}
	w.end(g)
	w.end(other)
}

// By age, a gang that lost a member precedes any waiting job, however small: its PodGroup kept its age. The plugin drf,
// which orders by what jobs hold, must be configured for that; a plan warns otherwise.
func TestAGangThatLostAMemberGoesBeforeASmallJob(t *testing.T) {
	soak.Only(t)
	cluster := newBed(t)
	stock := cluster.VolcanoConfiguration(t)
	byAge := strings.Replace(stock, "- name: drf\n", "- name: drf\n    enableJobOrder: false\n", 1)
	if byAge == stock {
		t.Fatalf("the stock configuration has no drf:\n%s", stock)
	}
	cluster.ConfigureVolcano(t, byAge)
	t.Cleanup(func() { cluster.ConfigureVolcano(t, stock) })
	w := newWork(t, cluster, nil)
	g, small := group("hurt", 4, 3*core), group("small", 1, 3*core)
	w.start(g, 4)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 4 })
	w.prepare(small)
	w.launch(small, 1, 0)
	dead := w.of(w.observe(), g)[0]
	w.cluster.RemoveNode(t, dead.Node)
	w.ok(w.p.Stop(t.Context(), g.UID, dead.Slot, 1, 0))
	w.launch(g, 2, dead.Slot.Index)
	w.settle()
	w.cluster.AddNodes(t, 1, fourCores)
	o := w.until("one of them up", func(o *providers.Observation) bool { return w.up(o, g) == 4 || w.up(o, small) == 1 })
	if w.up(o, g) != 4 {
		t.Errorf("a waiting job came first:\n%s", w.show(o))
	}
	w.end(g)
	w.end(small)
}

func TestAPodGroupThatWasDeletedIsMadeAgain(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("kept", 2, core)
	w.start(g, 2)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 2 })
	before := w.podGroup(podGroupOf(g))
	groups := w.volcano.SchedulingV1beta1().PodGroups(w.namespace)
	w.ok(groups.Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	w.until("recreated and admitted", func(o *providers.Observation) bool {
		now, err := groups.Get(t.Context(), before.Name, metav1.GetOptions{})
		return err == nil && now.UID != before.UID && o.Held[g.UID] == "" && now.Status.Phase == v1beta1.PodGroupRunning
	})
	if o := w.observe(); w.up(o, g) != 2 {
		t.Errorf("its pods did not keep running:\n%s", w.show(o))
	}
	w.end(g)
	w.settle()
	w.nothingLeft()
}

// Edits to a PodGroup are reverted, even of fields that eltrain leaves empty.
func TestAPodGroupThatWasEditedIsSetBack(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("edited", 0, core)
	w.prepare(g)
	_, err := w.volcano.SchedulingV1beta1().PodGroups(w.namespace).Patch(t.Context(), podGroupOf(g), types.MergePatchType,
		[]byte(`{"spec":{"minMember":3}}`), metav1.PatchOptions{FieldManager: "somebody"})
	w.ok(err)
	w.until("reverted", func(*providers.Observation) bool {
		w.prepare(g) // it acts once the edit was seen
		return w.podGroup(podGroupOf(g)).Spec.MinMember == 0
	})
	w.end(g)
}

// Fields that others add to a PodGroup stay, and cost no write. Once eltrain declares such a field, its value is the one
// that counts.
func TestWhatIsNotOursOfAPodGroupIsLeftAlone(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("shared", 2, core)
	w.prepare(g)
	groups := w.volcano.SchedulingV1beta1().PodGroups(w.namespace)
	_, err := groups.Patch(t.Context(), podGroupOf(g), types.MergePatchType,
		[]byte(`{"spec":{"priorityClassName":"theirs","minTaskMember":{"launcher":1},"minResources":{"memory":"1Gi"}}}`), metav1.PatchOptions{FieldManager: "somebody"})
	w.ok(err)
	w.preparedWithoutWriting(g)
	if s := w.podGroup(podGroupOf(g)).Spec; s.PriorityClassName != "theirs" || s.MinTaskMember["launcher"] != 1 {
		t.Errorf("its spec is %+v", s)
	}
	w.config.PriorityClass = "ours"
	ours := w.open()
	_, err = ours.Prepare(t.Context(), g)
	w.ok(err)
	w.preparedWithoutWriting(g)
	if s := w.podGroup(podGroupOf(g)).Spec; s.PriorityClassName != "ours" {
		t.Errorf("with priority_class its spec is %+v", s)
	}
	w.config.PriorityClass = ""
	none := w.open()
	_, err = none.Prepare(t.Context(), g)
	w.ok(err)
	w.preparedWithoutWriting(g)
	if s := w.podGroup(podGroupOf(g)).Spec; s.PriorityClassName != "" || s.MinTaskMember["launcher"] != 1 || s.MinMember != 2 {
		t.Errorf("without priority_class again its spec is %+v", s)
	}
	w.ok(none.Forget(t.Context(), g.UID, g.Name))
}

// A master that is killed leaves a PodGroup without pods, with some of its pods, or with a smaller min and the pods to be
// removed. The next one completes it. Two at once do not disturb each other.
func TestANextMasterCompletesAGang(t *testing.T) {
	w := newWork(t, newBed(t), nil)
	g := group("next", 3, core)
	w.prepare(g)
	w.ok(w.p.Close())
	w.p = w.open()
	w.start(g, 1)
	w.ok(w.p.Close())
	second := w.open()
	_, err := second.Prepare(t.Context(), g)
	w.ok(err)
	w.p = w.open()
	w.start(g, 2)
	w.p = second
	w.launch(g, 1, 0, 1, 2)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 3 })
	g.Roles = slices.Clone(g.Roles) // the provider keeps the slice that it was given
	g.Roles[0].Min = 2
	w.prepare(g)
	w.ok(w.p.Close())
	w.p = w.open()
	w.prepare(g)
	w.ok(w.p.Stop(t.Context(), g.UID, slot(g, 2), 1, time.Second))
	w.settle()
	if now := w.podGroup(podGroupOf(g)); now.Spec.MinMember != 2 || now.Status.Phase != v1beta1.PodGroupRunning {
		t.Errorf("its PodGroup is %s with %d", now.Status.Phase, now.Spec.MinMember)
	}
	w.end(g)
}

func TestAQueueThatIsNotThereClosedOrFull(t *testing.T) {
	cluster := newBed(t)
	const name = "research"
	w := newWork(t, cluster, func(c *Config) { c.Queue = name })
	g := group("queued", 2, core)
	w.prepare(g)
	held := func(words string) {
		t.Helper()
		w.until("held: "+words, func(o *providers.Observation) bool { return strings.Contains(o.Held[g.UID], words) })
	}
	held(`queue "research" does not exist: create it, or set another one`)
	if c := w.p.Capabilities(); c.Refused != `No job is admitted: queue "research" does not exist: create it, or set another one in the provider's queue.` {
		t.Errorf("a plan would not report it before anything is created: %q", c.Refused)
	}
	cluster.MakeQueue(t, name, testbed.Queue{Capability: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}})
	w.until("admitted", func(o *providers.Observation) bool { return o.Held[g.UID] == "" })
	w.launch(g, 1, 0, 1)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 2 })

	full := group("full", 2, core)
	w.prepare(full)
	w.until("the queue is full", func(o *providers.Observation) bool {
		return o.Held[full.UID] == `queue "research" has no room: the gang needs cpu 2, and of the queue's 3 already 2 are in use`
	})
	cluster.CloseQueue(t, name)
	w.until("the queue is closed", func(o *providers.Observation) bool {
		return strings.Contains(o.Held[full.UID], `it admits nothing until it is opened`)
	})
	if o := w.observe(); o.Held[g.UID] != "" || w.up(o, g) != 2 {
		t.Errorf("a running job is held: %v", o.Held)
	}
	cluster.OpenQueue(t, name)
	w.end(g)
	w.until("admitted", func(o *providers.Observation) bool { return o.Held[full.UID] == "" })
	w.end(full)
}

func TestASchedulerThatIsDown(t *testing.T) {
	soak.Only(t)
	cluster := newBed(t)
	w := newWork(t, cluster, nil)
	running, g := group("before", 1, core), group("down", 2, core)
	w.start(running, 1)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, running) == 1 })
	w.until("known to the scheduler as running", func(*providers.Observation) bool {
		return w.podGroup(podGroupOf(running)).Status.Phase == v1beta1.PodGroupRunning
	})
	cluster.VolcanoScheduler.Kill(t)
	w.launch(running, 1, 1)
	w.prepare(g)
	w.until("a reason", func(o *providers.Observation) bool {
		return strings.Contains(o.Held[g.UID], `the scheduler "volcano" has not handled PodGroup `+podGroupOf(g)) &&
			slices.ContainsFunc(w.of(o, running), func(i job.Incarnation) bool {
				return i.Waiting == `waits for the scheduler "volcano", which has not reported on it`
			})
	})
	cluster.VolcanoScheduler.Start(t)
	w.until("admitted", func(o *providers.Observation) bool { return o.Held[g.UID] == "" })
	w.launch(g, 1, 0, 1)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 2 && w.up(o, running) == 2 })
	w.end(g)
	w.end(running)
}

func TestAWebhookThatTimesOutDelaysAGang(t *testing.T) {
	cluster := newBed(t)
	w := newWork(t, cluster, nil)
	g := group("slow", 1, core)
	t.Run("overloaded", func(t *testing.T) {
		cluster.Webhook(t, testbed.Refusals{Namespace: w.namespace, Resource: testbed.PodGroups, Delay: 3 * time.Second, Timeout: time.Second})
		if _, err := w.p.Prepare(t.Context(), g); err == nil || !strings.Contains(err.Error(), "prepare job.slow: create the PodGroup: Internal error occurred: failed calling webhook") {
			t.Errorf("prepared: %v", err)
		}
	})
	w.until("prepared", func(*providers.Observation) bool { // writes like the failed one are delayed
		_, err := w.p.Prepare(t.Context(), g)
		return err == nil
	})
	w.start(g, 1)
	w.until("up", func(o *providers.Observation) bool { return w.up(o, g) == 1 })
	w.end(g)
}

func TestPlanSaysWhatTheSchedulerDoesNotDo(t *testing.T) {
	soak.Only(t)
	w := newWork(t, newBed(t), nil)
	w.observe()
	if c := w.p.Capabilities(); c.Refused != "" || len(c.Caveats) != 2 || !strings.HasPrefix(c.Caveats[0], "The scheduler's plugin drf prefers jobs that hold less") ||
		!strings.HasPrefix(c.Caveats[1], `The scheduler does not preempt (its actions are "enqueue, allocate, backfill")`) {
		t.Errorf("the capabilities with the stock configuration are %+v", c)
	}
	w = newWork(t, w.cluster, func(c *Config) { c.SchedulerConfig = "elsewhere/conf" })
	w.observe()
	if c := w.p.Capabilities(); len(c.Caveats) != 1 || !strings.Contains(c.Caveats[0], "It is unknown whether") {
		t.Errorf("the caveats with an unreadable configuration are %q", c.Caveats)
	}
}

// If a job uses a field that the server does not support, both are named, before anything is created. Once Volcano is
// upgraded the job continues; HyperNodes are then labels of nodes.
func TestAnOlderVolcanoAndItsUpgrade(t *testing.T) {
	soak.Only(t)
	cluster := newBed(t)
	w := newWork(t, cluster, func(c *Config) { c.NetworkTopology = &NetworkTopology{Mode: "soft", HighestTier: 2} })
	w.observe()
	why := w.p.Capabilities().Refused
	if !strings.Contains(why, "network_topology") || !strings.Contains(why, "no spec.networkTopology.mode, only minMember, minResources, minTaskMember") {
		t.Errorf("refused with %q", why)
	}
	g := group("wide", 1, core)
	if _, err := w.p.Prepare(t.Context(), g); err == nil || !strings.Contains(err.Error(), "network_topology") {
		t.Errorf("it was prepared nevertheless: %v", err)
	}
	cluster.DefineVolcano(t, testbed.Volcano112)
	t.Cleanup(func() { cluster.DefineVolcano(t, testbed.Volcano110) })
	w.until("accepted", func(*providers.Observation) bool { return w.p.Capabilities().Refused == "" })
	w.prepare(g)
	if n := w.podGroup(podGroupOf(g)).Spec.NetworkTopology; n == nil || n.Mode != "soft" || *n.HighestTierAllowed != 2 {
		t.Errorf("its network topology is %+v", n)
	}
	w.preparedWithoutWriting(g)
	leaf := &v1alpha1.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: "s0"}, Spec: v1alpha1.HyperNodeSpec{Tier: 1, Members: []v1alpha1.MemberSpec{
		{Type: v1alpha1.MemberTypeNode, Selector: v1alpha1.MemberSelector{RegexMatch: &v1alpha1.RegexMatch{Pattern: "^kwok-"}}}}}}
	_, err := w.volcano.TopologyV1alpha1().HyperNodes().Create(t.Context(), leaf, metav1.CreateOptions{})
	w.ok(err)
	w.until("labels", func(o *providers.Observation) bool { return o.Nodes[0].Labels["hypernode.eltrain.dev/tier-1"] == "s0" })
	w.ok(w.p.Forget(t.Context(), g.UID, g.Name))
}

func TestAClusterWithoutVolcano(t *testing.T) {
	soak.Only(t)
	if testing.Short() {
		t.Skip("brings up a Kubernetes control plane: not with -short")
	}
	w := newWork(t, testbed.Start(t, testbed.Options{}), nil)
	w.observe()
	if c := w.p.Capabilities(); !strings.HasPrefix(c.Refused, "This cluster has no Volcano: its API server has no PodGroups of scheduling.volcano.sh/v1beta1.") {
		t.Errorf("refused with %q", c.Refused)
	}
	g := group("none", 1, core)
	if _, err := w.p.Prepare(t.Context(), g); err == nil {
		t.Error("a job was prepared")
	}
	w.ok(w.p.Forget(t.Context(), g.UID, g.Name)) // what the failed Prepare created
	objects, err := w.cluster.Admin().CoreV1().ConfigMaps(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/uid"})
	w.ok(err)
	if len(objects.Items) > 0 {
		t.Errorf("left behind: %v", objects.Items)
	}
}
