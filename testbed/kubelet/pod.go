package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is one pod on a node, from its binding until its object is gone. run is its only worker: it compares the desired
// with the actual state, and takes the next step. Others change the desired state, and poke it.
type pod struct {
	*node
	uid       types.UID
	namespace string
	dir       string
	ip        string
	log       *slog.Logger

	wake  chan struct{}
	over  chan struct{} // closed once run returns
	stale atomic.Bool   // volumes may have changed

	state struct {
		sync.Mutex
		object    *corev1.Pod
		removed   bool          // no longer in the API
		abandoned bool          // the Kubelet closes
		dying     chan struct{} // the machine dies: closed once no process is left; nil otherwise
		evicted   *eviction     // nil if not evicted
		ready     bool          // as last reported
		ended     bool          // its phase is final
	}

	logs struct {
		sync.Mutex
		newest map[string]attemptLog
	}

	// What follows belongs to run.
	containers    []*container // init containers first
	inert         bool         // it had ended before this Kubelet saw it
	prepared      bool
	volumesAgain  time.Time // when to retry them
	namespaceFile *os.File
	volumes       []*volume
	startTime     metav1.Time
	conditions    []corev1.PodCondition
	final         corev1.PodPhase // once stopped for good
	reason        string
	message       string
	processes     sync.WaitGroup // goroutines that wait for processes
	report        *reporter
}

// attemptLog is the log of a container's latest attempt.
type attemptLog struct {
	container *container
	attempt   int
	process   *process // nil if an earlier Kubelet started it
}

func (a attemptLog) ended() bool { return a.process == nil || a.process.ended() }

func newPod(n *node, object *corev1.Pod) *pod {
	p := &pod{
		node:      n,
		uid:       object.UID,
		namespace: object.Namespace,
		dir:       filepath.Join(n.dir, "pods", string(object.UID)),
		ip:        n.ip,
		log:       n.log.With("pod", object.Namespace+"/"+object.Name, "node", n.name),
		wake:      make(chan struct{}, 1),
		over:      make(chan struct{}),
		startTime: metav1.NewTime(time.Now()),
	}
	if !object.Spec.HostNetwork {
		p.ip = n.subnet.pod()
	}
	p.state.object = object
	p.logs.newest = map[string]attemptLog{}
	for _, c := range object.Spec.InitContainers {
		p.containers = append(p.containers, newContainer(c, true))
	}
	for _, c := range object.Spec.Containers {
		p.containers = append(p.containers, newContainer(c, false))
		if len(object.Spec.InitContainers) > 0 {
			p.containers[len(p.containers)-1].state = waiting(reasonInitializing, "")
		}
	}
	p.adopt(object)
	p.report = newReporter(p)
	return p
}

// adopt takes over the status that an earlier Kubelet reported.
func (p *pod) adopt(object *corev1.Pod) {
	status := object.Status
	p.inert = status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	p.state.ended = p.inert
	if status.StartTime != nil {
		p.startTime = *status.StartTime
	}
	p.conditions = status.Conditions
	known := map[string]corev1.ContainerStatus{}
	for _, s := range append(append([]corev1.ContainerStatus{}, status.InitContainerStatuses...), status.ContainerStatuses...) {
		known[s.Name] = s
	}
	for _, c := range p.containers {
		if s, ok := known[c.spec.Name]; ok {
			c.adopt(s, time.Now())
			if c.attempt >= 0 {
				p.logs.newest[c.spec.Name] = attemptLog{container: c, attempt: c.attempt}
			}
		}
	}
}

// poke makes run check again.
func (p *pod) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pod) update(object *corev1.Pod) {
	p.state.Lock()
	p.state.object = object
	p.state.Unlock()
	p.stale.Store(true) // labels and annotations may be in a volume
	p.poke()
}

func (p *pod) remove() {
	p.state.Lock()
	p.state.removed = true
	p.state.Unlock()
	p.poke()
}

func (p *pod) abandon() {
	p.state.Lock()
	p.state.abandoned = true
	p.state.Unlock()
	p.poke()
}

// eviction is how the node evicts a pod.
type eviction struct {
	message string
	grace   time.Duration
}

