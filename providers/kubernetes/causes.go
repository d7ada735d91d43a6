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
// process ended; the container's own exit code is the agent's. The cause is "" unless it lies in the node.
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

// initExitOf reads how an init container failed, which keeps the agent from being started at all. The one that brings the
// agent copies a file, so what fails is its node, by a full disk for instance; what a user put there fails by itself.
func initExitOf(c *corev1.ContainerStatus) (*job.Exit, job.Cause, []string) {
	t := c.State.Terminated
	exit := codeOf(t)
	what := sentence(fmt.Sprintf("init container %s ended with %d", c.Name, exit.Code), t.Reason, t.Message)
	switch ours := c.Name == agentContainer; {
	case exit.OOM && ours: // its limit is what the slot reserves
		return exit, job.OutOfMemory, []string{what}
	case exit.OOM: // its limit is its own, and no larger reservation raises that
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

// unknownEnds are the reasons for a container of which its runtime, or its kubelet, had lost track: after a reboot, mostly.
var unknownEnds = []string{"Unknown", "ContainerStatusUnknown"}

// notStarted reports whether a container was created and never ran, by the reasons that a kubelet gives.
func notStarted(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

var (
	// noCommand is what runc, crun and gVisor say where the command, or its directory, cannot be run: on no node can it.
	noCommand = regexp.MustCompile(`(?i)(exec: "|executable|chdir).*(not found|no such file or directory|permission denied|is a directory|not a directory)`)
	// noRuntime is said of a program that a node's runtime starts for itself, in words that are else like those.
	noRuntime = regexp.MustCompile(`(running|executing) (\w+ )?hook|unable to retrieve OCI runtime error`)
)

// startCause reports whether a container was not started for its node's sake, which another node may do: a runtime under
// load fails at about one start in a hundred (containerd's issue 9160).
func startCause(t *corev1.ContainerStateTerminated) job.Cause {
	if !notStarted(t) || outOfMemory(t) || noCommand.MatchString(t.Message) && !noRuntime.MatchString(t.Message) {
		return ""
	}
	return job.NodeFailed
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

// outOfMemory: the kernel killed something of the container. An agent that went on and ended with 0 outlived it. With a limit
// that is too low for runc's own first process, that is killed, and the container counts as not started.
func outOfMemory(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "OOMKilled" && t.ExitCode != 0 || notStarted(t) && strings.Contains(t.Message, "memory limit too low")
}

const (
	signalBase = 128 // an exit code above it is this much and a signal's number
	signals    = 65  // one more than the highest signal that Linux has
)
