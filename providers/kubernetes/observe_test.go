package kubernetes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/eltrain/eltrain/job"
)

// TestObserve reads pods as the API server returns them, in every state with a reason of its own.
func TestObserve(t *testing.T) {
	datadriven.RunTest(t, "testdata/observe.txt", func(t *testing.T, d *datadriven.TestData) string {
		o := podFrom(t, d.Input)
		stripOurs(o) // everything that is read must survive this
		k, slot, ours := identify(o)
		if !ours {
			d.Fatalf(t, "no pod of ours")
		}
		x := newIndex()
		x.owner = "kubernetes ml/main"
		if d.HasArg("ordered") {
			x.asked.add(o.UID)
		}
		p := x.read(o, x.entryOf(k, slot))
		switch d.Cmd {
		case "pod":
			return text(p.seen)
		case "vanished":
			return text(vanished(p, d.HasArg("ordered")))
		}
		d.Fatalf(t, "no such command")
		return ""
	})
}

// podFrom reads a pod; the common parts of our pods may be omitted.
func podFrom(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	slot := job.Address{Job: "gpt", Role: "worker", Index: 3}
	o := &corev1.Pod{}
	o.Name, o.Namespace, o.UID, o.ResourceVersion = "gpt-0b0e9-e2-worker-3", "ml", "pod-uid", "100"
	record := launched{
		Fingerprint: "f1", Reserved: job.Resources{CPU: 2000}, Image: "train:1", InitImage: "eltrain/eltrain:v1",
		SafeToEvict: "false", DoNotDisrupt: "true",
	}
	o.Labels, o.Annotations = record.marks(key{"0b0e9c52", slot.Role, slot.Index, 2}, slot, "")
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// text renders the parts of an incarnation that tests vary.
func text(i job.Incarnation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", i.State)
	if i.Node != "" {
		fmt.Fprintf(&b, " on %s", i.Node)
	}
	if !i.Started.IsZero() {
		fmt.Fprintf(&b, " since %s", i.Started.UTC().Format("15:04:05"))
	}
	b.WriteString("\n")
	if i.Waiting != "" {
		fmt.Fprintf(&b, "waiting: %s\n", i.Waiting)
	}
	if e := i.Exit; e != nil {
		fmt.Fprintf(&b, "exit: %d", e.Code)
		if e.Signal != "" {
			fmt.Fprintf(&b, ", signal %s", e.Signal)
		}
		if e.OOM {
			b.WriteString(", out of memory")
		}
		if e.NotStarted != "" {
			fmt.Fprintf(&b, ", not started: %s", e.NotStarted)
		}
		if len(e.Tail) > 0 {
			fmt.Fprintf(&b, ", tail %q", e.Tail)
		}
		b.WriteString("\n")
	}
	if i.Ended != "" {
		fmt.Fprintf(&b, "ended: %s\n", i.Ended)
	}
	if i.Cause != "" {
		fmt.Fprintf(&b, "cause: %s\n", i.Cause)
	}
	for _, e := range i.Evidence {
		fmt.Fprintf(&b, "evidence: %s\n", e)
	}
	for _, d := range i.Drift {
		fmt.Fprintf(&b, "drift: %s is %s, was launched as %s", d.Path, d.Before, d.After)
		if d.By != "" {
			fmt.Fprintf(&b, ", by %s", d.By)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestNodes reads nodes, with foreign load and with pods of ours.
//
//	node [gone]   a node as it is now, or its last state; [new] starts with an empty index
//	list          all existing nodes
//	other [gone]  a foreign pod
//	ours [gone]   a pod of ours
//	hide          listing nodes is forbidden
//
// Each prints whether the loop is woken, and what Observe reports.
func TestNodes(t *testing.T) {
	var x *index
	datadriven.RunTest(t, "testdata/nodes.txt", func(t *testing.T, d *datadriven.TestData) string {
		if x == nil || d.HasArg("new") {
			x = newIndex()
		}
		switch d.Cmd {
		case "node", "list":
			var all []*corev1.Node
			for _, document := range strings.Split(d.Input, "---\n") {
				o := &corev1.Node{}
				if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
					d.Fatalf(t, "%v", err)
				}
				stripNode(o)
				all = append(all, o)
				if d.Cmd == "node" {
					x.watchedNode(o, d.HasArg("gone"))
				}
			}
			if d.Cmd == "list" {
				x.listedNodes(all)
			}
		case "other":
			o := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(d.Input), o); err != nil {
				d.Fatalf(t, "%v", err)
			}
			stripOther(o)
			from := unlabelled
			if d.HasArg("nominated") {
				from = nominated
			}
			x.watchedOther(o, from, d.HasArg("gone"))
		case "ours":
			o := podFrom(t, d.Input)
			stripOurs(o)
			x.watched(o, d.HasArg("gone"))
		case "hide":
			x.hideNodes(true)
		default:
			d.Fatalf(t, "no such command")
		}
		x.load.last = time.Time{} // each step is a second after the previous one
		var b strings.Builder
		select {
		case <-x.changes:
			b.WriteString("signalled\n")
		default:
			b.WriteString("nobody is woken\n")
		}
		seen := x.observe()
		for _, n := range seen.Nodes {
			b.WriteString(nodeLine(n))
		}
		for i := range seen.Incarnations.All() {
			b.WriteString(text(*i))
		}
		return b.String()
	})
}

func nodeLine(n job.Node) string {
	line := fmt.Sprintf("%s: %s", n.Name, n.Capacity)
	if n.AnyDevice {
		line += ", any device"
	}
	line += fmt.Sprintf(", %d slots", n.Slots)
	if !n.Foreign.Equal(job.Resources{}) {
		line += "; others use " + n.Foreign.String()
	}
	if n.Closed != "" {
		line += "; closed: " + n.Closed
	}
	if n.Drained != "" {
		line += "; drained: " + n.Drained
	}
	for _, x := range n.Problems {
		line += "; problem: " + x.Name + ": " + x.Message
	}
	return line + "\n"
}

// TestBars matches templates with three kinds of nodes.
func TestBars(t *testing.T) {
	x := newIndex()
	x.config = Config{Image: "train:1"}
	datadriven.RunTest(t, "testdata/bars.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "nodes":
			for _, document := range strings.Split(d.Input, "---\n") {
				o := &corev1.Node{}
				if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
					d.Fatalf(t, "%v", err)
				}
				o.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: apiresource.MustParse("110")}
				x.watchedNode(o, false)
			}
			return ""
		case "classes":
			var all []*nodev1.RuntimeClass
			for _, document := range strings.Split(d.Input, "---\n") {
				o := &nodev1.RuntimeClass{}
				if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
					d.Fatalf(t, "%v", err)
				}
				all = append(all, o)
			}
			x.listedClasses(all)
			return ""
		case "blind": // what was seen before stays known
			x.hideClasses(true)
			return ""
		case "hide":
			x.setClasses(runtimeClasses{})
			x.hideClasses(true)
			return ""
		case "bars":
			r := job.Role{Name: "worker", Program: job.Program{Command: []string{"train"}}}
			for _, a := range d.CmdArgs {
				if a.Key == "cpu" {
					r.Resources.CPU = job.CPU(1000)
					continue
				}
				r.Resources.Devices = map[string]int{a.Key: 1}
			}
			if err := yaml.Unmarshal([]byte(d.Input), &r.Pod); err != nil {
				d.Fatalf(t, "%v", err)
			}
			if err := x.config.Check(&r); err != nil {
				d.Fatalf(t, "%v", err)
			}
			places := x.observe().Places
			fit := places.Fit(&r)
			if again := places.Fit(&r); !reflect.DeepEqual(fit, again) {
				t.Errorf("the second result is %v, the first %v", again, fit)
			}
			bars := fit.Bars
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(bars)) {
				fmt.Fprintf(&b, "%s: %s\n", name, bars[name])
			}
			if extra := fit.Extra; !extra.Equal(job.Resources{}) {
				fmt.Fprintf(&b, "takes %s more\n", extra)
			}
			for _, caveat := range fit.Caveats {
				fmt.Fprintf(&b, "caveat: %s\n", caveat)
			}
			return b.String()
		}
		d.Fatalf(t, "no such command")
		return ""
	})
}