func (p *pod) evict(e eviction) {
	p.state.Lock()
	p.state.evicted = &e
	p.state.Unlock()
	p.poke()
}

func (p *pod) object() *corev1.Pod {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.object
}

func (p *pod) gone() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.removed
}

// target is the pod as a target of names.
func (p *pod) target() target {
	p.state.Lock()
	defer p.state.Unlock()
	return target{pod: p.state.object, ip: p.ip, hostname: hostname(p.state.object), ready: p.state.ready, ended: p.state.ended || p.state.removed}
}

// crash kills the pod's processes as the death of the machine does, and waits until they ended. The node is already
// powered off.
func (p *pod) crash() {
	dying := make(chan struct{})
	p.state.Lock()
	p.state.dying = dying
	p.state.Unlock()
	for _, newest := range p.attempts() {
		if !newest.ended() {
			newest.process.os.Signal(os.Kill) // at once: run may be waiting for the API server
		}
	}
	p.poke()
	select {
	case <-dying:
	case <-p.over:
	}
}

func (p *pod) attempts() []attemptLog {
	p.logs.Lock()
	defer p.logs.Unlock()
	var all []attemptLog
	for _, newest := range p.logs.newest {
		all = append(all, newest)
	}
	return all
}

func (p *pod) pid(container string) int {
	p.logs.Lock()
	defer p.logs.Unlock()
	newest, ok := p.logs.newest[container]
	if !ok || newest.ended() {
		return 0
	}
	return newest.process.os.Pid
}

// logFile is the log of a container's latest attempt, or of the one before.
func (p *pod) logFile(name string, previous bool) (path string, running func() bool, err error) {
	p.logs.Lock()
	defer p.logs.Unlock()
	newest, ok := p.logs.newest[name]
	if !ok {
		return "", nil, fmt.Errorf("container %q in pod %q is waiting to start", name, p.object().Name)
	}
	if !previous {
		return p.logPath(newest.container, newest.attempt), func() bool { return !newest.ended() }, nil
	}
	if newest.attempt == 0 {
		return "", nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.object().Name)
	}
	return p.logPath(newest.container, newest.attempt-1), func() bool { return false }, nil
}

// run works until the pod's object is gone or the Kubelet closes, and no process of it is left.
func (p *pod) run() {
	defer close(p.over)
	var reporting sync.WaitGroup
	ctx, cancel := context.WithCancel(p.life)
	reporting.Go(func() { p.report.run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, over := p.step(time.Now())
		if over {
			break
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-p.wake:
		case <-timer.C:
		}
	}
	cancel()
	reporting.Wait()
	p.processes.Wait()
	if p.namespaceFile != nil {
		p.namespaceFile.Close()
	}
	if p.gone() {
		if err := os.RemoveAll(p.dir); err != nil {
			p.node.log.Warn("cannot remove the pod directory", "err", err)
		}
	}
}

// step does what can be done now, and returns when to check again at the latest (zero: when poked), or that the pod
// is over.
func (p *pod) step(now time.Time) (next time.Time, over bool) {
	p.state.Lock()
	object, removed, abandoned, evicted := p.state.object, p.state.removed, p.state.abandoned, p.state.evicted
	p.state.Unlock()
	if dying := p.dying(); dying != nil {
		p.die(dying, now)
	}
	for _, c := range p.containers {
		p.reap(c)
	}
	ctx, cancel := context.WithTimeout(p.life, callTimeout)
	defer cancel()
	switch {
	case removed || abandoned:
		p.terminateAll(now, 0)
		if !p.anyRunning() {
			return time.Time{}, true
		}
	case p.poweredOff():
		return time.Time{}, false
	case p.inert || p.final != "":
	case evicted != nil:
		grace := evicted.grace
		if object.DeletionTimestamp != nil {
			grace = min(grace, deletionGrace(object))
		}
		p.stop(now, grace, corev1.PodFailed, reasonEvicted, evicted.message)
	case object.DeletionTimestamp != nil:
		p.stop(now, deletionGrace(object), "", "", "")
	case overdue(object, p.startTime, now):
		p.stop(now, grace(object), corev1.PodFailed, reasonDeadline, "Pod was active on the node longer than the specified deadline")
	default:
		p.advance(ctx, object, now)
	}
	if !removed && !abandoned {
		p.reportStatus(object, evicted, now)
	}
	return p.next(object, now), false
}

// stop stops all containers, and once they have ended sets the pod's final phase: the given one, or if "" the one that
// follows from the containers' exit codes.
func (p *pod) stop(now time.Time, grace time.Duration, phase corev1.PodPhase, reason, message string) {
	p.terminateAll(now, grace)
	if p.anyRunning() {
		return
	}
	p.final, p.reason, p.message = phase, reason, message
	if phase == "" {
		init, main := p.statuses()
		p.final = finalPhase(init, main)
	}
}

func (p *pod) terminateAll(now time.Time, grace time.Duration) {
	for _, c := range p.containers {
		p.terminate(c, now, grace)
	}
}

// dying is closed once no process is left; it is nil unless the machine dies.
func (p *pod) dying() chan struct{} {
	p.state.Lock()
	defer p.state.Unlock()
	return p.state.dying
}

// die kills everything that runs, waits for it, and discards the exit statuses.
func (p *pod) die(dying chan struct{}, now time.Time) {
	p.terminateAll(now, 0)
	for _, c := range p.containers {
		if c.running() {
			<-c.process.done
		}
		c.markUnknown(now)
	}
	p.state.Lock()
	p.state.dying = nil
	p.state.Unlock()
	close(dying)
}

func (p *pod) anyRunning() bool {
	for _, c := range p.containers {
		if c.running() {
			return true
		}
	}
	return false
}

// grace is the pod's termination grace period.
func grace(object *corev1.Pod) time.Duration {
	if object.Spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*object.Spec.TerminationGracePeriodSeconds) * time.Second
}

