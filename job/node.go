package job

import (
	"slices"
	"time"
)

// NodeRecord is what is stored about a node: what operators asked of it, and the incidents whose cause lay in it.
type NodeRecord struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	// Override keeps new slots off the node; nil if nothing does. Its path is PathCordon, or PathDrain if running slots are to leave.
	Override *Override `json:"override,omitempty"`
	// Handled are requests that have taken effect, as in a Record.
	Handled []Handled `json:"handled,omitempty"`
	// Incidents are those of all jobs whose cause lay in the node, oldest first.
	Incidents []NodeIncident `json:"incidents,omitempty"`
	// Mark is its last one; nil if it has had none for long.
	Mark *NodeMark `json:"mark,omitempty"`
}

// NodeIncident is an incident whose cause lay in a node, or a check in which it was slow.
type NodeIncident struct {
	At    time.Time `json:"at"`
	Job   string    `json:"job"` // as it was called then
	Cause Cause     `json:"cause"`
	Why   []Reason  `json:"why,omitempty"` // what a check has found
}

// NodeMark lets a node be used last for a while.
type NodeMark struct {
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	Times int       `json:"times"` // how often it has been marked, with pauses of less than the longest mark
	Why   []Reason  `json:"why"`
}

// The overrides of a node.
const (
	PathCordon = "cordon"
	PathDrain  = "drain"
)

// NodePrefix begins the addresses of nodes.
const NodePrefix = "node."

// NodeAddress returns the address of a node by its name, as in requests, conditions and notices.
func NodeAddress(name string) string { return NodePrefix + name }

// Draining reports whether running slots are to leave the node.
func (n *NodeRecord) Draining() bool { return n.Override != nil && n.Override.Path == PathDrain }

// Marked reports whether the node is used last.
func (n *NodeRecord) Marked(now time.Time) bool { return n.Mark != nil && now.Before(n.Mark.Until) }

// Empty reports whether nothing is recorded about the node.
func (n *NodeRecord) Empty() bool {
	return n.Override == nil && len(n.Handled) == 0 && len(n.Incidents) == 0 && n.Mark == nil
}

// InEffect returns what has become of a request in effect for this node; nil if it is not in effect.
func (n *NodeRecord) InEffect(id string) *Handled {
	if i := slices.IndexFunc(n.Handled, func(h Handled) bool { return h.ID == id }); i >= 0 {
		return &n.Handled[i]
	}
	return nil
}

// Clone returns a copy that shares nothing that may be edited.
func (n NodeRecord) Clone() NodeRecord {
	n.Handled, n.Incidents = slices.Clone(n.Handled), slices.Clone(n.Incidents)
	return n
}
