package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eltrain/eltrain/job"
)

// disruptions are the reasons of the condition DisruptionTarget that Kubernetes documents, and what each is here:
// https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
var disruptions = map[string]job.Cause{
	corev1.PodReasonPreemptionByScheduler: job.Preemption,
	"EvictionByEvictionAPI":               job.Eviction,
	corev1.PodReasonTerminationByKubelet:  job.Eviction,
	"DeletionByTaintManager":              job.Eviction,
	"DeletionByPodGC":                     job.NodeGone,
}

// rejections are the values of a failed pod's status.reason by which a node says that it put the pod out, or did
// not take it in. Those that begin with OutOf ("OutOfcpu") are not listed.
var rejections = map[string]job.Cause{
	"Preempting":               job.Preemption, // by the kubelet, for a critical pod
	"Evicted":                  job.Eviction,
	"Shutdown":                 job.Eviction, // the node shuts down; Terminated since 1.22
	"Terminated":               job.Eviction,
	"NodeShutdown":             job.Eviction,
	"NodeAffinity":             job.Eviction, // the node's labels changed between binding and start
	"NodeName":                 job.Eviction,
	"NodePorts":                job.Eviction,
	"NodeUnschedulable":        job.Eviction,
	"TaintToleration":          job.Eviction,
	"UnexpectedAdmissionError": job.Eviction, // a device plugin gave nothing, mostly
	"TopologyAffinityError":    job.Eviction,
	"DeadlineExceeded":         job.Eviction, // activeDeadlineSeconds
	"NodeLost":                 job.NodeGone,
}

const (
	outOf = "OutOf"
	// volcanoEvicts is the reason that Volcano's scheduler gives the condition Ready of what it preempts or reclaims, just
	// before it deletes that. It sets no DisruptionTarget (defaultEvictor in its pkg/scheduler/cache).
	volcanoEvicts = "Evict"
)

// disruption is what the infrastructure says ended a pod: its conditions first, then its status. An exit code says
// less, since what is evicted exits with some code too. "" if it says nothing.
func disruption(o *corev1.Pod) (job.Cause, []string) {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == volcanoEvicts {
			return job.Preemption, []string{sentence("pod "+o.Name+" was preempted", "", c.Message)}
		}
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		// A reason that is not known is a controller's of somebody's own: what it names it ended on purpose.
		cause := cmp.Or(disruptions[c.Reason], job.Eviction)
		return cause, []string{sentence("pod "+o.Name+" was disrupted", c.Reason, c.Message)}
	}
	reason := o.Status.Reason
	cause := rejections[reason]
	if strings.HasPrefix(reason, outOf) {
		cause = job.Eviction
	}
	if cause == "" {
		return "", nil
	}
	return cause, []string{sentence("pod "+o.Name+" failed", reason, o.Status.Message)}
}

// notByUs is all that a master knows who did not order a deletion: one before it may have, and not lived to see its end.
const notByUs = "not by this master"

// deletion is the evidence that somebody ordered the end of a pod. False: nobody did, or it had ended before.
func deletion(o *corev1.Pod, ended time.Time) (string, bool) {
	if o.DeletionTimestamp == nil {
		return "", false
	}
	// The timestamp is when the grace runs out.
	var grace time.Duration
	if s := o.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	asked := o.DeletionTimestamp.Add(-grace)
	if !ended.IsZero() && ended.Before(asked) {
		return "", false
	}
	return fmt.Sprintf("pod %s was deleted at %s, "+notByUs, o.Name, asked.UTC().Format(time.RFC3339)), true
}

// sentence joins what happened with the cluster's own reason and message, whichever there are.
func sentence(what, reason, message string) string {
	for _, s := range []string{reason, strings.TrimSpace(message)} {
		if s != "" {
			what += ": " + s
		}
	}
	return what
}

// exitOf reads how the agent's container ended. Its last word, if it could still say one, knows how the training
// process ended; the container's own exit code is the agent's.
func exitOf(t *corev1.ContainerStateTerminated) (*job.Exit, job.EndReason) {
	var word job.LastWord
	if json.Unmarshal([]byte(t.Message), &word) == nil && word.Reason != "" {
		exit := word.Exit
		if exit == nil {
			exit = codeOf(t)
		}
		exit.OOM = exit.OOM || outOfMemory(t)
		return exit, word.Reason
	}
	exit := codeOf(t)
	message := strings.TrimSpace(t.Message)
	switch {
	case message == "":
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		exit.NotStarted = message
	default: // the end of its log, with terminationMessagePolicy FallbackToLogsOnError
		exit.Tail = strings.Split(message, "\n")
	}
	return exit, ""
}

// codeOf reads the exit code as a shell does: more than 128 is a signal.
func codeOf(t *corev1.ContainerStateTerminated) *job.Exit {
	exit := &job.Exit{Code: int(t.ExitCode), At: t.FinishedAt.Time, OOM: outOfMemory(t)}
	if number := max(int(t.Signal), exit.Code-signalBase); number > 0 && number < signals {
		exit.Signal = syscall.Signal(number).String()
		exit.Code = signalBase + number
	}
	return exit
}

// outOfMemory: the kernel killed something of the container. An agent that went on and ended with 0 outlived it.
func outOfMemory(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "OOMKilled" && t.ExitCode != 0
}

const (
	signalBase = 128 // an exit code above it is this much and a signal's number
	signals    = 65  // one more than the highest signal that Linux has
)