// Fit is called for each role by each plan: it must neither make a pod each time nor iterate over thousands of slots, however
// pods change. The answers of an observation stay, whatever happens to the nodes.
func TestBarsAreKept(t *testing.T) {
	x := newIndex()
	x.config = Config{Image: "train:1", Pod: map[string]any{"spec": map[string]any{"priorityClassName": "high"}}}
	tainted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}}}
	tainted.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: apiresource.MustParse("110")}
	x.watchedNode(tainted, false)
	r := &job.Role{Name: "worker", Program: job.Program{Command: []string{"train"}}, Pod: map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"zone": "a"}}}}
	before := x.observe().Places
	if bars := before.Fit(r).Bars; bars["n1"] != "taint gpu:NoSchedule" {
		t.Fatalf("bars %v", bars)
	}
	const most = 60 // to encode the overlay; merging a pod with two overlays takes some 2,000
	x.watched(podFrom(t, "{}"), false)
	if n := testing.AllocsPerRun(20, func() { x.observe().Places.Fit(r) }); n > most {
		t.Errorf("the second call allocates %v times", n)
	}
	tolerant := *r
	tolerant.Pod = map[string]any{"spec": map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}}}
	if bars := before.Fit(&tolerant).Bars; len(bars) > 0 {
		t.Errorf("another overlay has the same bars: %v", bars)
	}
	x.watchedNode(tainted, true)
	if bars := x.observe().Places.Fit(r).Bars; len(bars) > 0 {
		t.Errorf("a node that is gone bars: %v", bars)
	}
	if bars := before.Fit(r).Bars; bars["n1"] == "" {
		t.Error("what was observed before has changed")
	}
}

