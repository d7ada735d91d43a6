package kubernetes

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// Volcano's scheduler marks the pods that it preempts in the condition Ready, and only by its reason.
func TestWhatVolcanoPreemptsIsNotDeletedBySomebody(t *testing.T) {
	pod := func(status corev1.ConditionStatus, reason string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: status, Reason: reason, Message: "Pod is evicted, because of reclaim"},
		}}}
	}
	want := []string{"pod p was preempted: Pod is evicted, because of reclaim"}
	if cause, evidence := disruption(pod(corev1.ConditionFalse, "Evict")); cause != job.Preemption || !slices.Equal(evidence, want) {
		t.Errorf("the cause is %q, %q", cause, evidence)
	}
	for _, o := range []*corev1.Pod{pod(corev1.ConditionFalse, "ContainersNotReady"), pod(corev1.ConditionTrue, "Evict")} {
		if cause, evidence := disruption(o); cause != "" {
			t.Errorf("%+v is %q, %q", o.Status.Conditions[1], cause, evidence)
		}
	}
}

// The kubelet overwrites the condition when it ends the pod; the cause is known by then.
func TestWhatEndedAPodIsNotForgottenWhileItEnds(t *testing.T) {
	evicted := &pod{disrupted: job.Preemption, evidence: []string{"preempted"}}
	for _, c := range []struct {
		name string
		now  pod
		want job.Cause
	}{
		{"being deleted", pod{deleting: true, seen: job.Incarnation{Cause: job.Deletion}}, job.Preemption},
		{"left alone after all", pod{}, ""},
		{"its work was done", pod{deleting: true, seen: job.Incarnation{Ended: job.EndFinished}}, ""},
		{"disrupted by something else", pod{deleting: true, disrupted: job.Eviction, seen: job.Incarnation{Cause: job.Eviction}}, job.Eviction},
	} {
		c.now.recall(evicted)
		if c.now.seen.Cause != c.want {
			t.Errorf("%s: the cause is %q, want %q", c.name, c.now.seen.Cause, c.want)
		}
	}
}
