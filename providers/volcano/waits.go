package volcano

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// queues are the cluster's queues by name; nil if this master may not list them.
type queues map[string]*v1beta1.Queue

// held is why no pod of a PodGroup may be created yet, in words; "" if they may. Once some run it is never held: healing
// starts in the phase Unknown (some run, the others are not placed), and a gang that lost a pod before it trained is
// Pending with bound pods.
func (q queues) held(g *v1beta1.PodGroup, scheduler string) string {
	switch g.Status.Phase {
	case v1beta1.PodGroupRunning, v1beta1.PodGroupUnknown, v1beta1.PodGroupCompleted:
		return ""
	}
	if why := q.closed(g.Spec.Queue); why != "" {
		return why
	}
	if g.Status.Phase == v1beta1.PodGroupInqueue {
		return ""
	}
	if g.Status.Phase == "" && len(g.Status.Conditions) == 0 {
		return fmt.Sprintf("the scheduler %q has not handled PodGroup %s yet: is it running?", scheduler, g.Name)
	}
	why := fmt.Sprintf("queue %q has not admitted PodGroup %s", g.Spec.Queue, g.Name)
	if q[g.Spec.Queue] != nil {
		if full := noRoom(g, q[g.Spec.Queue]); full != "" {
			why = fmt.Sprintf("queue %q has no room: %s", g.Spec.Queue, full)
		} else {
			why += ": the cluster has no room for all of it (" + wants(g) + ")"
		}
	}
	return why
}

// closed is why a queue admits nothing at all; "" if it is open, or its state is unknown.
func (q queues) closed(name string) string {
	if q == nil {
		return ""
	}
	queue := q[name]
	if queue == nil {
		return fmt.Sprintf("queue %q does not exist: create it, or set another one in the provider's queue", name)
	}
	switch queue.Status.State {
	case v1beta1.QueueStateClosed, v1beta1.QueueStateClosing:
		return fmt.Sprintf("queue %q is %s: it admits nothing until it is opened", name, strings.ToLower(string(queue.Status.State)))
	}
	return ""
}

// noRoom lists the resources of which the queue's capability is too small; "" if it has room.
func noRoom(g *v1beta1.PodGroup, q *v1beta1.Queue) string {
	if g.Spec.MinResources == nil {
		return ""
	}
	var short []string
	for name, most := range q.Spec.Capability {
		want := (*g.Spec.MinResources)[name]
		used := q.Status.Allocated[name]
		after := used.DeepCopy()
		after.Add(want)
		if after.Cmp(most) > 0 {
			short = append(short, fmt.Sprintf("the gang needs %s %s, and of the queue's %s already %s are in use", name, want.String(), most.String(), used.String()))
		}
	}
	slices.Sort(short)
	return strings.Join(short, "; ")
}

// wants lists what a gang requests.
func wants(g *v1beta1.PodGroup) string {
	var parts []string
	if g.Spec.MinResources != nil {
		for name, q := range *g.Spec.MinResources {
			parts = append(parts, string(name)+" "+q.String())
		}
	}
	slices.Sort(parts)
	return strings.Join(append([]string{fmt.Sprintf("%d pods", g.Spec.MinMember)}, parts...), ", ")
}

// unschedulable is the scheduler's latest reason for not placing a gang; "" if there is none. The scheduler keeps one
// condition of each type, with times in whole seconds.
func unschedulable(g *v1beta1.PodGroup) string {
	if g.Status.Phase == v1beta1.PodGroupRunning {
		return ""
	}
	var last *v1beta1.PodGroupCondition
	for i := range g.Status.Conditions {
		c := &g.Status.Conditions[i]
		if last == nil || !c.LastTransitionTime.Before(&last.LastTransitionTime) {
			last = c
		}
	}
	if last == nil || last.Type != v1beta1.PodGroupUnschedulableType || last.Status != corev1.ConditionTrue {
		return ""
	}
	return last.Reason + ": " + last.Message
}
