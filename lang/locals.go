package lang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// local is one named value. Locals may refer to each other in any order, as long as they do not go round.
type local struct {
	attr  *hclsyntax.Attribute
	state visit
	value cty.Value
}

// visit is how far a depth-first walk is with a node.
type visit int

const (
	unvisited visit = iota
	visiting
	visited
)

func (l *loader) locals() {
	var order []*local
	for _, b := range l.blocks["locals"] {
		for _, inner := range b.Body.Blocks {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Unsupported block type",
				Detail:  "A locals block has only lines of the form NAME = VALUE.",
				Subject: inner.TypeRange.Ptr(),
			})
		}
		for name, attr := range b.Body.Attributes {
			if first := l.localDefs[name]; first != nil {
				l.report(duplicateLocal(first.attr, attr))
				continue
			}
			l.localDefs[name] = &local{attr: attr}
			order = append(order, l.localDefs[name])
		}
	}
	// Attributes come in no order; cycles are to be told the same way every time.
	slices.SortFunc(order, func(a, b *local) int {
		return cmp.Or(strings.Compare(a.attr.NameRange.Filename, b.attr.NameRange.Filename), a.attr.NameRange.Start.Byte-b.attr.NameRange.Start.Byte)
	})
	for _, v := range order {
		l.checkExpr(&v.attr.Expr, scope{vars: true, locals: true, where: "a locals block"})
	}
	for _, v := range order {
		l.visitLocal(v, nil)
	}
	l.ctx.Variables["local"] = l.localsObject(l.localDefs)
}

func duplicateLocal(a, b *hclsyntax.Attribute) *hcl.Diagnostic {
	// Attributes of a body come in no order: blame the later one.
	if a.NameRange.Filename == b.NameRange.Filename && a.NameRange.Start.Byte > b.NameRange.Start.Byte {
		a, b = b, a
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  fmt.Sprintf("Duplicate local value %q", b.Name),
		Detail:   fmt.Sprintf("It is defined already, at %s:%d. Give one of them another name.", a.NameRange.Filename, a.NameRange.Start.Line),
		Subject:  b.NameRange.Ptr(),
	}
}

// visitLocal evaluates a local after those that it refers to. path is how the walk came here.
func (l *loader) visitLocal(v *local, path []*local) {
	switch v.state {
	case visited:
		return
	case visiting:
		var names []string
		for i := len(path) - 1; i >= 0; i-- {
			names = append([]string{"local." + path[i].attr.Name}, names...)
			if path[i] == v {
				break
			}
		}
		names = append(names, names[0])
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Local values in a cycle",
			Detail:   fmt.Sprintf("Each needs the next one's value: %s. Break the cycle.", strings.Join(names, " -> ")),
			Subject:  v.attr.Expr.Range().Ptr(),
		})
		v.attr.Expr = &broken{v.attr.Expr}
		return
	}
	v.state = visiting
	used := map[string]*local{}
	for _, ref := range v.attr.Expr.Variables() {
		name, ok := attrName(ref, 1)
		if !ok || ref.RootName() != "local" || l.localDefs[name] == nil {
			continue
		}
		l.visitLocal(l.localDefs[name], append(path, v))
		used[name] = l.localDefs[name]
	}
	v.state = visited
	ctx := l.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"var": l.ctx.Variables["var"], "local": l.localsObject(used)}
	val, diags := v.attr.Expr.Value(ctx)
	l.report(diags...)
	if diags.HasErrors() {
		val = cty.DynamicVal
	}
	v.value = val
}

func (l *loader) localsObject(defs map[string]*local) cty.Value {
	values := make(map[string]cty.Value, len(defs))
	for name, v := range defs {
		values[name] = v.value
		if v.value == cty.NilVal {
			values[name] = cty.DynamicVal // part of a cycle, which was reported
		}
	}
	return cty.ObjectVal(values)
}
