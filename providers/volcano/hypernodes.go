package volcano

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"volcano.sh/apis/pkg/apis/topology/v1alpha1"

	"github.com/eltrain/eltrain/job"
)

// tierLabel is the label with a node's HyperNode of a tier, for topology.rank_by:
// ["node.labels.hypernode.eltrain.dev/tier-2", "node.labels.hypernode.eltrain.dev/tier-1"]. Listed from the highest tier
// to the lowest, they order ranks like a depth-first walk of the network's tree.
func tierLabel(tier int) string { return fmt.Sprintf("hypernode.eltrain.dev/tier-%d", tier) }

// network is the tree of HyperNodes, indexed to find those of a node. Volcano allows one parent; of several, the first by
// name counts.
type network struct {
	names   map[string]*v1alpha1.HyperNode
	leaves  []leaf            // HyperNodes with nodes, by name
	parents map[string]string // of HyperNodes, by name
}

// leaf is a HyperNode and the selectors of its nodes.
type leaf struct {
	name string
	has  []func(*job.Node) bool
}

// newNetwork reads HyperNodes. An invalid selector selects nothing: Volcano rejects it.
func newNetwork(all []*v1alpha1.HyperNode) *network {
	n := &network{names: map[string]*v1alpha1.HyperNode{}, parents: map[string]string{}}
	for _, h := range all {
		n.names[h.Name] = h
	}
	for _, name := range sorted(n.names) {
		l := leaf{name: name}
		for _, m := range n.names[name].Spec.Members {
			if m.Type == v1alpha1.MemberTypeNode {
				l.has = append(l.has, selects(m.Selector))
				continue
			}
			of := selects(m.Selector)
			for _, child := range sorted(n.names) {
				if _, has := n.parents[child]; !has && child != name && of(&job.Node{Name: child}) {
					n.parents[child] = name
				}
			}
		}
		if len(l.has) > 0 {
			n.leaves = append(n.leaves, l)
		}
	}
	return n
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// selects compiles a selector of nodes, or of HyperNodes by name.
func selects(s v1alpha1.MemberSelector) func(*job.Node) bool {
	switch {
	case s.ExactMatch != nil:
		return func(n *job.Node) bool { return n.Name == s.ExactMatch.Name }
	case s.RegexMatch != nil:
		if pattern, err := regexp.Compile(s.RegexMatch.Pattern); err == nil {
			return func(n *job.Node) bool { return pattern.MatchString(n.Name) }
		}
	case s.LabelMatch != nil:
		if selector, err := metav1.LabelSelectorAsSelector(s.LabelMatch); err == nil {
			return func(n *job.Node) bool { return selector.Matches(labels.Set(n.Labels)) }
		}
	}
	return func(*job.Node) bool { return false }
}

// tiers are the network's labels of a node: its HyperNode and all ancestors of that; nil if it is in none.
func (n *network) tiers(node *job.Node) map[string]string {
	i := slices.IndexFunc(n.leaves, func(l leaf) bool {
		return slices.ContainsFunc(l.has, func(has func(*job.Node) bool) bool { return has(node) })
	})
	if i < 0 {
		return nil
	}
	at := map[string]string{}
	seen := map[string]bool{} // in case HyperNodes form a cycle
	for name := n.leaves[i].name; name != "" && !seen[name]; name = n.parents[name] {
		seen[name] = true
		at[tierLabel(n.names[name].Spec.Tier)] = name
	}
	return at
}
