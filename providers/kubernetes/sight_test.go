package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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

var (
	forbidden      = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	errUnreachable = errors.New("connection refused")
)

// An API server that has just started refuses everybody: such refusals hide nothing. After a permanent refusal an object stays
// hidden until it is seen, whatever happens to the server meanwhile: a master that continued without it still does.
func TestARefusalIsBelievedOnceItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []bool
		w := &watching{what: "nodes", blind: "blind", hidden: func(h bool) { reported = append(reported, h) }, all: func([]any, string) {}}
		w.prepare(slog.New(slog.DiscardHandler))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		const listed = "listed"
		for _, step := range []struct {
			name   string
			verb   string
			err    error
			after  time.Duration
			hidden []bool
			ready,
			caveat bool
		}{
			{"the first refusal", "list", forbidden, 0, nil, false, false},
			{"a second later", "list", forbidden, time.Second, nil, false, false},
			{"the server goes", "list", errUnreachable, time.Second, nil, false, false},
			{"it comes, and refuses", "list", forbidden, time.Second, nil, false, false},
			{"it goes again, for long", "list", errUnreachable, time.Hour, nil, false, false},
			{"it comes, and refuses", "list", forbidden, time.Second, nil, false, false},
			{"and still does", "list", forbidden, 2 * time.Second, nil, false, false},
			{"for long", "list", forbidden, time.Second, []bool{true}, true, true},
			{"and on", "list", forbidden, time.Second, []bool{true}, true, true},
			{"the server goes once more", "list", errUnreachable, time.Second, []bool{true}, true, true},
			{"it is not to be watched either", "watch", errUnreachable, time.Second, []bool{true}, true, true},
			{"it comes, and refuses at once", "list", forbidden, time.Second, []bool{true}, true, true},
			{"a right was given", "list", nil, time.Second, []bool{true}, true, false},
			{"they are listed", listed, nil, 0, []bool{true}, true, false},
			{"and watched", "watch", nil, 0, []bool{true, false}, true, false},
			{"it restarts again", "watch", forbidden, time.Hour, []bool{true, false}, true, false},
			{"and settles", "watch", nil, time.Second, []bool{true, false}, true, false},
			{"the right is taken", "watch", forbidden, time.Hour, []bool{true, false}, true, false},
			{"for good", "watch", forbidden, refusalStands, []bool{true, false, true}, true, true},
			{"the server goes at last", "watch", errUnreachable, time.Second, []bool{true, false, true}, true, true},
			{"the right is given back", "watch", nil, time.Second, []bool{true, false, true}, true, false},
			{"what they are now comes", listed, nil, 0, []bool{true, false, true, false}, true, false},
		} {
			time.Sleep(step.after)
			if step.verb == listed {
				if err := w.Replace(nil, ""); err != nil {
					t.Fatal(err)
				}
			} else {
				w.recordResult(t.Context(), step.verb, step.err)
			}
			settled := false
			select {
			case <-w.settled:
				settled = true
			default:
			}
			err := w.ready(gone)
			if !slices.Equal(reported, step.hidden) || settled != step.ready || (err == nil) != step.ready || (len(w.caveats()) > 0) != step.caveat {
				t.Fatalf("%s: told %v, settled %v, ready with %v, caveats %q", step.name, reported, settled, err, w.caveats())
			}
		}
	})
}

// Without a vital watch nothing is known, and the error of waiting is the current one.
func TestAVitalWatchSaysWhatIsWrongNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watching{what: "pods", vital: true, all: func([]any, string) {}}
		w.prepare(slog.New(slog.DiscardHandler))
		for _, step := range []struct {
			verb string
			err  error
			want string
		}{
			{"list", forbidden, "may not list pods"},
			{"list", forbidden, "may not list pods"},
			{"watch", errUnreachable, "watch pods: the API server is unreachable"},
			{"list", forbidden, "may not list pods"},
			{"list", nil, "has not answered yet"},
			{"watch", forbidden, "may not watch pods"},
		} {
			time.Sleep(refusalStands)
			w.recordResult(t.Context(), step.verb, step.err)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := w.ready(ctx); err == nil || !strings.Contains(err.Error(), step.want) {
				t.Errorf("to %s gave %v: the error is %v", step.verb, step.err, err)
			}
		}
	})
}

// Foreign load in a busy cluster changes many times a second; a node that closes is reported at once.
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
			t.Error("the last change is never reported")
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
				t.Error("cordoning a node, or the reverse, does not wake the loop at once")
			}
		}
	})
}

// A control plane restored from a backup: its list is the truth, although it is older than what was seen.
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
	x.put(pod("e", 4, "90")) // created since by this process
	// In the backup b exists, and d does not yet.
	x.listed([]*corev1.Pod{pod("a", 0, "50"), pod("b", 1, "51")}, "60")
	for index, want := range []string{"a@50", "b@51", "", "", ""} {
		if got := there(index); got != want {
			t.Errorf("worker[%d] is %q, want %q", index, got, want)
		}
	}
	x.watched(pod("a", 0, "70"), false)
	x.watched(pod("e", 4, "90"), false) // the watch reports it later
	x.watched(pod("d", 3, "121"), true)
	for index, want := range map[int]string{0: "a@70", 4: "e@90"} {
		if got := there(index); got != want {
			t.Errorf("then worker[%d] is %q, want %q", index, got, want)
		}
	}
}
