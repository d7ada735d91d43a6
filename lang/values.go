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

// named is a value that is referred to by name: local.NAME, or a module's outputs, module.NAME. Such values may
// refer to each other in any order, but not in a cycle.
type named struct {
	address string
	at      hcl.Range // of its name
	exprs   []*hclsyntax.Expression
	// make evaluates it in a context with the named values that it refers to.
	make  func(*hcl.EvalContext) cty.Value
	state visit
	value cty.Value
}

// visit is the state of a node in a depth-first walk.
type visit int

const (
	unvisited visit = iota
	visiting
	visited
)

// values evaluates locals and modules in dependency order.
func (l *loader) values() {
	order := append(l.declareLocals(), l.declareCalls()...)
	slices.SortFunc(order, func(a, b *named) int {
		return cmp.Or(strings.Compare(a.at.Filename, b.at.Filename), a.at.Start.Byte-b.at.Start.Byte)
	})
	for _, v := range l.locals {
		l.checkExpr(v.exprs[0], scope{vars: true, locals: true, modules: true, where: "a locals block"})
	}
	for _, c := range l.calls {
		l.checkCallExpressions(c)
	}
	for _, v := range order {
		l.visitNamed(v, nil)
	}
	l.ctx.Variables["local"] = namedObject(l.locals)
	modules := map[string]*named{}
	for name, c := range l.calls {
		modules[name] = &c.named
	}
	l.ctx.Variables["module"] = namedObject(modules)
}

func (l *loader) declareLocals() []*named {
	var order []*named
	for _, b := range l.blocks["locals"] {
		for _, inner := range b.Body.Blocks {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Unsupported block type",
				Detail:  "A locals block can only contain lines of the form NAME = VALUE.",
				Subject: inner.TypeRange.Ptr(),
			})
		}
		for name, attr := range b.Body.Attributes {
			if first := l.locals[name]; first != nil {
				l.report(duplicateLocal(name, first.at, attr.NameRange))
				continue
			}
			v := &named{address: "local." + name, at: attr.NameRange, exprs: []*hclsyntax.Expression{&attr.Expr}}
			v.make = func(ctx *hcl.EvalContext) cty.Value {
				val, diags := attr.Expr.Value(ctx)
				l.report(diags...)
				if diags.HasErrors() {
					return cty.DynamicVal
				}
				return val
			}
			l.locals[name] = v
			order = append(order, v)
		}
	}
	return order
}

func duplicateLocal(name string, a, b hcl.Range) *hcl.Diagnostic {
	// The attributes of a body are unordered: report the later one.
	if a.Filename == b.Filename && a.Start.Byte > b.Start.Byte {
		a, b = b, a
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  fmt.Sprintf("Duplicate local value %q", name),
		Detail:   fmt.Sprintf("It is already defined, at %s:%d. Rename one of them.", a.Filename, a.Start.Line),
		Subject:  &b,
	}
}

// visitNamed evaluates a value after those that it refers to. path holds the values being visited.
func (l *loader) visitNamed(v *named, path []*named) {
	switch v.state {
	case visited:
		return
	case visiting:
		l.report(namedCycle(path[slices.Index(path, v):]))
		for _, expr := range v.exprs {
			*expr = &broken{*expr}
		}
		return
	}
	v.state = visiting
	locals, modules := map[string]*named{}, map[string]*named{}
	for _, expr := range v.exprs {
		for _, ref := range (*expr).Variables() {
			name, _ := attrName(ref, 1)
			switch needed := l.locals[name]; {
			case ref.RootName() == "local" && needed != nil:
				l.visitNamed(needed, append(path, v))
				locals[name] = needed
			case ref.RootName() == "module" && l.calls[name] != nil:
				l.visitNamed(&l.calls[name].named, append(path, v))
				modules[name] = &l.calls[name].named
			}
		}
	}
	v.state = visited
	ctx := l.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"var": l.ctx.Variables["var"], "local": namedObject(locals), "module": namedObject(modules)}
	v.value = v.make(ctx)
}

// namedCycle returns the diagnostic of values that refer to each other in a cycle.
func namedCycle(cycle []*named) *hcl.Diagnostic {
	summary := "Local values in a cycle"
	var names []string
	for _, v := range append(cycle, cycle[0]) {
		names = append(names, v.address)
		if !strings.HasPrefix(v.address, "local.") {
			summary = "Values in a cycle"
		}
	}
	at := cycle[0].at
	if expr := cycle[0].exprs; summary == "Local values in a cycle" {
		at = (*expr[0]).Range()
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  summary,
		Detail:   fmt.Sprintf("Each needs the next one's value: %s. Break the cycle.", strings.Join(names, " -> ")),
		Subject:  &at,
	}
}

func namedObject(defs map[string]*named) cty.Value {
	values := make(map[string]cty.Value, len(defs))
	for name, v := range defs {
		values[name] = v.value
		if v.value == cty.NilVal {
			values[name] = cty.DynamicVal // part of a cycle, which was reported
		}
	}
	return cty.ObjectVal(values)
}
