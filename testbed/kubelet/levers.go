package kubelet

import (
	"context"
	"fmt"
	"time"
)

// Disconnect cuts a node's kubelet off from the API server, as its death does: it beats no more, hears nothing and
// reports nothing, its volumes stay as they are, and it serves no logs. Its processes go on, and reach their peers and
// everybody else as before, which a broken network would not let them: to the cluster they are zombies. The node
// controller finds the node NotReady after its grace period.
func (k *Kubelet) Disconnect(node string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.levers.Lock()
	defer n.levers.Unlock()
	n.disconnect()
	return nil
}

// NotReady has a node say so itself, as one does that shuts down or whose container runtime is broken: with its next
// beat, within a second. Its pods run on, and it obeys and reports as before. The node controller taints it.
func (k *Kubelet) NotReady(node, message string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.setTrouble(message)
	return nil
}

// FailStarts has a node's container runtime fail at each start, with that message, as one under load or with a full disk
// does: the container ends as StartError with exit code 128. The node says that it is ready. "" ends it.
func (k *Kubelet) FailStarts(node, message string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing = message
	return nil
}

// Reconnect ends NotReady, Disconnect or PowerOff. A node that was away registers again, pods that were deleted
// meanwhile are killed, and the others are reported as they are. A Node that was deleted in the API is made again by it.
// After PowerOff the containers are reported as terminated with exit code 255 and the reason Unknown, as containerd does
// after a reboot, and start again where restartPolicy says so.
func (k *Kubelet) Reconnect(ctx context.Context, node string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.levers.Lock()
	defer n.levers.Unlock()
	n.setTrouble("")
	if err := n.connect(ctx); err != nil {
		return fmt.Errorf("reconnect node %s: %w", node, err)
	}
	n.power(true)
	return nil
}

// PowerOff is the sudden death of the machine: Disconnect, and every process is killed. The API server is not told. Whoever
// has a connection to one of the processes is, which a dead machine would not do: this machine's kernel closes it at once.
// It returns when the processes are dead.
func (k *Kubelet) PowerOff(node string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.levers.Lock()
	defer n.levers.Unlock()
	n.disconnect()
	n.power(false)
	for _, p := range n.list() {
		p.crash()
	}
	return nil
}

// leastGrace is what a kubelet gives at least to whatever it puts out (minimumGracePeriodInSeconds in
// pkg/kubelet/kuberuntime).
const leastGrace = 2 * time.Second

// Evict does to a pod what a kubelet does under node pressure: its containers are asked to end, and killed after the grace
// (of a soft eviction; a hard one gives none), but not before leastGrace. Only when all have ended is the pod told of as
// Failed, with the reason Evicted, that message, and the condition DisruptionTarget (TerminationByKubelet). The object
// stays. It returns at once.
func (k *Kubelet) Evict(namespace, name, message string, grace time.Duration) error {
	p, err := k.pod(namespace, name)
	if err != nil {
		return err
	}
	p.evict(eviction{message, max(grace, leastGrace)})
	return nil
}

// PID is the process id, on this machine, of a running container's first process.
func (k *Kubelet) PID(namespace, pod, container string) (int, error) {
	p, err := k.pod(namespace, pod)
	if err != nil {
		return 0, err
	}
	pid := p.pid(container)
	if pid == 0 {
		return 0, fmt.Errorf("container %s of pod %s/%s is not running", container, namespace, pod)
	}
	return pid, nil
}

// LimitsMemory says why memory limits of containers are not enforced on this machine; nil if they are.
func (k *Kubelet) LimitsMemory() error { return k.cgroups.err }

func (k *Kubelet) node(name string) (*node, error) {
	if n := k.nodes[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("this kubelet serves no node %q", name)
}

func (k *Kubelet) pod(namespace, name string) (*pod, error) {
	for _, p := range k.pods() {
		if o := p.object(); o.Namespace == namespace && o.Name == name && !p.gone() {
			return p, nil
		}
	}
	return nil, fmt.Errorf("this kubelet runs no pod %s/%s", namespace, name)
}
