package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eltrain/eltrain/job"
)

// disruptions maps the documented reasons of the condition DisruptionTarget to causes:
// https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
var disruptions = map[string]job.Cause{
	corev1.PodReasonPreemptionByScheduler: job.Preemption,
	"EvictionByEvictionAPI":               job.Eviction,
	corev1.PodReasonTerminationByKubelet:  job.Eviction,
	"DeletionByTaintManager":              job.Eviction,
	"DeletionByPodGC":                     job.NodeGone,
}

// rejections maps the status.reason of a failed pod by which a node says that it evicted or rejected the pod. Reasons that
// begin with OutOf ("OutOfcpu") are not listed.
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
	"UnexpectedAdmissionError": job.Eviction, // mostly a device plugin that could not allocate
	"TopologyAffinityError":    job.Eviction,
	"DeadlineExceeded":         job.Eviction, // activeDeadlineSeconds
	"NodeLost":                 job.NodeGone,
}

const (
	outOf = "OutOf"
	// volcanoEvicts is the reason that Volcano's scheduler sets in the condition Ready before it preempts or reclaims a pod.
	// It sets no DisruptionTarget (defaultEvictor in its pkg/scheduler/cache).
	volcanoEvicts = "Evict"
)

// disruption is why the infrastructure ended a pod, from its conditions first, then its status; "" if they give no reason. An
// exit code says less, as evicted processes exit with a code too.
func disruption(o *corev1.Pod) (job.Cause, []string) {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == volcanoEvicts {
			return job.Preemption, []string{sentence("pod "+o.Name+" was preempted", "", c.Message)}
		}
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		// An unknown reason is a custom controller's, which ended the pod on purpose.
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

// notByUs: all that is certain is that this master did not delete the pod; a predecessor may have.
const notByUs = "not by this master"

// deletion is the evidence that a pod was deleted. It returns false if it was not, or had ended before.
func deletion(o *corev1.Pod, ended time.Time) (string, bool) {
	if o.DeletionTimestamp == nil {
		return "", false
	}
	// The timestamp is when the grace period ends.
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

// sentence joins what happened with the cluster's own reason and message, if any.
func sentence(what, reason, message string) string {
	for _, s := range []string{reason, strings.TrimSpace(message)} {
		if s != "" {
			what += ": " + s
		}
	}
	return what
}

// exitOf reads how the agent's container ended. The agent's last word, if there is one, says how the training process ended;
// the container's own exit code is the agent's. The cause is "" unless the node is at fault.
func exitOf(t *corev1.ContainerStateTerminated) (*job.Exit, job.EndReason, job.Cause) {
	var word job.LastWord
	if json.Unmarshal([]byte(t.Message), &word) == nil && word.Reason != "" {
		exit := word.Exit
		if exit == nil {
			exit = codeOf(t)
		}
		exit.OOM = exit.OOM || outOfMemory(t)
		return exit, word.Reason, ""
	}
	exit := codeOf(t)
	message := strings.TrimSpace(t.Message)
	switch {
	case notStarted(t) && !exit.OOM:
		exit.NotStarted = cmp.Or(message, t.Reason)
	case message == "":
	default: // the end of its log, with terminationMessagePolicy FallbackToLogsOnError
		exit.Tail = strings.Split(message, "\n")
	}
	return exit, "", startCause(t)
}

// initExitOf reads how an init container failed, so that the agent never started. Ours only copies a file, so its failure is
// its node's, such as a full disk; a user's init container fails by itself.
func initExitOf(c *corev1.ContainerStatus) (*job.Exit, job.Cause, []string) {
	t := c.State.Terminated
	exit := codeOf(t)
	what := sentence(fmt.Sprintf("init container %s ended with %d", c.Name, exit.Code), t.Reason, t.Message)
	switch ours := c.Name == agentContainer; {
	case exit.OOM && ours: // its limit is the slot's reservation
		return exit, job.OutOfMemory, []string{what}
	case exit.OOM: // its limit is its own: a larger reservation would not raise it
		return exit, job.ProcessKilled, []string{what}
	case notStarted(t) && startCause(t) == "":
		exit.NotStarted = what
		return exit, "", nil
	case ours, notStarted(t), slices.Contains(unknownEnds, t.Reason):
		exit.NotStarted = what
		return exit, job.NodeFailed, nil
	}
	return exit, exit.Cause(), []string{what}
}

// unknownEnds are the reasons of containers that their runtime or kubelet lost track of, mostly after a reboot.
var unknownEnds = []string{"Unknown", "ContainerStatusUnknown"}

// notStarted reports whether a container was created but never ran, by the kubelet's reason.
func notStarted(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

var (
	// noCommand matches what runc, crun and gVisor report if the command or its directory cannot be used: it fails on every node.
	noCommand = regexp.MustCompile(`(?i)(exec: "|executable|chdir).*(not found|no such file or directory|permission denied|is a directory|not a directory)`)
	// noRuntime matches similar errors about programs that a node's runtime runs itself.
	noRuntime = regexp.MustCompile(`(running|executing) (\w+ )?hook|unable to retrieve OCI runtime error`)
)

// startCause is NodeFailed if the node is at fault that a container did not start, so that another node may start it: a
// runtime under load fails at about one start in a hundred (containerd's issue 9160).
func startCause(t *corev1.ContainerStateTerminated) job.Cause {
	if !notStarted(t) || outOfMemory(t) || noCommand.MatchString(t.Message) && !noRuntime.MatchString(t.Message) {
		return ""
	}
	return job.NodeFailed
}

// codeOf reads the exit code as a shell does: above 128 it is a signal.
func codeOf(t *corev1.ContainerStateTerminated) *job.Exit {
	exit := &job.Exit{Code: int(t.ExitCode), At: t.FinishedAt.Time, OOM: outOfMemory(t)}
	if number := max(int(t.Signal), exit.Code-signalBase); number > 0 && number < signals {
		exit.Signal = syscall.Signal(number).String()
		exit.Code = signalBase + number
	}
	return exit
}

// outOfMemory: the kernel killed a process of the container. An agent that continued and exited with 0 survived it. If the
// limit is too low for runc's own first process, that is killed, and the container counts as not started.
func outOfMemory(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "OOMKilled" && t.ExitCode != 0 || notStarted(t) && strings.Contains(t.Message, "memory limit too low")
}

const (
	signalBase = 128 // an exit code above it is the sum of it and a signal's number
	signals    = 65  // one more than Linux's highest signal
)
