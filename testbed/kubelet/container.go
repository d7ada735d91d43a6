package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// firstBackOff and lastBackOff bound the pause before an ended container is restarted; it doubles. The first restart
	// is immediate. healthyAfter is how long a container must have run for the pause to be reset. All three are a kubelet's.
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
	healthyAfter = 10 * time.Minute

	// pullBackOff is when a failed pull turns from ErrImagePull to ImagePullBackOff: at a kubelet's next sync of the
	// pod.
	pullBackOff = time.Second

	// retryEvery is the retry interval for a container or volume whose ConfigMap or Secret is missing.
	retryEvery = time.Second

	// terminationMessageLimit is how much of a termination message is kept (pkg/kubelet/container).
	terminationMessageLimit = 4096
	// fallbackBytes and fallbackLines are how much of the log replaces it with FallbackToLogsOnError.
	fallbackBytes = 2048
	fallbackLines = 80

	// runtimeErrorCode is the exit code of a container whose command could not be executed, and unknownCode that of one
	// whose exit status is unknown: both as in containerd.
	runtimeErrorCode = 128
	unknownCode      = 255
)

// container is one container of a pod, across its restarts. The pod's loop owns it, except for what probes write.
type container struct {
	spec corev1.Container
	init bool

	process  *process // of the latest attempt; nil before the first
	attempt  int      // of the latest process, from 0
	restarts int32
	state    corev1.ContainerState
	last     corev1.ContainerState
	backOff  time.Duration // before the next restart
	notUntil time.Time     // no attempt before this time
	pulled   time.Time     // when the pull first failed

	terminating bool
	killAt      time.Time
	killed      bool

	probes *probes
	doomed atomic.Pointer[string] // the error of a failed liveness or startup probe
}

func newContainer(spec corev1.Container, init bool) *container {
	return &container{spec: spec, init: init, attempt: -1, state: waiting(reasonCreating, "")}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (c *container) running() bool { return c.state.Running != nil }

// succeeded reports whether an init container is done.
func (c *container) succeeded() bool {
	return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// ended is how the latest attempt ended; nil if there was none or it runs.
func (c *container) ended() *corev1.ContainerStateTerminated {
	if c.state.Terminated != nil {
		return c.state.Terminated
	}
	if c.state.Waiting != nil {
		return c.last.Terminated
	}
	return nil
}

// restartable reports whether the pod's policy restarts an ended container.
func (c *container) restartable(policy corev1.RestartPolicy) bool {
	failed := c.ended() != nil && c.ended().ExitCode != 0
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyAlways:
		return failed || !c.init
	}
	return failed
}

// adopt takes over the API's status of a container that an earlier Kubelet ran. What was running is dead.
func (c *container) adopt(status corev1.ContainerStatus, now time.Time) {
	c.restarts, c.last = status.RestartCount, status.LastTerminationState
	if status.ContainerID != "" {
		c.attempt = int(status.RestartCount)
	}
	if status.State.Waiting == nil {
		c.state = status.State
		c.markUnknown(now)
	}
}

// start tries to start the next attempt, or sets in the container's state why it cannot.
func (p *pod) start(ctx context.Context, object *corev1.Pod, c *container, now time.Time) {
	image, ok := p.images[c.spec.Image]
	if !ok {
		p.pull(c, now)
		return
	}
	env, err := p.environment(ctx, object, &c.spec, image)
	var spec processSpec
	if err == nil {
		spec, err = p.spec(object, c, image, env)
	}
	if err != nil {
		c.wait(reasonConfigError, err.Error(), now.Add(retryEvery))
		return
	}
	c.begin()
	spec.log = p.logPath(c, c.attempt)
	spec.scratch = filepath.Join(p.dir, "containers", c.spec.Name, "layer")
	process, err := p.launch(c, spec)
	if err != nil {
		c.startFailed(err, now)
		p.poke() // it may be restarted
		return
	}
	c.process = process
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(process.started)}}
	p.processes.Go(func() { <-process.done; p.poke() })
	c.probes = p.probe(c, process)
}

// begin counts a new attempt, and moves the previous termination to the last state.
func (c *container) begin() {
	if ended := c.ended(); ended != nil {
		c.last = corev1.ContainerState{Terminated: ended}
		c.restarts++
		c.backOff = min(max(2*c.backOff, firstBackOff), lastBackOff)
	}
	c.attempt++
	c.terminating, c.killed, c.killAt = false, false, time.Time{}
	c.doomed.Store(nil)
	c.notUntil, c.pulled = time.Time{}, time.Time{}
}

