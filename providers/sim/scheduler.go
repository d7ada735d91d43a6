package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// notReady is why nothing new comes to a node that is silent.
const notReady = "not ready"

// reschedule lets the scheduler look in a moment, where there is one.
func (c *Cluster) reschedule() {
	if c.Schedules {
		c.After(BindTime, c.schedule)
	}
}

// schedule binds what waits, in the order of the launches, each to the node that has the most left, or the least if it packs:
// not where the planner would have it.
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

// choose is the open node with room that has the most CPU left, or the least; "" if none has room.
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

// left is what a node has free.
func (c *Cluster) left(n job.Node) job.Resources {
	left := n.Capacity.Sub(n.Foreign)
	for _, a := range c.agents {
		if !a.gone && a.node == n.Name {
			left = left.Sub(a.launch.Reserved)
		}
	}
	return left
}

// unreachable reports whether the agent's node is silent or gone: nobody learns of its end.
func (c *Cluster) unreachable(a *Agent) bool {
	i := slices.IndexFunc(c.nodes, func(n job.Node) bool { return n.Name == a.node })
	return c.Schedules && a.node != "" && (i < 0 || c.nodes[i].Closed == notReady)
}

// NotReady cuts a node off, with all that is on it.
func (c *Cluster) NotReady(name string) { c.reach(name, notReady, (*Agent).Silence) }

// Ready lets a node be heard of again. What was ordered to end meanwhile ends.
func (c *Cluster) Ready(name string) { c.reach(name, "", (*Agent).Wake) }

func (c *Cluster) reach(name, closed string, each func(*Agent)) {
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

// DeleteNode takes a node away with its machine. What was on it is reported as lost with it.
func (c *Cluster) DeleteNode(name string) {
	for _, a := range c.Agents() {
		if a.node == name {
			c.PutOut(a, job.NodeGone)
		}
	}
	c.RemoveNode(name)
}

// PutOut ends an agent for a reason of the cluster's own: it is told to stop first, as a pod that is evicted.
func (c *Cluster) PutOut(a *Agent, cause job.Cause) {
	if a.gone {
		return
	}
	a.cause = cause
	c.end(a, &job.Exit{Code: 143, Signal: "terminated", At: c.now}, job.EndLeft)
}
