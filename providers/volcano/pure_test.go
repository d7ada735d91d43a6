package volcano

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/apis/pkg/apis/topology/v1alpha1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/kubernetes"
)

func TestValidateNamesEveryMistake(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   []string
	}{
		{Config{}, nil},
		{Config{Queue: "Research"}, []string{`invalid queue "Research"`}},
		{Config{SchedulerName: "a b"}, []string{`invalid scheduler_name "a b"`}},
		{Config{SchedulerConfig: "conf"}, []string{`invalid scheduler_config "conf": write it as "volcano-system/volcano-scheduler-configmap"`}},
		{Config{NetworkTopology: &NetworkTopology{}}, nil},
		{Config{NetworkTopology: &NetworkTopology{Mode: "firm", HighestTier: -1}}, []string{`invalid mode "firm" of network_topology`, `invalid highest_tier -1 of network_topology`}},
		{Config{Config: kubernetes.Config{QPS: -1}}, []string{"invalid qps -1"}},
	} {
		errs := c.config.Validate()
		if len(errs) != len(c.want) {
			t.Errorf("%+v: %v", c.config, errs)
			continue
		}
		for i, err := range errs {
			if !strings.Contains(err.Error(), c.want[i]) {
				t.Errorf("%+v: %v, not %q", c.config, err, c.want[i])
			}
		}
	}
}

// An overlay cannot remove what makes a pod a member of its gang.
func TestOverlaysKeepTheirHandsOffTheGang(t *testing.T) {
	spec := func(field string, value any) map[string]any {
		return map[string]any{"spec": map[string]any{field: value}}
	}
	annotation := func(name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: "x"}}}
	}
	config := Config{Config: kubernetes.Config{Image: "train:1"}}
	for _, c := range []struct {
		pod  map[string]any
		want string
	}{
		{spec("schedulerName", "other"), "it cannot change spec.schedulerName: set the provider's scheduler_name"},
		{annotation("scheduling.k8s.io/group-name"), `it cannot change metadata.annotations["scheduling.k8s.io/group-name"]: the scheduler identifies the gang by it`},
		{annotation("volcano.sh/task-spec"), `it cannot change metadata.annotations["volcano.sh/task-spec"]`},
		{annotation("volcano.sh/preemptable"), `it cannot change metadata.annotations["volcano.sh/preemptable"]`},
		{annotation("volcano.sh/numa-topology-policy"), ""},
		{spec("schedulerName", "volcano"), ""},
	} {
		err := config.Check(&job.Role{Name: "worker", Program: job.Program{Command: []string{"train"}}, Pod: c.pod})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, not %q", c.pod, err, c.want)
		}
	}
}

func TestTheServerIsAskedForNothingItDoesNotKnow(t *testing.T) {
	document := func(properties string) []byte {
		return []byte(`{"components": {"schemas": {
			"sh.volcano.scheduling.v1beta1.Queue": {"x-kubernetes-group-version-kind": [{"kind": "Queue"}]},
			"sh.volcano.scheduling.v1beta1.PodGroup": {"x-kubernetes-group-version-kind": [{"kind": "PodGroup"}],
				"properties": {"spec": {"properties": {` + properties + `}}}}}}}`)
	}
	const base = `"minMember": {}, "minResources": {}, "queue": {}, "priorityClassName": {}`
	wide := Config{NetworkTopology: &NetworkTopology{HighestTier: 2}}
	for _, c := range []struct {
		document []byte
		config   Config
		lacks    string
	}{
		{[]byte(`{}`), Config{}, "This cluster has no Volcano"},
		{document(base), Config{}, ""},
		{document(base), wide, `uses network_topology, but this cluster's Volcano is too old: its PodGroups have no spec.networkTopology.mode, only minMember, minResources, priorityClassName, queue.`},
		{document(base + `, "networkTopology": {"properties": {"mode": {}}}`), wide, "uses highest_tier of network_topology, but this cluster's Volcano is too old: its PodGroups have no spec.networkTopology.highestTierAllowed"},
		{document(base + `, "networkTopology": {"allOf": [{"properties": {"mode": {}, "highestTierAllowed": {}}}]}`), wide, ""},
		{document(`"minMember": {}`), Config{}, "uses a gang"},
	} {
		s, err := readSchema(c.document)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.lacks(c.config); c.lacks == "" && got != "" || !strings.Contains(got, c.lacks) {
			t.Errorf("%s\nlacks %q, not %q", c.document, got, c.lacks)
		}
	}
	// minTaskMember is omitted if the server does not support it: for one role it is redundant.
	old, err := readSchema(document(base))
	if err != nil {
		t.Fatal(err)
	}
	if spec := (Config{}).specOf(group("old", 2, core), old); spec.MinTaskMember != nil || spec.MinMember != 2 {
		t.Errorf("the spec is %+v", spec)
	}
}