// wait sets the container waiting, and keeps its previous termination.
func (c *container) wait(reason, message string, until time.Time) {
	if ended := c.ended(); ended != nil {
		c.last = corev1.ContainerState{Terminated: ended}
	}
	c.state, c.notUntil = waiting(reason, message), until
}

func (p *pod) pull(c *container, now time.Time) {
	if c.pulled.IsZero() {
		c.pulled = now
		message := fmt.Sprintf("failed to pull and unpack image %q: the process kubelet has no such image", c.spec.Image)
		c.wait(reasonErrImagePull, message, now.Add(pullBackOff))
		return
	}
	// The set of images is fixed, so a later pull would fail too.
	c.wait(reasonImagePullBackOff, fmt.Sprintf("Back-off pulling image %q", c.spec.Image), now.Add(lastBackOff))
}

func (c *container) startFailed(err error, now time.Time) {
	message := err.Error()
	var command errCommand
	if !errors.As(err, &command) {
		message = "failed to create containerd task: " + message
	}
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: runtimeErrorCode, Reason: reasonStartError, Message: message,
		StartedAt: metav1.NewTime(time.Unix(0, 0)), FinishedAt: metav1.NewTime(now),
	}}
}

// spec describes the container to the runtime.
func (p *pod) spec(object *corev1.Pod, c *container, image Image, env *environment) (processSpec, error) {
	s := processSpec{namespace: p.namespaceFile, hostname: hostname(object), env: env.list(), dir: c.spec.WorkingDir, bare: image.Scratch}
	var err error
	if s.user, err = userOf(object, c, image); err != nil {
		return s, err
	}
	if security := c.spec.SecurityContext; security != nil && security.ReadOnlyRootFilesystem != nil {
		s.readOnly = *security.ReadOnlyRootFilesystem
	}
	if s.dir == "" {
		s.dir = image.WorkingDir
	}
	if s.dir == "" {
		s.dir = "/"
	}
	if s.bare && s.dir != "/" {
		return s, fmt.Errorf("working directory %s: only / is supported in a scratch image", s.dir)
	}
	command, args := image.Command, image.Args
	if c.spec.Command != nil {
		command, args = env.expandAll(c.spec.Command), nil
	}
	if c.spec.Args != nil {
		args = env.expandAll(c.spec.Args)
	}
	s.argv = append(slices.Clone(command), args...)
	if len(s.argv) == 0 {
		return s, errors.New("no command specified")
	}
	mounts, err := p.mounts(&c.spec, env)
	if err != nil {
		return s, err
	}
	s.mounts = []bind{{from: filepath.Join(p.dir, "etc"), to: podEtc, readOnly: true}}
	if !s.bare {
		tmp := filepath.Join(p.dir, "containers", c.spec.Name, "tmp")
		s.mounts = append(s.mounts, bind{from: tmp, to: "/tmp", root: true})
	}
	for _, m := range image.Mounts {
		s.mounts = append(s.mounts, bind{from: m.HostPath, to: m.Path, readOnly: m.ReadOnly, root: s.bare})
	}
	s.mounts = append(s.mounts, mounts...)
	return s, nil
}

// userOf is the user that a container runs as; nil for root.
func userOf(object *corev1.Pod, c *container, image Image) (*user, error) {
	var uid, gid, group *int64
	if s := object.Spec.SecurityContext; s != nil {
		uid, gid, group = s.RunAsUser, s.RunAsGroup, s.FSGroup
	}
	if s := c.spec.SecurityContext; s != nil {
		uid, gid = cmp.Or(s.RunAsUser, uid), cmp.Or(s.RunAsGroup, gid)
	}
	u := user{}
	switch {
	case uid != nil:
		u.uid = *uid // with group 0: the image's group belongs to the image's user
	case image.User != "":
		if _, err := fmt.Sscanf(image.User, "%d:%d", &u.uid, &u.gid); err != nil {
			return nil, fmt.Errorf("the image's user %q is not UID:GID", image.User)
		}
	case gid == nil:
		return nil, nil
	}
	if gid != nil {
		u.gid = *gid
	}
	u.group = u.gid
	if group != nil {
		u.group = *group
	}
	return &u, nil
}

