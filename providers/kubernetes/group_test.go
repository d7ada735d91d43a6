package kubernetes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// What a person imports by is what kubectl shows: a pod's name, or the name of its job's anchor.
func TestAPodTellsWhatOwnsIt(t *testing.T) {
	slot := job.Address{Job: "gpt", Role: "worker", Index: 3}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName("0a1b2c3d", slot, 1), Labels: podLabels("0a1b2c3d", slot, 1)}}
	k, at, ok := keyOf(o.Labels)
	if !ok {
		t.Fatal("its labels are not those of a pod")
	}
	p := read(o, k, at, launched{}, false)
	if want := groupName("0a1b2c3d", "gpt"); p.seen.Group != want || p.seen.Name != o.Name {
		t.Errorf("it is %q of %q, want %q of %q", p.seen.Name, p.seen.Group, o.Name, want)
	}
}
