package kubelet

import (
	"context"
	"fmt"
	"time"
)

// Disconnect cuts a node's kubelet off from the API server, as its death does: it sends no heartbeats, receives and reports
// nothing, does not update volumes, and serves no logs. Its processes continue, and reach their peers as before, which a
// broken network would prevent: to the cluster they are zombies. The node controller marks the node NotReady after its
// grace period.
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

// NotReady makes a node report itself not ready, as when it shuts down or its container runtime is broken, with its next
// heartbeat, within a second. It still runs and reports its pods. The node controller taints it.
func (k *Kubelet) NotReady(node, message string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.setNotReady(message)
	return nil
}

// FailStarts makes a node's container runtime fail every start with that message, as under load or with a full disk: the
// container terminates with StartError and exit code 128. The node stays ready. "" undoes it.
func (k *Kubelet) FailStarts(node, message string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.startFailure = message
	return nil
}

// Reconnect undoes NotReady, Disconnect or PowerOff. A node that was away registers again, which recreates a Node deleted
// in the API; pods deleted meanwhile are killed, and the others are reported. After PowerOff the containers are reported
// as terminated with exit code 255 and the reason Unknown, as containerd does after a reboot, and restarted according to
// restartPolicy.
func (k *Kubelet) Reconnect(ctx context.Context, node string) error {
	n, err := k.node(node)
	if err != nil {
		return err
	}
	n.levers.Lock()
	defer n.levers.Unlock()
	n.setNotReady("")
	if err := n.connect(ctx); err != nil {
		return fmt.Errorf("reconnect node %s: %w", node, err)
	}
	n.power(true)
	return nil
}

// PowerOff simulates the sudden death of the machine: Disconnect, and every process is killed. Unlike with a dead machine,
// peers of the processes notice, since this machine's kernel closes their connections at once. It returns when the
// processes are dead.
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

// leastGrace is the minimum grace period of an eviction (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
const leastGrace = 2 * time.Second

// Evict does to a pod what a kubelet does under node pressure: its containers are stopped, and killed after the grace of a
// soft eviction (none for a hard one), but at least leastGrace. Only when all have ended is the pod reported as Failed,
// with the reason Evicted, that message, and the condition DisruptionTarget (TerminationByKubelet). The object stays. Evict
// returns at once.
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

// LimitsMemory returns why memory limits of containers are not enforced on this machine; nil if they are.
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