// launch creates a container's directories, termination log and cgroup, and starts it.
func (p *pod) launch(c *container, s processSpec) (*process, error) {
	if err := p.runtimeError(); err != nil {
		return nil, err
	}
	dir := filepath.Join(p.dir, "containers", c.spec.Name)
	tmp := filepath.Join(dir, "tmp")
	if err := os.RemoveAll(tmp); err != nil { // /tmp is per container, not per pod
		return nil, err
	}
	for _, sub := range []string{s.scratch, tmp} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
		return nil, err
	}
	message := p.messagePath(c)
	if err := os.WriteFile(message, nil, 0o666); err != nil {
		return nil, err
	}
	if err := os.Chmod(message, 0o666); err != nil {
		return nil, err
	}
	s.mounts = append(s.mounts, bind{from: message, to: c.spec.TerminationMessagePath})
	if limit, ok := c.spec.Resources.Limits[corev1.ResourceMemory]; ok {
		cgroup, err := p.cgroups.limit(fmt.Sprintf("%s-%s-%d", p.uid, c.spec.Name, c.attempt), limit.Value())
		if err != nil {
			return nil, err
		}
		s.cgroup = cgroup
	}
	process, err := startProcess(s)
	if err != nil {
		removeCgroup(s.cgroup)
	}
	return process, err
}

func (p *pod) logPath(c *container, attempt int) string {
	return filepath.Join(p.dir, "containers", c.spec.Name, strconv.Itoa(attempt)+".log")
}

func (p *pod) messagePath(c *container) string {
	return filepath.Join(p.dir, "containers", c.spec.Name, "termination-log")
}

// reap records the exit of a container's process, if it has ended since the last check.
func (p *pod) reap(c *container) {
	// Exits caused by the death of the machine are not observed. The order matters: if the machine's death killed the
	// process, dying is already set when the process is seen to have ended.
	if !c.running() || !c.process.ended() || p.dying() != nil {
		return
	}
	c.probes.stop()
	proc := c.process
	ended := &corev1.ContainerStateTerminated{
		ExitCode:    int32(proc.code),
		StartedAt:   metav1.NewTime(proc.started),
		FinishedAt:  metav1.NewTime(proc.finished),
		ContainerID: p.containerID(c),
	}
	switch {
	case proc.oom:
		ended.Reason = reasonOOMKilled
	case proc.code == 0:
		ended.Reason = reasonCompleted
	default:
		ended.Reason = reasonError
	}
	ended.Message = p.terminationMessage(c, proc.code != 0)
	c.state = corev1.ContainerState{Terminated: ended}
	if proc.finished.Sub(proc.started) >= healthyAfter {
		c.backOff = 0
	}
}

// markUnknown gives a running container the state that a runtime reports after the machine has died.
func (c *container) markUnknown(now time.Time) {
	if !c.running() {
		return
	}
	if c.probes != nil {
		c.probes.stop()
	}
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: unknownCode, Reason: reasonUnknown, StartedAt: c.state.Running.StartedAt, FinishedAt: metav1.NewTime(now),
	}}
}

// terminationMessage is the container's termination message or, if its policy says so, the end of its log.
func (p *pod) terminationMessage(c *container, failed bool) string {
	text := readLimited(p.messagePath(c), terminationMessageLimit)
	if text != "" || !failed || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return text
	}
	file, err := os.Open(p.logPath(c, c.attempt))
	if err != nil {
		return ""
	}
	defer file.Close()
	if err := seekTail(file, fallbackLines); err != nil {
		return ""
	}
	tail, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(tail[max(0, len(tail)-fallbackBytes):]), "")
}

func readLimited(path string, most int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(b), "")
}

func (p *pod) containerID(c *container) string {
	return fmt.Sprintf("process://%s/%s/%d", p.uid, c.spec.Name, c.attempt)
}

// terminate asks a running container to stop, and kills it when the grace is over. Further calls can only shorten the
// remaining grace.
func (p *pod) terminate(c *container, now time.Time, grace time.Duration) {
	if !c.running() {
		return
	}
	deadline := now.Add(grace)
	switch {
	case !c.terminating:
		c.terminating, c.killAt = true, deadline
		c.probes.stopLiveness()
		if grace > 0 {
			p.askToEnd(c)
		}
	case deadline.Before(c.killAt):
		c.killAt = deadline
	}
	if !c.killed && !now.Before(c.killAt) {
		c.killed = true
		c.process.os.Signal(unix.SIGKILL)
	}
}

// askToEnd runs the container's preStop hook, if it has one, and then sends SIGTERM.
func (p *pod) askToEnd(c *container) {
	process := c.process
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		process.os.Signal(unix.SIGTERM)
		return
	}
	hook := *c.spec.Lifecycle.PreStop
	probes := c.probes
	p.processes.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stop := make(chan struct{})
		defer close(stop)
		p.processes.Go(func() {
			select {
			case <-process.done:
				cancel()
			case <-stop:
			}
		})
		if err := probes.handle(ctx, hook.Exec, hook.HTTPGet, hook.TCPSocket, hook.Sleep); err != nil {
			p.log.Warn("preStop hook failed", "container", c.spec.Name, "err", err)
		}
		process.os.Signal(unix.SIGTERM)
	})
}
