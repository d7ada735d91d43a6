package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
)

// pod is what is kept of a pod of ours. A value is immutable once it is in the index: it is replaced.
type pod struct {
	key      key
	name     string
	uid      types.UID
	version  string // resourceVersion
	node     string // "" until it is bound
	gated    bool   // a scheduling gate of ours holds it
	deleting bool   // its deletion was requested, by anybody
	launched launched
	// partial: from the answer to a write of this process, without other changes in this version, such as admission's. The
	// watch delivers those under the same version.
	partial bool
	// disrupted is why the infrastructure is ending it, with evidence, even while it still runs.
	disrupted job.Cause
	evidence  []string
	// requests is what the scheduler counts for it on its node.
	requests job.Resources
	// seen is what Observe reports of it, before its node's state is applied.
	seen job.Incarnation
}

// over reports whether the pod has ended. It may still exist.
func (p *pod) over() bool { return p.seen.State == job.Gone }

// live reports whether the pod runs or will run.
func (p *pod) live() bool { return !p.over() && !p.deleting }

// read makes the compact value of a pod with the key k. The record is what it was launched with; requested is set if
// this process requested its deletion. Drift is not read here.
func read(o *corev1.Pod, k key, slot job.Address, record launched, requested bool) *pod {
	p := &pod{
		key: k, name: o.Name, uid: o.UID, version: o.ResourceVersion, node: o.Spec.NodeName,
		gated: gatedBy(o, gangGate), deleting: o.DeletionTimestamp != nil, launched: record, requests: requestsOf(o),
		seen: job.Incarnation{
			Slot: slot, UID: k.uid, Number: k.number, Node: o.Spec.NodeName, Name: o.Name, Group: o.Labels[labelGroup], Owner: o.Annotations[annotationState],
			Fingerprint: record.Fingerprint, Reserved: record.Reserved, Extra: record.Extra,
			State: job.Starting, Started: o.CreationTimestamp.Time,
		},
	}
	i := &p.seen
	agent := agentStatus(o)
	if agent != nil && agent.State.Terminated != nil {
		t := agent.State.Terminated
		i.State = job.Gone
		i.Exit, i.Ended, i.Cause = exitOf(t)
		if !t.StartedAt.IsZero() {
			i.Started = t.StartedAt.Time
		}
	}
	switch {
	case i.State == job.Gone:
	case o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed:
		i.State = job.Gone
		if c := failedInit(o); c != nil {
			i.Exit, i.Cause, i.Evidence = initExitOf(c)
		}
	case agent != nil && agent.State.Running != nil:
		i.State, i.Started = job.Up, agent.State.Running.StartedAt.Time
	default:
		i.Waiting = waiting(o, agent)
	}
	p.disrupted, p.evidence = disruption(o)
	if i.Ended == job.EndFinished {
		return p // whatever happened to the pod afterwards, its work was done
	}
	// Reported even while it runs: its agent reports that it was told to stop, and this says by whom.
	if p.disrupted != "" {
		i.Cause, i.Evidence = p.disrupted, p.evidence
	}
	if p.disrupted != "" || requested {
		return p
	}
	if evidence, yes := deletion(o, endOf(i.Exit)); yes {
		i.Cause, i.Evidence = job.Deletion, []string{evidence}
	}
	return p
}

// recall keeps the disruption of a pod that is being deleted: its kubelet may overwrite the conditions, with Volcano's reason
// among them, before the deletion is complete.
func (p *pod) recall(before *pod) {
	if !p.deleting || p.disrupted != "" || before.disrupted == "" {
		return
	}
	p.disrupted, p.evidence = before.disrupted, before.evidence
	if p.seen.Ended != job.EndFinished {
		p.seen.Cause, p.seen.Evidence = p.disrupted, p.evidence
	}
}

// vanished is the last known state of a pod that no longer exists.
func vanished(last *pod, requested bool) job.Incarnation {
	i := last.seen
	i.Waiting, i.Drift = "", nil
	if i.State == job.Gone {
		return i
	}
	was := "ran"
	if i.State == job.Starting {
		was = "had not started yet"
	}
	i.State = job.Gone
	i.Cause, i.Evidence = last.disrupted, last.evidence
	if i.Cause == "" && !requested {
		i.Cause, i.Evidence = job.Deletion, []string{fmt.Sprintf("pod %s was removed from the API server while it %s, "+notByUs, last.name, was)}
	}
	return i
}

func endOf(e *job.Exit) time.Time {
	if e == nil {
		return time.Time{}
	}
	return e.At
}

// agentStatus is the status of the agent's container; nil if there is none yet.
func agentStatus(o *corev1.Pod) *corev1.ContainerStatus {
	for i := range o.Status.ContainerStatuses {
		if c := &o.Status.ContainerStatuses[i]; c.Name == mainContainer {
			return c
		}
	}
	return nil
}

// failedInit is the init container that failed; nil if none did. Sidecars are skipped: they are killed when another fails.
func failedInit(o *corev1.Pod) *corev1.ContainerStatus {
	for i := range o.Status.InitContainerStatuses {
		c := &o.Status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && !sidecar(containerOf(o.Spec.InitContainers, c.Name)) {
			return c
		}
	}
	return nil
}

// sidecar reports whether an init container keeps running beside the others.
func sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func gatedBy(o *corev1.Pod, name string) bool {
	for _, g := range o.Spec.SchedulingGates {
		if g.Name == name {
			return true
		}
	}
	return false
}

// heldTogether is the reason of a pod held by our gate until its gang is complete.
const heldTogether = "held until its whole gang exists"

// WaitsForScheduler is the reason of a pending pod about which its scheduler has reported nothing.
const WaitsForScheduler = "waits for the scheduler"

// waiting is why a pod does not run yet, in the cluster's own words if there are any.
func waiting(o *corev1.Pod, agent *corev1.ContainerStatus) string {
	if gatedBy(o, gangGate) {
		return heldTogether
	}
	if gates := o.Spec.SchedulingGates; len(gates) > 0 {
		names := make([]string, len(gates))
		for i, g := range gates {
			names[i] = g.Name
		}
		return "SchedulingGated: held by " + strings.Join(names, ", ")
	}
	if o.Spec.NodeName == "" {
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != "" {
				return sentence(c.Reason, c.Message, "")
			}
		}
		return WaitsForScheduler
	}
	for _, c := range o.Status.InitContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
			return sentence("init container "+c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Running != nil && !ready(c):
			return "init container " + c.Name + " runs"
		}
	}
	if agent != nil && agent.State.Waiting != nil {
		return sentence(cmp.Or(agent.State.Waiting.Reason, "waiting"), agent.State.Waiting.Message, "")
	}
	return "waits for the kubelet of " + o.Spec.NodeName
}

// ready reports whether a running init container is a sidecar that has started: others do not wait for its end.
func ready(c corev1.ContainerStatus) bool { return c.Started != nil && *c.Started }

// recordOf reads the record in a pod's annotation. If it cannot be read it is empty: the incarnation then counts as one of
// another program, and is replaced.
func recordOf(annotation string) launched {
	var l launched
	if json.Unmarshal([]byte(annotation), &l) != nil {
		return launched{}
	}
	return l
}