// TestOldNewsChangeNothing: older events of the watch do not undo what this process did.
func TestOldNewsChangeNothing(t *testing.T) {
	pod := func(version, node string) *corev1.Pod {
		o := podFrom(t, "{}")
		o.ResourceVersion, o.Spec.NodeName = version, node
		return o
	}
	k, _, _ := keyOf(pod("1", "").Labels)
	uid := types.UID("pod-uid")
	node := func(x *index) string {
		if p := x.get(k); p != nil {
			return "on " + p.node
		}
		return "none"
	}
	tests := map[string]struct {
		do   func(*index)
		want string
	}{
		"a created pod is there at once": {func(x *index) { x.put(pod("5", "a")) }, "on a"},
		"an older event":                 {func(x *index) { x.put(pod("10", "b")); x.watched(pod("9", "a"), false) }, "on b"},
		"a newer event":                  {func(x *index) { x.put(pod("9", "a")); x.watched(pod("10", "b"), false) }, "on b"},
		"an event of a deleted pod": {func(x *index) {
			x.put(pod("5", "a"))
			x.deleted(k, uid)
			x.watched(pod("6", "a"), false)
		}, "none"},
		"the answer to a create that comes after the end": {func(x *index) {
			x.watched(pod("5", "a"), false)
			x.watched(pod("6", "a"), true)
			x.put(pod("4", "a"))
		}, "none"},
		"a list from before the create": {func(x *index) { x.put(pod("50", "a")); x.listed(nil, "49") }, "on a"},
		"a list from after its end":     {func(x *index) { x.put(pod("50", "a")); x.listed(nil, "51") }, "none"},
		"a list with what was deleted":  {func(x *index) { x.put(pod("5", "a")); x.deleted(k, uid); x.listed([]*corev1.Pod{pod("5", "a")}, "6") }, "none"},
		"another pod under its name": {func(x *index) {
			x.put(pod("5", "a"))
			x.deleted(k, uid)
			next := pod("7", "c")
			next.UID = "another"
			x.watched(next, false)
		}, "on c"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x := newIndex()
			test.do(x)
			if got := node(x); got != test.want {
				t.Errorf("the pod is %s, want %s", got, test.want)
			}
			if n := x.observe().Incarnations.Len(); n != 1 {
				t.Errorf("%d incarnations are reported, want 1", n)
			}
		})
	}
}

