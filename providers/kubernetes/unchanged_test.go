package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// observing is a provider that knows all that Observe waits for.
func observing(t *testing.T) *Provider {
	p := answered(t, 4, named)
	p.gang = &gates{p: p, passes: map[string]bool{}, failed: map[string]string{}}
	p.where.learn("namespace-uid", nil)
	return p
}

func (p *Provider) seenBy(t *testing.T) *providers.Observation {
	t.Helper()
	o, err := p.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// While nothing changes, the same observation is returned, without allocations, however many pods there are.
func TestAnUnchangedObservationCostsNothing(t *testing.T) {
	const pods = 100_000
	p := observing(t)
	o := podFrom(t, "status: {phase: Running}")
	for n := range pods {
		slot := job.Address{Job: "gpt", Role: "worker", Index: n}
		o.UID, o.Name, o.Labels = types.UID(fmt.Sprint(n)), podName("0b0e9c52", slot, 1), podLabels("0b0e9c52", slot, 1)
		p.index.watched(o, false)
	}
	first := p.seenBy(t)
	if first.Incarnations.Len() != pods {
		t.Fatalf("%d incarnations", first.Incarnations.Len())
	}
	if n := testing.AllocsPerRun(100, func() {
		if p.seenBy(t) != first {
			t.Fatal("it is another observation")
		}
	}); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
	p.index.watched(o, false) // as after a restarted watch
	if p.seenBy(t) != first {
		t.Error("an unchanged pod makes another observation")
	}
}

// Every change makes another observation, and leaves the previous one unchanged.
func TestEachChangeIsAnotherObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := observing(t)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: apiresource.MustParse("110"), corev1.ResourceCPU: apiresource.MustParse("8")}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		silent := node.DeepCopy()
		silent.Status.Conditions[0].Status = corev1.ConditionUnknown
		pod := func(version, fields string) *corev1.Pod {
			o := podFrom(t, fields)
			o.ResourceVersion = version
			return o
		}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}}}}}}
		more := other.DeepCopy()
		more.UID = "more"
		const deleting = "metadata: {deletionTimestamp: '2026-11-21T10:00:00Z', deletionGracePeriodSeconds: 30}\nspec: {nodeName: n1}"
		write := p.pacer.begin(class{"u", "make pods"})
		changes := []struct {
			what string
			make func()
		}{
			{"a node", func() { p.index.watchedNode(node, false) }},
			{"a pod", func() { p.index.put(pod("100", "spec: {nodeName: n1}")) }},
			{"a pod's end was ordered", func() { p.index.put(pod("101", deleting)) }},
			{"a node that falls silent under it", func() { p.index.watchedNode(silent, false) }},
			{"a node that is heard of again", func() { p.index.watchedNode(node, false) }},
			{"a pod that is no more", func() { p.index.watched(pod("102", deleting), true) }},
			{"what is left of it", func() { p.index.forget("0b0e9c52") }},
			{"load of others", func() { p.index.watchedOther(other, unlabelled, false) }},
			{"more of it within the second", func() { p.index.watchedOther(more, unlabelled, false) }},
			{"less of it within the second", func() { p.index.watchedOther(other, unlabelled, true) }},
			{"a RuntimeClass", func() {
				p.index.listedClasses([]*nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}}})
			}},
			{"a gate that cannot be lifted", func() { p.gang.(*gates).note("u", "no") }},
			{"a gate that can", func() { p.gang.(*gates).note("u", "") }},
			{"a write that is slow", func() { p.pacer.note(write.ask); time.Sleep(slowAfter + checkInterval) }},
			{"a write that is done", func() {
				p.pacer.note(func(now time.Time) { write.answered(now, answer{}) })
				p.pacer.end(class{"u", "make pods"}, write)
				time.Sleep(slowAfter + checkInterval)
			}},
			{"nodes that are hidden", func() { p.index.hideNodes(true) }},
			{"a node that was deleted", func() { p.index.watchedNode(node, true) }},
		}
		last := p.seenBy(t)
		for _, c := range changes {
			before := asText(t, last)
			c.make()
			synctest.Wait()
			next := p.seenBy(t)
			if next == last {
				t.Errorf("%s: it is the same observation", c.what)
			}
			if now := asText(t, last); now != before {
				t.Errorf("%s: the previous observation changed to\n%s\nfrom\n%s", c.what, now, before)
			}
			if again := p.seenBy(t); again != next {
				t.Errorf("%s: without a change there is another observation; it differs: %t", c.what, !reflect.DeepEqual(again, next))
			}
			last = next
		}
	})
}