// deletionGrace is the grace period of the latest delete call.
func deletionGrace(object *corev1.Pod) time.Duration {
	if object.DeletionGracePeriodSeconds == nil {
		return grace(object)
	}
	return time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
}

func overdue(object *corev1.Pod, started metav1.Time, now time.Time) bool {
	limit := object.Spec.ActiveDeadlineSeconds
	return limit != nil && now.Sub(started.Time) >= time.Duration(*limit)*time.Second
}

// advance moves the pod closer to running: its volumes, its init containers one after the other, its containers.
func (p *pod) advance(ctx context.Context, object *corev1.Pod, now time.Time) {
	if p.settle(object) || !p.prepare(ctx, object, now) {
		return
	}
	if p.connected() && (p.stale.Swap(false) || !p.renewal().IsZero() && now.After(p.renewal())) {
		p.refresh(ctx, object, now)
	}
	for _, c := range p.containers {
		if !c.init || c.succeeded() {
			continue
		}
		p.drive(ctx, object, c, now)
		if !c.succeeded() {
			p.settle(object)
			return
		}
	}
	for _, c := range p.containers {
		if !c.init {
			p.drive(ctx, object, c, now)
		}
	}
	p.settle(object)
}

// settle sets the pod's final phase if its containers have ended and none is to be restarted, and reports whether it did.
func (p *pod) settle(object *corev1.Pod) bool {
	init, main := p.statuses()
	if reached := phase(object.Spec.RestartPolicy, init, main); reached == corev1.PodSucceeded || reached == corev1.PodFailed {
		p.final = reached
	}
	return p.final != ""
}

// prepare makes what all containers share, once. It returns false while that is not possible.
func (p *pod) prepare(ctx context.Context, object *corev1.Pod, now time.Time) bool {
	if p.prepared {
		return true
	}
	err := p.prepareVolumes(ctx, object)
	if err == nil {
		err = p.names.writeFor(p)
	}
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			p.log.Info("volumes are not ready", "err", err)
		}
		p.volumesAgain = now.Add(retryEvery)
		return false
	}
	p.prepared = true
	p.node.names.poke()
	return true
}

