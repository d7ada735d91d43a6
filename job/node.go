package job

import "slices"

// NodeRecord is what is stored about a node: what operators asked of it.
type NodeRecord struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	// Override keeps new slots off the node; nil if nothing does. Its path is PathCordon, or PathDrain if running slots are to leave.
	Override *Override `json:"override,omitempty"`
	// Handled are requests that have taken effect, as in a Record.
	Handled []Handled `json:"handled,omitempty"`
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

// InEffect returns what has become of a request in effect for this node; nil if it is not in effect.
func (n *NodeRecord) InEffect(id string) *Handled {
	if i := slices.IndexFunc(n.Handled, func(h Handled) bool { return h.ID == id }); i >= 0 {
		return &n.Handled[i]
	}
	return nil
}

// Clone returns a copy that shares nothing that may be edited.
func (n NodeRecord) Clone() NodeRecord {
	n.Handled = slices.Clone(n.Handled)
	return n
}
