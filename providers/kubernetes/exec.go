package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Exec is a request for pods/exec, with the rights of this client: a WebSocket, or SPDY where a server or a proxy knows none, as
// kubectl does. In the container the agent's program starts the command, in the environment of the training processes: Kubernetes
// knows only that of the container.
func (p *Provider) Exec(ctx context.Context, uid string, slot job.Address, incarnation int, c providers.Command) (code int, err error) {
	if err := errors.Join(checkUID(uid), checkNames(slot)); err != nil {
		return 0, err
	}
	pod := podName(uid, slot, incarnation)
	agent := cmp.Or(p.config.AgentPath, agentDir+"/"+agentProgram)
	args := c.Args
	if c.Agent {
		args = slices.Concat([]string{agent}, c.Args)
	}
	options := &corev1.PodExecOptions{
		Container: mainContainer, Command: slices.Concat([]string{agent}, job.ExecArgs(c.Term, args)),
		Stdin: c.Stdin != nil, Stdout: true, Stderr: c.Sizes == nil, TTY: c.Sizes != nil,
	}
	executor, err := p.executor(pod, options)
	if err != nil {
		return 0, err
	}
	streams := remotecommand.StreamOptions{Stdout: c.Stdout, Tty: options.TTY}
	if options.Stdin {
		streams.Stdin = c.Stdin
	}
	if options.TTY {
		streams.TerminalSizeQueue = sizes(c.Sizes)
	} else {
		streams.Stderr = c.Stderr
	}
	err = executor.StreamWithContext(ctx, streams)
	exit, ended := errors.AsType[exec.CodeExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case ended:
		return exit.Code, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case p.ended(ctx, pod):
		return 0, fmt.Errorf("pod %s/%s: %w", p.namespace, pod, providers.ErrNotRunning)
	case apierrors.IsForbidden(err):
		return 0, fmt.Errorf("pod %s/%s: %w; it needs get and create on pods/exec", p.namespace, pod, err)
	}
	return 0, fmt.Errorf("pod %s/%s: %w", p.namespace, pod, explain(err))
}

// ended reports whether a pod is known not to run its main container: kubelets say so in their own words, as an internal error.
func (p *Provider) ended(ctx context.Context, name string) bool {
	pod, err := p.client.CoreV1().Pods(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == mainContainer && s.State.Running != nil
	})
}

func (p *Provider) executor(pod string, options *corev1.PodExecOptions) (remotecommand.Executor, error) {
	url := p.client.CoreV1().PodExec(p.namespace, pod, options).URL()
	spdy, err := remotecommand.NewSPDYExecutor(p.rest, "POST", url)
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(p.rest, "GET", url.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// sizes are those of a terminal, until the channel is closed.
type sizes <-chan providers.TerminalSize

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	size, more := <-s
	if !more {
		return nil
	}
	return &remotecommand.TerminalSize{Width: size.Columns, Height: size.Lines}
}
