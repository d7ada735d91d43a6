package kubelet

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a kubelet and containerd, which programs match.
const (
	reasonCompleted        = "Completed"
	reasonError            = "Error"
	reasonOOMKilled        = "OOMKilled"
	reasonStartError       = "StartError"
	reasonUnknown          = "Unknown"
	reasonCreating         = "ContainerCreating"
	reasonInitializing     = "PodInitializing"
	reasonConfigError      = "CreateContainerConfigError"
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
	reasonCrashLoop        = "CrashLoopBackOff"
	reasonEvicted          = "Evicted"
	reasonDeadline         = "DeadlineExceeded"
)

// phase derives a pod's phase from its containers, as a kubelet does (getPhase). Init containers are those that run
// before the others, in order.
func phase(policy corev1.RestartPolicy, init, main []corev1.ContainerStatus) corev1.PodPhase {
	for _, s := range init {
		ended := s.State.Terminated
		if ended == nil && s.State.Waiting != nil {
			ended = s.LastTerminationState.Terminated
		}
		switch {
		case s.State.Terminated != nil && ended.ExitCode == 0:
			continue
		case ended != nil && ended.ExitCode != 0 && policy == corev1.RestartPolicyNever:
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	running, stopped, succeeded := 0, 0, 0
	for _, s := range main {
		ended := s.State.Terminated
		if ended == nil && s.State.Waiting != nil {
			ended = s.LastTerminationState.Terminated
		}
		switch {
		case s.State.Running != nil:
			running++
		case ended != nil:
			stopped++
			if ended.ExitCode == 0 {
				succeeded++
			}
		default:
			return corev1.PodPending
		}
	}
	switch {
	case running > 0 || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case stopped == succeeded:
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	}
	return corev1.PodRunning // a failed one is restarted
}

// finalPhase is the phase of a pod whose containers were stopped permanently.
func finalPhase(init, main []corev1.ContainerStatus) corev1.PodPhase {
	for _, s := range append(append([]corev1.ContainerStatus{}, init...), main...) {
		ended := s.State.Terminated
		if ended == nil {
			ended = s.LastTerminationState.Terminated
		}
		if ended == nil || ended.ExitCode != 0 {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// conditions are those that a kubelet maintains. Unchanged ones keep their times in before.
func conditions(status corev1.PodStatus, sandbox bool, generation int64, now metav1.Time, before []corev1.PodCondition) []corev1.PodCondition {
	var uninitialized, unready []string
	for _, s := range status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			uninitialized = append(uninitialized, s.Name)
		}
	}
	for _, s := range status.ContainerStatuses {
		if !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if len(uninitialized) > 0 {
		initialized.Status, initialized.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		initialized.Message = "containers with incomplete status: [" + strings.Join(uninitialized, " ") + "]"
	}
	ready := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	switch {
	case status.Phase == corev1.PodSucceeded:
		ready.Status, ready.Reason = corev1.ConditionFalse, "PodCompleted"
		if len(uninitialized) == 0 {
			initialized.Reason = "PodCompleted"
		}
	case status.Phase == corev1.PodFailed:
		ready.Status, ready.Reason = corev1.ConditionFalse, "PodFailed"
	case len(unready) > 0:
		ready.Status, ready.Reason = corev1.ConditionFalse, "ContainersNotReady"
		ready.Message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
	}
	podReady := ready
	podReady.Type = corev1.PodReady
	started := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	if sandbox {
		started.Status = corev1.ConditionTrue
	}
	out := []corev1.PodCondition{started, initialized, podReady, ready}
	for i := range out {
		out[i].LastTransitionTime, out[i].ObservedGeneration = now, generation
		for _, old := range before {
			if old.Type == out[i].Type && old.Status == out[i].Status {
				out[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return out
}

// backOffMessage is a kubelet's own message.
func backOffMessage(seconds float64, container, name, namespace, uid string) string {
	return fmt.Sprintf("back-off %gs restarting failed container=%s pod=%s_%s(%s)", seconds, container, name, namespace, uid)
}
