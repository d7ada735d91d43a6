package kubernetes

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// An API server that has just started refuses everybody: what it hides then is not hidden.
func TestARefusalIsBelievedOnceItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		w := &watching{what: "nodes", blind: "blind", hidden: func(h bool) { told = append(told, h) }}
		w.prepare(slog.New(slog.DiscardHandler))
		settled := func() bool {
			select {
			case <-w.settled:
				return true
			default:
				return false
			}
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		for _, step := range []struct {
			name   string
			verb   string
			err    error
			after  time.Duration
			hidden []bool
			settled,
			caveat bool
		}{
			{"the first refusal", "list", forbidden, 0, nil, false, false},
			{"a second later", "list", forbidden, time.Second, nil, false, false},
			{"the server goes", "list", errors.New("connection refused"), time.Second, nil, false, false},
			{"it comes, and refuses", "list", forbidden, time.Second, nil, false, false},
			{"and still does", "list", forbidden, 2 * time.Second, nil, false, false},
			{"for long", "list", forbidden, time.Second, []bool{true}, true, true},
			{"and on", "list", forbidden, time.Second, []bool{true}, true, true},
			{"a right was given", "watch", nil, time.Second, []bool{true, false}, true, false},
			{"it restarts again", "watch", forbidden, time.Hour, []bool{true, false}, true, false},
			{"and settles", "watch", nil, time.Second, []bool{true, false}, true, false},
			{"the right is taken", "watch", forbidden, time.Hour, []bool{true, false}, true, false},
			{"for good", "watch", forbidden, refusalStands, []bool{true, false, true}, true, true},
		} {
			time.Sleep(step.after)
			w.fared(t.Context(), step.verb, step.err)
			if !slices.Equal(told, step.hidden) || settled() != step.settled || (len(w.caveats()) > 0) != step.caveat {
				t.Fatalf("%s: told %v, settled %v, caveats %q", step.name, told, settled(), w.caveats())
			}
		}
	})
}

// What others do in a busy cluster changes many times a second; a node that closes is told of at once.
func TestOthersLoadWakesOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		defer x.close()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		x.watchedNode(n, false)
		woken := func() bool {
			synctest.Wait()
			select {
			case <-x.changes:
				return true
			default:
				return false
			}
		}
		woken()
		const each, seconds = 10, 5
		wakings := 0
		for i := range each * seconds {
			o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(rune('a' + i))}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{
				{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}}}}}}
			x.watchedOther(o, unlabelled, false)
			if woken() {
				wakings++
			}
			time.Sleep(time.Second / each)
		}
		if wakings != seconds {
			t.Errorf("woken %d times in %d seconds", wakings, seconds)
		}
		time.Sleep(loadPause)
		if !woken() {
			t.Error("the last change is never told of")
		}
		time.Sleep(10 * loadPause)
		if woken() {
			t.Error("woken although nothing changed")
		}
		for range 3 {
			n = n.DeepCopy()
			n.Spec.Unschedulable = !n.Spec.Unschedulable
			x.watchedNode(n, false)
			if !woken() {
				t.Error("a node that is cordoned, or no more, wakes nobody at once")
			}
		}
	})
}

// A control plane that was set back to a backup: its list is the truth, although it is older than what was seen.
func TestARestoredControlPlane(t *testing.T) {
	pod := func(uid types.UID, index int, version string) *corev1.Pod {
		o := podFrom(t, "{}")
		o.Labels[labelIndex] = string(rune('0' + index))
		k, slot, _ := keyOf(o.Labels)
		o.Name, o.UID, o.ResourceVersion = podName(k.uid, slot, k.number), uid, version
		return o
	}
	x := newIndex()
	there := func(index int) string {
		k, _, _ := keyOf(pod("", index, "").Labels)
		if p := x.get(k); p != nil {
			return string(p.uid) + "@" + p.version
		}
		return ""
	}
	x.listed([]*corev1.Pod{pod("a", 0, "100"), pod("b", 1, "101"), pod("c", 2, "102")}, "110")
	x.watched(pod("b", 1, "120"), true)
	x.watched(pod("d", 3, "121"), false)
	x.put(pod("e", 4, "90")) // made since by this process
	// The backup is of a time when b was there, and d not yet.
	x.listed([]*corev1.Pod{pod("a", 0, "50"), pod("b", 1, "51")}, "60")
	for index, want := range []string{"a@50", "b@51", "", "", ""} {
		if got := there(index); got != want {
			t.Errorf("worker[%d] is %q, want %q", index, got, want)
		}
	}
	x.watched(pod("a", 0, "70"), false)
	x.watched(pod("e", 4, "90"), false) // the watch tells of it after all
	x.watched(pod("d", 3, "121"), true)
	for index, want := range map[int]string{0: "a@70", 4: "e@90"} {
		if got := there(index); got != want {
			t.Errorf("then worker[%d] is %q, want %q", index, got, want)
		}
	}
}