func asText(t *testing.T, o *providers.Observation) string {
	t.Helper()
	values := *o
	values.Places = nil
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// After any events in any order: while the version stays, an observation would be equal.
func TestTheVersionGrowsWithWhateverIsObserved(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		x := newIndex()
		version := 0
		few := func(what string) int { return rapid.IntRange(0, 2).Draw(r, what) }
		name := func() string { return fmt.Sprintf("n%d", few("node")) }
		next := func() string {
			version += few("newer")
			return strconv.Itoa(1 + version)
		}
		pod := func() *corev1.Pod {
			o := podFrom(t, "{}")
			slot, number := job.Address{Job: "gpt", Role: "worker", Index: few("index")}, 1+few("incarnation")
			o.Labels, o.Name = podLabels("0b0e9c52", slot, number), podName("0b0e9c52", slot, number)
			o.UID, o.ResourceVersion = types.UID(fmt.Sprintf("%d-%d-%d", slot.Index, number, few("again"))), next()
			o.Spec.NodeName = name()
			switch few("life") {
			case 0:
				o.Status.Phase = corev1.PodFailed
			case 1:
				o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			return o
		}
		node := func() *corev1.Node {
			o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name()}}
			o.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: *apiresource.NewQuantity(int64(few("pods")), apiresource.DecimalSI)}
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[few("ready")]}}
			return o
		}
		stranger := func() *corev1.Pod {
			o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("other", few("other"))), ResourceVersion: next()}}
			o.Spec.NodeName = name()
			o.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *apiresource.NewQuantity(int64(few("cpu")), apiresource.DecimalSI)}}}}
			return o
		}
		news := map[string]func(){
			"put":          func() { x.put(pod()) },
			"made":         func() { x.made(pod()) },
			"released":     func() { o := pod(); x.released(o.UID, o.ResourceVersion) },
			"watched":      func() { x.watched(pod(), false) },
			"gone":         func() { x.watched(pod(), true) },
			"ordered":      func() { x.markDeletion(pod().UID) },
			"deleted":      func() { o := pod(); k, _, _ := identify(o); x.deleted(k, o.UID) },
			"listed":       func() { x.listed([]*corev1.Pod{pod(), pod()}, next()) },
			"forget":       func() { x.forget("0b0e9c52") },
			"node":         func() { x.watchedNode(node(), false) },
			"node gone":    func() { x.watchedNode(node(), true) },
			"nodes listed": func() { x.listedNodes([]*corev1.Node{node()}) },
			"nodes hidden": func() { x.hideNodes(few("hidden") == 0) },
			"others":       func() { x.watchedOther(stranger(), source(few("source")), false) },
			"others gone":  func() { x.watchedOther(stranger(), source(few("source")), true) },
			"all others":   func() { x.listedOthers([]*corev1.Pod{stranger()}, source(few("source"))) },
			"classes":      func() { x.listedClasses([]*nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: name()}}}) },
		}
		defer x.close()
		for range rapid.IntRange(1, 60).Draw(r, "events") {
			what := rapid.SampledFrom(slices.Sorted(maps.Keys(news))).Draw(r, "event")
			before, of := x.observe(), x.version.Load()
			text := asText(t, before)
			news[what]()
			after := x.observe()
			if x.version.Load() == of && !reflect.DeepEqual(before, after) {
				r.Fatalf("%s: there is\n%s\nand was, in the same version,\n%s", what, asText(t, after), text)
			}
			if now := asText(t, before); now != text {
				r.Fatalf("%s: the observation before is\n%s\nand was\n%s", what, now, text)
			}
		}
	})
}