// drive takes the next step with one container: start it, restart it, or stop it because a probe failed.
func (p *pod) drive(ctx context.Context, object *corev1.Pod, c *container, now time.Time) {
	if c.running() {
		if message := c.doomed.Load(); message != nil {
			p.terminate(c, now, probeGrace(object, c))
		}
		return
	}
	if now.Before(c.notUntil) {
		return
	}
	if c.state.Terminated != nil {
		if !c.restartable(object.Spec.RestartPolicy) {
			return
		}
		if until := c.state.Terminated.FinishedAt.Add(c.backOff); now.Before(until) {
			c.wait(reasonCrashLoop, backOffMessage(c.backOff.Seconds(), c.spec.Name, object.Name, object.Namespace, string(object.UID)), until)
			return
		}
	}
	p.start(ctx, object, c, now)
	if c.process != nil {
		p.logs.Lock()
		p.logs.newest[c.spec.Name] = attemptLog{c, c.attempt, c.process}
		p.logs.Unlock()
	}
}

func probeGrace(object *corev1.Pod, c *container) time.Duration {
	for _, probe := range []*corev1.Probe{c.spec.LivenessProbe, c.spec.StartupProbe} {
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			return time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
		}
	}
	return grace(object)
}

// next is when to check again without being poked.
func (p *pod) next(object *corev1.Pod, now time.Time) time.Time {
	var first time.Time
	consider := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	consider(p.volumesAgain)
	if renewal := p.renewal(); renewal.After(now) {
		consider(renewal)
	} else if !renewal.IsZero() {
		consider(now.Add(retryEvery)) // it failed, or the node is disconnected
	}
	if limit := object.Spec.ActiveDeadlineSeconds; limit != nil && p.final == "" {
		consider(p.startTime.Add(time.Duration(*limit) * time.Second))
	}
	for _, c := range p.containers {
		switch {
		case c.running() && c.terminating && !c.killed:
			consider(c.killAt)
		case !c.running() && c.notUntil.After(now):
			consider(c.notUntil)
		}
	}
	return first
}

// statuses are the containers' statuses for the API.
func (p *pod) statuses() (init, main []corev1.ContainerStatus) {
	for _, c := range p.containers {
		s := corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
			State: c.state, LastTerminationState: c.last, RestartCount: c.restarts,
		}
		if c.attempt >= 0 {
			s.ContainerID = p.containerID(c)
		}
		started := c.running() && c.probes != nil && c.probes.started.Load()
		s.Started = &started
		s.Ready = started && c.probes.ready.Load()
		if c.init {
			s.Ready = c.succeeded()
			init = append(init, s)
		} else {
			main = append(main, s)
		}
	}
	return init, main
}

// reportStatus passes the pod's current status to the reporter.
func (p *pod) reportStatus(object *corev1.Pod, evicted *eviction, now time.Time) {
	if p.inert {
		p.report.set(nil, object.DeletionTimestamp != nil)
		return
	}
	status := corev1.PodStatus{ObservedGeneration: object.Generation, StartTime: &p.startTime, HostIP: p.node.ip, HostIPs: []corev1.HostIP{{IP: p.node.ip}}}
	status.InitContainerStatuses, status.ContainerStatuses = p.statuses()
	status.Phase = p.final
	if status.Phase == "" {
		status.Phase = phase(object.Spec.RestartPolicy, status.InitContainerStatuses, status.ContainerStatuses)
	}
	status.Reason, status.Message = p.reason, p.message
	if p.prepared {
		status.PodIP, status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	status.Conditions = conditions(status, p.prepared && p.final == "", object.Generation, metav1.NewTime(now), p.conditions)
	if evicted != nil && p.final != "" {
		c := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
			Message: evicted.message, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: object.Generation,
		}
		for _, old := range p.conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	p.conditions = status.Conditions
	p.noteReady(status)
	p.report.set(&status, object.DeletionTimestamp != nil && p.final != "" && !p.anyRunning())
}

// noteReady records the part of the status that names depend on.
func (p *pod) noteReady(status corev1.PodStatus) {
	ready := false
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady {
			ready = c.Status == corev1.ConditionTrue
		}
	}
	p.state.Lock()
	changed := p.state.ready != ready || p.state.ended != (p.final != "")
	p.state.ready, p.state.ended = ready, p.final != ""
	p.state.Unlock()
	if changed {
		p.node.names.poke()
	}
}