// TestLabelsThatSayOtherwise: a pod's incarnation is fixed when it is created. Editing its labels does not change it, and
// putting our labels on another pod does not make it ours.
func TestLabelsThatSayOtherwise(t *testing.T) {
	x := newIndex()
	o := podFrom(t, "{}")
	x.watched(o, false)
	edited := podFrom(t, "{metadata: {resourceVersion: '101', labels: {eltrain.dev/index: '7', eltrain.dev/incarnation: 'x'}}}")
	x.watched(edited, false)
	seen := x.observe().Incarnations.List()
	if len(seen) != 1 || seen[0].Slot.Index != 3 || seen[0].Number != 2 || len(seen[0].Drift) != 2 {
		t.Fatalf("reported as %+v", seen)
	}
	x.watched(edited, true)
	if seen := x.observe().Incarnations.List(); len(seen) != 1 || seen[0].State != job.Gone || len(x.entries) != 0 {
		t.Errorf("after its end reported as %+v", seen)
	}
	for name, labels := range map[string]map[string]string{
		"someone's":  podLabels("0b0e9c52", job.Address{Job: "gpt", Role: "worker", Index: 9}, 1),
		"half of us": {labelUID: "0b0e9c52"},
	} {
		o := podFrom(t, "{spec: {nodeName: n1, containers: [{name: a, resources: {requests: {cpu: 1}}}]}}")
		o.Name, o.UID, o.Labels = name, types.UID(name), labels
		x.listed([]*corev1.Pod{o}, "200")
		if n := x.observe().Incarnations.Len(); n != 1 || x.cluster.loads["n1"].pods != 1 || x.cluster.loads["n1"].reserved.CPU != 1000 {
			t.Errorf("%s: %d incarnations, load %+v", name, n, x.cluster.loads["n1"])
		}
	}
	x.listed(nil, "201")
	if l := x.cluster.loads["n1"]; l.pods != 0 || l.reserved.CPU != 0 {
		t.Errorf("the load of pods that are gone stays: %+v", l)
	}
}

// TestRemovedPodsAreToldOf: until there is a newer incarnation or the job is forgotten, and a bounded number.
func TestRemovedPodsAreToldOf(t *testing.T) {
	x := newIndex()
	pod := func(index, number int) *corev1.Pod {
		o := podFrom(t, "{}")
		slot := job.Address{Job: "gpt", Role: "worker", Index: index}
		o.Name, o.Labels = podName("0b0e9c52", slot, number), podLabels("0b0e9c52", slot, number)
		o.UID = types.UID(fmt.Sprintf("%d-%d", index, number))
		return o
	}
	numbers := func() (all []int) {
		for i := range x.observe().Incarnations.All() {
			all = append(all, i.Number)
		}
		return all
	}
	x.put(pod(0, 1))
	x.watched(pod(0, 1), true)
	if got := numbers(); !slices.Equal(got, []int{1}) {
		t.Fatalf("reported %v", got)
	}
	x.put(pod(0, 2))
	if got := numbers(); !slices.Equal(got, []int{2}) {
		t.Fatalf("reported %v although there is incarnation 2", got)
	}
	x.put(pod(0, 3))
	x.watched(pod(0, 2), true)
	if got := numbers(); !slices.Equal(got, []int{3}) {
		t.Fatalf("reported %v although there is incarnation 3", got)
	}
	x.watched(pod(0, 3), true)
	x.forget("0b0e9c52")
	if got := numbers(); got != nil || len(x.jobs) != 0 || x.dead != 0 {
		t.Fatalf("reported %v after it was forgotten; %d jobs, %d dead are kept", got, len(x.jobs), x.dead)
	}
	for index := range maxDead + 1 {
		x.put(pod(index, 1))
		x.watched(pod(index, 1), true)
	}
	if got := numbers(); len(got) > maxDead || len(got) != x.dead || len(got) < maxDead/2 {
		t.Errorf("%d removed pods are reported, %d counted", len(got), x.dead)
	}
}

// A create returns metadata alone. The watch delivers admission's changes with the same version, before or after that
// answer.
func TestAdmissionIsSeenByTheWatch(t *testing.T) {
	asked := podFrom(t, "spec: {containers: [{name: main, resources: {requests: {cpu: 2}}}]}")
	stripOurs(asked)
	admitted := asked.DeepCopy()
	admitted.Spec.Containers = append(admitted.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}}})
	for name, enter := range map[string]func(*index){
		"answer, watch": func(x *index) { x.made(asked); x.watched(admitted, false) },
		"watch, answer": func(x *index) { x.watched(admitted, false); x.made(asked) },
	} {
		x := newIndex()
		enter(x)
		if got := x.entries[asked.UID].pod.requests.CPU; got != 3000 {
			t.Errorf("%s: the pod takes %v", name, got)
		}
	}
}

