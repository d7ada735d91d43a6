package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// notReady is why an unreachable node is closed.
const notReady = "not ready"

// reschedule runs the scheduler, if there is one, after BindTime.
func (c *Cluster) reschedule() {
	if c.Schedules {
		c.After(BindTime, c.schedule)
	}
}

// schedule binds waiting agents, in the order of their launches, each to the node that has the most left, or the least if it
// packs. It ignores the planner's hints.
func (c *Cluster) schedule() {
	waiting := slices.DeleteFunc(c.Agents(), func(a *Agent) bool { return a.node != "" || a.silent })
	slices.SortFunc(waiting, func(a, b *Agent) int { return cmp.Compare(a.launched, b.launched) })
	for _, a := range waiting {
		if node := c.choose(a.launch.Reserved); node != "" {
			c.log("bind %s incarnation %d to %s", a.launch.Slot.Short(), a.launch.Incarnation, node)
			a.begin(node)
			c.changed()
			continue
		}
		why := fmt.Sprintf("Unschedulable: 0/%d nodes are available", len(c.nodes))
		if a.waiting != why {
			a.waiting = why
			c.changed()
		}
	}
}

// choose returns the open node with room that has the most CPU left, or the least if it packs; "" if none has room.
func (c *Cluster) choose(need job.Resources) string {
	best, most := "", job.CPU(0)
	for _, n := range c.nodes {
		left := c.left(n)
		if n.Closed != "" || n.Drained != "" || !need.Fits(left) {
			continue
		}
		more := cmp.Compare(left.CPU, most)
		if c.Packs {
			more = -more
		}
		if best == "" || cmp.Or(more, cmp.Compare(n.Name, best)) > 0 {
			best, most = n.Name, left.CPU
		}
	}
	return best
}

// left returns a node's free resources.
func (c *Cluster) left(n job.Node) job.Resources {
	left := n.Capacity.Sub(n.Foreign)
	for _, a := range c.agents {
		if !a.gone && a.node == n.Name {
			left = left.Sub(a.launch.Reserved)
		}
	}
	return left
}

// unreachable reports whether the agent's node is not ready or gone, so that a stop cannot be confirmed.
func (c *Cluster) unreachable(a *Agent) bool {
	i := slices.IndexFunc(c.nodes, func(n job.Node) bool { return n.Name == a.node })
	return c.Schedules && a.node != "" && (i < 0 || c.nodes[i].Closed == notReady)
}

// NotReady cuts off a node and its agents.
func (c *Cluster) NotReady(name string) { c.setReachable(name, notReady, (*Agent).Silence) }

// Ready reconnects a node. Agents whose stop was requested meanwhile end.
func (c *Cluster) Ready(name string) { c.setReachable(name, "", (*Agent).Wake) }

func (c *Cluster) setReachable(name, closed string, each func(*Agent)) {
	for _, n := range c.nodes {
		if n.Name == name {
			n.Closed = closed
			c.SetNode(n)
		}
	}
	for _, a := range c.Agents() {
		if a.node == name {
			each(a)
		}
	}
}

// DeleteNode removes a node and its machine. Its agents end with the cause job.NodeGone.
func (c *Cluster) DeleteNode(name string) {
	for _, a := range c.Agents() {
		if a.node == name {
			c.Terminate(a, job.NodeGone)
		}
	}
	c.RemoveNode(name)
}

// Terminate ends an agent for a reason of the cluster, with SIGTERM, like an evicted pod.
func (c *Cluster) Terminate(a *Agent, cause job.Cause) {
	if a.gone {
		return
	}
	a.cause = cause
	c.end(a, &job.Exit{Code: 143, Signal: "terminated", At: c.Now()}, job.EndLeft)
}