func TestWhatTheSchedulersConfigurationMeans(t *testing.T) {
	const plugins = "tiers:\n- plugins:\n  - name: priority\n  - name: gang%s\n- plugins:\n  - name: proportion\n"
	stock := func(gang string) string { return strings.Replace(plugins, "%s", gang, 1) }
	for name, c := range map[string]struct {
		conf string
		want []string // prefixes
	}{
		"as installed":                {"actions: \"enqueue, allocate, backfill\"\n" + stock("\n    enablePreemptable: false"), []string{`The scheduler does not preempt (its actions are "enqueue, allocate, backfill")`}},
		"only preempt added":          {"actions: \"enqueue, allocate, preempt\"\n" + stock("\n    enablePreemptable: false"), []string{"The scheduler preempts and its plugin gang has enablePreemptable: false"}},
		"preempt with the gang floor": {"actions: \"enqueue,allocate,preempt\"\n" + stock(""), nil},
		"shares before age":           {"actions: \"enqueue, allocate, preempt\"\n" + stock("") + "  - name: drf\n", []string{"The scheduler's plugin drf prefers jobs that hold less"}},
		"age before shares":           {"actions: \"enqueue, allocate, preempt\"\n" + stock("") + "  - name: drf\n    enableJobOrder: false\n", nil},
		"preempt when there is room":  {"actions: \"enqueue, allocate, preempt\"\n" + stock("") + "  - name: overcommit\n", []string{"The scheduler preempts, but its plugin overcommit admits no job while the cluster is full"}},
		"a factor of somebody's own":  {"actions: \"enqueue, allocate, preempt\"\n" + stock("") + "  - name: overcommit\n    arguments:\n      overcommit-factor: 4.0\n", nil},
		"no gang":                     {"actions: \"enqueue, allocate, preempt\"\ntiers:\n- plugins:\n  - name: capacity\n", []string{"The scheduler's plugin gang is off"}},
		"a gang that is not ready":    {"actions: \"enqueue, allocate, preempt\"\n" + stock("\n    enableJobReady: false"), []string{"The scheduler's plugin gang is off"}},
		"no queue":                    {"actions: \"allocate, preempt\"\ntiers:\n- plugins:\n  - name: gang\n", []string{"The scheduler has no action enqueue", "The scheduler has neither the plugin proportion nor capacity"}},
		"reclaim with the gang floor": {"actions: \"enqueue, allocate, preempt, reclaim\"\n" + stock(""), nil},
		"reclaim below the floor":     {"actions: \"enqueue, allocate, preempt, reclaim\"\n" + stock("\n    enableReclaimable: false"), []string{"The scheduler reclaims from queues above their share and its plugin gang has enableReclaimable: false"}},
		"no YAML":                     {"actions: [", []string{"Cannot read the scheduler's configuration"}},
	} {
		got := Config{}.meaning(c.conf)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	wide, preempts := Config{NetworkTopology: &NetworkTopology{Mode: "hard"}}, "actions: \"enqueue, allocate, preempt\"\n"+stock("")
	if got := wide.meaning(preempts); len(got) != 1 || !strings.HasPrefix(got[0], "The scheduler's plugin network-topology-aware is off") {
		t.Errorf("without the network plugin: %q", got)
	}
	if got := wide.meaning(preempts + "  - name: network-topology-aware\n"); len(got) != 0 {
		t.Errorf("with the network plugin: %q", got)
	}
}

func TestWhyAGangIsHeld(t *testing.T) {
	some := func(phase v1beta1.PodGroupPhase, conditions ...v1beta1.PodGroupCondition) *v1beta1.PodGroup {
		return &v1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "gpt-0b0e9"},
			Spec:       v1beta1.PodGroupSpec{Queue: "q", MinMember: 2, MinResources: &corev1.ResourceList{"cpu": resource.MustParse("4")}},
			Status:     v1beta1.PodGroupStatus{Phase: phase, Conditions: conditions},
		}
	}
	queue := func(state v1beta1.QueueState, capability, allocated string) queues {
		q := &v1beta1.Queue{Status: v1beta1.QueueStatus{State: state}}
		if capability != "" {
			q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(capability)}
			q.Status.Allocated = corev1.ResourceList{"cpu": resource.MustParse(allocated)}
		}
		return queues{"q": q}
	}
	waits := v1beta1.PodGroupCondition{Type: v1beta1.PodGroupUnschedulableType, Status: corev1.ConditionTrue, Reason: v1beta1.NotEnoughResourcesReason, Message: "2/0 tasks"}
	for name, c := range map[string]struct {
		group  *v1beta1.PodGroup
		queues queues
		want   string
	}{
		"let in":                       {some(v1beta1.PodGroupInqueue), queue("Open", "", ""), ""},
		"runs":                         {some(v1beta1.PodGroupRunning), queue("Open", "", ""), ""},
		"heals":                        {some(v1beta1.PodGroupUnknown), queue("Closed", "4", "4"), ""},
		"runs, and its queue is gone":  {some(v1beta1.PodGroupRunning), queues{}, ""},
		"ended":                        {some(v1beta1.PodGroupCompleted), queue("Closed", "", ""), ""},
		"no queue":                     {some(v1beta1.PodGroupPending), queues{}, `queue "q" does not exist: create it, or set another one in the provider's queue`},
		"closing":                      {some(v1beta1.PodGroupInqueue), queue("Closing", "", ""), `queue "q" is closing: it admits nothing until it is opened`},
		"new":                          {some(""), queue("Open", "", ""), `the scheduler "volcano" has not handled PodGroup gpt-0b0e9 yet: is it running?`},
		"queue without its controller": {some(v1beta1.PodGroupInqueue), queue("", "", ""), ""},
		"full":                         {some(v1beta1.PodGroupPending, waits), queue("Open", "6", "3"), `queue "q" has no room: the gang needs cpu 4, and of the queue's 6 already 3 are in use`},
		"cluster full":                 {some(v1beta1.PodGroupPending, waits), queue("Open", "8", "3"), `queue "q" has not admitted PodGroup gpt-0b0e9: the cluster has no room for all of it (2 pods, cpu 4)`},
		"queues not seen":              {some(v1beta1.PodGroupPending, waits), nil, `queue "q" has not admitted PodGroup gpt-0b0e9`},
	} {
		if got := c.queues.held(c.group, "volcano"); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestWhatTheSchedulerSaysLastCounts(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	earlier := metav1.NewTime(now.Add(-time.Minute))
	no := v1beta1.PodGroupCondition{Type: v1beta1.PodGroupUnschedulableType, Status: corev1.ConditionTrue, Reason: "NotEnoughResources", Message: "1/4 tasks"}
	yes := v1beta1.PodGroupCondition{Type: v1beta1.PodGroupScheduled, Status: corev1.ConditionTrue}
	at := func(c v1beta1.PodGroupCondition, t metav1.Time) v1beta1.PodGroupCondition {
		c.LastTransitionTime = t
		return c
	}
	for name, c := range map[string]struct {
		phase      v1beta1.PodGroupPhase
		conditions []v1beta1.PodGroupCondition
		want       string
	}{
		"nothing":         {v1beta1.PodGroupInqueue, nil, ""},
		"no":              {v1beta1.PodGroupInqueue, []v1beta1.PodGroupCondition{at(no, now)}, "NotEnoughResources: 1/4 tasks"},
		"no, then yes":    {v1beta1.PodGroupInqueue, []v1beta1.PodGroupCondition{at(no, earlier), at(yes, now)}, ""},
		"at once":         {v1beta1.PodGroupInqueue, []v1beta1.PodGroupCondition{at(no, now), at(yes, now)}, ""},
		"yes, then no":    {v1beta1.PodGroupUnknown, []v1beta1.PodGroupCondition{at(no, now), at(yes, earlier)}, "NotEnoughResources: 1/4 tasks"},
		"its min are up":  {v1beta1.PodGroupRunning, []v1beta1.PodGroupCondition{at(no, now)}, ""},
		"no, and no more": {v1beta1.PodGroupInqueue, []v1beta1.PodGroupCondition{at(yes, earlier), at(no, now)}, "NotEnoughResources: 1/4 tasks"},
	} {
		g := &v1beta1.PodGroup{Status: v1beta1.PodGroupStatus{Phase: c.phase, Conditions: c.conditions}}
		if got := unschedulable(g); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// testdata/network.yaml has two spines with two leaves each, whose nodes are selected in each of the three ways.
func TestNodesShowWhereTheyAreInTheNetwork(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "network.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*v1alpha1.HyperNode
	for _, part := range strings.Split(string(text), "---\n") {
		h := &v1alpha1.HyperNode{}
		if err := yaml.UnmarshalStrict([]byte(part), h); err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	n := newNetwork(all)
	at := func(tiers ...string) map[string]string {
		labels := map[string]string{}
		for i, name := range tiers {
			labels[tierLabel(i+1)] = name
		}
		return labels
	}
	for _, c := range []struct {
		node job.Node
		want map[string]string
	}{
		{job.Node{Name: "n0"}, at("leaf-0", "spine-0", "core")},
		{job.Node{Name: "n1"}, at("leaf-0", "spine-0", "core")},
		{job.Node{Name: "n10"}, at("leaf-1", "spine-0", "core")},
		{job.Node{Name: "a", Labels: map[string]string{"rack": "2"}}, at("leaf-2", "spine-1", "core")},
		{job.Node{Name: "b", Labels: map[string]string{"rack": "3"}}, at("leaf-3", "spine-1", "core")},
		{job.Node{Name: "ring-node"}, at("ring-1", "ring-2")},
		{job.Node{Name: "nowhere"}, nil},
	} {
		if diff := cmp.Diff(c.want, n.tiers(&c.node)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.node.Name, diff)
		}
	}
}

// The block has all arguments of provider "kubernetes", and none that hides another.
func TestTheBlockIsThatOfKubernetesAndMore(t *testing.T) {
	names := map[string]bool{}
	for _, f := range job.Fields(reflect.TypeFor[Config]()) {
		names[f.Name] = true
	}
	for _, f := range job.Fields(reflect.TypeFor[kubernetes.Config]()) {
		if !names[f.Name] {
			t.Errorf("%s is missing", f.Name)
		}
		delete(names, f.Name)
	}
	if want := map[string]bool{"queue": true, "scheduler_name": true, "scheduler_config": true, "network_topology": true}; !reflect.DeepEqual(names, want) {
		t.Errorf("beyond that it has %v", names)
	}
}

// A role with a min of 0 has no part in the gang. If a PodGroup once reserved something, a server-side apply of an empty map
// would result in null, which the server rejects.
func TestAGangOfNobodyReservesNothing(t *testing.T) {
	known := &server{fields: map[string]bool{"minTaskMember": true}}
	spec := Config{}.specOf(job.Group{Roles: []job.GroupRole{{Role: "worker", Each: job.Resources{CPU: core}}}}, known)
	if cpu, there := (*spec.MinResources)[corev1.ResourceCPU]; spec.MinMember != 0 || len(spec.MinTaskMember) != 0 || !there || !cpu.IsZero() {
		t.Errorf("its spec is %+v", spec)
	}
}
