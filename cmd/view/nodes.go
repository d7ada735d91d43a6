package view

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// NodesFormat is the version of the JSON of nodes. A new minor version only adds fields.
const NodesFormat = "1.0"

// NodesModel is all that `eltrain nodes` shows.
type NodesModel struct {
	FormatVersion string       `json:"format_version"`
	Nodes         []NodeStatus `json:"nodes"` // by provider and name
	// Unobserved says why the nodes of a provider are missing, by provider.
	Unobserved map[string]string `json:"unobserved"`
}

// NodeStatus is one node.
type NodeStatus struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"`
	Labels   map[string]string `json:"labels"`
	Unlisted bool              `json:"unlisted,omitempty"` // its provider does not list it
	Capacity NodeAmount        `json:"capacity"`
	Foreign  NodeAmount        `json:"foreign"` // part of the capacity that others use
	Free     NodeAmount        `json:"free"`
	MaxSlots int               `json:"max_slots,omitempty"` // 0: unlimited
	Slots    []NodeSlot        `json:"slots"`               // by address
	Usable   bool              `json:"usable"`              // new slots may be placed there
	Cordon   *NodeCordon       `json:"cordon,omitempty"`
	Mark     *NodeMark         `json:"mark,omitempty"`
	Reasons  []string          `json:"reasons"` // why it is not used, or not by all

	ReasonCodes []job.Reason `json:"reason_codes"` // the same in codes; see docs/reasons.md
}

// NodeAmount is what a node has of each resource.
type NodeAmount struct {
	CPU     float64        `json:"cpu"` // cores
	Memory  int64          `json:"memory_bytes"`
	Devices map[string]int `json:"devices"`

	text string
}

// NodeSlot is what a slot holds of a node.
type NodeSlot struct {
	Address     string     `json:"address"`
	Incarnation int        `json:"incarnation"` // 0: it has none yet
	Holds       NodeAmount `json:"holds"`
	Leaving     bool       `json:"leaving,omitempty"`

	slot job.Address
}

