package lang

import (
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// follow makes tables of the counts that refer to the replicas of an elastic role: they are evaluated for each of its legal sizes.
func (l *loader) follow(e *jobEval, roles []job.Role) {
	trees := e.tree.blocks["role"]
	elastic := map[string]int{} // indexes by the address of their replicas
	for i, t := range trees {
		if t.block("scaling") != nil {
			elastic["role."+t.label()+".replicas"] = i
		}
	}
	if len(elastic) == 0 {
		return
	}
	for i, t := range trees {
		attr := t.attrs["replicas"]
		if attr == nil || t.block("scaling") != nil || t.failed["scaling"] || !refersTo(attr.Expr, "role") || !t.sound("replicas") {
			continue
		}
		leaders := e.reached(attr, func(n *node) bool { _, is := elastic[n.address]; return is })
		switch len(leaders) {
		case 0:
		case 1:
			at := elastic[leaders[0].address]
			l.followOne(e, &roles[i], t, &roles[at], trees[at], leaders[0])
		default:
			l.complain(t.at("replicas"), t, "Count follows two roles", "replicas depends on both %s and %s, which scale on their own. A count can follow one elastic role.",
				leaders[0].address, leaders[1].address)
			t.failed["replicas"] = true
		}
	}
}

// followOne makes the table of one role, which follows leader.
func (l *loader) followOne(e *jobEval, r *job.Role, t *tree, leader *job.Role, leaderTree *tree, pin *node) {
	if !soundBlock(leaderTree.block("scaling")) || leader.Scaling.Min < 1 || leader.Scaling.Max > MaxSlots || !leaderTree.sound("replicas") {
		return // reported there
	}
	own := "role." + t.label() + ".replicas"
	for _, n := range e.nodes {
		if !strings.HasPrefix(n.address, "role."+leaderTree.label()+".scaling.") || n.attr == nil {
			continue
		}
		if len(e.reached(n.attr, func(n *node) bool { return n.address == own })) > 0 {
			l.complain(t.at("replicas"), t, "Values in a cycle", "%s follows %s, whose bounds depend on it (%s). Break the cycle.", own, pin.address, n.address)
			t.failed["replicas"] = true
			return
		}
	}
	attr, table := t.attrs["replicas"], &job.Follows{Role: leader.Name}
	field, _ := fieldNamed(t.typ, "replicas")
	d := decoder{l: l, eval: e.value}
	start := pin.value
	defer func() { e.pin(pin, start) }()
	for size := range leader.Sizes().All() {
		e.pin(pin, cty.NumberVal(new(big.Float).SetInt64(int64(size))))
		n := 0
		val, ctx, diags := e.value(attr)
		l.report(diags...)
		if diags.HasErrors() || !d.store(reflect.ValueOf(&n).Elem(), field, attr, val, ctx) {
			t.failed["replicas"] = true
			return
		}
		if n < 1 || n > MaxSlots {
			l.complain(t.at("replicas"), t, "Invalid number of replicas", "It is %d while %s is %d, which is a legal size: a role has 1 to %d slots.", n, pin.address, size, MaxSlots)
			t.failed["replicas"] = true
			return
		}
		table.Add(size, n)
	}
	if len(table.Counts) > 0 {
		r.Follows, r.Replicas = table, table.At(leader.Replicas)
	}
}

// reached lists the nodes that match, of those that an argument depends on. What these depend on in turn does not count.
func (e *jobEval) reached(attr *hcl.Attribute, match func(*node) bool) (found []*node) {
	seen := map[*node]bool{}
	var walk func(expr hcl.Expression)
	walk = func(expr hcl.Expression) {
		for _, ref := range expr.Variables() {
			if ref.RootName() != "role" {
				continue
			}
			for _, n := range e.named(ref) {
				if seen[n] {
					continue
				}
				seen[n] = true
				switch {
				case match(n):
					found = append(found, n)
				case n.attr != nil:
					walk(n.attr.Expr)
				}
			}
		}
	}
	walk(attr.Expr)
	slices.SortFunc(found, func(a, b *node) int { return strings.Compare(a.address, b.address) })
	return found
}

// pin sets the value of a node. Those that may depend on it are evaluated again when they are needed.
func (e *jobEval) pin(n *node, value cty.Value) {
	for _, other := range e.nodes {
		if other.attr != nil && refersTo(other.attr.Expr, "role") {
			other.state, other.failed = unvisited, false
		}
	}
	n.state, n.failed, n.value = visited, false, value
}

// start is where an elastic role begins that does not say so: its smallest legal size.
func (e *jobEval) start(n *node, from hcl.Range) hcl.Diagnostics {
	prefix, s := strings.TrimSuffix(n.address, "replicas")+"scaling.", job.Scaling{}
	n.state = visiting
	e.path = append(e.path, n)
	defer func() { e.path, n.state = e.path[:len(e.path)-1], visited }()
	v := reflect.ValueOf(&s).Elem()
	for _, f := range job.Fields(v.Type()) {
		b := e.nodes[prefix+f.Name]
		if b == nil || !slices.Contains([]string{"min", "max", "step", "sizes"}, f.Name) {
			continue
		}
		if diags := e.visit(b, from); diags.HasErrors() {
			n.failed, n.value = true, cty.DynamicVal
			return diags
		}
		plain, _ := b.value.UnmarkDeep()
		switch {
		case plain.IsNull():
		case !plain.IsWhollyKnown():
			n.value = cty.UnknownVal(cty.Number)
			return nil
		case setGo(v.FieldByIndex(f.Index), plain) != nil:
			n.value = cty.UnknownVal(cty.Number) // the decoder reports it
			return nil
		}
	}
	r := job.Role{Scaling: &s}
	if s.Min >= 1 && s.Max <= MaxSlots {
		n.value = cty.NumberIntVal(int64(r.Sizes().Least()))
	}
	return nil
}
