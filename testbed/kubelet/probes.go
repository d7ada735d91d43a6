package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probes runs the probes of one process. Without a readiness probe a container is ready, without a startup probe it
// has started.
type probes struct {
	pod       *pod
	container *container
	inside    inside

	cancel   context.CancelFunc // of all probes
	liveness context.CancelFunc
	done     sync.WaitGroup

	started atomic.Bool
	ready   atomic.Bool
}

// probe starts probing a process that has just started.
func (p *pod) probe(c *container, process *process) *probes {
	r := &probes{pod: p, container: c, inside: process.inside}
	ctx, cancel := context.WithCancel(context.Background())
	liveness, stop := context.WithCancel(ctx)
	r.cancel, r.liveness = cancel, stop
	r.started.Store(c.spec.StartupProbe == nil)
	r.ready.Store(c.spec.ReadinessProbe == nil)
	r.done.Go(func() {
		if !r.start(liveness) {
			return
		}
		if probe := c.spec.ReadinessProbe; probe != nil {
			r.done.Go(func() { r.keep(ctx, probe, func(ok bool, _ error) { r.setReady(ok) }) })
		}
		if probe := c.spec.LivenessProbe; probe != nil {
			r.done.Go(func() { r.keep(liveness, probe, r.doomUnlessOK) })
		}
	})
	return r
}

// stop stops all probes and waits for them.
func (r *probes) stop() {
	r.cancel()
	r.done.Wait()
}

// stopLiveness stops the probes that could kill the container, when it is being stopped anyway.
func (r *probes) stopLiveness() { r.liveness() }

// start waits for the startup probe. It returns false if the container is not to be probed further.
func (r *probes) start(ctx context.Context) bool {
	probe := r.container.spec.StartupProbe
	if probe == nil {
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.keep(ctx, probe, func(ok bool, err error) {
		if ok {
			r.started.Store(true)
			r.pod.poke()
		} else {
			r.doomUnlessOK(false, err)
		}
		cancel()
	})
	return r.started.Load()
}

func (r *probes) setReady(ok bool) {
	if r.ready.Swap(ok) != ok {
		r.pod.poke()
	}
}

func (r *probes) doomUnlessOK(ok bool, err error) {
	if ok {
		return
	}
	message := err.Error()
	r.container.doomed.Store(&message)
	r.pod.poke()
}

// keep probes until ctx ends, and calls verdict whenever a threshold is reached.
func (r *probes) keep(ctx context.Context, probe *corev1.Probe, verdict func(ok bool, err error)) {
	if !sleep(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second) {
		return
	}
	good, bad := int32(0), int32(0)
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
		err := r.handle(attempt, probe.Exec, probe.HTTPGet, probe.TCPSocket, nil)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		if good >= probe.SuccessThreshold {
			verdict(true, nil)
		}
		if bad >= probe.FailureThreshold {
			verdict(false, err)
		}
		if !sleep(ctx, time.Duration(probe.PeriodSeconds)*time.Second) {
			return
		}
	}
}

// handle performs the action of a probe or hook.
func (r *probes) handle(ctx context.Context, command *corev1.ExecAction, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction, pause *corev1.SleepAction) error {
	switch {
	case command != nil:
		return r.exec(ctx, command.Command)
	case get != nil:
		return r.get(ctx, get)
	case socket != nil:
		address, err := r.address(socket.Host, socket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	case pause != nil:
		sleep(ctx, time.Duration(pause.Seconds)*time.Second)
		return nil
	}
	return errors.New("the process kubelet does not support this type of probe")
}

// exec runs a command in the container.
func (r *probes) exec(ctx context.Context, command []string) error {
	cmd := r.inside.command(ctx, command)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("command %q: %w: %s", strings.Join(command, " "), err, out)
	}
	return nil
}

func (r *probes) get(ctx context.Context, get *corev1.HTTPGetAction) error {
	address, err := r.address(get.Host, get.Port)
	if err != nil {
		return err
	}
	url := strings.ToLower(string(get.Scheme)) + "://" + address + "/" + strings.TrimPrefix(get.Path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	response, err := probeClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

// address is where a probe connects: the pod's own IP unless it sets a host.
func (r *probes) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = r.pod.ip
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, declared := range r.container.spec.Ports {
		if declared.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(declared.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("the container has no port %q", port.StrVal)
}

// sleep returns false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// probeClient verifies no certificate and keeps no connection, as a kubelet's prober.
var probeClient = &http.Client{Transport: &http.Transport{
	DisableKeepAlives: true,
	Proxy:             nil,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
}}