// The counts of a job's pods match an iteration over them, after any events in any order.
func TestGangsAreCounted(t *testing.T) {
	group := job.Group{Roles: []job.GroupRole{{Role: "worker", Min: 2}}}
	rapid.Check(t, func(r *rapid.T) {
		x := newIndex()
		version := 0
		pod := func() *corev1.Pod {
			o := podFrom(t, "{}")
			index, number := rapid.IntRange(0, 3).Draw(r, "index"), rapid.IntRange(1, 2).Draw(r, "incarnation")
			slot := job.Address{Job: "gpt", Role: "worker", Index: index}
			o.Labels = podLabels("0b0e9c52", slot, number)
			o.Name = podName("0b0e9c52", slot, number)
			o.UID = types.UID(fmt.Sprintf("%d-%d-%d", index, number, rapid.IntRange(0, 1).Draw(r, "again")))
			version += rapid.IntRange(0, 2).Draw(r, "newer")
			o.ResourceVersion = strconv.Itoa(1 + version)
			if rapid.Bool().Draw(r, "gated") {
				o.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gangGate}}
			}
			switch rapid.IntRange(0, 3).Draw(r, "life") {
			case 0:
				o.Status.Phase = corev1.PodFailed
			case 1:
				o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			group.UID = o.Labels[labelUID]
			return o
		}
		for range rapid.IntRange(1, 100).Draw(r, "events") {
			o := pod()
			k, _, _ := identify(o)
			switch rapid.IntRange(0, 6).Draw(r, "event") {
			case 0:
				x.made(o)
			case 1:
				x.released(o.UID, o.ResourceVersion)
			case 2:
				x.watched(o, true)
			case 3:
				x.deleted(k, o.UID)
			case 4:
				x.listed([]*corev1.Pod{o, pod()}, strconv.Itoa(rapid.IntRange(1, 2+version).Draw(r, "list")))
			case 5:
				x.forget(k.uid)
			default:
				x.watched(o, false)
			}
			have, held := 0, map[types.UID]bool{}
			for _, p := range x.ofJob(k.uid) {
				if !p.live() {
					continue
				}
				have++
				if p.gated {
					held[p.uid] = true
				}
			}
			if x.whole(group) != (have >= 2) {
				r.Fatalf("whole is %t with %d live", x.whole(group), have)
			}
			if have < 2 {
				held = nil
			}
			for _, p := range x.releasable(group) {
				if !held[p.uid] {
					r.Fatalf("%s is to be let go", p.uid)
				}
				delete(held, p.uid)
			}
			if len(held) > 0 {
				r.Fatalf("%v are not to be let go", held)
			}
		}
	})
}

// A removed gate is entered from the answer, and an older event does not bring it back. The watch delivers the rest of that
// version.
func TestALiftedGateStaysLifted(t *testing.T) {
	gated := podFrom(t, "spec: {schedulingGates: [{name: eltrain.dev/gang}]}")
	gated.ResourceVersion = "5"
	between, free := gated.DeepCopy(), podFrom(t, "spec: {nodeName: node-1}")
	between.ResourceVersion, free.ResourceVersion = "6", "7"
	group := job.Group{UID: gated.Labels[labelUID], Roles: []job.GroupRole{{Role: "worker", Min: 1}}}
	x := newIndex()
	x.watched(gated, false)
	if held := x.releasable(group); len(held) != 1 {
		t.Fatalf("the releasable pods are %v", held)
	}
	x.released(gated.UID, "7")
	x.watched(between, false)
	if held := x.releasable(group); len(held) != 0 {
		t.Errorf("it is releasable again: %v", held)
	}
	x.watched(free, false)
	if p := x.entries[free.UID].pod; p.node != "node-1" || p.partial {
		t.Errorf("the watch's event of that version is ignored: %+v", p)
	}
}