// NodeCordon says which operator keeps new slots off a node.
type NodeCordon struct {
	Drain   bool       `json:"drain,omitempty"` // running slots are to leave
	By      string     `json:"by"`
	At      time.Time  `json:"at"`
	Why     string     `json:"why,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	Request string     `json:"request"` // its ID
}

// NodeMark says since when and until when a node is used last. Reasons say why.
type NodeMark struct {
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	Times int       `json:"times"` // how often it has been marked lately
}

// NodeList returns the nodes for display.
func NodeList(all apply.Nodes, r *Redactor) NodesModel {
	m := NodesModel{FormatVersion: NodesFormat, Nodes: []NodeStatus{}, Unobserved: map[string]string{}}
	for i := range all.Nodes {
		m.Nodes = append(m.Nodes, nodeStatus(&all.Nodes[i], r))
	}
	for provider, why := range all.Unobserved {
		m.Unobserved[provider] = r.Text(why)
	}
	return m
}

func nodeStatus(u *plan.NodeUse, r *Redactor) NodeStatus {
	n := NodeStatus{
		Name: u.Name, Provider: u.Provider, Labels: u.Labels, Unlisted: u.Unlisted, MaxSlots: u.Node.Slots, Usable: u.Usable, Slots: []NodeSlot{},
		Capacity: nodeAmount(u.Capacity), Foreign: nodeAmount(u.Foreign), Free: nodeAmount(u.Free),
		Reasons: r.Sentences(u.Reasons), ReasonCodes: r.Reasons(u.Reasons),
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	for _, h := range u.Held {
		n.Slots = append(n.Slots, NodeSlot{h.Slot.String(), h.Incarnation, nodeAmount(h.Resources), h.Leaving, h.Slot})
	}
	if o := u.Override; o != nil {
		n.Cordon = &NodeCordon{Drain: o.Path == job.PathDrain, By: o.By, At: o.At, Why: r.Text(o.Why), Request: o.Request}
		if !o.Until.IsZero() {
			n.Cordon.Until = &o.Until
		}
	}
	if m := u.Mark; m != nil {
		n.Mark = &NodeMark{m.At, m.Until, m.Times}
	}
	return n
}

func nodeAmount(a job.Resources) NodeAmount {
	devices := a.Devices
	if devices == nil {
		devices = map[string]int{}
	}
	return NodeAmount{float64(a.CPU) / 1000, int64(a.Memory), devices, a.String()}
}

// Names are the names of the nodes.
func (m *NodesModel) Names() []string {
	names := make([]string, len(m.Nodes))
	for i := range m.Nodes {
		names[i] = m.Nodes[i].Name
	}
	return names
}

// Select keeps the nodes with these names.
func (m NodesModel) Select(names []string) NodesModel {
	m.Nodes = slices.DeleteFunc(slices.Clone(m.Nodes), func(n NodeStatus) bool { return !slices.Contains(names, n.Name) })
	return m
}

// WriteNodes shows nodes to a person: a list, or all of each.
func WriteNodes(s Screen, m NodesModel, brief bool) error {
	var b bytes.Buffer
	switch {
	case len(m.Nodes) == 0:
		b.WriteString("No nodes.\n")
	case brief:
		s.nodeList(&b, m)
	default:
		for i := range m.Nodes {
			if i > 0 {
				b.WriteString("\n")
			}
			s.nodeText(&b, &m.Nodes[i])
		}
	}
	if len(m.Unobserved) > 0 {
		b.WriteString("\n")
		for _, provider := range slices.Sorted(maps.Keys(m.Unobserved)) {
			s.reason(&b, "The nodes of provider "+provider+" are not known: "+m.Unobserved[provider])
		}
	}
	_, err := s.Write(b.Bytes())
	return err
}

// nodeList shows one line a node.
func (s Screen) nodeList(b *bytes.Buffer, m NodesModel) {
	rows := [][]string{{"NODE", "PROVIDER", "CAPACITY", "FREE", "HELD BY", "WHY"}}
	lines, more := []style{faint}, false
	for i := range m.Nodes {
		n := &m.Nodes[i]
		why, look := "", style("")
		if len(n.Reasons) > 0 {
			why, more = begins(n.Reasons[0], maxBrief), true
		}
		if !n.Usable {
			look = yellow
		}
		rows = append(rows, []string{n.Name, n.Provider, n.Capacity.text, n.Free.text, dash(n.holders()), why})
		lines = append(lines, look)
	}
	for i, line := range aligned(rows) {
		if lines[i] != "" { // only what cannot be used stands out
			line = s.paint(line, lines[i])
		}
		b.WriteString(line + "\n")
	}
	if more {
		b.WriteString("\nFor all of a node: eltrain nodes NODE\n")
	}
}

// maxHolders is how many roles with slots on a node a list names.
const maxHolders = 3

// holders folds the slots of a node.
func (n *NodeStatus) holders() string {
	var order []job.Selector
	indices := map[string][]int{}
	for i := range n.Slots {
		a := n.Slots[i].slot
		role := job.Selector{Job: a.Job, Role: a.Role}
		if indices[role.String()] == nil {
			order = append(order, role)
		}
		indices[role.String()] = append(indices[role.String()], a.Index)
	}
	var texts []string
	for i, role := range order {
		if i == maxHolders {
			texts = append(texts, "and "+plural(len(order)-i, "more role"))
			break
		}
		texts = append(texts, "job."+role.Job+"."+fold(role.Role, indices[role.String()]))
	}
	return strings.Join(texts, ", ")
}

// nodeText shows all of a node.
func (s Screen) nodeText(b *bytes.Buffer, n *NodeStatus) {
	head := n.Name + "  " + n.Provider
	if n.Usable {
		b.WriteString(s.paint(head, bold) + "\n")
	} else {
		b.WriteString(s.paint(head+"  not used", bold, yellow) + "\n")
	}
	for _, why := range n.Reasons {
		s.reason(b, why)
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		labels = append(labels, name+"="+n.Labels[name])
	}
	rows := [][]string{{"  capacity", n.Capacity.text}, {"  others", n.Foreign.text}, {"  free", n.Free.text}, {"  slots", "at most " + itoa(n.MaxSlots)}, {"  labels", strings.Join(labels, ", ")}}
	rows = slices.DeleteFunc(rows, func(row []string) bool {
		return row[0] == "  slots" && n.MaxSlots == 0 || row[1] == "" || row[0] == "  others" && row[1] == nodeAmount(job.Resources{}).text
	})
	for _, line := range aligned(rows) {
		b.WriteString(line + "\n")
	}
	if len(n.Slots) == 0 {
		return
	}
	held := [][]string{{"SLOT", "INCARNATION", "HOLDS", ""}}
	for i := range n.Slots {
		h := &n.Slots[i]
		leaving := ""
		if h.Leaving {
			leaving = "leaving"
		}
		held = append(held, []string{h.Address, orDash(h.Incarnation, 0), h.Holds.text, leaving})
	}
	s.table(b, held)
}
